"""What a read by the name of a snapshot reads, decided without a cluster."""

import pytest

from barnabas_clients.admin.snapshot_ranges import Left, NamedSnapshot, PinnedRange, RangeCheck, SnapshotTopic
from barnabas_clients.protocol.snapshot_states import SnapshotTopicState
from barnabas_clients.topic_partition import TopicPartition as Key
from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import ReadOptions, parse_read_options
from barnabas_spark.planning.plan import DataLossError, PartitionState, Snapshot, Split, make_plan, ranges_of
from barnabas_spark.snapshots.vector import (
    SnapshotDivergedError,
    check_compacted,
    chosen,
    left_of,
    needless_options,
    pinned_options,
    vector_of,
)

ORDERS, REFUNDS = b"o" * 16, b"r" * 16
WHOLE = RangeCheck(Left.WHOLE)


def options(**given: str) -> ReadOptions:
    if not given.keys() & {"assign", "subscribePattern"}:
        given.setdefault("subscribe", "orders")
    return parse_read_options({"kafka.bootstrap.servers": "b:9092", "snapshot": "month-end", **given})


def topic(name: str, topic_id: bytes, *ends: int, is_compacted: bool = False) -> SnapshotTopic:
    ranges = {number: PinnedRange(0, end, 3) for number, end in enumerate(ends)}
    return SnapshotTopic(name, topic_id, SnapshotTopicState.THERE, is_compacted, ranges)


def snapshot(*topics: SnapshotTopic) -> NamedSnapshot:
    held = topics or (topic("orders", ORDERS, 10, 20), topic("refunds", REFUNDS, 5))
    return NamedSnapshot("month-end", b"i" * 16, 0, False, len(held), 3, held)


def ranges_in(part: NamedSnapshot) -> dict[Key, PinnedRange]:
    return {Key(one.name, number): pinned for one in part.topics for number, pinned in one.partitions.items()}


