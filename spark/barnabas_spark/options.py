"""Checks the options of a read as a whole, before anything is contacted. Pure.

Names and meanings are those of Spark's own Kafka source, so that a job moves by changing the format's name. Case does
not matter in names, as in Spark. Every option is of one of five kinds, and no other passes:

* *used*: the fields of `ReadOptions`;
* *without effect* here, though right elsewhere, such as buffer sizes of the Java client: accepted, and listed in
  `ReadOptions.ignored`, which the source reports as a warning;
* *refused* because Spark's Kafka source, which decides these itself, refuses it too;
* *refused* because it asks for something that is not built yet, security above all: to ignore it would be dangerous;
* *unknown*: refused, with the nearest known name, because it is most often misspelt.

An error names the option as Spark's documentation spells it.

Deliberately not here: options of streams and of writing, which are refused as such.
"""

import difflib
import json
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from barnabas_raftlog.errors import BarnabasError

__all__ = ["EARLIEST", "LATEST", "OptionError", "Position", "ReadOptions", "Topics", "parse_read_options"]

# The negative offsets in the JSON of `startingOffsets` and `endingOffsets`, and in ListOffsets.
EARLIEST = -2
LATEST = -1

TopicPartition = tuple[str, int]
Strategy = Literal["error", "latest"]

# A request brings enough for one Arrow batch. The measured throughput is flat from 4 to 8 MB.
FETCH_BYTES = 4 << 20
FETCH_BYTES_MAX = 256 << 20
FETCH_WAIT_MS = 500
POLL_TIMEOUT_MS = 120_000
REQUEST_TIMEOUT_MS = 30_000

_TRUE = frozenset({"true", "yes", "1", "y"})
_FALSE = frozenset({"false", "no", "0", "n"})

_USED = (
    "kafka.bootstrap.servers",
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.request.timeout.ms",
    "kafka.security.protocol",
    "kafka.isolation.level",
)
_WITHOUT_EFFECT = (
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    # These three have none in a batch with Spark's source either.
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "kafka.group.id",
    "kafka.client.id",
    "kafka.client.rack",
    "kafka.client.dns.lookup",
    "kafka.check.crcs",
    "kafka.fetch.min.bytes",
    "kafka.fetch.max.bytes",
    "kafka.max.poll.records",
    "kafka.max.poll.interval.ms",
    "kafka.receive.buffer.bytes",
    "kafka.send.buffer.bytes",
    "kafka.connections.max.idle.ms",
    "kafka.metadata.max.age.ms",
    "kafka.default.api.timeout.ms",
    "kafka.session.timeout.ms",
    "kafka.heartbeat.interval.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.reconnect.backoff.max.ms",
    "kafka.retry.backoff.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.socket.connection.setup.timeout.ms",
    "kafka.socket.connection.setup.timeout.max.ms",
    "kafka.allow.auto.create.topics",
    "kafka.metric.reporters",
    "kafka.metrics.num.samples",
    "kafka.metrics.recording.level",
    "kafka.metrics.sample.window.ms",
    "kafka.exclude.internal.topics",
    "kafka.enable.metrics.push",
)
_REFUSED_BY_SPARK = {
    "kafka.auto.offset.reset": "startingOffsets says where to begin",
    "kafka.key.deserializer": "keys are binary; cast them in the query",
    "kafka.value.deserializer": "values are binary; cast them in the query",
    "kafka.key.serializer": "keys are binary",
    "kafka.value.serializer": "values are binary",
    "kafka.enable.auto.commit": "the source commits no offsets",
    "kafka.interceptor.classes": "records are handed over as they are stored",
}
_FOR_WRITING = ("topic",)
_NOT_BUILT = ("kafka.ssl.", "kafka.sasl.")


