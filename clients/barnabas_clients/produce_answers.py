"""From a produce answer's error code to what it means for the batch. Pure.

The question that decides everything is whether the batch may be in the log although the answer is an error. Kafka's
errors do not say, so here is what we know of brokers: a leader that is deposed, times out or misses replicas answers so
*after* it has appended; what it checks before it appends was surely not appended. Every code that is not listed is
counted among those of which nobody knows.
"""

from typing import Final

from .protocol.error_codes import RETRIABLE, ErrorCode
from .sequences import Outcome

__all__ = ["outcome_of"]

_APPENDED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_GAP: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
# Checked before anything is appended, and true again a moment later only by the sender's doing.
_NOT_NOW: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


def outcome_of(code: int) -> Outcome:
    """Return what the error code of one partition in a produce answer says about its batch."""
    if code in _APPENDED:
        return Outcome.APPENDED
    if code in _GAP:
        return Outcome.GAP
    if code in _FENCED:
        return Outcome.FENCED
    if code in _NOT_NOW:
        return Outcome.NOT_NOW
    if code in RETRIABLE:
        return Outcome.UNKNOWN
    return Outcome.REFUSED