@pytest.mark.parametrize(
    ("asked", "keys"),
    [
        ({"subscribe": "orders"}, [("orders", 0), ("orders", 1)]),
        ({"subscribe": "refunds,orders"}, [("refunds", 0), ("orders", 0), ("orders", 1)]),
        ({"assign": '{"orders":[1]}'}, [("orders", 1)]),
        ({"subscribePattern": "o.*"}, [("orders", 0), ("orders", 1)]),
    ],
)
def test_a_read_takes_its_part_of_a_snapshot(asked: dict[str, str], keys: list[tuple[str, int]]) -> None:
    assert list(ranges_in(chosen(snapshot(), options(**asked).topics))) == keys


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"subscribe": "orders,order"}, "holds no topic 'order', but 'orders', 'refunds'"),
        ({"assign": '{"orders":[1,2]}'}, "does not hold partition 2 of topic 'orders'"),
        ({"subscribePattern": "x.*"}, "holds no topic that matches 'x[.][*]'"),
    ],
)
def test_what_is_not_in_a_snapshot_is_refused(asked: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        chosen(snapshot(), options(**asked).topics)


def test_the_first_use_keeps_resolved_ranges_and_the_epoch_of_each_end() -> None:
    given = options(startingOffsets='{"orders":{"0":4,"1":-2}}', endingOffsets='{"orders":{"0":7,"1":-1}}')
    states = {("orders", 0): PartitionState(ORDERS, 9, 2, 10, 8), ("orders", 1): PartitionState(ORDERS, 9, 20, 20, 7)}
    ranges, warnings = ranges_of(given, Snapshot(states))
    kept = vector_of(ranges, {key: state.end_epoch for key, state in states.items()})
    assert kept == {ORDERS: {0: PinnedRange(4, 7, 8), 1: PinnedRange(20, 20, 7)}}
    assert warnings == []


def test_a_later_read_plans_the_same_ranges_whatever_the_log_has_become() -> None:
    given = options(startingOffsets='{"orders":{"0":8,"1":9}}')
    part = chosen(snapshot(), given.topics)
    vector, warnings = left_of(part, dict.fromkeys(ranges_in(part), WHOLE), given)
    pinned = pinned_options(given, vector)
    states = {("orders", number): PartitionState(ORDERS, 12, 0, 1_000) for number in (0, 1)}
    plan = make_plan(pinned, Snapshot(states))
    assert [(one.partition, one.start_offset, one.end_offset) for one in plan.splits] == [
        (0, 0, 10),
        (1, 0, 20),
    ]
    assert plan.warnings == warnings == []


def test_an_empty_range_is_not_read_and_nothing_of_it_is_missing() -> None:
    part = snapshot(topic("orders", ORDERS, 0, 20))
    vector, _ = left_of(part, dict.fromkeys(ranges_in(part), WHOLE), options())
    assert list(vector.ranges) == [Key("orders", 1)]


def test_a_snapshot_of_nothing_is_an_empty_plan() -> None:
    part = snapshot(topic("orders", ORDERS, 0))
    vector, _ = left_of(part, dict.fromkeys(ranges_in(part), WHOLE), options())
    [nothing] = make_plan(pinned_options(options(), vector), Snapshot({})).splits
    assert nothing.is_empty


def test_everything_that_is_gone_is_told() -> None:
    checks = {
        Key("orders", 0): RangeCheck(Left.NOTHING, "offsets 0 to 10 are gone: the log starts at 15"),
        Key("orders", 1): RangeCheck(Left.PART, "offsets 0 to 7 are gone"),
        Key("refunds", 0): RangeCheck(Left.DELETED, "the topic was deleted"),
    }
    with pytest.raises(DataLossError) as caught:
        left_of(snapshot(), checks, options())
    assert "'month-end' is not whole any more" in str(caught.value)
    assert all(f"{key}: {check.reason}" in str(caught.value) for key, check in checks.items())
    vector, warnings = left_of(snapshot(), checks, options(failOnDataLoss="false"))
    assert list(vector.ranges) == [Key("orders", 1)], "the plan cuts what is partly gone, and says so"
    assert [warning.partition(": ")[2].partition(":")[0] for warning in warnings] == ["orders-0", "refunds-0"]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_log_without_the_end_that_was_seen_stops_the_read_whatever_the_options_say(fail: str) -> None:
    checks = {
        Key("orders", 0): RangeCheck(Left.DIVERGED, "the log does not contain offset 10"),
        Key("orders", 1): WHOLE,
    }
    with pytest.raises(SnapshotDivergedError, match="orders-0: the log does not contain offset 10"):
        left_of(snapshot(topic("orders", ORDERS, 10, 20)), checks, options(failOnDataLoss=fail))


def test_very_many_losses_are_told_in_one_line() -> None:
    held = snapshot(topic("orders", ORDERS, *[1] * 1_000))
    checks = dict.fromkeys(ranges_in(held), RangeCheck(Left.NOTHING, "gone"))
    with pytest.raises(DataLossError, match="and 990 more partitions"):
        left_of(held, checks, options())


def test_a_topic_that_is_compacted_by_now_is_refused_unless_best_effort_will_do() -> None:
    held = snapshot(topic("orders", ORDERS, 5, is_compacted=True))
    with pytest.raises(OptionError, match=r"'orders' is compacted.*set snapshotCompacted to best-effort"):
        check_compacted(held, options())
    check_compacted(held, options(snapshotCompacted="best-effort"))


def test_options_that_have_no_effect_any_more_are_named() -> None:
    assert needless_options(options()) == needless_options(options(startingOffsets="earliest")) == []
    assert needless_options(options(startingTimestamp="5", endingOffsets='{"orders":{"0":1}}')) == [
        "startingTimestamp",
        "endingOffsets",
    ]


def test_a_range_is_never_kept_back_to_front() -> None:
    """A range that lies outside of the log is cut to nothing, and may have its ends crossed by that."""
    crossed = Split("orders", ORDERS, 0, 9, 20, 15)
    assert vector_of([crossed], {("orders", 0): 4}) == {ORDERS: {0: PinnedRange(20, 20, 4)}}
