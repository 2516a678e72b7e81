"""Checks the options of a batch read as a whole, before anything is contacted. Pure."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from barnabas_clients.cluster.bootstrap import parse_bootstrap

from .connections import bootstrap_servers, check_plaintext
from .names import Names, OptionError, without_copies
from .values import TopicPartition, by_partition, count, flag, integer, is_int, json_object, one_of, size

__all__ = [
    "EARLIEST",
    "LATEST",
    "NAMES",
    "IsolationLevel",
    "Position",
    "ReadOptions",
    "Topics",
    "by_time",
    "parse_read_options",
    "strategy",
]

# The negative offsets in the JSON of `startingOffsets` and `endingOffsets`, and in ListOffsets.
EARLIEST = -2
LATEST = -1

Strategy = Literal["error", "latest"]
Partitioning = Literal["balanced", "topicPartition"]
ValueFormat = Literal["raw", "string", "json"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]

# A request brings enough for one Arrow batch. The measured throughput is flat from 4 to 8 MB.
FETCH_BYTES = 8 << 20
FETCH_BYTES_MAX = 256 << 20
FETCH_WAIT_MS = 500
POLL_TIMEOUT_MS = 120_000
REQUEST_TIMEOUT_MS = 30_000

_is_snapshot_name = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}").fullmatch

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
    "maxBytesPerPartition",
    "partitioning",
    "includeHeaders",
    "columns",
    "valueFormat",
    "valueSchema",
    "snapshot",
    "snapshotCompacted",
    "kafkaConsumer.pollTimeoutMs",
    "kafka.client.rack",
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
NAMES = Names(
    _USED,
    _WITHOUT_EFFECT,
    elsewhere={"topic": "is for writing; use subscribe, assign or subscribePattern to read"},
)


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
    """A checked set of options. Times are in milliseconds, sizes in bytes; None means no limit, and "" no rack.

    `columns` is empty for all of them; whether they exist is for schemas.py to say. `value_schema` is DDL.
    """

    bootstrap_servers: str
    topics: Topics
    starting: Position
    ending: Position
    starting_strategy: Strategy = "error"
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    partition_records_max: int | None = None
    partition_bytes_max: int | None = None
    partitioning: Partitioning = "balanced"
    rack: str = ""
    include_headers: bool = False
    columns: tuple[str, ...] = ()
    value_format: ValueFormat = "raw"
    value_schema: str = ""
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    fetch_bytes: int = FETCH_BYTES
    fetch_wait_ms: int = FETCH_WAIT_MS
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    ignored: tuple[str, ...] = ()
    snapshot: str = ""
    snapshot_best_effort: bool = False
    isolation_level: IsolationLevel = "read_uncommitted"

    @property
    def read_committed(self) -> bool:
        """Say whether records of aborted and of open transactions are left out; ends are last stable offsets then."""
        return self.isolation_level == "read_committed"


def parse_read_options(given: Mapping[str, str]) -> ReadOptions:
    """Check the options of a batch read.

    Raises:
        OptionError: names the first option that is missing, unknown, refused or impossible.
    """
    options = without_copies(given)
    ignored = NAMES.check(options)
    servers = bootstrap_servers(options)
    try:
        parse_bootstrap(servers)
    except ValueError as error:
        raise OptionError("kafka.bootstrap.servers", str(error)) from error
    check_plaintext(options)
    return ReadOptions(
        bootstrap_servers=servers,
        topics=_topics(options),
        starting=_position(options, "starting", EARLIEST),
        ending=_position(options, "ending", LATEST),
        starting_strategy=strategy(options),
        fail_on_data_loss=flag(options, "failOnDataLoss", default=True),
        partitions_min=count(options, "minPartitions"),
        partition_records_max=count(options, "maxRecordsPerPartition"),
        partition_bytes_max=size(options, "maxBytesPerPartition"),
        partitioning=one_of(options, "partitioning", "balanced", "topicPartition"),
        rack=options.get("kafka.client.rack", "").strip(),
        include_headers=flag(options, "includeHeaders", default=False),
        columns=_columns(options),
        value_format=_value_format(options),
        value_schema=options.get("valueschema", "").strip(),
        poll_timeout_ms=count(options, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
        fetch_bytes=min(count(options, "kafka.max.partition.fetch.bytes") or FETCH_BYTES, FETCH_BYTES_MAX),
        fetch_wait_ms=count(options, "kafka.fetch.max.wait.ms") or FETCH_WAIT_MS,
        request_timeout_ms=count(options, "kafka.request.timeout.ms") or REQUEST_TIMEOUT_MS,
        ignored=ignored,
        snapshot=_snapshot(options),
        snapshot_best_effort=_snapshot_best_effort(options),
        isolation_level=one_of(options, "kafka.isolation.level", "read_uncommitted", "read_committed"),
    )


def _snapshot(options: Mapping[str, str]) -> str:
    name = options.get("snapshot")
    if name is not None and not _is_snapshot_name(name):
        raise OptionError("snapshot", f"{name!r} is not a valid name; write 1 to 249 letters, digits, '.', '_' and '-'")
    return name or ""


def _snapshot_best_effort(options: Mapping[str, str]) -> bool:
    if "snapshotcompacted" not in options:
        return False
    if "snapshot" not in options:
        raise OptionError("snapshotCompacted", "needs the option snapshot, which names the snapshot")
    return one_of(options, "snapshotCompacted", "refuse", "best-effort") == "best-effort"


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
    for topic, partitions in json_object("assign", text, example).items():
        if not isinstance(partitions, list) or not partitions:
            raise OptionError("assign", f"topic {topic} has no list of partitions; {example}")
        for partition in partitions:
            if not is_int(partition) or partition < 0:
                raise OptionError("assign", f"{partition!r} of topic {topic} is not a partition number; {example}")
            pairs[topic, partition] = None
    if not pairs:
        raise OptionError("assign", f"names no partition; {example}")
    return tuple(pairs)


def by_time(options: Mapping[str, str], side: Literal["starting", "ending"], default: int) -> Position | None:
    """Read an end that timestamps name. As in Spark, one for all partitions beats those by partition."""
    name = f"{side}Timestamp"
    if (text := options.get(name.lower())) is not None:
        return Position(name, default, timestamp_ms=integer(name, text, 0))
    name = f"{side}OffsetsByTimestamp"
    if (text := options.get(name.lower())) is not None:
        return Position(name, default, timestamps_ms=by_partition(name, text, 0, '{"topic":{"0":1700000000000}}'))
    return None


def _position(options: Mapping[str, str], side: Literal["starting", "ending"], default: int) -> Position:
    """Read one end. As in Spark, timestamps beat offsets."""
    if (position := by_time(options, side, default)) is not None:
        return position
    name = f"{side}Offsets"
    allowed, everywhere = ("earliest", EARLIEST) if side == "starting" else ("latest", LATEST)
    text = options.get(name.lower(), allowed).strip()
    if text.lower() == allowed:
        return Position(name, everywhere)
    if text.lower() in {"earliest", "latest"}:
        raise OptionError(name, f"{text.lower()} would be an empty range in a batch; write {allowed} or JSON")
    form = f'{allowed}, or {{"topic":{{"0":23,"1":{everywhere}}}}}'
    offsets = by_partition(name, text, EARLIEST, form)
    for (topic, partition), offset in offsets.items():
        if offset < 0 and offset != everywhere:
            meaning = "latest" if offset == LATEST else "earliest"
            raise OptionError(name, f"{offset} ({meaning}) of {topic}-{partition} would be an empty range in a batch")
    return Position(name, everywhere, offsets=offsets)


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get("columns")
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and not names:
        raise OptionError("columns", "names no column; write key,value,offset, or such")
    if len(set(names)) != len(names):
        raise OptionError("columns", "names a column twice")
    return names


def _value_format(options: Mapping[str, str]) -> ValueFormat:
    text = options.get("valueformat", "raw").strip().lower()
    found: ValueFormat | None = {"raw": "raw", "string": "string", "json": "json"}.get(text)  # type: ignore[assignment]
    if found is None:
        raise OptionError("valueFormat", f"{text!r} is not known; write raw, string or json")
    if found != "json" and "valueschema" in options:
        raise OptionError("valueSchema", "is only for valueFormat json")
    return found


def strategy(options: Mapping[str, str]) -> Strategy:
    """Read what becomes of a start at a timestamp that is later than every record."""
    return one_of(options, "startingOffsetsByTimestampStrategy", "error", "latest")
