"""What a leader keeps, forgets and sends where it does not show at once.

Each was once broken unnoticed (`scripts/mutants`): groups recover from it, or it takes a rare message.
"""

from barnabas_raftlog.raft.progress import APPENDS_IN_FLIGHT_MAX, Progress

from .group import Group


def elected(*voters: int, learners: tuple[int, ...] = ()) -> Group:
    group = Group(voters or (1, 2, 3), learners)
    group.elect()
    return group


def progress() -> Progress:
    found = Progress(2, bytes(16), 5, 1_000, is_voter=True, is_witness=False, live=True)
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
    assert follower.acknowledge(2, 3, 1_010)
    assert (list(follower.in_flight), follower.in_flight_bytes, follower.next_index) == ([(3, 10)], 10, 4)
    assert not follower.acknowledge(2, 3, 1_020)


def test_follower_that_has_more_than_was_sent_is_sent_what_follows() -> None:
    follower = progress()
    assert follower.next_index == 1
    follower.acknowledge(1, 9, 1_010)
    assert follower.next_index == 2
    follower.acknowledge(7, 9, 1_010)
    assert follower.next_index == 8


def test_in_sync_when_it_has_what_was_the_end_of_the_log_when_it_was_last_asked() -> None:
    follower = progress()
    follower.acknowledge(3, 5, 2_000)
    assert follower.caught_up_ms == 1_000
    follower.acknowledge(5, 8, 3_000)
    assert follower.caught_up_ms == 2_000
    follower.acknowledge(8, 8, 4_000)
    assert follower.caught_up_ms == 4_000
    follower.acknowledge(8, 9, 5_000)
    assert follower.caught_up_ms == 4_000


def test_new_follower_is_taken_to_have_had_what_was_there_when_the_term_began() -> None:
    follower = progress()
    follower.acknowledge(4, 9, 2_000)
    assert follower.caught_up_ms == 1_000
    later = Progress(2, bytes(16), 5, 1_000, is_voter=True, is_witness=False, live=True)
    later.end_seen_ms = 1_500
    later.acknowledge(4, 9, 2_000)
    assert later.caught_up_ms == 1_500
