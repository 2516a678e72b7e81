"""Checks the options of a write as a whole, before anything is contacted. Pure.

The names and meanings are those of Spark's Kafka sink, which hands everything that begins with `kafka.` to Kafka's own
producer; so these are the producer's settings. Defaults are the producer's, too, except for sizes: whole columns are at
hand here, so batches are as large as brokers take them.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeVar

from .connections import bootstrap_servers, check_plaintext
from .names import REFUSED_BY_SPARK, Names, OptionError, without_copies
from .values import count, flag, integer

__all__ = ["NAMES", "CompressionName", "ExactlyOnce", "WriteOptions", "check_sink", "parse_write_options"]

T = TypeVar("T")

SINK_BYTES_MAX = 200
_is_sink = re.compile(r"[^/\x00-\x1f]+").fullmatch

Acks = Literal["all", 1, 0]
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]

# Brokers take batches of 1 MiB unless they are told otherwise. A fourth of that is room for an estimate to be wrong.
BATCH_BYTES = 768 << 10
REQUEST_BYTES_MAX = 1 << 20
BUFFER_BYTES = 32 << 20
BUFFER_BYTES_MIN = 1 << 20
SIZE_MAX = 63 << 20
DELIVERY_TIMEOUT_MS = 120_000
REQUEST_TIMEOUT_MS = 30_000
MAX_BLOCK_MS = 60_000
IN_FLIGHT_MAX = 5
# The longest that brokers admit unless they are told otherwise (transaction.max.timeout.ms).
TRANSACTION_TIMEOUT_MS = 900_000

_ACKS: Mapping[str, Acks] = {"all": "all", "-1": "all", "1": 1, "0": 0}
_COMPRESSIONS: Mapping[str, CompressionName] = {
    "none": "none",
    "gzip": "gzip",
    "snappy": "snappy",
    "lz4": "lz4",
    "zstd": "zstd",
}
_USED = (
    "kafka.bootstrap.servers",
    "topic",
    "kafka.acks",
    "kafka.enable.idempotence",
    "kafka.compression.type",
    "kafka.batch.size",
    "kafka.max.request.size",
    "kafka.buffer.memory",
    "kafka.request.timeout.ms",
    "kafka.delivery.timeout.ms",
    "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.partitioner.ignore.keys",
    "kafka.security.protocol",
    "kafka.transaction.timeout.ms",
    "exactlyOnce",
    "txnAppId",
    "txnVersion",
    # Spark's own, of every stream: an exactly-once sink is told apart by its query, whose id is there.
    "checkpointLocation",
)
_WITHOUT_EFFECT = (
    # Spark's own, of every stream.
    "queryName",
    # Headers are written if there is a column of them, as with Spark's sink.
    "includeHeaders",
    "kafka.client.id",
    "kafka.client.dns.lookup",
    "kafka.linger.ms",
    "kafka.retries",
    "kafka.retry.backoff.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.reconnect.backoff.max.ms",
    "kafka.compression.gzip.level",
    "kafka.compression.lz4.level",
    "kafka.compression.zstd.level",
    "kafka.partitioner.adaptive.partitioning.enable",
    "kafka.partitioner.availability.timeout.ms",
    "kafka.connections.max.idle.ms",
    "kafka.metadata.max.age.ms",
    "kafka.metadata.max.idle.ms",
    "kafka.metadata.recovery.strategy",
    "kafka.receive.buffer.bytes",
    "kafka.send.buffer.bytes",
    "kafka.socket.connection.setup.timeout.ms",
    "kafka.socket.connection.setup.timeout.max.ms",
    "kafka.metric.reporters",
    "kafka.metrics.num.samples",
    "kafka.metrics.recording.level",
    "kafka.metrics.sample.window.ms",
    "kafka.enable.metrics.push",
)
_REFUSED = {
    **{name: REFUSED_BY_SPARK[name] for name in ("kafka.key.serializer", "kafka.value.serializer")},
    "kafka.interceptor.classes": "records are stored as they are handed over",
}
_READS = "is for reading; use topic, or a column of that name, to write"
NAMES = Names(
    _USED,
    _WITHOUT_EFFECT,
    refused=_REFUSED,
    elsewhere={
        "subscribe": _READS,
        "subscribePattern": _READS,
        "assign": _READS,
        "path": "topics have no path; use topic",
        "kafka.partitioner.class": "a Java class cannot be used here; choose partitions in a column called partition",
        "kafka.transactional.id": "each attempt of a task gets its own; set exactlyOnce, and txnAppId to name the sink",
    },
)


class ExactlyOnce(NamedTuple):
    """What names a batch, so that it is written once: a sink, and the version of a batch that is no micro-batch.

    `app_id` is "" for a stream that is named by its query, whose checkpoint is at `checkpoint`.
    """

    app_id: str = ""
    version: int | None = None
    checkpoint: str = ""
    timeout_ms: int = TRANSACTION_TIMEOUT_MS


class WriteOptions(NamedTuple):
    """A checked set of options. Times are in milliseconds, sizes in bytes. `topic` is None if a column names topics.

    `exactly_once` is None if rows are written at least once.
    """

    bootstrap_servers: str
    topic: str | None = None
    acks: Acks = "all"
    is_idempotent: bool | None = None
    compression: CompressionName = "none"
    batch_bytes: int = BATCH_BYTES
    request_bytes_max: int = REQUEST_BYTES_MAX
    buffer_bytes: int = BUFFER_BYTES
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    max_block_ms: int = MAX_BLOCK_MS
    in_flight_max: int = IN_FLIGHT_MAX
    ignores_keys: bool = False
    ignored: tuple[str, ...] = ()
    exactly_once: ExactlyOnce | None = None


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a batch or a stream that is written.

    Raises:
        OptionError: names the first option that is missing, unknown, refused or impossible.
    """
    options = without_copies(given)
    if not options:
        # Not those in the comment of a column (tables.py): of INSERT INTO ... SELECT, it may be the other table's.
        raise OptionError(
            "kafka.bootstrap.servers",
            "is required. Spark does not hand over the options of a table that is written: "
            "write INSERT INTO ... WITH ('kafka.bootstrap.servers' = ..., 'topic' = ...)",
        )
    ignored = NAMES.check(options)
    servers = bootstrap_servers(options)
    check_plaintext(options)
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic", "is empty")
    request_bytes_max = min(count(options, "kafka.max.request.size") or REQUEST_BYTES_MAX, SIZE_MAX)
    acks, is_idempotent, in_flight_max = _guarantees(options)
    return WriteOptions(
        bootstrap_servers=servers,
        topic=None if topic is None else topic.strip(),
        acks=acks,
        is_idempotent=is_idempotent,
        compression=_one_of(options, "kafka.compression.type", _COMPRESSIONS, "none"),
        batch_bytes=min(count(options, "kafka.batch.size") or BATCH_BYTES, request_bytes_max),
        request_bytes_max=request_bytes_max,
        buffer_bytes=_buffer_bytes(options, request_bytes_max),
        request_timeout_ms=count(options, "kafka.request.timeout.ms") or REQUEST_TIMEOUT_MS,
        delivery_timeout_ms=count(options, "kafka.delivery.timeout.ms") or DELIVERY_TIMEOUT_MS,
        max_block_ms=count(options, "kafka.max.block.ms") or MAX_BLOCK_MS,
        in_flight_max=in_flight_max,
        ignores_keys=flag(options, "kafka.partitioner.ignore.keys", default=False),
        ignored=ignored,
        exactly_once=_exactly_once(options, acks, is_idempotent),
    )


