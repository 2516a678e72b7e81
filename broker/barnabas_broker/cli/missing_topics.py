"""Says that there is no such topic, and which one was meant."""

from collections.abc import Sequence

from barnabas_clients import Admin
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError

from .errors import CommandError
from .wording import missing

__all__ = ["missing_topic"]


async def missing_topic(admin: Admin, names: Sequence[str]) -> CommandError:
    """Return the error for names of which one is that of no topic."""
    try:
        known = [view.name for view in await admin.list_topics()]
    except (ClientError, KafkaError):
        known = []
    name = next((name for name in names if name not in known), names[0])
    return CommandError(missing("topic", [name], known, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
