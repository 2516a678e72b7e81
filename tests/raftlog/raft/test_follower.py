"""A follower's log against the simplest follower there is, for any order of any appends."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from raftlog.messages import append_entries
from sim.disk import Disk

from barnabas_raftlog.raft.core import RaftCore, Timing
from barnabas_raftlog.raft.follower import last_index_up_to_term
from barnabas_raftlog.raft.invariants import check_member
from barnabas_raftlog.raft.membership import Member, configuration_of
from barnabas_raftlog.raft.messages import AppendResponse, Entry, HardState, Persisted

# The leader's log: entry i (from 1) has the term at position i - 1.
TERMS = st.lists(st.integers(1, 3), min_size=1, max_size=8).map(sorted)


def disk_with(terms: list[int]) -> Disk:
    disk = Disk(configuration_of(frozenset({1, 2, 3})))
    if terms:
        disk.log.append([Entry(index, term, b"old") for index, term in enumerate(terms, 1)])
        disk.sync()
    return disk


def follower(disk: Disk, term: int) -> RaftCore:
    return RaftCore(
        member=Member(2),
        hard_state=HardState(term, None),
        log=disk.log,
        commit_index=0,
        timing=Timing(),
        rng=Random(0),
        preferred=False,
        now_ms=0,
    )


@given(
    leader_terms=TERMS,
    shared_count=st.integers(0, 8),
    own_terms=st.lists(st.integers(1, 3), max_size=5).map(sorted),
    appends=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8), st.booleans()), max_size=12),
)
def test_any_order_of_appends_leads_towards_the_leaders_log(
    leader_terms: list[int],
    shared_count: int,
    own_terms: list[int],
    appends: list[tuple[int, int, int, bool]],
) -> None:
    """Duplicates, gaps and late appends: only durable and equal entries are acknowledged, nothing good is cut."""
    leader_term = 4
    leader_log = [Entry(index, term, b"new") for index, term in enumerate(leader_terms, 1)]
    shared = leader_terms[:shared_count]
    # The entries behind the shared part differ from the leader's log in their very first term.
    theirs = [term for term in own_terms if term >= (shared or [1])[-1]]
    if len(leader_terms) > len(shared) and theirs and theirs[0] == leader_terms[len(shared)]:
        theirs = []
    disk = disk_with(shared + theirs)
    core = follower(disk, max([0, *shared, *theirs]))
    committed_count = min(len(shared), 2)
    acknowledged = 0
    for start, count, commit, is_quick in appends:
        prev_index = min(start, len(leader_log))
        entries = leader_log[prev_index : prev_index + count]
        prev_term = leader_terms[prev_index - 1] if prev_index else 0
        commit_index = max(min(commit, len(leader_log)), committed_count)
        append = append_entries(
            term=leader_term,
            source=1,
            target=2,
            prev_index=prev_index,
            prev_term=prev_term,
            commit_index=commit_index,
            round=1,
            entries=entries,
        )
        ready = core.step(append, 0)
        if ready.truncate_from is not None:
            assert disk.log.term_at(ready.truncate_from) != leader_terms[ready.truncate_from - 1]
            disk.log.truncate_from(ready.truncate_from)
        if ready.append:
            disk.log.append(ready.append)
        messages = [*ready.messages, *ready.messages_after_persist]
        if is_quick:
            disk.sync()
            messages += core.step(Persisted(disk.log.durable_index), 0).messages
        check_member(core)
        for message in messages:
            assert isinstance(message, AppendResponse)
            if not message.rejected:
                acknowledged = max(acknowledged, message.match_index)
                equal = [entry.term for entry in disk.image.held[: message.match_index]]
                assert equal == leader_terms[: message.match_index], "acknowledged what differs, or is not durable"
            else:
                assert message.hint_index <= message.match_index == prev_index
        assert [e.term for e in disk.log.held[: core.commit_index]] == leader_terms[: core.commit_index]
        assert disk.log.last_index >= acknowledged, "cut what was acknowledged"


@given(TERMS, st.integers(0, 4), st.data())
def test_search_by_term_finds_what_a_scan_finds(terms: list[int], term: int, data: st.DataObject) -> None:
    log = disk_with(terms).log
    low_index = data.draw(st.integers(0, len(terms)))
    high_index = data.draw(st.integers(low_index, len(terms)))
    scan = [index for index in range(low_index + 1, high_index + 1) if terms[index - 1] <= term]
    assert last_index_up_to_term(log, low_index, high_index, term) == max([low_index, *scan])
