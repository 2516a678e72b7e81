"""Checks names of topics, and knows the names that mean something to the cluster itself. Pure.

The rules are Kafka's: 1 to 249 of the letters, digits, '.', '_' and '-', but not "." or "..". Two names that differ
only in '.' against '_' may not exist together, because metric names cannot tell them apart.
"""

from string import ascii_letters, digits

__all__ = ["CLUSTER_METADATA", "INTERNAL_TOPICS", "NAME_CHARACTERS_MAX", "collision_key", "name_complaint"]

NAME_CHARACTERS_MAX = 249  # leaves room for "-<partition>" and a suffix in a file name of 255
CLUSTER_METADATA = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_LEGAL = frozenset(ascii_letters + digits + "._-")


def name_complaint(name: str) -> str | None:
    """Return the complaint about `name`, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"the length of {len(name)} is longer than the maximum of {NAME_CHARACTERS_MAX}"
    if not _LEGAL.issuperset(name):
        return f"'{name}' contains characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Return the same key for names that may not exist together."""
    return name.replace(".", "_")
