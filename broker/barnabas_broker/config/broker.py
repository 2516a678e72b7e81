"""Declares, parses and checks every setting of a broker. Pure.

All are parsed and checked once, then passed down as plain values. A setting is a field of `BrokerConfig`; its Kafka
name is the field's name with dots for underscores, so the two can never drift apart. The same table reads TOML files
(dotted keys make nested tables there; they are flattened), `--set name=value` strings, and writes the file that
`barnabas cluster start` leaves for each broker. An unknown name is an error that names the closest known one: a
misspelt setting that is silently ignored is found in an outage.

Not here: which of them may change while the broker runs, and how (`dynamic`). Topic configurations live in the metadata
quorum; here are the defaults for topics that say nothing.
"""

import dataclasses
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Self

from barnabas_raftlog.records.header import BATCH_BYTES_MAX

from .addresses import Address, ConfigError, is_loopback, is_wildcard, parse_address
from .collector import Collector, collector_at
from .listeners import NamedListener, parse_listeners
from .near_names import nearest
from .quantities import parse_bytes, parse_duration_ms

__all__ = [
    "Address",
    "BrokerConfig",
    "ConfigError",
    "Setting",
    "SettingValue",
    "accepted_names",
    "finest_of",
    "is_wildcard",
    "quoted",
    "read_settings",
    "read_toml",
    "settings",
    "unknown_setting",
]

SettingValue = str | int | float | bool
_NODES_PREFIX = "cluster.nodes."
_TIME_UNITS = {
    "ms": ("milliseconds", 1),
    "seconds": ("seconds", 1_000),
    "minutes": ("minutes", 60_000),
    "hours": ("hours", 3_600_000),
}
_MIB = 1 << 20
_GIB = 1 << 30
_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
ASSIGNORS = ("uniform", "range")
"""The assignors that there are, in the order of Kafka's default."""
# Kafka has these in several units; the finest that is given counts. We keep one.
_COARSER_UNITS = (
    ("log.retention.hours", "log.retention.ms", 3_600_000),
    ("log.retention.minutes", "log.retention.ms", 60_000),
    ("log.roll.hours", "log.roll.ms", 3_600_000),
    ("log.roll.jitter.hours", "log.roll.jitter.ms", 3_600_000),
)


class Setting(NamedTuple):
    """One row of the table, as `barnabas config` and the documentation show it."""

    name: str
    type: str
    default: SettingValue | None
    required: bool
    minimum: int | None
    maximum: int | None
    choices: tuple[str, ...]
    doc: str


def _required(kind: type, doc: str, *, low: int | None = None, high: int | None = None) -> Any:
    return dataclasses.field(metadata={"kind": kind, "doc": doc, "low": low, "high": high, "choices": ()})


def _number(default: int, doc: str, *, low: int = 0, high: int = _INT_MAX, for_tests: bool = False) -> Any:
    meta = {"kind": int, "doc": doc, "low": low, "high": high, "choices": (), "for_tests": for_tests}
    return dataclasses.field(default=default, metadata=meta)


def _ratio(default: float, doc: str) -> Any:
    meta = {"kind": float, "doc": doc, "low": 0, "high": 1, "choices": ()}
    return dataclasses.field(default=default, metadata=meta)


def _flag(default: bool, doc: str) -> Any:
    meta = {"kind": bool, "doc": doc, "low": None, "high": None, "choices": ()}
    return dataclasses.field(default=default, metadata=meta)


