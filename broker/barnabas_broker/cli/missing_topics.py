"""Says that there is no such topic, and which one was meant."""

from collections.abc import Sequence

from barnabas_clients import Admin
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError

from .errors import CommandError
from .near_names import did_you_mean

__all__ = ["missing_topic"]


async def missing_topic(admin: Admin, names: Sequence[str]) -> CommandError:
    """Return the error for names of which one is that of no topic."""
    try:
        known = [view.name for view in await admin.list_topics()]
    except (ClientError, KafkaError):
        known = []
    name = next((name for name in names if name not in known), names[0])
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    return CommandError(f"there is no topic {name!r}{did_you_mean(name, known)} [{code}]")
