"""Refuses names that no topic and no group can have, before a broker is asked."""

from collections.abc import Iterable

from barnabas_clients.arguments import TEXT_CHARACTERS_MAX
from barnabas_metadata_quorum.topic_names import NAME_CHARACTERS_MAX, name_complaint

from .errors import UsageError

__all__ = ["check_group_names", "check_topic_names"]

SHOWN_CHARACTERS_MAX = 80


def check_topic_names(names: Iterable[str], hint: str = "") -> None:
    """Check names against Kafka's rules; `hint` ends the message.

    Raises:
        UsageError: one is empty, too long, or has a character that a name may not have.
    """
    for name in names:
        if name_complaint(name) is not None:
            raise UsageError(
                f"{_shown(name, NAME_CHARACTERS_MAX)} is not a valid topic name: use letters, digits, '.', '_' and "
                f"'-', at most {NAME_CHARACTERS_MAX} of them{hint}"
            )


def check_group_names(names: Iterable[str]) -> None:
    """Check names against what clients can send.

    Raises:
        UsageError: one is empty, or too long.
    """
    for name in names:
        if not 0 < len(name) <= TEXT_CHARACTERS_MAX:
            raise UsageError(
                f"{_shown(name, TEXT_CHARACTERS_MAX)} is not a valid group name: use 1 to {TEXT_CHARACTERS_MAX:,} "
                "characters"
            )


def _shown(name: str, characters_max: int) -> str:
    """Return a name, or the beginning of a long one, and its length if that is what is wrong."""
    beginning = name if len(name) <= SHOWN_CHARACTERS_MAX else f"{name[:SHOWN_CHARACTERS_MAX]}..."
    return repr(beginning) + (f" ({len(name):,} characters)" if len(name) > characters_max else "")
