"""Each marker reaches the leader of its place, once if nothing fails, and as often as it takes."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from barnabas_broker.coordinators.transactions.marker_queues import (
    BACKOFF_MS,
    BACKOFF_MS_MAX,
    LOOKS_PER_MS,
    NOBODY,
    PAIRS_MAX,
    REFUSED_MS,
)
from barnabas_broker.coordinators.transactions.state_machine.messages import V1, V2
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.links.rpc import RemoteError

from .marker_world import NODE, MarkerWorld, markers_of

T0 = ("t", 0)
T1 = ("t", 1)
U0 = ("u", 0)


@pytest.fixture
def world() -> Iterator[MarkerWorld]:
    with MarkerWorld() as world:
        world.make_topic("t", 2, 2)
        world.make_topic("u", 1, NODE)
        yield world


def told(world: MarkerWorld) -> set[tuple[str, tuple[str, int]]]:
    return {(transactional_id, place) for transactional_id, _, place in world.written}


def test_leaders_are_asked_each_for_its_own_and_the_coordinator_is_told(world: MarkerWorld) -> None:
    world.send(0, "x", markers_of(7, T0, T1, U0), term=5)
    assert set(world.under_way) == {2, NODE}
    (marker,) = world.under_way[2].message.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 1, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (5, V2)
    assert [(topic.name, sorted(topic.partition_indexes)) for topic in marker.topics] == [("t", [0, 1])]
    assert not world.written
    world.answer(2)
    assert told(world) == {("x", T0), ("x", T1)}
    world.answer(NODE)
    assert world.written[2:] == [("x", Producer(7, 1), U0)]
    assert world.comes_to_rest()


def test_markers_leave_in_the_order_of_their_places(world: MarkerWorld) -> None:
    """Not in that of a set, which is another one in every process: the same seed must be the same run."""
    names = [f"t{number}" for number in range(20)]
    for name in names:
        world.make_topic(name, 1, 2)
    world.send(0, "x", markers_of(7, *((name, 0) for name in names)))
    (marker,) = world.under_way[2].message.markers
    assert [topic.name for topic in marker.topics] == sorted(names)


def test_an_abort_of_v1_says_so(world: MarkerWorld) -> None:
    world.send(0, "x", markers_of(7, T0, is_commit=False)._replace(version=V1))
    (marker,) = world.under_way[2].message.markers
    assert (marker.transaction_result, marker.transaction_version) == (False, V1)


def test_transactions_of_one_turn_leave_in_one_request_and_others_wait_for_its_end(world: MarkerWorld) -> None:
    world.send_only(0, "x", markers_of(7, T0))
    world.send_only(1, "y", markers_of(8, T0, T1))
    world.turn()
    assert len(world.under_way[2].message.markers) == 2
    for number in range(20):
        world.send(0, f"z{number}", markers_of(100 + number, T0))
    assert world.asked[2] == 1
    world.answer(2)
    assert world.asked[2] == 2
    assert len(world.under_way[2].message.markers) == 20
    world.answer(2)
    assert len(told(world)) == 23
    assert world.comes_to_rest()


def test_a_request_has_so_many_markers_at_most(world: MarkerWorld) -> None:
    for number in range(2 * PAIRS_MAX + 1):
        world.send_only(0, f"x{number}", markers_of(number, T0))
    world.turn()
    sizes = []
    while world.under_way:
        sizes.append(len(world.under_way[2].pairs))
        world.answer(2)
    assert sizes == [PAIRS_MAX, PAIRS_MAX, 1]
    assert world.comes_to_rest()


def test_ten_thousand_transactions_cost_a_task_for_each_broker_and_no_timer(world: MarkerWorld) -> None:
    world.make_topic("w", 50, 3)
    for number in range(10_000):
        world.send_only(number % 16, f"x{number}", markers_of(number, ("w", number % 50), T0, U0))
    world.turn()
    assert world.tasks == len(world.under_way) == 3
    assert world.timers_set == 0
    world.answer_all()
    assert len(world.written) == len(told(world)) == 30_000
    assert sum(world.asked.values()) == 60
    assert world.comes_to_rest()


def test_what_has_no_leader_waits_for_news_and_costs_nothing(world: MarkerWorld) -> None:
    world.lead(T0, NOBODY)
    world.tell_leader(T0, NOBODY)
    world.send(0, "x", markers_of(7, T0))
    finds = world.finds
    world.advance(3_600_000)
    world.turn()
    assert (world.finds, world.tasks, world.timers_set, world.asked.total()) == (finds, 0, 0, 0)
    world.lead(T0, 3)
    world.tell_leader(T0, 3)
    assert set(world.under_way) == {3}
    world.answer(3)
    assert told(world) == {("x", T0)}


def test_news_of_another_leader_moves_what_is_under_way(world: MarkerWorld) -> None:
    """A process that stands still answers nothing, and its places have other leaders after a second."""
    world.send(0, "x", markers_of(7, T0, T1))
    world.lead(T0, 3)
    world.tell_leader(T0, 3)
    assert world.under_way[3].pairs == [(7, T0)]
    world.answer(3)
    assert told(world) == {("x", T0)}
    world.lead(T0, 2)
    world.answer(2)
    assert told(world) == {("x", T0), ("x", T1)}
    assert len(world.written) == 2
    assert world.comes_to_rest()


def test_what_was_taken_out_of_a_request_and_written_by_it_is_asked_of_nobody_else(world: MarkerWorld) -> None:
    world.send(0, "y", markers_of(9, U0))
    world.send(0, "x", markers_of(7, T0))
    world.carry_out(world.under_way[2])
    world.lead(T0, NODE)
    world.tell_leader(T0, NODE)
    world.answer(2)
    assert told(world) == {("x", T0)}
    world.answer_all()
    assert world.asked[NODE] == 1
    assert len(world.written) == 2
    assert world.comes_to_rest()


def test_a_deposed_leader_is_asked_no_more_and_its_successor_when_it_is_known(world: MarkerWorld) -> None:
    world.lead(T0, 3)
    world.send(0, "x", markers_of(7, T0))
    world.answer(2)
    assert not world.under_way
    assert not world.written
    world.tell_leader(T0, 3)
    assert set(world.under_way) == {3}
    world.answer(3)
    assert told(world) == {("x", T0)}
    assert world.comes_to_rest()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_place_that_refuses_is_asked_again_later_and_later(world: MarkerWorld, code: ErrorCode) -> None:
    """A witness that leads, a partition below min.insync.replicas, a shard of groups that is being read."""
    world.refusals[7, T0] = code
    world.send(0, "x", markers_of(7, T0))
    times = []
    for _ in range(9):
        times.append(world.now_ms)
        world.answer(2)
        assert not world.under_way
        while not world.under_way:
            world.advance(1)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == [20, 40, 80, 160, 320, 640, 1_000, 1_000]
    assert (BACKOFF_MS, BACKOFF_MS_MAX) == (20, 1_000)
    world.refusals.clear()
    world.answer(2)
    assert told(world) == {("x", T0)}
    assert world.comes_to_rest()


def test_a_place_that_pauses_holds_up_no_other(world: MarkerWorld) -> None:
    world.refusals[7, T0] = ErrorCode.NOT_ENOUGH_REPLICAS
    world.send(0, "x", markers_of(7, T0, T1))
    world.answer(2)
    assert told(world) == {("x", T1)}
    world.send(0, "y", markers_of(8, T0, T1))
    assert world.under_way[2].pairs == [(8, T1)]
    world.tell_news()  # the same leader: no reason to ask it sooner
    world.answer(2)
    assert not world.under_way
    world.refusals.clear()
    world.advance(BACKOFF_MS)
    assert sorted(world.under_way[2].pairs) == [(7, T0), (8, T0)]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_t6_a_marker_that_is_refused_is_not_written_and_holds_up_nobody(world: MarkerWorld, code: ErrorCode) -> None:
    """Somebody newer coordinates: this one will end. If it does not, somebody sees why the transaction does not."""
    world.refusals[7, T0] = code
    world.send_only(0, "x", markers_of(7, T0))
    world.send_only(0, "y", markers_of(8, T0))
    world.turn()
    world.answer(2)
    assert told(world) == {("y", T0)}
    for number in range(5):
        world.send(0, f"z{number}", markers_of(10 + number, T0))
        assert world.under_way[2].pairs == [(10 + number, T0)]
        world.answer(2)
    (held_up,) = world.sender.status()["held_up"]
    assert held_up == {"topic": "t", "partition": 0, "reason": f"node 2 answers {code.name}"}
    world.advance(REFUSED_MS)
    assert world.under_way[2].pairs == [(7, T0)]
    world.forget(0)
    world.answer(2)
    assert ("x", T0) not in told(world)
    assert world.comes_to_rest()


def test_a_broker_without_an_answer_is_asked_later_and_news_of_it_makes_it_sooner(world: MarkerWorld) -> None:
    world.send(0, "x", markers_of(7, T0))
    for pause_ms in (20, 40, 80):
        world.lose(2)
        assert not world.under_way
        world.advance(pause_ms - 1)
        assert not world.under_way
        world.advance(1)
        assert set(world.under_way) == {2}
    world.tell_leader(T0, NOBODY)  # the link is dead
    world.lose(2)
    world.tell_leader(T0, 2)
    assert set(world.under_way) == {2}
    world.answer(2)
    assert told(world) == {("x", T0)}
    assert world.comes_to_rest()


def test_a_broker_that_does_not_know_the_method_is_asked_seldom(world: MarkerWorld) -> None:
    world.send(0, "x", markers_of(7, T0, T1, U0))
    world.lose(2, RemoteError("UnknownMethod", "nobody serves it here"))
    assert world.sender.status()["held_up"][0]["reason"].endswith("UnknownMethod: nobody serves it here")
    before = world.asked[2]
    for _ in range(100):
        world.advance(100)
        if 2 in world.under_way:
            world.lose(2, RemoteError("UnknownMethod", "nobody serves it here"))
    assert world.asked[2] - before <= 16
    assert set(world.under_way) == {NODE}


def test_an_answer_that_cannot_be_read_is_none(world: MarkerWorld) -> None:
    world.send(0, "x", markers_of(7, T0))
    world.lose(2, MalformedMessageError("rubbish"))
    world.advance(BACKOFF_MS)
    world.answer(2)
    assert told(world) == {("x", T0)}


def test_an_answer_that_leaves_something_out_says_nothing_of_it(world: MarkerWorld) -> None:
    world.send(0, "x", markers_of(7, T0, T1))
    request = world.under_way[2]
    world.carry_out(request)
    answer = request.response()
    answer.markers[0].topics[0].partitions = [
        row for row in answer.markers[0].topics[0].partitions if row.partition_index
    ]
    request.answer.set_result(answer)
    world.turn()
    assert told(world) == {("x", T1)}
    world.advance(BACKOFF_MS)
    assert world.under_way[2].pairs == [(7, T0)]


def test_a_shard_that_has_ended_is_told_nothing_and_leaves_nothing(world: MarkerWorld) -> None:
    world.lead(T1, NOBODY)
    world.tell_leader(T1, NOBODY)
    world.send(0, "x", markers_of(7, T0, T1, U0))
    world.send(1, "y", markers_of(8, T0, T1))
    world.forget(0)
    world.answer_all()
    assert told(world) == {("y", T0)}
    world.lead(T1, 2)
    world.tell_leader(T1, 2)
    assert world.under_way[2].pairs == [(8, T1)]
    world.answer(2)
    assert told(world) == {("y", T0), ("y", T1)}
    assert world.comes_to_rest()


def test_t19_a_coordinator_that_leads_again_sends_everything_again(world: MarkerWorld) -> None:
    world.send(0, "x", markers_of(7, T0, T1), term=1)
    world.carry_out(world.under_way[2])
    world.forget(0)
    world.send(0, "x", markers_of(7, T0, T1), term=3)
    world.answer(2)
    assert not world.written
    (marker,) = world.under_way[2].message.markers
    assert marker.coordinator_epoch == 3
    world.answer(2)
    assert told(world) == {("x", T0), ("x", T1)}
    assert len(world.written) == 2
    assert world.history[T0] == [(Producer(7, 1), True)]
    assert world.comes_to_rest()


def test_what_is_sent_twice_is_owed_once(world: MarkerWorld) -> None:
    world.send(0, "x", markers_of(7, T0, T1))
    world.send(0, "x", markers_of(7, T0))
    assert world.sender.status()["markers"] == 2
    world.answer_all()
    assert world.asked == {2: 1}
    assert world.comes_to_rest()


def test_nothing_is_owed_to_no_place(world: MarkerWorld) -> None:
    world.send(0, "x", markers_of(7))
    assert world.comes_to_rest()


def test_a_place_that_is_gone_counts_as_written_when_the_image_is_current(world: MarkerWorld) -> None:
    world.delete_topic("t")
    world.controller_is_there = False
    world.known_topics = dict(world.topics)
    world.send(0, "x", markers_of(7, T0, U0))
    assert set(world.under_way) == {NODE}
    assert not world.written
    world.advance(10_000)
    assert not world.written
    world.controller_is_there = True
    world.advance(1_000)
    assert told(world) == {("x", T0)}
    world.answer(NODE)
    assert told(world) == {("x", T0), ("x", U0)}
    assert world.comes_to_rest()


def test_a_place_that_the_image_does_not_have_yet_gets_its_marker(world: MarkerWorld) -> None:
    """A new coordinator may be behind with its image."""
    world.make_topic("new", 1, 3, is_known=False)
    world.known_leaders["new", 0] = 3
    world.send(0, "x", markers_of(7, ("new", 0)))
    world.answer(3)
    assert world.history["new", 0] == [(Producer(7, 1), True)]
    assert told(world) == {("x", ("new", 0))}
    assert world.comes_to_rest()


def test_a_topic_deleted_while_its_marker_is_under_way(world: MarkerWorld) -> None:
    world.send(0, "x", markers_of(7, T0))
    world.delete_topic("t")
    world.answer(2)
    assert not world.written
    world.tell_news()
    assert told(world) == {("x", T0)}
    assert world.comes_to_rest()


def test_t14_a_topic_made_anew_gets_the_marker_by_its_name(world: MarkerWorld) -> None:
    world.lead(T0, NOBODY)
    world.tell_leader(T0, NOBODY)
    world.send(0, "x", markers_of(7, T0))
    world.delete_topic("t")
    world.make_topic("t", 2, 3, is_known=False)
    world.tell_news()
    world.answer(3)
    assert told(world) == {("x", T0)}
    assert world.comes_to_rest()


def test_t14_a_topic_made_anew_with_fewer_partitions_does_not_hold_up_the_end(world: MarkerWorld) -> None:
    world.lead(T1, NOBODY)
    world.tell_leader(T1, NOBODY)
    world.send(0, "x", markers_of(7, T1))
    world.delete_topic("t")
    world.make_topic("t", 1, 3, is_known=False)
    world.tell_news()
    assert told(world) == {("x", T1)}
    assert world.comes_to_rest()


def test_news_without_end_cost_a_part_of_the_time(world: MarkerWorld) -> None:
    count = 100 * LOOKS_PER_MS
    world.make_topic("w", count, 3)
    world.known_leaders.clear()
    world.send(0, "x", markers_of(7, *(("w", index) for index in range(count))))
    finds = world.finds
    for _ in range(100):
        world.advance(1)
        world.tell_leader(T0, NOBODY)
    assert world.finds - finds <= 2 * count + 2
    world.tell_news()
    world.advance(100)
    world.answer_all()
    assert len(world.written) == count
    assert world.comes_to_rest()


def test_status_says_what_is_held_up(world: MarkerWorld) -> None:
    world.make_topic("w", 50, 3)
    world.known_leaders.clear()
    world.known_leaders[T0] = 2
    world.send(0, "x", markers_of(7, T0, *(("w", index) for index in range(50))))
    status = world.sender.status()
    assert (status["markers"], status["partitions"], status["under_way"]) == (51, 51, {2: 1})
    assert len(status["held_up"]) == 10
    assert {row["reason"] for row in status["held_up"]} == {"no leader is known, or it cannot be reached"}


def test_nothing_begins_once_it_is_closed(world: MarkerWorld) -> None:
    world.send(0, "x", markers_of(7, T0))
    with world.running():
        world.sender.close()
    world.answer(2)
    world.send(0, "y", markers_of(8, T0))
    world.tell_news()
    world.advance(10_000)
    assert not world.under_way