def _text(default: str, doc: str, *, choices: tuple[str, ...] = ()) -> Any:
    meta = {"kind": str, "doc": doc, "low": None, "high": None, "choices": choices}
    return dataclasses.field(default=default, metadata=meta)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Every setting of one broker, checked. `cluster_nodes` is a mapping, everything else a plain value."""

    node_id: int = _required(int, "This node's id, unique in the cluster.", low=0, high=_INT_MAX)
    cluster_id: str = _required(str, "Names the cluster; nodes and disks of another cluster are refused.")
    cluster_nodes: Mapping[int, str] = dataclasses.field(
        metadata={"kind": dict, "doc": "Every node's id and host:port for traffic between nodes (TCP and UDP)."}
    )
    log_dir: str = _required(str, "The directory that holds this broker's data.")
    controller_quorum_voters: str = _text(
        "",
        "Ids of the nodes that should vote on metadata, '1,2,3'. Empty: the first three (of five or more: five) nodes.",
    )
    listeners: str = _text(
        "127.0.0.1:9092",
        "host:port on which clients are served, or several as name://host:port. Port 0: any free one.",
    )
    advertised_listeners: str = _text(
        "",
        "host:port, or name://host:port for each listener, that its clients are told. Empty: the same as listeners, "
        "which then cannot be 0.0.0.0 or [::].",
    )
    broker_rack: str = _text(
        "", "The rack (or zone) this broker stands in; replicas are spread over racks, consumers may read in theirs."
    )
    cluster_secret: str = _text("", "Shared by all nodes; signs the traffic between them when it is not empty.")

    num_partitions: int = _number(1, "Partitions of a topic that is created without a number.", low=1, high=10_000)
    default_replication_factor: int = _number(
        0, "Replicas of a topic that is created without a number. 0: three, or all if there are fewer brokers.", high=15
    )
    auto_create_topics_enable: bool = _flag(True, "Create a topic when a client asks for its metadata.")
    max_topics: int = _number(
        100_000, "Topics of the whole cluster; one more is refused. The active controller's setting counts.", low=1
    )
    max_partitions: int = _number(
        100_000, "Partitions of the whole cluster; one more is refused. The active controller's setting counts.", low=1
    )
    delete_topic_enable: bool = _flag(True, "Allow topics to be deleted.")
    min_insync_replicas: int = _number(1, "In-sync replicas that acks=all needs.", low=1, high=15)
    flush_mode: str = _text(
        "fsync",
        "Meaning of acks=all on each replica of the majority: on disk, or written to the page cache.",
        choices=("fsync", "page-cache"),
    )
    auto_leader_rebalance_enable: bool = _flag(
        True, "Hand leaderships back to the first replica once it has caught up."
    )
    leader_imbalance_check_interval_seconds: int = _number(
        5, "How long a returned broker must be live before leaderships move back to it.", low=1, high=86_400
    )
    replica_lag_time_max_ms: int = _number(
        30_000, "A replica that lacks a record older than this leaves the in-sync replicas.", low=100
    )
    replica_catchup_rate_bytes: int = _number(
        64 * _MIB,
        "Bytes a second that a broker sends, and receives, of whole segments for replicas that were left behind.",
        low=64 * 1024,
    )
    leader_replication_throttled_rate: int = _number(
        _LONG_MAX, "Bytes a second that a broker sends of those, if it is less.", low=1024, high=_LONG_MAX
    )
    follower_replication_throttled_rate: int = _number(
        _LONG_MAX, "Bytes a second that a broker receives of those, if it is less.", low=1024, high=_LONG_MAX
    )
    log_segment_bytes: int = _number(_GIB, "Size at which a segment file is sealed.", low=64 * 1024)
    log_roll_ms: int = _number(
        604_800_000, "Age of its first record at which a segment is sealed, full or not.", low=1, high=_LONG_MAX
    )
    log_roll_jitter_ms: int = _number(
        0,
        "Most time by which a segment is sealed earlier than that, so that not all are sealed together.",
        high=_LONG_MAX,
    )
    log_index_size_max_bytes: int = _number(
        10 * _MIB, "Size of a segment's index, 8 bytes for each 4096 of data, at which the segment is sealed.", low=2048
    )
    log_message_timestamp_after_max_ms: int = _number(
        3_600_000, "How far a timestamp may be ahead of this broker's clock.", low=0, high=_LONG_MAX
    )
    log_message_timestamp_before_max_ms: int = _number(
        _LONG_MAX, "How far a timestamp may be behind this broker's clock.", low=0, high=_LONG_MAX
    )
    log_message_timestamp_type: str = _text(
        "CreateTime",
        "Whose clock stamps the records: the producer's, or the broker's when it appends.",
        choices=("CreateTime", "LogAppendTime"),
    )
    compression_type: str = _text(
        "producer",
        "The codec that batches are stored with; producer keeps what each of them came with.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_gzip_level: int = _number(-1, "Its level for gzip, from 1 to 9; -1 is 6.", low=-1, high=9)
    compression_lz4_level: int = _number(9, "Its level for lz4: 9 is fast, the others thorough.", low=1, high=17)
    compression_zstd_level: int = _number(3, "Its level for zstd.", low=-131_072, high=22)
    record_validation: str = _text(
        "framing",
        "What is checked of each batch beyond its header: that every record in it can be read (framing), or nothing.",
        choices=("framing", "none"),
    )
    log_cleanup_policy: str = _text(
        "delete",
        "Fate of old data of topics that say nothing: delete, compact, both, or nothing if empty.",
        choices=("delete", "compact", "compact,delete", "delete,compact", ""),
    )
    log_cleaner_delete_retention_ms: int = _number(
        86_400_000, "How long a compacted topic keeps a tombstone after it was first compacted.", high=_LONG_MAX
    )
    log_cleaner_min_compaction_lag_ms: int = _number(0, "Age below which a record is not compacted.", high=_LONG_MAX)
    log_cleaner_max_compaction_lag_ms: int = _number(
        _LONG_MAX, "Age of a record at which compaction begins, however little there is to do.", low=1, high=_LONG_MAX
    )
    log_cleaner_min_cleanable_ratio: float = _ratio(
        0.5, "Part of a partition that was never compacted at which compaction begins."
    )
    log_cleaner_backoff_ms: int = _number(15_000, "Time between two searches for logs to compact.", low=1)
    log_cleaner_dedupe_buffer_size: int = _number(
        32 * _MIB,
        "Memory for the keys of the partition that is compacted, 32 bytes each (192 without the compiled walker).",
        low=1 << 10,
    )
    log_cleaner_io_max_bytes_per_second: int = _number(
        8 * _MIB, "Bytes a second that compaction reads, at most.", low=1, high=_LONG_MAX
    )
    log_retention_ms: int = _number(
        604_800_000, "Age above which segments are deleted; -1: no limit.", low=-1, high=_LONG_MAX
    )
    log_retention_bytes: int = _number(
        -1, "Size of a partition above which its oldest segments are deleted; -1: no limit.", low=-1, high=_LONG_MAX
    )
    log_retention_check_interval_ms: int = _number(
        300_000, "Time between two searches for data to delete.", low=1, high=_LONG_MAX
    )
    log_scrub_rate_bytes: int = _number(
        4 * _MIB, "Bytes a second that are read back, slowly but always, to find damage on the disk.", low=64 * 1024
    )
    log_scrub_interval_hours: int = _number(
        168, "A pass over all sealed segments begins this often; one that takes longer goes on.", low=1
    )
    log_journal_file_bytes: int = _number(256 * _MIB, "Size of one recycled journal file.", low=1 * _MIB)
    log_journal_bypass_bytes: int = _number(
        128 * 1024,
        "With so many bytes of one partition in a large batch of the journal, they are written to its segment only.",
    )
    log_tail_cache_bytes: int = _number(32 * _MIB, "Recent batches kept in memory, over all partitions.", low=_MIB)

    message_max_bytes: int = _number(
        1_048_588, "Largest record batch, as stored; 63 MiB at most.", low=61, high=BATCH_BYTES_MAX
    )
    fetch_max_bytes: int = _number(55 * _MIB, "Largest answer to one fetch; one batch may exceed it.", low=1024)
    max_incremental_fetch_session_cache_slots: int = _number(
        1_000, "Fetch sessions of clients; without one a client names all its partitions in each fetch.", high=10_000
    )
    fetch_sessions_max_bytes: int = _number(
        32 * _MIB,
        "Memory for fetch sessions, 400 bytes a partition; one of them may take an eighth, 4 MiB at most.",
        high=_LONG_MAX,
    )
    max_request_partition_size_limit: int = _number(
        2_000, "Partitions in one answer to DescribeTopicPartitions; the next page has the others.", low=1
    )
    socket_request_max_bytes: int = _number(
        100 * _MIB, "Largest request; a larger one closes its connection.", low=1024
    )
    queued_max_request_bytes: int = _number(
        128 * _MIB,
        "Requests that have arrived and answers not taken, over all connections; above it, those that hold most wait.",
        low=_MIB,
    )
    queued_max_requests_per_connection: int = _number(
        100, "Unanswered requests of one connection; above it reading from it pauses.", low=1, high=100_000
    )
    max_connections: int = _number(
        20_000,
        "Open client connections; one more is closed at once. Fewer where the process may not open so many files.",
        low=1,
    )
    max_connections_per_ip: int = _number(
        2**31 - 1,
        "Open client connections from one address; one more is closed at once. In quotes beside max.connections.",
        low=1,
    )
    connections_max_idle_ms: int = _number(600_000, "A connection silent for this long is closed.", low=1_000)
    producer_id_expiration_ms: int = _number(
        86_400_000, "A producer that has written nothing to a partition for this long is forgotten there.", low=1_000
    )

    group_initial_rebalance_delay_ms: int = _number(
        500, "How long a new group waits for more members before its first assignment.", high=600_000
    )
    group_min_session_timeout_ms: int = _number(6_000, "Shortest session that a group member may ask for.", low=1)
    group_max_session_timeout_ms: int = _number(1_800_000, "Longest session that a group member may ask for.", low=1)
    group_max_size: int = _number(3_000, "Members of one group; one more is refused.", low=1)
    group_consumer_max_size: int = _number(
        3_000, "Members of one group of KIP-848, whose coordinator assigns; one more is refused.", low=1
    )
    group_consumer_session_timeout_ms: int = _number(
        45_000, "A member of such a group that is silent for this long is thrown out.", low=1
    )
    group_consumer_min_session_timeout_ms: int = _number(45_000, "Least that a group may have set for that.", low=1)
    group_consumer_max_session_timeout_ms: int = _number(60_000, "Most that a group may have set for that.", low=1)
    group_consumer_heartbeat_interval_ms: int = _number(
        5_000,
        "How often members of such a group are heard at the least when it has settled; while it changes, more often.",
        low=1,
    )
    group_consumer_settled_heartbeat_interval_ms: int = _number(
        500, "How often, as long as no more than 200 members of a broker come in a second.", low=1
    )
    group_consumer_min_heartbeat_interval_ms: int = _number(
        5_000, "Least that a group may have set for `consumer.heartbeat.interval.ms`.", low=1
    )
    group_consumer_max_heartbeat_interval_ms: int = _number(15_000, "Most that a group may have set for that.", low=1)
    group_consumer_assignment_interval_ms: int = _number(
        100, "Least time between two assignments of such a group.", high=15_000
    )
    group_consumer_min_assignment_interval_ms: int = _number(0, "Least that a group may have set for that.")
    group_consumer_max_assignment_interval_ms: int = _number(15_000, "Most that a group may have set for that.")
    group_consumer_assignors: str = _text(
        "uniform,range",
        "The assignors that members of such a group may ask for, with commas between; the first is that of members who "
        "do not ask.",
    )
    group_consumer_migration_policy: str = _text(
        "bidirectional",
        "Whether a group with members becomes one of KIP-848 when its first such member joins (upgrade), and a classic "
        "one when the last of them goes (downgrade).",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    group_state_max_bytes: int = _number(
        64 * _MIB, "Memory for the groups that a broker coordinates, with members and offsets.", low=_MIB
    )
    group_rebalance_interval_ms: int = _number(
        2_000, "Least time between rebalances of a group whose members come and go all the time.", high=600_000
    )
    offsets_topic_num_partitions: int = _number(
        16, "Partitions of the topic that holds the groups' state; counts when it is made.", low=1, high=1_000
    )
    offsets_topic_replication_factor: int = _number(
        0, "Replicas of that topic. 0: three, or all if there are fewer brokers.", high=15
    )
    offsets_retention_minutes: int = _number(
        10_080, "How long the offsets of a group without members, or of a topic it left, are kept.", low=1
    )
    offsets_retention_check_interval_ms: int = _number(
        600_000, "Time between two searches for expired offsets.", low=10
    )
    offset_metadata_max_bytes: int = _number(4_096, "Largest note that may be stored with an offset.", high=32_767)

    transaction_state_log_num_partitions: int = _number(
        16, "Partitions of the topic that holds the state of transactions; counts when it is made.", low=1, high=1_000
    )
    transaction_state_log_replication_factor: int = _number(
        0, "Replicas of that topic. 0: three, or all if there are fewer brokers.", high=15
    )
    transaction_state_log_min_isr: int = _number(
        1, "In-sync replicas that an answer of it needs, beside the majority that always has it.", low=1, high=15
    )
    transaction_state_log_segment_bytes: int = _number(
        _MIB, "Size at which a segment file of that topic is sealed.", low=64 * 1024
    )
    transaction_state_max_bytes: int = _number(
        64 * _MIB, "Memory for the transactional ids that a broker coordinates, with their transactions.", low=_MIB
    )
    transaction_max_timeout_ms: int = _number(
        900_000, "Longest timeout that a transactional producer may ask for.", low=1
    )
    transactional_id_expiration_ms: int = _number(
        604_800_000, "How long a transactional id is known after its last transaction.", low=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _number(
        10_000, "Time between two searches for transactions that have timed out.", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _number(
        3_600_000, "Time between two searches for expired transactional ids.", low=1
    )
    transaction_two_phase_commit_enable: bool = _flag(
        False, "Let producers prepare transactions that never time out, for another system to decide about."
    )

    client_metrics_otlp_endpoint: str = _text(
        "",
        "Where metrics that clients push are sent on to, by OTLP: 'http://127.0.0.1:4318/v1/metrics'. Empty: nobody is "
        "asked for any.",
    )
    telemetry_max_bytes: int = _number(
        _MIB, "Most bytes of metrics in one push, compressed and as they come out.", low=1_024, high=16 * _MIB
    )

    unstable_api_versions_enable: bool = _flag(
        False,
        "Serve APIs that are not finished, for trials; there are none now.",
    )
    raft_election_timeout_ms: int = _number(1_000, "Silence after which a leader is doubted.", low=50, high=600_000)
    raft_heartbeat_interval_ms: int = _number(
        100, "Time between heartbeats of a group that is not idle.", low=5, high=60_000
    )
    broker_session_timeout_ms: int = _number(3_000, "Silence after which the controller fences a broker.", low=200)
    controlled_shutdown_timeout_ms: int = _number(10_000, "How long a clean stop may take.", low=100, high=600_000)
    log_level: str = _text(
        "INFO",
        "Least level that is logged; DEBUG has a line for each connection and request.",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
    )
    log_format: str = _text("text", "Lines of the log: text, or one JSON object each.", choices=("text", "json"))
    log_file_path: str = _text("", "The file to log to. Empty: standard error.")
    log_file_max_bytes: int = _number(
        64 * _MIB, "Size at which that file is put aside, as its name with .1 behind it.", low=64 * 1024, high=_LONG_MAX
    )
    log_file_count: int = _number(1, "Files that were put aside and are kept.", high=1_000)
    test_link_delay_us: int = _number(
        0, "Time by which this broker delays its traffic to others.", high=10_000_000, for_tests=True
    )
    test_link_jitter_us: int = _number(
        0, "Most time that is added to each write and datagram.", high=10_000_000, for_tests=True
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check(field, getattr(self, field.name))
        if not self.cluster_id:
            raise ConfigError("cluster.id is empty; give every cluster a name of its own")
        if self.node_id not in self.cluster_nodes:
            known = ", ".join(map(str, sorted(self.cluster_nodes))) or "none"
            raise ConfigError(f"cluster.nodes does not name this node: node.id is {self.node_id}, named are {known}")
        for node_id, text in self.cluster_nodes.items():
            parse_address(f"{_NODES_PREFIX}{node_id}", text)
        if strangers := sorted(set(self.voters) - set(self.cluster_nodes)):
            raise ConfigError(f"controller.quorum.voters names {strangers[0]}, which cluster.nodes does not")
        if self.raft_election_timeout_ms < 3 * self.raft_heartbeat_interval_ms:
            raise ConfigError(
                f"raft.election.timeout.ms ({self.raft_election_timeout_ms}) must be at least three times "
                f"raft.heartbeat.interval.ms ({self.raft_heartbeat_interval_ms}), or followers will revolt"
            )
        self._check_times_of_groups()
        if self.log_cleaner_min_compaction_lag_ms > self.log_cleaner_max_compaction_lag_ms:
            raise ConfigError(
                f"log.cleaner.min.compaction.lag.ms ({self.log_cleaner_min_compaction_lag_ms}) is larger than "
                f"log.cleaner.max.compaction.lag.ms ({self.log_cleaner_max_compaction_lag_ms})"
            )
        if self.compression_gzip_level == 0:
            raise ConfigError("compression.gzip.level is 0; it must be -1, or from 1 to 9")
        if self.message_max_bytes > self.socket_request_max_bytes:
            raise ConfigError(
                f"message.max.bytes ({self.message_max_bytes}) is larger than "
                f"socket.request.max.bytes ({self.socket_request_max_bytes}): no such batch could arrive"
            )
        if self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                f"queued.max.request.bytes ({self.queued_max_request_bytes}) is smaller than "
                f"socket.request.max.bytes ({self.socket_request_max_bytes}): the largest request would wait for ever"
            )
        parse_listeners(self.listeners, self.advertised_listeners)
        _ = self.collector

    def _check_times_of_groups(self) -> None:
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms ({self.group_consumer_heartbeat_interval_ms}) is not shorter "
                f"than group.consumer.session.timeout.ms ({self.group_consumer_session_timeout_ms}): nobody would stay"
            )
        for what in ("session_timeout", "heartbeat_interval", "assignment_interval"):
            low, high = (getattr(self, f"group_consumer_{end}_{what}_ms") for end in ("min", "max"))
            if low > high:
                name = what.replace("_", ".")
                raise ConfigError(
                    f"group.consumer.min.{name}.ms ({low}) is larger than group.consumer.max.{name}.ms ({high})"
                )
        _ = self.consumer_assignors
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError(
                f"group.min.session.timeout.ms ({self.group_min_session_timeout_ms}) is larger than "
                f"group.max.session.timeout.ms ({self.group_max_session_timeout_ms}): no member could join"
            )

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        """The assignors of groups of KIP-848, the default first; never empty, each once."""
        names = [name.strip() for name in self.group_consumer_assignors.split(",")]
        for name in names:
            if name not in ASSIGNORS or names.count(name) > 1:
                what = f"there is no assignor {name!r}" if name not in ASSIGNORS else f"{name!r} is named twice"
                raise ConfigError(f"group.consumer.assignors: {what}; there are: {', '.join(ASSIGNORS)}")
        return tuple(names)

    @property
    def collector(self) -> Collector | None:
        """Where metrics of clients are sent on to, if anywhere."""
        return collector_at("client.metrics.otlp.endpoint", self.client_metrics_otlp_endpoint)

    @property
    def named_listeners(self) -> tuple[NamedListener, ...]:
        """Where clients are served, and what they are told, the main one first; never empty."""
        return parse_listeners(self.listeners, self.advertised_listeners)

    @property
    def listener(self) -> Address:
        """Where clients are served on the first listener."""
        return self.named_listeners[0].bind

    @property
    def advertised(self) -> Address:
        """Where clients of the first listener are told to connect; port 0 means the port that it got."""
        return self.named_listeners[0].advertised

    @property
    def nodes(self) -> dict[int, Address]:
        """Every node's address for traffic between nodes, this one's too."""
        return {node_id: parse_address("cluster.nodes", text) for node_id, text in sorted(self.cluster_nodes.items())}

    @property
    def exposed_nodes(self) -> list[Address]:
        """The nodes that others than this machine may reach: those that are not on the loopback."""
        return [address for address in self.nodes.values() if not is_loopback(address)]

    def check_keyed(self) -> None:
        """Refuse to run without a secret where strangers may reach the nodes.

        Raises:
            ConfigError: there is none, and the text says where it is to come from.
        """
        if not self.cluster_secret and (exposed := self.exposed_nodes):
            where = ", ".join(map(str, exposed))
            raise ConfigError(
                f"cluster.secret is not set, so anybody who reaches {where} would be believed to be a broker; give all "
                "brokers the same one (openssl rand -hex 32) while all are stopped, or --token with the token that "
                "`barnabas cluster token` prints on a machine that has it"
            )

    @property
    def voters(self) -> tuple[int, ...]:
        """Ids of the metadata quorum's voters, sorted."""
        if self.controller_quorum_voters:
            return tuple(sorted(set(_ids("controller.quorum.voters", self.controller_quorum_voters))))
        nodes = sorted(self.cluster_nodes)
        return tuple(nodes if len(nodes) <= 3 else nodes[:5] if len(nodes) >= 5 else nodes[:3])

    @property
    def replication_factor(self) -> int:
        """Replicas of a topic whose creator does not say how many."""
        return self.default_replication_factor or min(3, len(self.cluster_nodes))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read a configuration file.

        Raises:
            ConfigError: the text is not TOML, or a setting is unknown, missing or out of range.
        """
        return cls.from_settings(read_toml(text))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a configuration file as it lies on the disk.

        Raises:
            ConfigError: as `from_toml`.
        """
        return cls.from_settings(read_toml(data))

    @classmethod
    def from_settings(cls, values: Mapping[str, SettingValue]) -> Self:
        """Build from names with dots; a string is read as the setting's type (`--set name=value`).

        Nodes are given one by one (`cluster.nodes.1`: "host:port") or together (`cluster.nodes`:
        "1@host:port,2@host:port"); one by one wins.

        Raises:
            ConfigError: a setting is unknown, missing or out of range.
        """
        fields = _fields()
        given: dict[str, Any] = {}
        nodes: dict[int, str] = {}
        for name, value in read_settings(values).items():
            if name.startswith(_NODES_PREFIX):
                nodes[int(name.removeprefix(_NODES_PREFIX))] = str(value)
            elif name != "cluster.nodes":
                given[fields[name].name] = value
        missing = [
            name
            for name, field in fields.items()
            if field.default is dataclasses.MISSING
            and field.name not in given
            and (name != "cluster.nodes" or not nodes)
        ]
        if missing:
            raise ConfigError(f"missing settings: {', '.join(missing)}")
        return cls(cluster_nodes=nodes, **given)

    def to_toml(self) -> str:
        """Return a file that `from_toml` reads back as an equal configuration; defaults are left out."""
        lines = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            name = field.name.replace("_", ".")
            if field.metadata["kind"] is dict:
                lines += [f"{_NODES_PREFIX}{key} = {quoted(text)}" for key, text in sorted(value.items())]
            elif value != field.default:
                # A table cannot have the place of a value; a quoted key is one name, dots and all.
                is_below = any(
                    name.startswith(f"{other.name.replace('_', '.')}.") for other in dataclasses.fields(self)
                )
                lines.append(f"{quoted(name) if is_below else name} = {quoted(value)}")
        return "\n".join(lines) + "\n"