class OptionError(BarnabasError, ValueError):
    """An option that is missing, unknown, refused, or has an impossible value. `option` is its name."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option
        self.reason = reason


class Topics(NamedTuple):
    """The topics or partitions to read. Exactly one field is set."""

    subscribe: tuple[str, ...] = ()
    assign: tuple[TopicPartition, ...] = ()
    pattern: str = ""


class Position(NamedTuple):
    """One end of the read. At most one of `timestamp_ms`, `timestamps_ms` and `offsets` is set, else `everywhere`.

    `option` is the option that it comes from, for error messages. Offsets may be `EARLIEST` or `LATEST`.
    """

    option: str
    everywhere: int
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None


class ReadOptions(NamedTuple):
    """A checked set of options. Times are in milliseconds, sizes in bytes; None means no limit."""

    bootstrap_servers: str
    topics: Topics
    starting: Position
    ending: Position
    starting_strategy: Strategy = "error"
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    partition_records_max: int | None = None
    include_headers: bool = False
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    fetch_bytes: int = FETCH_BYTES
    fetch_wait_ms: int = FETCH_WAIT_MS
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    ignored: tuple[str, ...] = ()


def parse_read_options(given: Mapping[str, str]) -> ReadOptions:
    """Check the options of a batch read.

    Raises:
        OptionError: names the first option that is missing, unknown, refused or impossible.
    """
    options = {name.lower(): str(value) for name, value in given.items()}
    ignored = _check_names(options)
    bootstrap_servers = options.get("kafka.bootstrap.servers", "").strip()
    if not bootstrap_servers:
        raise OptionError("kafka.bootstrap.servers", "is required; write host:port, several separated by commas")
    _check_isolation_and_security(options)
    return ReadOptions(
        bootstrap_servers=bootstrap_servers,
        topics=_topics(options),
        starting=_position(options, "starting", EARLIEST),
        ending=_position(options, "ending", LATEST),
        starting_strategy=_strategy(options),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        partitions_min=_count(options, "minPartitions"),
        partition_records_max=_count(options, "maxRecordsPerPartition"),
        include_headers=_flag(options, "includeHeaders", default=False),
        poll_timeout_ms=_count(options, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
        fetch_bytes=min(_count(options, "kafka.max.partition.fetch.bytes") or FETCH_BYTES, FETCH_BYTES_MAX),
        fetch_wait_ms=_count(options, "kafka.fetch.max.wait.ms") or FETCH_WAIT_MS,
        request_timeout_ms=_count(options, "kafka.request.timeout.ms") or REQUEST_TIMEOUT_MS,
        ignored=ignored,
    )


_KNOWN = {name.lower(): name for name in (*_USED, *_WITHOUT_EFFECT, *_REFUSED_BY_SPARK, *_FOR_WRITING)}
_IGNORED_KEYS = frozenset(name.lower() for name in _WITHOUT_EFFECT)


def _check_names(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names without effect. Raise for the first name that may not be given."""
    for key in sorted(options):
        name = _KNOWN.get(key)
        if key.startswith(_NOT_BUILT):
            raise OptionError(key, "connections are plaintext so far; TLS and SASL are not supported yet")
        if name in _REFUSED_BY_SPARK:
            raise OptionError(name, f"may not be set, as in Spark's Kafka source: {_REFUSED_BY_SPARK[name]}")
        if name in _FOR_WRITING:
            raise OptionError(name, "is for writing; use subscribe, assign or subscribePattern to read")
        if name is None:
            near = difflib.get_close_matches(key, _KNOWN, n=1)
            raise OptionError(key, f"is not known{f'; did you mean {_KNOWN[near[0]]}?' if near else ''}")
    return tuple(_KNOWN[key] for key in sorted(options) if key in _IGNORED_KEYS)


def _check_isolation_and_security(options: Mapping[str, str]) -> None:
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise OptionError("kafka.security.protocol", f"{protocol} is not supported yet, only PLAINTEXT")
    isolation = options.get("kafka.isolation.level", "read_uncommitted").lower()
    if isolation != "read_uncommitted":
        raise OptionError("kafka.isolation.level", f"{isolation} is not supported yet, only read_uncommitted")


