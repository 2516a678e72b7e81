"""Whatever the sizes, the options and what brokers tell: each offset is read once, in order, by tasks within limits."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import ReadOptions, parse_read_options
from barnabas_spark.planning.packing import TASKS_MIN, pack, pack_few
from barnabas_spark.planning.plan import PartitionState, Split
from barnabas_spark.planning.sizes import OFFSET_BYTES, estimated
from barnabas_spark.planning.splitting import Told, balanced_bytes, cut, cut_by_records, parts_wanted

MIB = 1 << 20
GIB = 1 << 30


def options(**given: object) -> ReadOptions:
    texts = {name: str(value) for name, value in given.items() if value is not None}
    return parse_read_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"} | texts)


def split(partition: int, start: int, end: int, size: int = -1) -> Split:
    return Split("t", None, partition, 3, start, end, size)


def ranges_of(*sizes: tuple[int, int]) -> list[Split]:
    """Return ranges of so many offsets and bytes, each of a partition of its own."""
    return [split(number, 100, 100 + offsets, size) for number, (offsets, size) in enumerate(sizes)]


def tasks_of(
    ranges: list[Split], wishes: ReadOptions, told: dict[Split, list[Told]] | None = None
) -> list[tuple[Split, ...]]:
    pieces = cut_by_records(ranges, wishes)
    counts = parts_wanted(pieces, wishes)
    parts = [
        part
        for one, count in zip(pieces, counts, strict=True)
        for part in cut(one, count, (told or {}).get(one, ()), wishes)
    ]
    return pack(parts, wishes)


def parts_of(ranges: list[Split], **given: object) -> list[int]:
    return parts_wanted(ranges, options(**given))


# How many parts.


@pytest.mark.parametrize(
    ("offsets", "partitions_min", "expected"),
    [
        ((100,), 4, [25, 25, 25, 25]),
        ((100, 1), 3, [50, 50, 1]),
        ((60, 30), 3, [30, 30, 30]),
        ((2, 1), 10, [1, 1, 1]),
        ((10, 10, 10), 2, [10, 10, 10]),
    ],
)
def test_of_ranges_without_sizes_those_with_the_most_offsets_are_split_first(
    offsets: tuple[int, ...], partitions_min: int, expected: list[int]
) -> None:
    tasks = tasks_of(ranges_of(*((count, -1) for count in offsets)), options(minPartitions=partitions_min))
    assert [part.offsets for (part,) in tasks] == expected


def test_parts_are_balanced_by_bytes_and_not_by_offsets() -> None:
    assert parts_of(ranges_of((1000, 10 * MIB), (10, 90 * MIB)), minPartitions=10) == [1, 9]


def test_no_part_has_more_bytes_than_wanted() -> None:
    ranges = ranges_of((1000, 128 * MIB), (1000, 128 * MIB + 1), (1000, 0), (3, GIB))
    assert parts_of(ranges, maxBytesPerPartition="128MiB") == [1, 2, 1, 3]


def test_without_a_wish_a_partition_with_most_of_the_bytes_is_read_by_many_tasks() -> None:
    skewed = ranges_of((900_000, 900_000_000), *[(9_000, 9_000_000)] * 11)
    assert parts_of(skewed) == [14, *[1] * 11]


def test_without_a_wish_partitions_of_similar_sizes_are_read_by_one_task_each() -> None:
    assert parts_of(ranges_of(*[(83_000, 83 * MIB)] * 12)) == [1] * 12


def test_without_a_wish_a_task_reads_a_reasonable_amount() -> None:
    assert (balanced_bytes(0), balanced_bytes(GIB), balanced_bytes(10**15)) == (16 * MIB, 64 * MIB, 128 * MIB)


@pytest.mark.parametrize("wish", [{"partitioning": "topicPartition"}, {"minPartitions": 1}])
def test_one_task_for_each_topic_partition_is_to_be_had(wish: dict[str, object]) -> None:
    assert parts_of(ranges_of((900, 900 * GIB), (9, 9)), **wish) == [1, 1]
    ranges = ranges_of(*[(1, 1)] * 300)
    if "partitioning" in wish:
        assert tasks_of(ranges, options(**wish)) == [(one,) for one in ranges]


@pytest.mark.parametrize(("option", "most"), [("maxRecordsPerPartition", 1), ("maxBytesPerPartition", 1)])
def test_a_misplaced_digit_is_refused(option: str, most: int) -> None:
    with pytest.raises(OptionError, match="more than 1000000"):
        tasks_of(ranges_of((10**12, 10**12)), options(**{option: most}))


# Where.


def test_a_range_is_cut_where_batches_begin() -> None:
    one = split(0, 0, 100, 10 * MIB)
    told = [Told(37, 4 * MIB), Told(59, 3 * MIB), Told(100, 3 * MIB)]
    parts = cut(one, 3, told, options(maxBytesPerPartition="4MiB"))
    assert parts == [split(0, 0, 37, 4 * MIB), split(0, 37, 59, 3 * MIB), split(0, 59, 100, 3 * MIB)]


@pytest.mark.parametrize(
    "told",
    [
        [],
        [(50, 1)],
        [(0, 1), (100, 1)],
        [(60, 1), (50, 1), (100, 1)],
        [(101, 1)],
        [(-1, 1), (100, 1)],
        [(50, 1), (50, 1), (100, 1)],
    ],
)
def test_where_nothing_or_nonsense_is_told_it_is_cut_evenly(told: list[tuple[int, int]]) -> None:
    parts = cut(split(0, 0, 100, 400), 4, [Told(*one) for one in told], options(maxBytesPerPartition=100))
    assert parts == [split(0, start, start + 25, 100) for start in (0, 25, 50, 75)]


def test_a_batch_is_cut_only_for_min_partitions() -> None:
    one, told = split(0, 0, 100, 10 * MIB), [Told(100, 10 * MIB)]
    assert cut(one, 4, told, options(maxBytesPerPartition="3MiB")) == [one]
    assert [part.offsets for part in cut(one, 4, told, options(minPartitions=4))] == [25] * 4


# Packing.


def test_many_small_ranges_are_packed_evenly() -> None:
    tasks = tasks_of(ranges_of(*[(3, 500)] * 256), options())
    assert [len(task) for task in tasks] == [16] * TASKS_MIN


def test_few_ranges_have_a_task_each() -> None:
    assert [len(task) for task in tasks_of(ranges_of(*[(3, 500)] * TASKS_MIN), options())] == [1] * TASKS_MIN


def test_a_small_micro_batch_gets_no_more_tasks_than_are_worth_it() -> None:
    def lengths(*ranges: tuple[int, int]) -> list[int]:
        return [len(task) for task in pack_few(ranges_of(*ranges), options(partitioning="topicPartition"))]

    assert lengths(*[(3, 0)] * 8) == [8]
    assert lengths(*[(3, 0)] * 12) == [6, 6]
    assert lengths(*[(3, 3 * MIB)] * 4) == [1] * 4
    assert lengths(*[(3, 0)] * 256) == [16] * TASKS_MIN
    assert lengths((3, GIB)) == [1]


def test_min_partitions_holds_for_packed_ranges_too() -> None:
    for wanted in (17, 40, 255, 256):
        assert len(tasks_of(ranges_of(*[(3, 500)] * 256), options(minPartitions=wanted))) == wanted


def test_large_ranges_stay_alone_among_many_small_ones() -> None:
    ranges = ranges_of(*[(3, 500)] * 100, (9, 15 * MIB), *[(3, 500)] * 100)
    tasks = tasks_of(ranges, options())
    (alone,) = [task for task in tasks if ranges[100] in task]
    assert len(alone) == 1
    assert len(tasks) >= TASKS_MIN


# All of it.

SIZES = st.integers(0, 10) | st.integers(0, 5 * MIB) | st.integers(0, 3 * GIB) | st.just(-1)
RANGES = st.lists(st.tuples(st.integers(1, 300) | st.integers(1, 10**9), SIZES), min_size=1, max_size=60)
WISHES = st.fixed_dictionaries(
    {},
    optional={
        "minPartitions": st.integers(1, 120),
        "maxRecordsPerPartition": st.integers(10**6, 10**9),
        "maxBytesPerPartition": st.integers(MIB, GIB),
        "partitioning": st.sampled_from(["balanced", "topicPartition"]),
    },
)


@st.composite
def told_of(draw: st.DrawFn, ranges: list[Split], wishes: ReadOptions) -> dict[Split, list[Told]]:
    """Return cuts for some of the pieces, sensible ones mostly."""
    told = {}
    for one in cut_by_records(ranges, wishes)[:30]:
        steps = draw(st.lists(st.integers(1, max(1, one.offsets)), max_size=8))
        ends = [end for end in accumulate(steps, initial=one.start_offset) if end < one.end_offset]
        told[one] = [Told(end, draw(st.integers(0, GIB))) for end in (*ends[1:], one.end_offset)]
    return told


@given(st.data(), RANGES, WISHES)
@settings(max_examples=60)
def test_each_offset_is_read_once_and_in_order(
    data: st.DataObject, sizes: list[tuple[int, int]], wish: dict[str, object]
) -> None:
    wishes = options(**wish)
    ranges = ranges_of(*sizes)
    told = data.draw(told_of(ranges, wishes))
    tasks = tasks_of(ranges, wishes, told)
    assert all(tasks)
    parts = [part for task in tasks for part in task]
    for one in ranges:
        mine = [part for part in parts if part.partition == one.partition]
        assert mine[0].start_offset == one.start_offset
        assert mine[-1].end_offset == one.end_offset
        assert all(a.end_offset == b.start_offset for a, b in pairwise(mine))
        assert not any(part.is_empty for part in mine)
    if wishes.partition_records_max is not None:
        assert all(sum(part.offsets for part in task) <= wishes.partition_records_max for task in tasks)
    if wishes.partitions_min is not None:
        assert len(tasks) >= min(wishes.partitions_min, sum(one.offsets for one in ranges))
    if wishes.partition_bytes_max is not None:
        several = [task for task in tasks if len(task) > 1]
        assert all(sum(max(0, part.size_bytes) for part in task) <= wishes.partition_bytes_max for task in several)
    if wishes.partitioning == "topicPartition":
        assert all(len(task) == 1 for task in tasks)


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=6),
    st.tuples(st.just("minPartitions"), st.integers(1, 60))
    | st.tuples(st.just("maxRecordsPerPartition"), st.integers(1, 100)),
)
@settings(max_examples=40)
def test_without_sizes_parts_of_a_range_are_equal_but_for_one_record(sizes: list[int], wish: tuple[str, int]) -> None:
    ranges = ranges_of(*((size, -1) for size in sizes))
    tasks = tasks_of(ranges, options(partitioning="topicPartition", **dict([wish])))
    for one in ranges:
        offsets = [part.offsets for (part,) in tasks if part.partition == one.partition]
        assert max(offsets) - min(offsets) <= 1
        assert wish[0] == "minPartitions" or max(offsets) <= wish[1]


# Estimates.


def test_a_range_has_its_share_of_the_replica() -> None:
    partitions = {("t", 0): PartitionState(None, 1, 100, 300), ("t", 1): PartitionState(None, 1, 0, 100)}
    ranges = [split(0, 150, 200), split(1, 0, 100)]
    assert [one.size_bytes for one in estimated(ranges, partitions, {("t", 0): 4000})] == [1000, 2000]
    assert [one.size_bytes for one in estimated(ranges, partitions, {})] == [50 * OFFSET_BYTES, 100 * OFFSET_BYTES]
    assert [one.size_bytes for one in estimated(ranges, partitions, {("other", 0): 7})] == [
        50 * OFFSET_BYTES,
        100 * OFFSET_BYTES,
    ]