def settings() -> list[Setting]:
    """Return every setting in the order of declaration, for documentation and for completion.

    Those that only tests have a use for (`test.*`) are left out: docs/testing.md has them.
    """
    return [
        Setting(
            name=field.name.replace("_", "."),
            type={int: "integer", float: "number", str: "string", bool: "boolean", dict: "table"}[
                field.metadata["kind"]
            ],
            default=None if field.default is dataclasses.MISSING else field.default,
            required=field.default is dataclasses.MISSING,
            minimum=field.metadata.get("low"),
            maximum=field.metadata.get("high"),
            choices=field.metadata.get("choices", ()),
            doc=field.metadata["doc"],
        )
        for field in dataclasses.fields(BrokerConfig)
        if not field.metadata.get("for_tests")
    ]


def accepted_names() -> list[str]:
    """Return every name that a source of settings may use, coarser units included, but for `cluster.nodes.N`."""
    return [*_fields(), *(coarser for coarser, _, _ in _COARSER_UNITS)]


def finest_of(name: str) -> str:
    """Return the setting that `name` gives in a coarser unit (`log.retention.hours`), or else `name`."""
    return next((finest for coarser, finest, _ in _COARSER_UNITS if coarser == name), name)


def unknown_setting(name: str) -> ConfigError:
    """Return the refusal of a name that no setting has, with the nearest that one has."""
    hint = nearest(name, accepted_names()) or "; barnabas broker settings shows all"
    return ConfigError(f"unknown setting: {name or repr(name)}{hint}")