def _topics(options: Mapping[str, str]) -> Topics:
    names = ("assign", "subscribe", "subscribePattern")
    given = [name for name in names if name.lower() in options]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "none is given"
        raise OptionError("subscribe", f"exactly one of {', '.join(names)} is required; {found}")
    value = options[given[0].lower()].strip()
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not topics:
            raise OptionError("subscribe", "names no topic")
        return Topics(subscribe=topics)
    if given[0] == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError("subscribePattern", f"{value!r} is not a valid regular expression: {error}") from error
        if not value:
            raise OptionError("subscribePattern", "is empty")
        return Topics(pattern=value)
    return Topics(assign=_assigned(value))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = 'write {"topic":[0,1]}'
    pairs: dict[TopicPartition, None] = {}
    for topic, partitions in _json_object("assign", text, example).items():
        if not isinstance(partitions, list) or not partitions:
            raise OptionError("assign", f"topic {topic} has no list of partitions; {example}")
        for partition in partitions:
            if not _is_int(partition) or partition < 0:
                raise OptionError("assign", f"{partition!r} of topic {topic} is not a partition number; {example}")
            pairs[topic, partition] = None
    if not pairs:
        raise OptionError("assign", f"names no partition; {example}")
    return tuple(pairs)


def _position(options: Mapping[str, str], side: Literal["starting", "ending"], default: int) -> Position:
    """Read one end. As in Spark, a timestamp for all beats timestamps by partition, which beat offsets."""
    name = f"{side}Timestamp"
    if (text := options.get(name.lower())) is not None:
        return Position(name, default, timestamp_ms=_integer(name, text, 0))
    name = f"{side}OffsetsByTimestamp"
    if (text := options.get(name.lower())) is not None:
        return Position(name, default, timestamps_ms=_by_partition(name, text, 0, '{"topic":{"0":1700000000000}}'))
    name = f"{side}Offsets"
    text = options.get(name.lower(), "").strip()
    allowed, everywhere = ("earliest", EARLIEST) if side == "starting" else ("latest", LATEST)
    if not text or text.lower() == allowed:
        return Position(name, everywhere)
    if text.lower() in {"earliest", "latest"}:
        raise OptionError(name, f"{text.lower()} would be an empty range in a batch; write {allowed} or JSON")
    form = f'{allowed}, or {{"topic":{{"0":23,"1":{everywhere}}}}}'
    offsets = _by_partition(name, text, EARLIEST, form)
    for (topic, partition), offset in offsets.items():
        if offset < 0 and offset != everywhere:
            meaning = "latest" if offset == LATEST else "earliest"
            raise OptionError(name, f"{offset} ({meaning}) of {topic}-{partition} would be an empty range in a batch")
    return Position(name, everywhere, offsets=offsets)


def _by_partition(option: str, text: str, smallest: int, form: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, values in _json_object(option, text, f"write {form}").items():
        if not isinstance(values, dict):
            raise OptionError(option, f"topic {topic} has no object of partitions; write {form}")
        for partition, value in values.items():
            if not (partition.isascii() and partition.isdecimal()):
                raise OptionError(option, f"{partition!r} of topic {topic} is not a partition number; write {form}")
            if not _is_int(value) or not smallest <= value < 2**63:
                raise OptionError(option, f"{value!r} of {topic}-{partition} is not possible; write {form}")
            found[topic, int(partition)] = value
    if not found:
        raise OptionError(option, f"names no partition; write {form}")
    return found


def _json_object(option: str, text: str, example: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(option, f"{text[:80]!r} is not JSON; {example}") from error
    if not isinstance(value, dict):
        raise OptionError(option, f"{text[:80]!r} is not a JSON object; {example}")
    return value


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integer(option: str, text: str, smallest: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = smallest - 1
    if not smallest <= value < 2**63:
        raise OptionError(option, f"{text!r} is not an integer from {smallest}")
    return value


def _count(options: Mapping[str, str], option: str) -> int | None:
    text = options.get(option.lower())
    return None if text is None else _integer(option, text, 1)


def _flag(options: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = options.get(option.lower(), "").strip().lower()
    if not text:
        return default
    if text not in _TRUE | _FALSE:
        raise OptionError(option, f"{text!r} is neither true nor false")
    return text in _TRUE


def _strategy(options: Mapping[str, str]) -> Strategy:
    text = options.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if text == "error":
        return "error"
    if text == "latest":
        return "latest"
    raise OptionError("startingOffsetsByTimestampStrategy", f"{text!r} is neither error nor latest")
