"""Topics that grow: the rules, the placement, and a retry that adds nothing."""

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps import outcome

from barnabas_metadata_quorum.controller.commands import (
    ControlledShutdown,
    CreatePartitions,
    CreatePartitionsAnswer,
    CreateTopics,
    GrownTopic,
    NewPartitions,
    NewTopic,
    RefusalReason,
)
from barnabas_metadata_quorum.controller.placement import COUNTED_AT_ONCE, PLACED_AT_ONCE
from barnabas_metadata_quorum.controller.topics import create_partitions, create_topics
from barnabas_metadata_quorum.image.image import ImageBuilder, apply_all, topic_changes
from barnabas_metadata_quorum.image.records import PartitionsAdded, Record
from barnabas_metadata_quorum.image.snapshots import Snapshot, decode_snapshot, encode_snapshot

from .test_controller import Controller


def with_topic(brokers: int = 3, partitions: int = 2, factor: int = 2) -> Controller:
    controller = Controller(brokers)
    assert controller.create(NewTopic("t", partitions, factor))[0].error is None
    return controller


def grow(controller: Controller, *wanted: NewPartitions, **fields: bytes | bool) -> list[GrownTopic]:
    answer = controller.ask(CreatePartitions(wanted, **fields))  # type: ignore[arg-type]
    assert isinstance(answer, CreatePartitionsAnswer)
    return list(answer.topics)


def test_a_topic_grows_behind_what_it_has() -> None:
    controller = with_topic()
    before = controller.image
    topic = before.topic_named("t")
    assert topic is not None
    assert [fate.error for fate in grow(controller, NewPartitions("t", 5))] == [None]
    grown = controller.image.topic_named("t")
    assert grown is not None
    assert grown.partitions[:2] == topic.partitions
    assert len(grown.partitions) == 5
    assert {len(partition.replicas) for partition in grown.partitions} == {2}
    assert topic_changes(before, controller.image) == ((), (), (grown,))
    # A snapshot says the same in other records.
    again = decode_snapshot(encode_snapshot(Snapshot(1, 1, controller.image))).image
    assert (again.topics, again.loads) == (controller.image.topics, controller.image.loads)