def read_toml(text: str | bytes) -> dict[str, SettingValue]:
    """Return the settings of a configuration file, as `read_settings` does.

    Raises:
        ConfigError: the text is not TOML, or a setting is unknown or out of range.
    """
    try:
        tables = tomllib.loads(text if isinstance(text, str) else text.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"not valid TOML: byte {error.start} is not UTF-8") from error
    except ValueError as error:
        # A TOMLDecodeError, or what int() says to a number of some thousand digits.
        raise ConfigError(f"not valid TOML: {error}") from error
    return read_settings(_flatten(tables, ""))


def read_settings(values: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
    """Return the settings of one source: each of its type, in its finest unit, and in its range.

    `cluster.nodes` stays beside the nodes that it names, which stand there one by one, so that the next source can tell
    all nodes from some. What is missing, or fits nothing else, is not found out here.

    Raises:
        ConfigError: a setting is unknown or out of range.
    """
    fields = _fields()
    coarser = {name: (target, unit_ms) for name, target, unit_ms in _COARSER_UNITS}
    read: dict[str, SettingValue] = {}
    nodes: dict[str, SettingValue] = {}
    # The coarsest first: a finer one takes its place.
    order = list(coarser)
    for name, value in sorted(
        values.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)
    ):
        if name == "cluster.nodes":
            read[name] = str(value)
            nodes = {**{f"{_NODES_PREFIX}{node_id}": place for node_id, place in _nodes(str(value)).items()}, **nodes}
        elif name.startswith(_NODES_PREFIX):
            nodes[f"{_NODES_PREFIX}{_integer(name, name.removeprefix(_NODES_PREFIX))}"] = str(value)
        elif name in coarser:
            target, unit_ms = coarser[name]
            count = _integer(name, value)
            if target not in values:
                read[target] = count * unit_ms if count > 0 else count
                _check(fields[target], read[target])
        elif name in fields:
            read[name] = _parse(name, fields[name].metadata["kind"], value)
            _check(fields[name], read[name])
        else:
            raise unknown_setting(name)
    return read | nodes


