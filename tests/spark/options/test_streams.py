"""Options of streams are those of batches and a few more, with the meanings of Spark's."""

import re
from pathlib import Path

import pytest

from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import EARLIEST, LATEST, parse_read_options
from barnabas_spark.options.streams import NAMES, StreamOptions, check_either, parse_stream_options

REQUIRED = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


def parsed(**given: str) -> StreamOptions:
    return parse_stream_options(REQUIRED | given)


def test_the_defaults_are_those_of_sparks_source() -> None:
    options = parsed(consumerGroup="g")
    assert options.starting.everywhere == LATEST
    assert options.trigger_offsets_max is options.trigger_offsets_min is options.trigger_bytes_max is None
    assert options.trigger_delay_max_ms == 15 * 60_000
    assert options.read.fail_on_data_loss
    assert options.on_topic_recreated == "fail"


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"maxOffsetsPerTrigger": "10"}, "trigger_offsets_max", 10),
        ({"minOffsetsPerTrigger": "10"}, "trigger_offsets_min", 10),
        ({"maxBytesPerTrigger": "10"}, "trigger_bytes_max", 10),
        ({"maxBytesPerTrigger": "64k"}, "trigger_bytes_max", 64 << 10),
        ({"maxBytesPerTrigger": "2 GiB"}, "trigger_bytes_max", 2 << 30),
        ({"maxTriggerDelay": "500"}, "trigger_delay_max_ms", 500),
        ({"maxTriggerDelay": "2m"}, "trigger_delay_max_ms", 120_000),
        ({"maxTriggerDelay": "1 H"}, "trigger_delay_max_ms", 3_600_000),
        ({"onTopicRecreated": "Restart"}, "on_topic_recreated", "restart"),
        ({"kafka.metadata.max.age.ms": "100"}, "metadata_age_ms", 100),
        ({"CONSUMERGROUP": " g "}, "consumer_group", "g"),
    ],
)
def test_each_option_is_read(given: dict[str, str], field: str, expected: object) -> None:
    assert getattr(parsed(startingOffsets="earliest", **given), field) == expected


@pytest.mark.parametrize(
    ("given", "is_packed"),
    [
        ({}, True),
        ({"maxOffsetsPerTrigger": "9"}, True),
        ({"partitioning": "topicPartition"}, False),
        ({"partitioning": "balanced"}, False),
        ({"minPartitions": "3"}, False),
        ({"MAXBYTESPERPARTITION": "1m"}, False),
        ({"maxRecordsPerPartition": "9"}, False),
    ],
)
def test_micro_batches_are_packed_unless_an_option_says_what_a_task_reads(
    given: dict[str, str], is_packed: bool
) -> None:
    assert parsed(startingOffsets="earliest", **given).is_packed is is_packed


def test_options_of_tasks_are_those_of_a_batch() -> None:
    options = parsed(startingOffsets="earliest", minPartitions="7", includeHeaders="true", failOnDataLoss="false").read
    assert options == parse_read_options(
        REQUIRED
        | {"minPartitions": "7", "includeHeaders": "true", "failOnDataLoss": "false", "partitioning": "topicPartition"}
    )


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"t":{"0":3,"1":-1}}'},
        {"startingTimestamp": "1700000000000"},
        {"startingOffsetsByTimestamp": '{"t":{"0":1700000000000}}'},
    ],
)
def test_a_start_that_depends_on_the_moment_needs_a_group(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"needs consumerGroup.*would be lost"):
        parsed(**given)
    assert parsed(consumerGroup="g", **given).consumer_group == "g"


@pytest.mark.parametrize("starting", ["earliest", '{"t":{"0":3,"1":-2}}'])
def test_a_start_that_stays_the_same_needs_none(starting: str) -> None:
    assert not parsed(startingOffsets=starting).consumer_group
    assert parsed(startingOffsets="earliest").starting.everywhere == EARLIEST


@pytest.mark.parametrize(
    ("given", "name", "words"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets", "no meaning in a stream"),
        ({"endingTimestamp": "1"}, "endingTimestamp", "no meaning in a stream"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "integer from 1"),
        ({"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger", "6 is more than"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger", "is not a size"),
        ({"maxBytesPerTrigger": "x"}, "maxBytesPerTrigger", "128MiB"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay", "15m"),
        ({"onTopicRecreated": "skip"}, "onTopicRecreated", "neither fail nor restart"),
        ({"consumerGroup": " "}, "consumerGroup", "is empty"),
        ({"startingOffsets": "soon"}, "startingOffsets", "is not JSON"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy", "neither"),
        ({"maxOffsetPerTrigger": "5"}, "maxoffsetpertrigger", "did you mean maxOffsetsPerTrigger"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit", "commits no offsets"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, str], name: str, words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)) as caught:
        parsed(**{"startingOffsets": "earliest"} | given)
    assert caught.value.option == name


@pytest.mark.parametrize(
    "given", [{}, {"endingOffsets": "latest"}, {"startingOffsets": "latest", "consumerGroup": "g"}]
)
def test_options_of_either_use_pass_the_schema(given: dict[str, str]) -> None:
    assert check_either(REQUIRED | given).bootstrap_servers == "a:1"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "latest"}, "empty range in a batch.*a stream needs consumerGroup"),
        ({"consumerGroup": "g", "endingOffsets": "latest"}, "no meaning in a stream"),
        ({"endingOffsets": "earliest"}, "empty range in a batch"),
    ],
)
def test_options_of_neither_are_refused_by_the_schema(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        check_either(REQUIRED | given)


@pytest.mark.parametrize("name", ["consumerGroup", "maxBytesPerTrigger", "onTopicRecreated"])
def test_a_batch_refuses_what_only_streams_have(name: str) -> None:
    with pytest.raises(OptionError, match="is not known"):
        parse_read_options(REQUIRED | {name: "x"})


def test_the_documentation_names_every_option_that_is_used() -> None:
    pages = Path(__file__).parents[3] / "docs"
    text = "".join(page.read_text() for page in (pages / "spark.md", *(pages / "spark").glob("*.md")))
    assert [name for name in NAMES.used if f"`{name}`" not in text] == []
