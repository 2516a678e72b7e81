"""Says which offsets a consumer hands to a transaction of a producer, and in whose name they are stored. Pure.

Consumers make them, and producers take them; neither loads the other.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

__all__ = ["GroupMember", "GroupOffsets"]


class GroupMember(NamedTuple):
    """The member whose offsets are stored, in its generation. The defaults stand for a group that is not checked."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class GroupOffsets(NamedTuple):
    """Offsets to be stored in the name of a group's member; `on_stored` is called when that is certain."""

    member: GroupMember
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    on_stored: Callable[[], None]