@cache
def _fields() -> dict[str, "dataclasses.Field[Any]"]:
    return {field.name.replace("_", "."): field for field in dataclasses.fields(BrokerConfig)}


def _flatten(tables: Mapping[str, Any], prefix: str) -> dict[str, SettingValue]:
    flat: dict[str, SettingValue] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            flat[prefix + key] = ",".join(map(str, value))
        elif isinstance(value, str | int | float | bool):
            flat[prefix + key] = value
        else:
            raise ConfigError(f"{prefix}{key} is {value!r}; settings are strings, numbers or booleans")
    return flat


def _check(field: "dataclasses.Field[Any]", value: object) -> None:
    name = field.name.replace("_", ".")
    meta = field.metadata
    low = meta.get("low")
    high = meta.get("high")
    choices = meta.get("choices")
    if not isinstance(value, Mapping if meta["kind"] is dict else meta["kind"]):
        raise ConfigError(f"{name} is {value!r}, not {meta['kind'].__name__}")
    if choices and value not in choices:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")
    if isinstance(value, int | float) and low is not None and high is not None and not low <= value <= high:
        raise ConfigError(f"{name} is {value}; it must be from {low} to {high}")


def _parse(name: str, kind: type, value: SettingValue) -> SettingValue:
    if kind is int:
        return _integer(name, value)
    if kind is float:
        return _decimal(name, value)
    if kind is bool:
        known = {"true": True, "false": False}
        if str(value).lower() not in known:
            raise ConfigError(f"{name} is {value!r}; it must be true or false")
        return known[str(value).lower()]
    return str(value)


