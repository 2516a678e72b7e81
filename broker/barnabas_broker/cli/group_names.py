"""Refuses names that no group can have, before a broker is asked."""

from collections.abc import Iterable

from barnabas_clients.arguments import TEXT_CHARACTERS_MAX

from .errors import UsageError

__all__ = ["check_group_names"]

SHOWN_CHARACTERS_MAX = 80


def check_group_names(names: Iterable[str]) -> None:
    """Check names against what clients can send.

    Raises:
        UsageError: one is empty, or too long.
    """
    for name in names:
        if not 0 < len(name) <= TEXT_CHARACTERS_MAX:
            shown = name if len(name) <= SHOWN_CHARACTERS_MAX else f"{name[:SHOWN_CHARACTERS_MAX]}..."
            raise UsageError(f"{shown!r} is not a valid group name: use 1 to {TEXT_CHARACTERS_MAX:,} characters")
