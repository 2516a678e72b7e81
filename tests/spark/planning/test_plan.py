"""Ranges are fixed by the snapshot, and are what was asked for."""

import pytest

from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import ReadOptions, parse_read_options
from barnabas_spark.planning.plan import (
    DataLossError,
    PartitionState,
    Snapshot,
    Split,
    make_plan,
    timestamps_needed,
)


def options(**given: str) -> ReadOptions:
    return parse_read_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"} | given)


def state(log_start_offset: int, high_watermark: int) -> PartitionState:
    return PartitionState(bytes(range(16)), 3, log_start_offset, high_watermark)


def snapshot(*ranges: tuple[int, int]) -> Snapshot:
    return Snapshot({("t", partition): state(*one) for partition, one in enumerate(ranges)})


def ranges(splits: list[Split]) -> list[tuple[int, int, int]]:
    return [(one.partition, one.start_offset, one.end_offset) for one in splits]


def planned(found: Snapshot, **given: str) -> list[tuple[int, int, int]]:
    return ranges(list(make_plan(options(**given), found).splits))


def test_everything_is_read_from_beginning_to_high_watermark() -> None:
    assert planned(snapshot((3, 10), (0, 4))) == [(0, 3, 10), (1, 0, 4)]


def test_a_split_says_where_it_was_led() -> None:
    (split,) = make_plan(options(), snapshot((0, 1))).splits
    assert split == Split(
        topic="t", topic_id=bytes(range(16)), partition=0, leader_epoch=3, start_offset=0, end_offset=1
    )


def test_empty_partitions_make_no_split() -> None:
    assert planned(snapshot((5, 5), (0, 4))) == [(1, 0, 4)]


def test_there_is_always_a_split() -> None:
    assert planned(snapshot((5, 5), (2, 2))) == [(0, 5, 5)]
    assert make_plan(options(), Snapshot({})).splits[0].is_empty


def test_a_pattern_that_matches_nothing_is_warned_of() -> None:
    assert "no topic matches" in make_plan(options(), Snapshot({})).warnings[0]
    assert not make_plan(options(), snapshot((0, 0))).warnings


def test_offsets_and_ends_of_the_log_mix() -> None:
    starting, ending = '{"t":{"0":5,"1":-2}}', '{"t":{"0":-1,"1":3}}'
    assert planned(snapshot((3, 10), (0, 4)), startingOffsets=starting, endingOffsets=ending) == [(0, 5, 10), (1, 0, 3)]


@pytest.mark.parametrize("side", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize(
    ("text", "words"), [('{"t":{"0":4}}', "missing: t-1"), ('{"t":{"0":4,"1":4,"7":4}}', "not read: t-7")]
)
def test_offsets_name_every_partition_and_no_other(side: str, text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        planned(snapshot((3, 10), (0, 4)), **{side: text})
    assert caught.value.option == side


def test_an_end_before_its_start_is_refused() -> None:
    with pytest.raises(OptionError, match="from 7"):
        planned(snapshot((3, 10)), startingOffsets='{"t":{"0":7}}', endingOffsets='{"t":{"0":6}}')


@pytest.mark.parametrize(
    ("given", "left", "words"),
    [
        ({"startingOffsets": '{"t":{"0":1}}'}, [(0, 3, 10)], "offsets 1 to 3 are gone"),
        ({"endingOffsets": '{"t":{"0":12}}'}, [(0, 3, 10)], "offsets 10 to 12 are not there"),
        ({"startingOffsets": '{"t":{"0":11}}'}, [(0, 10, 10)], "offsets 10 to 11 are not there"),
        (
            {"startingOffsets": '{"t":{"0":0}}', "endingOffsets": '{"t":{"0":2}}'},
            [(0, 3, 3)],
            "offsets 0 to 3 are gone",
        ),
    ],
)
def test_lost_records_fail_the_query_or_are_left_out_with_a_warning(
    given: dict[str, str], left: list[tuple[int, int, int]], words: str
) -> None:
    with pytest.raises(DataLossError, match=words):
        planned(snapshot((3, 10)), **given)
    plan = make_plan(options(**given, failOnDataLoss="false"), snapshot((3, 10)))
    assert ranges(list(plan.splits)) == left
    assert words in plan.warnings[0]


def test_timestamps_become_offsets_of_the_snapshot() -> None:
    found = Snapshot({("t", 0): state(0, 10), ("t", 1): state(0, 10)}, {("t", 0): 4, ("t", 1): 12}, {("t", 0): 6})
    assert planned(found) == [(0, 4, 6)]


def test_a_start_later_than_every_record_is_an_error_or_reads_nothing() -> None:
    found = Snapshot({("t", 0): state(0, 10)}, {("t", 0): None})
    with pytest.raises(OptionError, match="no record that late"):
        planned(found, startingTimestamp="5")
    assert planned(found, startingTimestamp="5", startingOffsetsByTimestampStrategy="latest") == [(0, 10, 10)]


def test_an_end_later_than_every_record_is_the_end_of_the_log() -> None:
    assert planned(Snapshot({("t", 0): state(0, 10)}, {}, {("t", 0): None}), endingTimestamp="5") == [(0, 0, 10)]


def test_timestamps_are_looked_up_where_they_were_given() -> None:
    partitions = [("t", 0), ("t", 1)]
    assert timestamps_needed(options(startingTimestamp="5").starting, partitions) == {("t", 0): 5, ("t", 1): 5}
    by_partition = options(endingOffsetsByTimestamp='{"t":{"0":6,"1":7}}').ending
    assert timestamps_needed(by_partition, partitions) == {("t", 0): 6, ("t", 1): 7}
    assert timestamps_needed(options().starting, partitions) == {}
    with pytest.raises(OptionError, match="missing: t-2"):
        timestamps_needed(by_partition, [*partitions, ("t", 2)])
