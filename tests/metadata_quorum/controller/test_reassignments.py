"""Moves of partitions in the controller: the rules, and changes, ends and cancellations."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_metadata_quorum.controller.commands import (
    AlterReassignments,
    AlterReassignmentsAnswer,
    FinishMoves,
    MovesFinished,
    NewPartitions,
    NewTopic,
    Reassignment,
    ReassignmentFate,
    RefusalReason,
    RegisterBroker,
)
from barnabas_metadata_quorum.image.image import Image, ImageBuilder, PartitionPlacement, topic_changes
from barnabas_metadata_quorum.image.records import PartitionMoved, TopicConfigured
from barnabas_metadata_quorum.image.snapshots import Snapshot, decode_snapshot, encode_snapshot

from .test_controller import Controller
from .test_topic_growth import grow

BROKERS = 6


def with_topic(*replicas: int, brokers: int = BROKERS) -> Controller:
    """A cluster of brokers 0 to `brokers` - 1, and a topic t of one partition on `replicas`."""
    controller = Controller(brokers)
    assert controller.create(NewTopic("t", assignments={0: replicas}))[0].error is None
    return controller


def partition_of(image: Image, index: int = 0) -> PartitionPlacement:
    topic = image.topic_named("t")
    assert topic is not None
    return topic.partitions[index]


def move(
    controller: Controller, *replicas: int, partition: int = 0, topic: str = "t", keep_factor: bool = False
) -> ReassignmentFate:
    return alter(controller, Reassignment(topic, partition, replicas), keep_factor=keep_factor)[0]


def cancel(controller: Controller) -> ReassignmentFate:
    return alter(controller, Reassignment("t", 0, None))[0]


def alter(controller: Controller, *wanted: Reassignment, keep_factor: bool = False) -> tuple[ReassignmentFate, ...]:
    answer = controller.ask(AlterReassignments(wanted, not keep_factor))
    assert isinstance(answer, AlterReassignmentsAnswer)
    return answer.partitions


def finish(controller: Controller, epoch: int | None = None) -> int:
    partition = partition_of(controller.image)
    topic = controller.image.topic_named("t")
    assert topic is not None
    answer = controller.ask(FinishMoves(((topic.topic_id, 0, partition.epoch if epoch is None else epoch),)))
    assert isinstance(answer, MovesFinished)
    return answer.count


def test_a_partition_on_its_way_keeps_its_old_replicas_until_it_has_arrived() -> None:
    controller = with_topic(0, 1, 2)
    assert move(controller, 3, 4, 5).error is None
    moving = partition_of(controller.image)
    assert moving.replicas == (3, 4, 5, 0, 1, 2)
    assert (moving.target, moving.adding, moving.removing) == ((3, 4, 5), (3, 4, 5), (0, 1, 2))
    assert finish(controller) == 1
    moved = partition_of(controller.image)
    assert (moved.replicas, moved.adding, moved.removing, moved.move) == ((3, 4, 5), (), (), None)


def test_a_replica_that_stays_is_neither_added_nor_removed() -> None:
    controller = with_topic(0, 1, 2)
    move(controller, 2, 3)
    moving = partition_of(controller.image)
    assert (moving.replicas, moving.adding, moving.removing) == ((2, 3, 0, 1), (3,), (0, 1))


def test_a_new_target_replaces_the_old_one_and_keeps_whoever_may_have_come_already() -> None:
    controller = with_topic(0, 1, 2)
    move(controller, 3, 4, 5)
    move(controller, 3, 1, 2)
    moving = partition_of(controller.image)
    assert moving.replicas == (3, 1, 2, 4, 5, 0)
    assert (moving.adding, set(moving.removing)) == ((3,), {0, 4, 5})


def test_cancelling_returns_to_where_it_was_before_the_first_of_several_targets() -> None:
    controller = with_topic(0, 1, 2)
    move(controller, 3, 4, 5)
    move(controller, 4, 5)
    assert cancel(controller).error is None
    moving = partition_of(controller.image)
    assert (moving.target, moving.adding, set(moving.removing)) == ((0, 1, 2), (), {3, 4, 5})
    # It is on its way back, which cannot be called off.
    assert cancel(controller).error is RefusalReason.NO_REASSIGNMENT_IN_PROGRESS
    assert finish(controller) == 1
    assert partition_of(controller.image).replicas == (0, 1, 2)


def test_what_stands_still_cannot_be_cancelled() -> None:
    fate = cancel(with_topic(0, 1, 2))
    assert fate.error is RefusalReason.NO_REASSIGNMENT_IN_PROGRESS
    assert fate.message == "No partition reassignment is in progress."


def test_another_order_is_done_at_once_and_the_same_order_does_nothing() -> None:
    controller = with_topic(0, 1, 2)
    assert move(controller, 0, 1, 2).error is None
    assert controller.records == ()
    assert move(controller, 2, 0, 1).error is None
    moved = partition_of(controller.image)
    assert (moved.replicas, moved.move) == ((2, 0, 1), None)
    assert controller.image.loads[2].leaders == 1


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        ((), "The manual partition assignment includes an empty replica list."),
        ((1, 9), "The manual partition assignment includes broker 9, but no such broker is registered."),
        ((1, -1), "The manual partition assignment includes broker -1, but no such broker is registered."),
        ((1, 2, 1), "The manual partition assignment includes the broker 1 more than once."),
    ],
)
def test_an_impossible_target_is_refused(replicas: tuple[int, ...], message: str) -> None:
    controller = with_topic(0, 1, 2)
    fate = move(controller, *replicas)
    assert (fate.error, fate.message) == (RefusalReason.INVALID_REPLICA_ASSIGNMENT, message)
    assert controller.records == ()


def test_what_does_not_exist_cannot_move() -> None:
    controller = with_topic(0, 1, 2)
    assert move(controller, 1, topic="nobody").message == "Unable to find a topic named nobody."
    for partition in (1, -1):
        fate = move(controller, 1, partition=partition)
        assert (fate.error, fate.message) == (
            RefusalReason.UNKNOWN_TOPIC,
            f"Unable to find partition t:{partition}.",
        )


def test_the_number_of_replicas_changes_only_if_that_is_allowed() -> None:
    controller = with_topic(0, 1, 2)
    fate = move(controller, 3, 4, keep_factor=True)
    assert fate.error is RefusalReason.INVALID_REPLICATION_FACTOR
    assert fate.message == "The replication factor is changed from 3 to 2"
    assert move(controller, 3, 4, 5, keep_factor=True).error is None
    # While it moves, the number is that of its old replicas, not of all brokers that have it.
    assert move(controller, 3, 4, 1, keep_factor=True).error is None
    assert move(controller, 3, 4).error is None


def test_one_bad_partition_harms_no_other_and_each_is_answered_in_order() -> None:
    controller = with_topic(0, 1, 2)
    fates = alter(
        controller, Reassignment("t", 7, (1,)), Reassignment("t", 0, (3, 4, 5)), Reassignment("t", 0, (0, 1, 2))
    )
    assert [fate.error for fate in fates] == [RefusalReason.UNKNOWN_TOPIC, None, None]
    assert partition_of(controller.image).target == (0, 1, 2)


def test_a_retry_is_answered_the_same_and_changes_nothing() -> None:
    controller = with_topic(0, 1, 2)
    command = AlterReassignments((Reassignment("t", 0, (3,)), Reassignment("t", 1, (3,))), command_id=b"r" * 16)
    first = controller.ask(command)
    image = controller.image
    assert controller.ask(command) == first
    assert controller.image is image or controller.image == image


def test_more_partitions_than_one_entry_should_hold_are_refused_as_a_whole() -> None:
    controller = with_topic(0, 1, 2)
    command = AlterReassignments((Reassignment("t", 0, (1,)),) * 10_001)
    assert controller.refuses(command) is RefusalReason.POLICY_VIOLATION


def test_many_moves_of_one_command_copy_their_topic_once() -> None:
    controller = with_topic(0, 1, 2)
    grow(controller, NewPartitions("t", 3))
    image = controller.image
    topic = image.topic_named("t")
    assert topic is not None
    builder = ImageBuilder(image)
    for index in (0, 2, 0):
        builder.apply(PartitionMoved(topic.topic_id, index, image.version, (3 + index, 4, 5)))
    assert builder._topics.now is image.topics, "nothing is copied for each of them"
    moved = [builder.partition(topic.topic_id, index).replicas for index in range(3)]
    assert moved == [(3, 4, 5), topic.partitions[1].replicas, (5, 4, 5)]
    assert [partition.replicas for partition in builder.topics[topic.topic_id].partitions] == moved
    builder.apply(PartitionMoved(topic.topic_id, 1, image.version, (0, 4, 5)))
    builder.apply(TopicConfigured(topic.topic_id, {"retention.ms": "5"}))
    after = builder.build().topics[topic.topic_id]
    assert (after.partitions[1].replicas, after.configs) == ((0, 4, 5), {"retention.ms": "5"})


def test_a_report_of_an_earlier_move_ends_no_later_one() -> None:
    controller = with_topic(0, 1, 2)
    move(controller, 3, 4, 5)
    first = partition_of(controller.image).epoch
    move(controller, 0, 1, 2)
    move(controller, 3, 4, 5)
    assert finish(controller, epoch=first) == 0
    assert partition_of(controller.image).move is not None
    assert finish(controller) == 1
    assert finish(controller) == 0


def test_a_report_of_what_is_gone_is_passed_over() -> None:
    controller = with_topic(0, 1, 2)
    topic = controller.image.topic_named("t")
    assert topic is not None
    moves = ((topic.topic_id, 4, 1), (topic.topic_id, -1, 1), (b"x" * 16, 0, 1), (topic.topic_id, 0, 0))
    assert controller.ask(FinishMoves(moves)) == MovesFinished(0)


def test_founders_are_named_with_their_disks_until_a_move_was_finished() -> None:
    controller = Controller(0)
    for node_id in range(4):
        controller.ask(RegisterBroker(node_id, 1, "host", 9000, directory_id=bytes([node_id]) * 16))
        controller.beat(node_id)
    controller.create(NewTopic("t", assignments={0: (0, 1, 2)}))
    founders = partition_of(controller.image).founders
    assert founders is not None
    assert founders.directories == {0: b"\0" * 16, 1: b"\1" * 16, 2: b"\2" * 16}
    # Broker 1 comes back with an empty disk: it is registered with the new one, the founders stay the same.
    controller.ask(RegisterBroker(1, 2, "host", 9000, directory_id=b"n" * 16))
    controller.beat(1)
    assert partition_of(controller.image).founders == founders
    assert [fate.error for fate in grow(controller, NewPartitions("t", 2, ((1, 2, 3),)))] == [None]
    grown = partition_of(controller.image, 1).founders
    assert grown is not None
    assert grown.directories == {1: b"n" * 16, 2: b"\2" * 16, 3: b"\3" * 16}
    move(controller, 1, 2, 3)
    assert partition_of(controller.image).founders == founders
    finish(controller)
    assert partition_of(controller.image).founders is None
    move(controller, 3, 2, 1)  # another order, and later
    assert partition_of(controller.image).founders is None
    again = decode_snapshot(encode_snapshot(Snapshot(1, 1, controller.image))).image
    assert again.topics == controller.image.topics


def test_a_move_is_a_change_of_the_topic_and_nothing_else_is() -> None:
    controller = with_topic(0, 1, 2)
    before = controller.image
    controller.beat(1)
    assert topic_changes(before, controller.image).changed == ()
    move(controller, 3, 4, 5)
    assert [topic.name for topic in topic_changes(before, controller.image).changed] == ["t"]
    # An image that came as a snapshot has other objects, and says the same.
    again = decode_snapshot(encode_snapshot(Snapshot(1, 1, controller.image))).image
    assert topic_changes(controller.image, again) == ((), (), ())


def test_new_partitions_get_as_many_replicas_as_the_topic_will_have() -> None:
    controller = with_topic(0, 1, 2)
    move(controller, 3, 4)
    assert [fate.error for fate in grow(controller, NewPartitions("t", 2))] == [None]
    assert len(partition_of(controller.image, 1).replicas) == 2


targets = st.lists(st.integers(0, BROKERS - 1), min_size=1, max_size=4, unique=True).map(tuple)
steps = st.lists(st.none() | targets | st.just("finish"), max_size=8)


@settings(max_examples=60, deadline=None)
@given(targets, steps)
def test_any_history_of_moves_says_what_a_list_of_sets_would_say(
    first: tuple[int, ...], history: list[tuple[int, ...] | str | None]
) -> None:
    controller = with_topic(*first)
    standing = first
    goal = first
    everybody = set(first)
    moves = False
    for step in history:
        if step == "finish":
            assert finish(controller) == moves
            standing = goal
            everybody = set(goal)
            moves = False
        elif step is None:
            error = cancel(controller).error
            assert (error is None) == (moves and goal != standing)
            goal = standing
        else:
            assert isinstance(step, tuple)
            assert move(controller, *step).error is None
            goal = step
            everybody = everybody | set(step)
            if not moves and set(step) == set(standing):
                standing = step
            moves = moves or goal != standing
        partition = partition_of(controller.image)
        assert partition.target == goal
        assert partition.replicas[: len(goal)] == goal
        assert set(partition.replicas) == everybody
        assert len(partition.replicas) == len(everybody)
        assert (partition.move is not None) == moves
        assert set(partition.adding) == (set(goal) - set(standing) if moves else set())
        again = decode_snapshot(encode_snapshot(Snapshot(1, 1, controller.image))).image
        assert (again.topics, again.loads) == (controller.image.topics, controller.image.loads)
        assert sum(load.replicas for load in again.loads.values()) == len(everybody)
        for record in controller.records:
            assert isinstance(record, PartitionMoved)
