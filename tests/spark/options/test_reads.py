"""Options have the meanings of Spark's Kafka source, and impossible ones are refused by name."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import EARLIEST, LATEST, NAMES, ReadOptions, parse_read_options

REQUIRED = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


def parsed(**options: str) -> ReadOptions:
    return parse_read_options(REQUIRED | options)


def refusal(options: dict[str, str]) -> OptionError:
    with pytest.raises(OptionError) as caught:
        parse_read_options(options)
    return caught.value


def test_the_defaults_are_those_of_a_batch() -> None:
    options = parsed()
    assert options.topics.subscribe == ("t",)
    assert (options.starting.everywhere, options.starting.offsets) == (EARLIEST, None)
    assert (options.ending.everywhere, options.ending.offsets) == (LATEST, None)
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.poll_timeout_ms == 120_000
    assert (options.partitions_min, options.partition_records_max) == (None, None)


def test_names_are_matched_without_case() -> None:
    options = parse_read_options({"KAFKA.bootstrap.SERVERS": "a:1", "SUBSCRIBE": "t", "minpartitions": "7"})
    assert options.partitions_min == 7


def test_topics_are_told_apart_by_commas() -> None:
    assert parsed(subscribe=" a, b,,a ").topics.subscribe == ("a", "b")


def test_partitions_are_assigned_by_json() -> None:
    options = parse_read_options({"kafka.bootstrap.servers": "a:1", "assign": '{"a":[0,2],"b":[1]}'})
    assert options.topics.assign == (("a", 0), ("a", 2), ("b", 1))


def test_a_timestamp_for_all_beats_timestamps_by_partition_which_beat_offsets() -> None:
    every = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"t":{"0":6}}',
        "startingOffsets": '{"t":{"0":7}}',
    }
    assert parsed(**every).starting.timestamp_ms == 5
    del every["startingTimestamp"]
    assert parsed(**every).starting.timestamps_ms == {("t", 0): 6}
    del every["startingOffsetsByTimestamp"]
    assert parsed(**every).starting.offsets == {("t", 0): 7}


@pytest.mark.parametrize(
    ("options", "name", "words"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers", "required"),
        ({"kafka.bootstrap.servers": "a:1"}, "subscribe", "none is given"),
        (REQUIRED | {"assign": '{"a":[0]}'}, "subscribe", "assign and subscribe are given"),
        (REQUIRED | {"subscribe": " , "}, "subscribe", "names no topic"),
        (REQUIRED | {"startingOffset": "earliest"}, "startingoffset", "did you mean startingOffsets"),
        (REQUIRED | {"path": "x"}, "path", "not known"),
        (REQUIRED | {"topic": "x"}, "topic", "for writing"),
        (REQUIRED | {"startingOffsets": "latest"}, "startingOffsets", "empty range"),
        (REQUIRED | {"endingOffsets": "earliest"}, "endingOffsets", "empty range"),
        (REQUIRED | {"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets", "latest"),
        (REQUIRED | {"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets", "earliest"),
        (REQUIRED | {"endingOffsets": '{"t":{"0":-3}}'}, "endingOffsets", "-3"),
        (REQUIRED | {"startingOffsets": "23"}, "startingOffsets", "not a JSON object"),
        (REQUIRED | {"startingOffsets": "soon"}, "startingOffsets", "is not JSON"),
        (REQUIRED | {"startingOffsets": '{"t":{"0":true}}'}, "startingOffsets", "True"),
        (REQUIRED | {"startingOffsets": '{"t":{"x":1}}'}, "startingOffsets", "not a partition number"),
        (REQUIRED | {"startingTimestamp": "-1"}, "startingTimestamp", "integer from 0"),
        (REQUIRED | {"minPartitions": "0"}, "minPartitions", "integer from 1"),
        (REQUIRED | {"failOnDataLoss": "perhaps"}, "failOnDataLoss", "neither true nor false"),
        (REQUIRED | {"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy", "neither"),
        (REQUIRED | {"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset", "startingOffsets"),
        (REQUIRED | {"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit", "commits no offsets"),
        (REQUIRED | {"kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism", "not supported yet"),
        (REQUIRED | {"kafka.security.protocol": "SSL"}, "kafka.security.protocol", "only PLAINTEXT"),
        (REQUIRED | {"kafka.isolation.level": "committed"}, "kafka.isolation.level", "neither read_uncommitted"),
        (REQUIRED | {"kafka.bootstrap.servers": "a:b:c"}, "kafka.bootstrap.servers", "IPv6 host in brackets"),
        (REQUIRED | {"startingOffsets": ""}, "startingOffsets", "is not JSON"),
        (REQUIRED | {"includeHeaders": "yes"}, "includeHeaders", "neither true nor false"),
        (REQUIRED | {"columns": " ,"}, "columns", "names no column"),
        (REQUIRED | {"columns": "key,value,key"}, "columns", "twice"),
        (REQUIRED | {"valueFormat": "avro"}, "valueFormat", "write raw, string or json"),
        (REQUIRED | {"valueSchema": "id long"}, "valueSchema", "only for valueFormat json"),
        (REQUIRED | {"kafka.nonsense": "1"}, "kafka.nonsense", "not known"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(options: dict[str, str], name: str, words: str) -> None:
    error = refusal(options)
    assert error.option == name
    assert words in error.reason


def test_a_pattern_must_be_a_regular_expression() -> None:
    assert refusal({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("}).option == "subscribePattern"


@pytest.mark.parametrize("name", NAMES.without_effect)
def test_an_option_without_effect_changes_nothing_but_the_warning(name: str) -> None:
    options = parsed(**{name: "5"})
    assert options.ignored == (name,)
    assert options._replace(ignored=()) == parsed()


def test_options_without_effect_are_listed() -> None:
    assert parsed(**{"kafka.group.id": "g", "maxoffsetspertrigger": "5"}).ignored == (
        "kafka.group.id",
        "maxOffsetsPerTrigger",
    )


OFFSETS = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 50), st.integers(0, 2**63 - 1), min_size=1, max_size=4),
    min_size=1,
    max_size=3,
)


@settings(max_examples=50, deadline=None)
@given(offsets=OFFSETS)
def test_offsets_survive_json(offsets: dict[str, dict[int, int]]) -> None:
    expected = {
        (topic, partition): offset for topic, partitions in offsets.items() for partition, offset in partitions.items()
    }
    assert parsed(startingOffsets=json.dumps(offsets)).starting.offsets == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
VALUES = st.text(max_size=12) | JSON.map(json.dumps)
SOME_NAMES = st.sampled_from(
    ["subscribe", "assign", "startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "minPartitions"]
)


@settings(max_examples=200, deadline=None)
@given(options=st.dictionaries(SOME_NAMES | st.text(max_size=8), VALUES, max_size=3))
def test_whatever_is_given_only_option_errors_come(options: dict[str, str]) -> None:
    try:
        parse_read_options({"kafka.bootstrap.servers": "a:1"} | options)
    except OptionError:
        return


def test_the_documentation_names_every_option_that_is_used() -> None:
    pages = (Path(__file__).parents[3] / "docs" / "spark").glob("*.md")
    text = "".join(page.read_text() for page in pages)
    assert [name for name in NAMES.used if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "n" * 250, "a\n"])
def test_the_name_of_a_snapshot_is_made_as_that_of_a_topic(name: str) -> None:
    with pytest.raises(OptionError, match=r"snapshot: .* is not a valid name"):
        parse_read_options({"kafka.bootstrap.servers": "b", "subscribe": "t", "snapshot": name})


def test_a_snapshot_of_compacted_topics_needs_its_word() -> None:
    given = {"kafka.bootstrap.servers": "b", "subscribe": "t", "snapshot": "month-end"}
    assert parse_read_options(given).snapshot == "month-end"
    assert not parse_read_options({**given, "snapshotCompacted": "refuse"}).snapshot_best_effort
    assert parse_read_options({**given, "snapshotCompacted": "Best-Effort"}).snapshot_best_effort
    with pytest.raises(OptionError, match="neither refuse nor best-effort"):
        parse_read_options({**given, "snapshotCompacted": "true"})
    del given["snapshot"]
    with pytest.raises(OptionError, match="needs the option snapshot"):
        parse_read_options({**given, "snapshotCompacted": "best-effort"})
