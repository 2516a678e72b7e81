"""The plan that recovery makes from journal records, rule by rule."""

import pytest

from barnabas_raftlog.log.journal.entries import Location
from barnabas_raftlog.log.recovery.plan import ReplicaPlan, merge_hard_state
from barnabas_raftlog.log.recovery.replica import empty_row
from barnabas_raftlog.raft.messages import HardState


def plan(trusted_index: int, *, page_cache: bool = False) -> ReplicaPlan:
    return ReplicaPlan("t-0", trusted_index, page_cache=page_cache)


def at(term: int) -> Location:
    return Location(term, 1, 0, 100)


def put(replayed: ReplicaPlan, index: int, term: int) -> None:
    replayed.entries.put(index, *at(term))


def wanted(replayed: ReplicaPlan) -> list[tuple[int, Location]]:
    return list(replayed.entries.after(replayed.trusted_index))


@pytest.mark.parametrize(
    ("known", "found", "later"),
    [
        (None, HardState(1, None), HardState(1, None)),
        (HardState(3, 1), HardState(2, 2), HardState(3, 1)),
        (HardState(3, 1), HardState(3, None), HardState(3, 1)),
        (HardState(3, None), HardState(3, 2), HardState(3, 2)),
        (HardState(3, 1), HardState(4, None), HardState(4, None)),
    ],
)
def test_a_hard_state_never_goes_back(known: HardState | None, found: HardState, later: HardState) -> None:
    assert merge_hard_state(known, found) == later


def test_entries_that_the_segments_have_are_not_written_again() -> None:
    replayed = plan(2)
    for index in (1, 2, 3, 4):
        put(replayed, index, 1)
    assert wanted(replayed) == [(3, at(1)), (4, at(1))]


def test_a_replaced_entry_is_never_the_last_word() -> None:
    replayed = plan(5)
    put(replayed, 5, 3)
    replayed.truncated_from(5, 1)
    put(replayed, 5, 4)
    assert (replayed.trusted_index, wanted(replayed)) == (4, [(5, at(4))])


def test_a_gap_that_a_later_truncation_explains_is_none() -> None:
    replayed = plan(4)  # the checkpoint was taken after the truncation, the journal begins before it
    put(replayed, 6, 3)
    replayed.truncated_from(5, 1)
    put(replayed, 5, 4)
    assert wanted(replayed) == [(5, at(4))]


def test_a_gap_that_nothing_explains_is_damage() -> None:
    replayed = plan(4)
    put(replayed, 6, 3)
    with pytest.raises(ValueError, match="entry 6 but not entry 5"):
        wanted(replayed)


def test_in_page_cache_mode_a_truncation_counts_until_it_was_carried_out() -> None:
    replayed = plan(9, page_cache=True)
    replayed.truncated_from(5, 1)
    replayed.truncated_from(3, 2)
    cuts = [replayed.cut_from]
    for number in (2, 1):
        replayed.truncation_done(number)
        cuts.append(replayed.cut_from)
    assert cuts == [3, 5, None]
    assert replayed.trusted_index == 2


def test_a_snapshot_forgets_what_came_before_it() -> None:
    replayed = plan(9)
    put(replayed, 10, 1)
    replayed.installed(100, 7, 555)
    put(replayed, 101, 7)
    assert (replayed.start, wanted(replayed)) == ((100, 7, 555), [(101, at(7))])


def test_a_dropped_prefix_within_the_synced_part_leaves_the_rest_trusted() -> None:
    replayed = plan(9)
    put(replayed, 10, 1)
    replayed.prefix_dropped(4, 1, 40)
    assert not replayed.is_begun_anew
    assert (replayed.trusted_index, wanted(replayed)) == (9, [(10, at(1))])


def test_a_dropped_prefix_that_takes_all_of_the_synced_part_begins_the_log_behind_it() -> None:
    replayed = plan(9)
    for index in (10, 11, 12):
        put(replayed, index, 1)
    replayed.prefix_dropped(11, 1, 110)
    assert replayed.is_begun_anew
    assert (replayed.start, wanted(replayed)) == ((11, 1, 110), [(12, at(1))])


def test_a_prefix_dropped_before_a_snapshot_says_nothing_afterwards() -> None:
    replayed = plan(9)
    replayed.installed(100, 7, 555, 1, b"state")
    replayed.prefix_dropped(8, 1, 80)
    assert (replayed.start, replayed.state) == ((100, 7, 555), b"state")


def test_in_page_cache_mode_a_snapshot_counts_as_a_truncation_of_everything_until_it_was_carried_out() -> None:
    replayed = plan(9, page_cache=True)
    replayed.truncated_from(5, 1)
    replayed.installed(100, 7, 555, 2, b"")
    assert replayed.cut_from == 101
    replayed.truncation_done(2)
    assert replayed.cut_from is None


def test_an_adoption_that_the_checkpoint_shows_ends_what_the_journal_said_before_it() -> None:
    """Truncated entries were adopted, not written again: they seemed to be missing, and the replica failed."""
    replayed = ReplicaPlan("t-0", 60, page_cache=False, shown=2)
    for index in (45, 61, 62, 63):
        put(replayed, index, 1)
    replayed.members[45] = (1, b"of an entry that is gone")
    replayed.truncated_from(40, 1)
    row = empty_row(b"", "t-0", page_cache=False)
    row.start_index = 30
    row.last_index = 50
    row.end_offset = 90
    row.truncations = 2
    replayed.adopt(row, 2)
    for index in (59, 60, 61, 62):
        put(replayed, index, 2)
    assert (replayed.trusted_index, replayed.cut_from, replayed.members, replayed.adopted) == (60, None, {}, None)
    assert wanted(replayed) == [(61, at(2)), (62, at(2))]
