"""A leader's notes of a follower, and its counts, which do not show at once.

Each was once broken unnoticed (`scripts/mutants`): groups recover from it, or it takes a rare message.
"""

from raftlog.messages import acknowledgement

from barnabas_raftlog.raft.log_ends import LogEnds
from barnabas_raftlog.raft.progress import APPENDS_IN_FLIGHT_MAX, Progress, ProgressState
from barnabas_raftlog.raft.quorum import committable_index

from .group import Group


def progress() -> Progress:
    found = Progress(
        peer=2,
        directory_id=bytes(16),
        ends=LogEnds(last_index=4, spacing_ms=100),
        next_index=5,
        now_ms=1_000,
        is_voter=True,
        live=True,
    )
    found.become_replicate()
    return found


def test_window_is_bounded_by_its_number_of_appends_too() -> None:
    follower = progress()
    for index in range(1, APPENDS_IN_FLIGHT_MAX):
        follower.sent(index, 1)
    assert follower.has_room(1 << 30)
    follower.sent(APPENDS_IN_FLIGHT_MAX, 1)
    assert not follower.has_room(1 << 30)


def test_acknowledgement_frees_what_it_covers_and_no_more() -> None:
    follower = progress()
    for index in (1, 2, 3):
        follower.sent(index, 10)
    assert follower.acknowledge(2)
    assert (list(follower.in_flight), follower.in_flight_bytes, follower.next_index) == ([(3, 10)], 10, 4)
    assert not follower.acknowledge(2)


def test_follower_that_has_more_than_was_sent_is_sent_what_follows() -> None:
    follower = progress()
    assert follower.next_index == 1
    follower.acknowledge(1)
    assert follower.next_index == 2
    follower.acknowledge(7)
    assert follower.next_index == 8


def test_new_leaders_follower_is_taken_to_have_had_everything_when_the_term_began() -> None:
    follower = progress()
    follower.ends.note(9, 1_500)
    assert follower.caught_up_ms(2_000) == 1_000
    follower.acknowledge(3)
    assert follower.caught_up_ms(2_000) == 1_000
    assert not follower.has_caught_up(2_000, 5_000)
    follower.acknowledge(4)
    assert follower.caught_up_ms(2_000) == 1_500
    assert follower.has_caught_up(2_000, 5_000)


def test_snapshot_under_way_replaces_what_was_in_flight() -> None:
    follower = progress()
    follower.sent(7, 10)
    follower.become_snapshot(9, 2_000)
    assert (follower.state, follower.next_index, follower.in_flight_bytes) == (ProgressState.SNAPSHOT, 10, 0)
    assert (follower.snapshot_index, follower.snapshot_sent_ms) == (9, 2_000)
    further = progress()
    further.match_index = 12
    further.become_snapshot(9, 2_000)
    assert further.next_index == 13


def test_caught_up_is_who_answers_in_step_and_had_everything_lately() -> None:
    follower = progress()
    follower.acknowledge(8)
    follower.ends.note(8, 1_500)
    assert follower.has_caught_up(9_000, 500)
    follower.ends.note(9, 2_000)
    assert follower.has_caught_up(2_500, 500)
    assert not follower.has_caught_up(2_501, 500)
    follower.live = False
    assert not follower.has_caught_up(2_500, 500)
    follower.live = True
    follower.become_probe(9)
    assert not follower.has_caught_up(2_500, 500)


def test_in_sync_is_who_has_everything_or_had_it_lately() -> None:
    follower = progress()
    follower.acknowledge(8)
    follower.ends.note(8, 1_500)
    assert follower.is_in_sync(9_000, 500)
    follower.ends.note(9, 2_000)
    assert follower.is_in_sync(2_500, 500)
    assert not follower.is_in_sync(2_501, 500)


def test_commit_index_never_goes_back() -> None:
    assert committable_index([1, 1, 1], 2, 1) == 2


def test_answer_that_names_no_disk_is_taken_for_one_of_the_disk_that_is_known() -> None:
    group = Group([1, 2, 3], known_disks=True)
    group.elect()
    group.step(1, acknowledgement(term=1, source=2, target=1, match_index=1, round=1))
    assert not group.cores[1].progress[2].is_lost
