"""Refuses names that no topic can have, before a broker is asked."""

from collections.abc import Iterable

from barnabas_metadata_quorum.topic_names import NAME_CHARACTERS_MAX, name_complaint

from .errors import UsageError

__all__ = ["check_topic_names"]

SHOWN_CHARACTERS_MAX = 80


def check_topic_names(names: Iterable[str], hint: str = "") -> None:
    """Check names against Kafka's rules; `hint` ends the message.

    Raises:
        UsageError: one is empty, too long, or has a character that a name may not have.
    """
    for name in names:
        if name_complaint(name) is not None:
            shown = name if len(name) <= SHOWN_CHARACTERS_MAX else f"{name[:SHOWN_CHARACTERS_MAX]}..."
            length = f" ({len(name)} characters)" if len(name) > NAME_CHARACTERS_MAX else ""
            raise UsageError(
                f"{shown!r}{length} is not a valid topic name: use letters, digits, '.', '_' and '-', "
                f"at most {NAME_CHARACTERS_MAX} of them{hint}"
            )