@pytest.mark.parametrize("factor", [2, 3])
def test_what_a_wide_topic_has_already_is_counted_in_pieces(factor: int) -> None:
    had = 20 * COUNTED_AT_ONCE - PLACED_AT_ONCE
    more = PLACED_AT_ONCE
    controller = with_topic(3, had, factor)
    command = CreatePartitions((NewPartitions("t", had + more),))
    (_, fates), pauses = outcome(create_partitions(controller.image, command, controller.config.limits))
    assert fates[0].error is None
    assert pauses >= 2 * 19, "by brokers, and by the topic's own"


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("count", [PLACED_AT_ONCE, PLACED_AT_ONCE + 1])
def test_whoever_is_told_of_many_new_partitions_has_a_turn_of_its_own(
    count: int, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = with_topic(3, 1, 3)
    image = controller.image
    config = controller.config
    steps_at = list[int]()
    step = 0
    apply = ImageBuilder.apply

    def noted(builder: ImageBuilder, record: Record) -> None:
        steps_at.append(step)
        apply(builder, record)

    monkeypatch.setattr(ImageBuilder, "apply", noted)
    steps: Generator[None, None, Any]
    if is_new:
        wanted = CreateTopics((NewTopic("new", count, 3, topic_id=bytes([7]) * 16),))
        steps = create_topics(image, wanted, 1, 3, config.limits)
    else:
        steps = create_partitions(image, CreatePartitions((NewPartitions("t", count + 1),)), config.limits)
    for _ in steps:
        step += 1
    assert steps_at == [step - 1 if count > PLACED_AT_ONCE else step]


@given(brokers=st.integers(1, 5), partitions=st.integers(1, 6), added=st.integers(1, 9), factor=st.integers(1, 3))
def test_a_grown_topic_is_as_even_as_one_that_was_made_so(
    brokers: int, partitions: int, added: int, factor: int
) -> None:
    factor = min(factor, brokers)
    controller = with_topic(brokers, partitions, factor)
    grow(controller, NewPartitions("t", partitions + added))
    topic = controller.image.topic_named("t")
    assert topic is not None
    leaders = [partition.replicas[0] for partition in topic.partitions]
    counts = [leaders.count(node_id) for node_id in range(brokers)]
    assert max(counts) - min(counts) <= 1
    loads = controller.image.loads
    assert sum(load.leaders for load in loads.values()) == partitions + added
    assert sum(load.replicas for load in loads.values()) == (partitions + added) * factor


@pytest.mark.parametrize(
    ("wanted", "reason", "text"),
    [
        (NewPartitions("u", 3), RefusalReason.UNKNOWN_TOPIC, "no topic u"),
        (NewPartitions("t", 2), RefusalReason.INVALID_PARTITIONS, "already has 2"),
        (NewPartitions("t", 1), RefusalReason.INVALID_PARTITIONS, "not be an increase"),
        (NewPartitions("t", 3, ()), RefusalReason.INVALID_REPLICA_ASSIGNMENT, "only 0 assignment"),
        (NewPartitions("t", 3, ((),)), RefusalReason.INVALID_REPLICA_ASSIGNMENT, "empty"),
        (NewPartitions("t", 3, ((0, 7),)), RefusalReason.INVALID_REPLICA_ASSIGNMENT, "broker 7"),
        (NewPartitions("t", 3, ((1, 1),)), RefusalReason.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        (NewPartitions("t", 3, ((1,),)), RefusalReason.INVALID_REPLICA_ASSIGNMENT, "have 2 replica"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(wanted: NewPartitions, reason: RefusalReason, text: str) -> None:
    controller = with_topic()
    before = controller.image
    (fate,) = grow(controller, wanted)
    assert fate.error is reason
    assert text in fate.message
    assert controller.image is before or controller.image == before


def test_the_offsets_topic_keeps_its_partitions() -> None:
    controller = Controller(1)
    controller.create(NewTopic("__consumer_offsets", 4, 1))
    assert grow(controller, NewPartitions("__consumer_offsets", 5))[0].error is RefusalReason.INVALID_TOPIC


def test_one_bad_name_harms_no_other_and_a_doubled_one_none_but_itself() -> None:
    controller = with_topic()
    controller.create(NewTopic("v", 1, 1))
    fates = grow(controller, NewPartitions("t", 3), NewPartitions("t", 4), NewPartitions("v", 2), NewPartitions("w", 2))
    assert [fate.error for fate in fates] == [
        RefusalReason.INVALID_REQUEST,
        RefusalReason.INVALID_REQUEST,
        None,
        RefusalReason.UNKNOWN_TOPIC,
    ]


def test_too_many_at_once_are_refused_as_a_whole() -> None:
    controller = with_topic()
    assert controller.refuses(CreatePartitions((NewPartitions("t", 10_003),))) is RefusalReason.POLICY_VIOLATION


def test_validation_changes_nothing_and_a_retry_adds_nothing() -> None:
    controller = with_topic()
    before = controller.image
    assert grow(controller, NewPartitions("t", 3, ((0, 1),)), validate_only=True)[0].error is None
    assert controller.image == before
    first = grow(controller, NewPartitions("t", 3, ((0, 1),)), command_id=b"i" * 16)
    assert isinstance(controller.records[0], PartitionsAdded)
    grown = controller.image
    assert grow(controller, NewPartitions("t", 3, ((0, 1),)), command_id=b"i" * 16) == first
    assert controller.image == apply_all(grown, ())


def test_nothing_is_assigned_to_brokers_none_of_which_could_serve() -> None:
    """As Kafka checks it: one that could is enough."""
    controller = Controller(4)
    assert controller.create(NewTopic("t", 1, 2))[0].error is None
    controller.register(1, incarnation=2)  # fenced until it has applied that
    controller.ask(ControlledShutdown(2, controller.image.brokers[2].epoch, False))
    refused = RefusalReason.INVALID_REPLICA_ASSIGNMENT
    for replicas, error in {(1, 2): refused, (2, 1): refused, (1, 3): None, (3, 2): None}.items():
        [created] = controller.create(NewTopic("u", assignments={0: replicas}), validate_only=True)
        assert created.error is error
        [grown] = grow(controller, NewPartitions("t", 2, (replicas,)), validate_only=True)
        assert grown.error is error
