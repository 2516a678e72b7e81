"""DescribeEvents, API key 25187: what happened on one broker, and why. Barnabas alone has it. Pure.

Events name groups and clients, so whoever asks proves to know the secret of the cluster (`open_challenge` comes first).
"""

from barnabas_raftlog.wire.schema import Bytes, Int16, Int32, Int64, Message, String, Struct, field, message

__all__ = ["BrokerEvent", "DescribeEventsRequest", "DescribeEventsResponse"]


@message(api_key=25187, versions=range(1), flexible_since=0)
class DescribeEventsRequest(Message):
    """Ask for the newest events of all that match.

    `nonce` is the asker's own, and `proof` covers it, the broker's, and all else that is asked for. `topic`: events of
    that topic's partitions only. `kind`: of kinds that begin so. `since_ms`: not before that time, in milliseconds
    since 1970; -1: however old. `events_max`: no more than that; the broker has limits, too.
    """

    nonce: Bytes = b""
    proof: Bytes = b""
    topic: String | None = None
    kind: String | None = None
    since_ms: Int64 = -1
    events_max: Int32 = 1000


class BrokerEvent(Struct):
    """One event: `time_ms` is in milliseconds since 1970, `subject` what it happened to."""

    time_ms: Int64 = 0
    kind: String = ""
    subject: String = ""
    cause: String = ""


@message(api_key=25187, versions=range(1), flexible_since=0)
class DescribeEventsResponse(Message):
    """`proof` is the broker's, who knows the secret too. `events` are in order of time, the newest that match.

    `events_left_out` is the number of older ones that match and had no room.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    node_id: Int32 = -1
    proof: Bytes = b""
    events: list[BrokerEvent] = field(default_factory=list)
    events_left_out: Int32 = 0
