"""DescribeHealth, API key 25185: how well a cluster is. Not Kafka's: Barnabas alone has it. Pure.

Anybody may ask any broker, which answers with what it knows. Nothing here names a group or a client.

The keys of our own APIs begin at 25185 (the letters `ba`), far above Kafka's, which count from 0, and above those that
others are known to have added.
"""

from collections.abc import Sequence
from enum import IntEnum

from barnabas_raftlog.wire.schema import Int8, Int16, Int32, Int64, Message, String, Struct, field, message

__all__ = [
    "BrokerState",
    "DescribeHealthRequest",
    "DescribeHealthResponse",
    "HealthBroker",
    "HealthTopic",
]


class BrokerState(IntEnum):
    """What the broker that answers knows of another one, or of itself; an int8 on the wire.

    SILENT: nothing is heard of it; the controller may have fenced it already. FENCED: it is heard, and the controller
    has not let it in, or not yet. MISSING: it is named in the configuration and has never registered.
    """

    LIVE = 0
    STOPPING = 1
    FENCED = 2
    SILENT = 3
    MISSING = 4


@message(api_key=25185, versions=range(1), flexible_since=0)
class DescribeHealthRequest(Message):
    """`topics_max`: how many rows of topics that lack something the answer may have; a broker has a limit, too."""

    topics_max: Int32 = 100


class HealthBroker(Struct):
    """One broker. `state` is a `BrokerState`, for `state_ms` milliseconds by now; -1: since before anybody looked.

    `host` is null and `port` -1 while it has never registered, or if it has no listener of the name of the one that was
    asked. `leaders` counts the partitions that it leads.
    """

    node_id: Int32 = 0
    host: String | None = None
    port: Int32 = -1
    rack: String | None = None
    state: Int8 = 0
    state_ms: Int64 = -1
    leaders: Int32 = 0


class HealthTopic(Struct):
    """A topic that lacks something: partitions without a leader; led ones with fewer in-sync replicas than replicas."""

    name: String = ""
    partitions: Int32 = 0
    without_leader: Int32 = 0
    under_replicated: Int32 = 0


@message(api_key=25185, versions=range(1), flexible_since=0)
class DescribeHealthResponse(Message):
    """`node_id` has answered, and runs `software_version`. `controller_id` -1: there is none that it can reach.

    `waiting` says in words what the quorum of controllers waits for; empty: nothing. `under_replicated` counts led
    partitions only, so no partition counts twice. `topics` are sorted by name, and
    `topics_left_out` is the number of further ones that lack something.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    cluster_id: String = ""
    node_id: Int32 = -1
    software_version: String = ""
    controller_id: Int32 = -1
    voters: Sequence[Int32] = ()
    learners: Sequence[Int32] = ()
    waiting: String = ""
    brokers: list[HealthBroker] = field(default_factory=list)
    topics_count: Int32 = 0
    partitions_count: Int32 = 0
    without_leader: Int32 = 0
    under_replicated: Int32 = 0
    topics: list[HealthTopic] = field(default_factory=list)
    topics_left_out: Int32 = 0
