"""Words counts and refusals of brokers for people. Pure.

A refusal is what happened, in words, and then the code that Kafka's documentation explains, in brackets:
`there is no topic 'ordres' (did you mean 'orders'?) [UNKNOWN_TOPIC_OR_PARTITION]`.
"""

from collections.abc import Collection, Iterable

from barnabas_broker.cli.near_names import did_you_mean
from barnabas_clients.protocol.errors import ErrorCode, KafkaError

__all__ = ["counted", "in_words", "listed", "missing", "said_count"]

_SAID = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no topic or partition {!r}",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no group {!r}",
    ErrorCode.NON_EMPTY_GROUP: "the group {!r} has members; stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read this topic; stop them first ({})",
}
"""For errors that say no more than a name."""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 partition`, `1,200 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def said_count(count: int | None) -> str | None:
    """Return a count as people read it, `1,200`; None, which is unknown, stays None."""
    return None if count is None else f"{count:,}"


def listed(names: Iterable[object]) -> str:
    """Return names with commas between them."""
    return ", ".join(map(str, names))


def missing(kind: str, names: Collection[str], known: Collection[str], code: ErrorCode, advice: str = "") -> str:
    """Return the refusal of names that do not exist, with the known names that are near."""
    said = [f"there is no {kind} {name!r}{did_you_mean(name, known)}" for name in names]
    return f"{'; '.join(said)}{advice} [{code.name}]"


def in_words(error: KafkaError) -> str:
    """Return a broker's refusal in words, with its code at the end."""
    code = error.code.name
    text = str(error).removeprefix(code).removeprefix(": ")
    if (words := _SAID.get(error.code)) is not None and text and ": " not in text:
        text = words.format(text)
    return f"{text} [{code}]" if text else code
