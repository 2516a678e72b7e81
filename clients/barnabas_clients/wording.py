"""Words what clients tell people in logs: names from brokers, lists of many, lengths of time. Pure."""

from collections.abc import Collection, Iterable
from heapq import nsmallest

from .topic_partition import TopicPartition

__all__ = ["NAMED_MAX", "listed", "listed_partitions", "shown_name", "shown_reason", "shown_seconds"]

NAMED_MAX = 5
"""The number of things that a line of the log names. Of the others it tells how many there are."""
NAME_CHARACTERS_MAX = 100
REASON_CHARACTERS_MAX = 500


def shown_name(name: str) -> str:
    """Return a name that a broker or the application chose as it may stand in a line of the log."""
    from barnabas_raftlog.printable import printable  # noqa: PLC0415 - it compiles an expression, for the first line

    return printable(name, NAME_CHARACTERS_MAX)


def shown_reason(reason: object) -> str:
    """Return an error, or a text from a broker, as it may stand in a line of the log."""
    from barnabas_raftlog.printable import printable  # noqa: PLC0415 - as above

    return printable(str(reason), REASON_CHARACTERS_MAX)


def listed(names: Iterable[str], count: int) -> str:
    """Return `count` names in a line. Only the first `NAMED_MAX` are looked at."""
    shown = [shown_name(name) for name, _ in zip(names, range(NAMED_MAX), strict=False)]
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(shown) + more


def listed_partitions(partitions: Collection[TopicPartition]) -> str:
    """Return partitions in a line, in order; "nothing" if there are none."""
    return listed(map(str, nsmallest(NAMED_MAX, partitions)), len(partitions)) or "nothing"


def shown_seconds(length_s: float) -> str:
    """Return a length of time with one decimal, "12.3 s"."""
    return f"{max(0.0, length_s):.1f} s"
