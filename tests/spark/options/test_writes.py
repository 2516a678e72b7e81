"""Options have the meanings of Spark's Kafka sink, and impossible ones are refused by name."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_spark.options.names import OptionError
from barnabas_spark.options.writes import NAMES, ExactlyOnce, WriteOptions, parse_write_options

REQUIRED = {"kafka.bootstrap.servers": "a:1"}


def parsed(**options: str) -> WriteOptions:
    return parse_write_options(REQUIRED | options)


def refusal(options: dict[str, str]) -> OptionError:
    with pytest.raises(OptionError) as caught:
        parse_write_options(options)
    return caught.value


def test_the_defaults_lose_nothing_and_double_nothing() -> None:
    options = parsed()
    assert options == WriteOptions("a:1")
    assert (options.topic, options.acks, options.is_idempotent, options.compression) == (None, "all", None, "none")


def test_every_option_has_its_place() -> None:
    given = {
        "topic": " orders ",
        "kafka.acks": "ALL",
        "kafka.enable.idempotence": "false",
        "kafka.compression.type": "zstd",
        "kafka.batch.size": "16384",
        "kafka.max.request.size": "2000000",
        "kafka.buffer.memory": "50000000",
        "kafka.request.timeout.ms": "7000",
        "kafka.delivery.timeout.ms": "9000",
        "kafka.max.block.ms": "5000",
        "kafka.max.in.flight.requests.per.connection": "7",
        "kafka.partitioner.ignore.keys": "true",
    }
    assert parsed(**given) == WriteOptions(
        "a:1",
        topic="orders",
        acks="all",
        is_idempotent=False,
        compression="zstd",
        batch_bytes=16_384,
        request_bytes_max=2_000_000,
        buffer_bytes=50_000_000,
        request_timeout_ms=7_000,
        delivery_timeout_ms=9_000,
        max_block_ms=5_000,
        in_flight_max=7,
        ignores_keys=True,
    )


@pytest.mark.parametrize(("text", "acks"), [("all", "all"), ("-1", "all"), ("1", 1), ("0", 0)])
def test_acks_are_written_as_for_kafka(text: str, acks: object) -> None:
    assert parsed(**{"kafka.acks": text}).acks == acks


def test_a_batch_is_no_larger_than_a_request_and_the_buffer_holds_four() -> None:
    options = parsed(**{"kafka.max.request.size": "20000000", "kafka.batch.size": "30000000"})
    assert (options.batch_bytes, options.buffer_bytes) == (20_000_000, 80_000_000)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "kafka.bootstrap.servers: is required"),
        ({"topic": " "}, "topic: is empty"),
        ({"topik": "t"}, "topik: is not known; did you mean topic"),
        ({"kafka.compresion.type": "zstd"}, "did you mean kafka.compression.type"),
        ({"subscribe": "t"}, "subscribe: is for reading; use topic"),
        ({"path": "t"}, "use topic"),
        ({"kafka.acks": "2"}, "kafka.acks: '2' is not possible; write all, -1, 1, 0"),
        ({"kafka.compression.type": "brotli"}, "write none, gzip, snappy, lz4, zstd"),
        ({"kafka.batch.size": "0"}, "kafka.batch.size: '0' is not an integer from 1"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs kafka.acks all"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "is at most 5 with idempotence, not 6"),
        ({"kafka.buffer.memory": "100000"}, "must hold four requests, 4194304 bytes"),
        ({"kafka.security.protocol": "SSL"}, "SSL is not supported yet"),
        ({"kafka.ssl.truststore.location": "x"}, "TLS and SASL are not supported yet"),
        ({"kafka.key.serializer": "x"}, "may not be set, as in Spark's Kafka source: keys are binary"),
        ({"kafka.transactional.id": "x"}, "each attempt of a task gets its own; set exactlyOnce"),
        ({"txnAppId": "x"}, "txnAppId: needs exactlyOnce true"),
        ({"exactlyOnce": "true", "txnAppId": "a/b"}, "txnAppId: 'a/b' is not possible"),
        ({"exactlyOnce": "true", "txnVersion": "-1"}, "txnVersion: '-1' is not an integer from 0"),
        ({"exactlyOnce": "true", "kafka.acks": "1"}, "exactlyOnce: needs kafka.acks all"),
        ({"kafka.partitioner.class": "x"}, "a column called partition"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, str], words: str) -> None:
    required = REQUIRED if options else {}
    assert words in str(refusal(required | options))


def test_options_of_the_java_client_alone_and_of_spark_have_no_effect() -> None:
    options = parsed(**{"kafka.linger.ms": "5", "queryName": "x", "kafka.client.id": "me"})
    assert options.ignored == ("kafka.client.id", "kafka.linger.ms", "queryName")
    assert options == WriteOptions("a:1", ignored=options.ignored)


def test_a_batch_that_is_written_once_has_a_name() -> None:
    once = {"exactlyOnce": "true", "txnAppId": "a", "txnVersion": "3", "kafka.transaction.timeout.ms": "5000"}
    assert parsed(**once).exactly_once == ExactlyOnce("a", 3, "", 5_000)
    assert parsed(exactlyOnce="true", checkpointLocation="/x").exactly_once == ExactlyOnce(checkpoint="/x")
    assert parsed(checkpointLocation="/x").exactly_once is None


@given(st.dictionaries(st.sampled_from([*NAMES.used, *NAMES.without_effect, *NAMES.elsewhere]) | st.text(), st.text()))
def test_any_options_are_taken_or_refused_by_name(given: dict[str, str]) -> None:
    try:
        options = parse_write_options(given)
    except OptionError:
        return
    assert options.batch_bytes <= options.request_bytes_max <= options.buffer_bytes // 4


def test_the_documentation_names_every_option_that_is_used() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark" / "writing.md").read_text()
    assert [name for name in NAMES.used if f"`{name}`" not in page] == []
