"""Impossible messages are refused before anything changes; all others leave a core whole."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog.messages import acknowledgement, append_entries, install_snapshot, refusal

from barnabas_raftlog.errors import ImpossibleMessageError
from barnabas_raftlog.raft.core import RaftCore, Role
from barnabas_raftlog.raft.messages import (
    TERM_MAX,
    AppendEntries,
    AppendResponse,
    Entry,
    InstallSnapshot,
    LeadershipEnded,
    Message,
    PeerDigest,
    Removed,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from barnabas_raftlog.raft.progress import Progress
from barnabas_raftlog.raft.state import RaftState

from .group import Group

FAR = 10**6
FURTHEST = (1 << 62) - 1


def busy(*, witnesses: tuple[int, ...] = ()) -> Group:
    """Node 1 leads term 1 of three; the last of its five entries is acknowledged by nobody yet."""
    group = Group([1, 2, 3], witnesses=witnesses)
    group.elect()
    group.propose(1, "a", "b")
    group.settle()
    group.propose(1, "c")
    group.deliver(1, 2)
    group.deliver(1, 3)
    group.inbox.clear()
    group.propose(1, "d")
    group.inbox.clear()
    assert (group.cores[1].commit_index, group.disks[1].log.last_index) == (3, 5)
    assert (group.cores[2].commit_index, group.cores[2].verified_index, group.disks[2].log.last_index) == (3, 4, 4)
    return group


def state(core: RaftCore) -> dict[str, Any]:
    """Return all that a core holds, in a form that can be compared, but for the time."""
    shown = {name: getattr(core, name) for name in RaftState.__slots__ if name != "now_ms"}
    shown["progress"] = {
        peer: {name: repr(getattr(progress, name)) for name in Progress.__slots__ if name != "ends"}
        for peer, progress in core.progress.items()
    }
    for name in ("log", "timing", "rng", "ends", "snapshot_source", "busy_peers", "round_trip"):
        shown[name] = id(shown[name])
    return {name: repr(value) for name, value in shown.items()}


def entries(start_index: int, *terms: int) -> list[Entry]:
    return [Entry(index, term, b"forged") for index, term in enumerate(terms, start_index)]


def append(
    prev_index: int, *sent: Entry, term: int = 1, commit_index: int = 3, round_: int = 99, source: int = 1
) -> AppendEntries:
    return append_entries(
        term=term,
        source=source,
        target=2,
        prev_index=prev_index,
        prev_term=1,
        commit_index=commit_index,
        round=round_,
        entries=sent,
    )


IMPOSSIBLE: dict[str, tuple[int, Message, str]] = {
    "acknowledges what is not there": (
        1,
        acknowledgement(term=1, source=2, target=1, match_index=FAR, round=1),
        "acknowledges entry 1000000 of a leader whose log ends at 5",
    ),
    "acknowledges one entry too many": (
        1,
        acknowledgement(term=1, source=2, target=1, match_index=6, round=1),
        "acknowledges entry 6",
    ),
    "refuses what was never sent": (
        1,
        refusal(term=1, source=2, target=1, refused_index=FAR, round=1, hint_index=FAR, hint_term=1),
        "refuses what follows entry 1000000",
    ),
    "may have forgotten what is not there": (
        1,
        acknowledgement(term=1, source=2, target=1, match_index=6, round=1, uncertain=7),
        "acknowledges entry 6",
    ),
    "appends in the term of this leader": (
        1,
        append_entries(
            term=1, source=2, target=1, prev_index=5, prev_term=1, commit_index=3, round=1, entries=entries(6, 1)
        ),
        "leads in term 1, in which node 1 leads",
    ),
    "beats as the leader of this term": (
        1,
        append_entries(term=1, source=3, target=1, prev_index=5, prev_term=1, commit_index=3, round=1, quiesce=True),
        "leads in term 1",
    ),
    "sends a snapshot to the leader of this term": (
        1,
        install_snapshot(term=1, source=2, target=1, snapshot_index=9, snapshot_term=1, data=b"state"),
        "leads in term 1",
    ),
    "changes an entry that it has sent": (2, append(3, *entries(4, 0, 1)), "entry 4, which was of term 1"),
    "changes one behind others": (2, append(1, *entries(2, 1, 1, 0)), "entry 4, which was of term 1"),
    "sends a snapshot that contradicts its log": (
        2,
        install_snapshot(term=1, source=1, target=2, snapshot_index=4, snapshot_term=0, data=b"state"),
        "entry 4, which was",
    ),
    "sends a snapshot from a later term": (
        2,
        install_snapshot(term=1, source=1, target=2, snapshot_index=9, snapshot_term=2, data=b"state"),
        "ends in term 2, sent in term 1",
    ),
    "leads a new term with a snapshot from a later one": (
        2,
        install_snapshot(term=3, source=3, target=2, snapshot_index=9, snapshot_term=4, data=b"state"),
        "ends in term 4, sent in term 3",
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_no_member_can_mean_is_refused_and_changes_nothing(case: str) -> None:
    node, message, complaint = IMPOSSIBLE[case]
    group = busy()
    before = state(group.cores[node])
    with pytest.raises(ImpossibleMessageError, match=complaint) as refused:
        group.cores[node].step(message, group.now_ms)
    assert refused.value.source == message.source
    assert state(group.cores[node]) == before
    group.propose(1, "e")  # The group goes on.
    group.settle()
    assert group.values(2) == group.values(3) == ["no-op", "a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (1, acknowledgement(term=1, source=2, target=1, match_index=5, round=1)),
        (1, refusal(term=1, source=2, target=1, refused_index=5, round=1, hint_index=4, hint_term=1)),
        (1, acknowledgement(term=1, source=2, target=1, match_index=5, round=1, uncertain=7)),
        (2, append(3, *entries(4, 1, 1))),
        (2, install_snapshot(term=1, source=1, target=2, snapshot_index=4, snapshot_term=1, data=b"state")),
        (2, append(3, *entries(4, 2), term=2, source=3)),  # Entries that only an older leader's log had may change.
        (2, install_snapshot(term=2, source=3, target=2, snapshot_index=4, snapshot_term=2, data=b"state")),
    ],
)
def test_what_differs_from_that_by_one_is_not(node: int, message: Message) -> None:
    busy().step(node, message)


def test_an_answer_to_a_round_that_was_never_begun_answers_none() -> None:
    group = busy()
    leader = group.cores[1]
    round_before = leader.progress[2].round
    for peer in (2, 3):
        group.step(1, acknowledgement(term=1, source=peer, target=1, match_index=5, round=leader.round + 1))
    assert leader.commit_index == 5, "what it acknowledges counts"
    assert leader.answered_round <= leader.round
    assert leader.progress[2].round == round_before < leader.round
    group.step(1, acknowledgement(term=1, source=2, target=1, match_index=5, round=leader.round))
    assert leader.answered_round == leader.round


def test_a_commit_index_beyond_what_can_be_commits_what_is_verified() -> None:
    group = busy()
    group.step(2, append(4, commit_index=FURTHEST))
    assert group.cores[2].commit_index == 4


def test_a_snapshot_of_what_is_committed_changes_nothing_however_old() -> None:
    group = busy()
    for index in (0, 1, 3):
        assert (
            group.step(
                2, install_snapshot(term=1, source=1, target=2, snapshot_index=index, snapshot_term=0, data=b"state")
            ).install
            is None
        )
    assert (group.cores[2].commit_index, group.disks[2].log.last_index) == (3, 4)


def test_no_hint_leads_beyond_the_log() -> None:
    group = busy()
    follower = group.cores[1].progress[2]
    for hint_index, hint_term in ((FURTHEST, 0), (FURTHEST, FURTHEST), (0, FURTHEST)):
        group.step(
            1,
            refusal(
                term=1, source=2, target=1, refused_index=5, round=FURTHEST, hint_index=hint_index, hint_term=hint_term
            ),
        )
        assert follower.match_index < follower.next_index <= 5


def test_nobody_is_allowed_to_forget_what_is_not_committed_here() -> None:
    """A full voter that believed it would say it to a witness, as a leader later."""
    group = busy(witnesses=(3,))
    for node in (2, 3):
        group.step(
            node,
            append_entries(
                term=1,
                source=1,
                target=node,
                prev_index=4,
                prev_term=1,
                commit_index=3,
                round=99,
                released_index=FURTHEST,
            ),
        )
        assert group.cores[node].released_index == 3
    assert group.disks[3].log.last_index == 4


NEAR = st.integers(0, 8)
NUMBERS = NEAR | st.sampled_from([FAR, FURTHEST])
TERMS = st.integers(0, 4) | st.just(TERM_MAX - 1)
NODES = st.sampled_from([1, 2, 3, 4])
FLAGS = st.booleans()


@st.composite
def appends(draw: st.DrawFn) -> AppendEntries:
    term = draw(TERMS)
    prev_index = draw(NUMBERS)
    return append_entries(
        term=term,
        source=draw(NODES),
        target=0,
        prev_index=prev_index,
        prev_term=draw(TERMS),
        commit_index=draw(NUMBERS),
        round=draw(NUMBERS),
        quiesce=draw(FLAGS),
        entries=entries(prev_index + 1, *[term] * draw(st.integers(0, 4))),
        certain=draw(NEAR),
        released_index=draw(NUMBERS),
    )


SAID: st.SearchStrategy[Any] = st.one_of(
    appends(),
    st.builds(
        AppendResponse,
        term=TERMS,
        source=NODES,
        target=st.just(0),
        match_index=NUMBERS,
        round=NUMBERS,
        rejected=FLAGS,
        hint_index=NUMBERS,
        hint_term=NUMBERS,
        uncertain=st.just(0) | NUMBERS,
    ),
    st.builds(
        VoteRequest,
        term=TERMS,
        source=NODES,
        target=st.just(0),
        last_index=NUMBERS,
        last_term=TERMS,
        pre=FLAGS,
        transfer=FLAGS,
        is_learner=FLAGS,
    ),
    st.builds(
        VoteResponse,
        term=TERMS,
        source=NODES,
        target=st.just(0),
        granted=FLAGS,
        pre=FLAGS,
        uncertain=FLAGS,
        commit_index=NUMBERS,
        commit_term=TERMS,
        blank=FLAGS,
    ),
    st.builds(
        InstallSnapshot,
        term=TERMS,
        source=NODES,
        target=st.just(0),
        snapshot_index=NUMBERS,
        snapshot_term=TERMS,
        data=st.just(b"state"),
    ),
    st.builds(TimeoutNow, TERMS, NODES, st.just(0)),
    st.builds(LeadershipEnded, TERMS, NODES, st.just(0)),
    st.builds(Removed, term=TERMS, source=NODES, target=st.just(0), index=NUMBERS, index_term=TERMS),
    st.builds(
        PeerDigest,
        peer=NODES,
        term=TERMS,
        leader_id=st.none() | NODES,
        last_index=NUMBERS,
        last_term=TERMS,
        round=NUMBERS,
        at_rest=FLAGS,
        wants_answer=FLAGS,
    ),
)


@settings(deadline=None, max_examples=300)
@given(
    node=st.sampled_from([1, 2, 3]),
    witnesses=st.sampled_from([(), (3,)]),
    said=st.lists(SAID, min_size=1, max_size=6),
    to_deadline=st.sets(st.integers(0, 5)),
)
def test_whatever_members_say_a_core_stays_whole(
    node: int, witnesses: tuple[int, ...], said: list[Any], to_deadline: set[int]
) -> None:
    """`Group.step` checks the promises of a core after each step; only `ImpossibleMessageError` may come."""
    group = busy(witnesses=witnesses)
    core = group.cores[node]
    for number, message in enumerate(said):
        is_digest = isinstance(message, PeerDigest)
        if (message.peer if is_digest else message.source) == node:
            continue
        if not is_digest:
            message.target = node
        before = state(core)
        is_leader = core.role is Role.LEADER
        try:
            group.step(node, message)
        except ImpossibleMessageError:
            assert state(core) == before, (message, is_leader)
        core = group.cores[node]
        group.inbox.clear()
        if number in to_deadline and core.deadline_ms is not None:
            group.to_deadline(node)
            core = group.cores[node]
