"""Limits of the numbers that requests can carry, and refusals of larger ones."""

from .errors import UsageError

__all__ = [
    "BROKER_ID_MAX",
    "OFFSET_MAX",
    "PARTITION_MAX",
    "REPLICAS_MAX",
    "REQUEST_BYTES_MAX",
    "check_replication_factor",
    "numbers_of",
]

BROKER_ID_MAX = (1 << 31) - 1
PARTITION_MAX = (1 << 31) - 1
OFFSET_MAX = (1 << 63) - 1
REPLICAS_MAX = (1 << 15) - 1
REQUEST_BYTES_MAX = (1 << 31) - 1

# As many as the largest has; Python refuses to convert some thousand.
DIGITS_MAX = 10


def check_replication_factor(given: int) -> None:
    """Check what `--replication-factor` of a new topic says.

    Raises:
        UsageError: a topic cannot have as many replicas.
    """
    if given != -1 and not 1 <= given <= REPLICAS_MAX:
        raise UsageError(
            f"--replication-factor must be from 1 to {REPLICAS_MAX}, or -1 for the cluster's default, not {given}"
        )


def numbers_of(text: str) -> list[int] | None:
    """Return the numbers of partitions or brokers in `0,1,2`, or None if it is something else."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and len(word) <= DIGITS_MAX for word in words):
        return None
    numbers = [int(word) for word in words]
    return numbers if max(numbers) <= PARTITION_MAX else None
