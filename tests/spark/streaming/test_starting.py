"""A new stream begins where its options say."""

import pytest

from barnabas_spark.options.names import OptionError
from barnabas_spark.options.streams import StreamOptions, parse_stream_options
from barnabas_spark.streaming.continuation import Heads
from barnabas_spark.streaming.starting import check_found, first_offsets

IDS = {"t": bytes(range(16))}
HEADS = Heads({("t", 0): 10, ("t", 1): 20}, IDS)
BEGINNINGS = {("t", 0): 2, ("t", 1): 30}  # Retention has overtaken the end that was seen of the second.


def options(**given: str) -> StreamOptions:
    required = {"kafka.bootstrap.servers": "a:1", "consumerGroup": "g"}
    return parse_stream_options(
        required | (given if {"assign", "subscribePattern"} & given.keys() else {"subscribe": "t", **given})
    )


def first(at: dict[tuple[str, int], int | None] | None = None, **given: str) -> list[int]:
    found = first_offsets(options(**given), HEADS, BEGINNINGS, at or {})
    assert found.topic_ids == IDS
    return [found.positions["t", partition] for partition in (0, 1)]


def test_a_stream_begins_at_the_end_or_the_beginning() -> None:
    assert first() == first(startingOffsets="latest") == [10, 20]
    assert first(startingOffsets="earliest") == [2, 20]


def test_offsets_and_ends_of_the_log_mix() -> None:
    assert first(startingOffsets='{"t":{"0":-2,"1":-1}}') == [2, 20]
    assert first(startingOffsets='{"t":{"0":7,"1":0}}') == [7, 0]


@pytest.mark.parametrize("text", ['{"t":{"0":1}}', '{"t":{"0":1,"1":1,"2":1}}', '{"u":{"0":1}}'])
def test_offsets_must_name_exactly_the_partitions(text: str) -> None:
    with pytest.raises(OptionError, match="every partition that is read and no other"):
        first(startingOffsets=text)


def test_a_timestamp_is_an_offset_that_is_not_behind_the_heads() -> None:
    assert first({("t", 0): 4, ("t", 1): 25}, startingTimestamp="1") == [4, 20]


def test_a_timestamp_without_a_record_is_an_error_or_the_end() -> None:
    with pytest.raises(OptionError, match="t-1 has no record that late"):
        first({("t", 0): 4, ("t", 1): None}, startingTimestamp="1")
    found = first({("t", 0): 4, ("t", 1): None}, startingTimestamp="1", startingOffsetsByTimestampStrategy="latest")
    assert found == [4, 20]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribe": "t,u"}, "there is no topic u"),
        ({"assign": '{"t":[0,2]}'}, "there is no partition t-2"),
        ({"subscribePattern": "u.*"}, "no topic matches"),
    ],
)
def test_what_does_not_exist_is_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        check_found(options(**given), Heads({}, {}) if "subscribePattern" in given else HEADS)