def _integer(name: str, value: SettingValue) -> int:
    """Read a whole number; of what is a time or a size, also one with a unit."""
    # bool is an int to Python, but `node.id = true` is a mistake.
    if type(value) is int:
        return value
    text = str(value).strip()
    if re.fullmatch(r"[+-]?[0-9]{1,40}", text):
        return int(text)
    unit = name.rpartition(".")[2]
    if unit in _TIME_UNITS:
        return _in_units(name, text, unit)
    if "bytes" in name.split(".") or name.endswith("buffer.size"):
        try:
            return parse_bytes(text)
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from error
    raise ConfigError(f"{name} is {value!r}, which is not an integer")


def _decimal(name: str, value: SettingValue) -> float:
    """Read a number with a point, or without."""
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?|[+-]?\.[0-9]{1,40}", text):
        raise ConfigError(f"{name} is {value!r}, which is not a number")
    return float(text)


def _in_units(name: str, text: str, unit: str) -> int:
    """Read a time with units (`7d`) for a setting that is in `unit`."""
    try:
        found_ms = parse_duration_ms(text)
    except ValueError as error:
        raise ConfigError(
            f"{name} is {text!r}, which is not a time: write 7d, 1h30m, 500ms, or a number (of {_TIME_UNITS[unit][0]})"
        ) from error
    words, unit_ms = _TIME_UNITS[unit]
    if found_ms % unit_ms:
        raise ConfigError(f"{name} is {text!r}, which is not a whole number of {words}")
    return found_ms // unit_ms


def _ids(name: str, text: str) -> Sequence[int]:
    return [_integer(name, part.strip()) for part in text.split(",") if part.strip()]


def _nodes(text: str) -> dict[int, str]:
    nodes = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        node_id, at, address = part.partition("@")
        if not at:
            raise ConfigError(f"cluster.nodes has {part!r}; write each node as id@host:port")
        nodes[_integer("cluster.nodes", node_id)] = address
    return nodes


def quoted(value: SettingValue) -> str:
    """Return a value as TOML has it."""
    # A JSON string is a valid TOML basic string but for DEL; numbers and booleans are spelled alike in both.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
