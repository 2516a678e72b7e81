"""Names what became of the topics of a snapshot, apart from the messages that tell it. Pure."""

from enum import IntEnum

__all__ = ["SnapshotTopicState"]


class SnapshotTopicState(IntEnum):
    """What became of a topic; an int8 on the wire. CREATED_ANEW: it is gone, and another one has its name."""

    THERE = 0
    GONE = 1
    CREATED_ANEW = 2
