"""UnregisterBroker, API key 64: let the cluster forget a broker. Pure.

Versions: 0 flexible already.
"""

from barnabas_raftlog.wire.schema import Int16, Int32, Message, String, message

__all__ = [
    "UnregisterBrokerRequest",
    "UnregisterBrokerResponse",
]


@message(api_key=64, versions=range(1), flexible_since=0)
class UnregisterBrokerRequest(Message):
    """The broker to forget."""

    broker_id: Int32 = 0


@message(api_key=64, versions=range(1), flexible_since=0)
class UnregisterBrokerResponse(Message):
    """Done, or why not."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