def _exactly_once(options: Mapping[str, str], acks: Acks, is_idempotent: bool | None) -> ExactlyOnce | None:
    """Return what names the batch; None if nobody asks for that."""
    if not flag(options, "exactlyOnce", default=False):
        for name in ("txnAppId", "txnVersion", "kafka.transaction.timeout.ms"):
            if name.lower() in options:
                raise OptionError(name, "needs exactlyOnce true")
        return None
    if acks != "all" or is_idempotent is False:
        raise OptionError("exactlyOnce", "needs kafka.acks all and idempotence; leave both options out")
    app_id = options.get("txnappid", "")
    if "txnappid" in options:
        try:
            check_sink(app_id)
        except ValueError as error:
            raise OptionError("txnAppId", str(error)) from None
    version = integer("txnVersion", options["txnversion"], 0) if "txnversion" in options else None
    timeout_ms = count(options, "kafka.transaction.timeout.ms") or TRANSACTION_TIMEOUT_MS
    return ExactlyOnce(app_id, version, options.get("checkpointlocation", ""), timeout_ms)


def check_sink(sink: str) -> str:
    """Return the name of a sink as it is.

    Raises:
        ValueError: it is empty, too long, or has a slash or a control character.
    """
    if not _is_sink(sink) or len(sink.encode()) > SINK_BYTES_MAX:
        raise ValueError(f"{sink!r} is not possible; write 1 to {SINK_BYTES_MAX} bytes without '/'")
    return sink


def _guarantees(options: Mapping[str, str]) -> tuple[Acks, bool | None, int]:
    """Return acks, idempotence if it was asked for or declined, and requests in flight, which depend on each other."""
    acks = _one_of(options, "kafka.acks", _ACKS, "all")
    name = "kafka.enable.idempotence"
    is_idempotent = flag(options, name, default=False) if name in options else None
    if is_idempotent and acks != "all":
        raise OptionError(name, "needs kafka.acks all; leave one of the two out")
    in_flight = "kafka.max.in.flight.requests.per.connection"
    in_flight_max = count(options, in_flight) or IN_FLIGHT_MAX
    if in_flight_max > IN_FLIGHT_MAX and acks == "all" and is_idempotent is not False:
        raise OptionError(in_flight, f"is at most {IN_FLIGHT_MAX} with idempotence, not {in_flight_max}")
    return acks, is_idempotent, in_flight_max


def _buffer_bytes(options: Mapping[str, str], request_bytes_max: int) -> int:
    least = max(BUFFER_BYTES_MIN, 4 * request_bytes_max)
    given = count(options, "kafka.buffer.memory")
    if given is None:
        return max(BUFFER_BYTES, least)
    if given < least:
        raise OptionError("kafka.buffer.memory", f"{given} is too small; it must hold four requests, {least} bytes")
    return given


def _one_of(options: Mapping[str, str], option: str, values: Mapping[str, T], default: str) -> T:
    text = options.get(option, default).strip().lower()
    if text not in values:
        raise OptionError(option, f"{text!r} is not possible; write {', '.join(values)}")
    return values[text]
