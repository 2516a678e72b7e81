"""A follower takes in appends, snapshots and farewells that come late, twice or misplaced.

Each was once broken unnoticed (`scripts/mutants`): groups recover from it, or it takes a rare message.
"""

from raftlog.messages import append_entries, install_snapshot, peer_digest

from barnabas_raftlog.raft.messages import (
    AppendEntries,
    AppendResponse,
    Entry,
    PeerSilent,
    Persisted,
    Ready,
)

from .group import Group


def elected() -> Group:
    group = Group([1, 2, 3])
    group.elect()
    return group


def append(
    prev: tuple[int, int], commit_index: int, round_number: int, *terms: int, quiesce: bool = False
) -> AppendEntries:
    """Node 1 sends node 2 entries of these terms behind `prev`, in the newest of these terms or in term 1."""
    entries = [Entry(prev[0] + 1 + position, term, b"%d" % term) for position, term in enumerate(terms)]
    return append_entries(
        term=max(terms, default=1),
        source=1,
        target=2,
        prev_index=prev[0],
        prev_term=prev[1],
        commit_index=commit_index,
        round=round_number,
        quiesce=quiesce,
        entries=entries,
    )


def answers(ready: Ready) -> list[AppendResponse]:
    return [message for message in ready.messages if isinstance(message, AppendResponse)]


def test_entries_wake_a_follower_at_once() -> None:
    group = elected()
    group.step(2, append((1, 1), 1, 9, 1))
    assert not group.cores[2].quiescent
    assert group.cores[2].deadline_ms is not None


def test_refused_append_wakes_a_follower_too() -> None:
    group = elected()
    (answer,) = answers(group.step(2, append((5, 1), 1, 9)))
    assert answer.rejected
    assert not group.cores[2].quiescent


def test_late_order_to_be_silent_is_not_heeded() -> None:
    group = elected()
    group.step(2, append((1, 1), 1, 9))
    group.step(2, append((1, 1), 1, 8, quiesce=True))
    assert not group.cores[2].quiescent


def test_order_to_be_silent_may_repeat_a_round() -> None:
    group = elected()
    group.step(2, append((1, 1), 1, 9))
    group.step(2, append((1, 1), 1, 9, quiesce=True))
    assert group.cores[2].quiescent


def test_who_may_have_forgotten_something_is_not_silent_before_it_is_told_otherwise() -> None:
    group = elected()
    group.set_page_cache()
    group.lose_power(2, 1)
    assert group.cores[2].uncertain
    group.step(2, peer_digest(peer=1, term=1, leader_id=1, last_index=1, last_term=1, round=9))
    assert not group.cores[2].quiescent


def test_duplicate_of_what_is_committed_and_forgotten_here_is_skipped() -> None:
    group = elected()
    group.propose(1, "a", "b", "c")
    group.settle()
    group.disks[2].log.drop_prefix(3)
    ready = group.step(2, append((1, 1), 4, 9, 1, 1, 1, 1))
    assert ready.truncate_from is None
    assert [entry.index for entry in ready.append] == [5]
    (answer,) = answers(group.step(2, append((1, 1), 4, 9)))
    assert not answer.rejected


def test_disk_that_has_caught_up_with_what_nobody_compared_is_no_news() -> None:
    group = elected()
    group.step(2, append((1, 1), 1, 9, 1, 1))
    group.step(2, append_entries(term=2, source=3, target=2, prev_index=1, prev_term=1, commit_index=1, round=1))
    core = group.cores[2]
    assert (core.log.durable_index, core.verified_index, core.reported_index) == (3, 1, 1)
    assert not answers(group.step(2, Persisted(3)))


def test_snapshot_shows_who_leads() -> None:
    group = elected()
    group.step(2, PeerSilent(1))
    group.lose()
    group.now_ms += 10
    group.step(2, install_snapshot(term=1, source=1, target=2, snapshot_index=9, snapshot_term=1))
    core = group.cores[2]
    assert core.leader_id == 1
    assert core.heard_ms == group.now_ms
    assert core.trusts_leader()


def test_snapshot_keeps_trust_and_ends_silence() -> None:
    group = elected()
    group.now_ms += 5_000
    group.step(2, install_snapshot(term=1, source=1, target=2, snapshot_index=1, snapshot_term=1))
    core = group.cores[2]
    assert not core.quiescent
    assert core.heard_ms == group.now_ms
    group.now_ms += 5_000
    group.step(2, install_snapshot(term=1, source=1, target=2, snapshot_index=1, snapshot_term=1))
    assert core.heard_ms == group.now_ms


def test_snapshot_of_what_is_committed_here_is_answered() -> None:
    group = elected()
    (answer,) = answers(group.step(2, install_snapshot(term=1, source=1, target=2, snapshot_index=1, snapshot_term=1)))
    assert answer.match_index == 1


def test_snapshot_replaces_a_log_that_differs_at_its_last_entry() -> None:
    group = elected()
    group.step(2, append((1, 1), 1, 9, 1, 1, 1))
    ready = group.step(2, install_snapshot(term=2, source=3, target=2, snapshot_index=3, snapshot_term=2))
    assert ready.install is not None
    core = group.cores[2]
    assert (core.commit_index, core.log.last_index, core.log.last_term) == (3, 3, 2)
