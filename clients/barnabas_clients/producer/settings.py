"""Checks the settings of a producer before anything is opened. Pure."""

from typing import Final, Literal, NamedTuple, Self

from barnabas_clients.arguments import INT32_MAX, INT64_MAX, callable_of, flag, one_of, seconds, text, whole_number
from barnabas_raftlog.records.compression import Compression

from .partitioner import PARTITIONERS, Partitioner

__all__ = ["Acks", "CompressionName", "ProducerSettings"]

Acks = Literal["all", 0, 1, -1]
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
IDEMPOTENT_IN_FLIGHT_MAX = 5
"""A broker remembers so many batches of a producer per partition, to recognise repetitions."""
_POSITIVE: Final = "request_timeout_s, timeout_s, metadata_max_age_s and transaction_timeout_s must be positive"
_COMPRESSIONS: Final = tuple(name.lower() for name in Compression.__members__)
_SIZES: Final = frozenset({"batch_bytes", "request_bytes_max", "buffer_bytes", "in_flight_max"})


class ProducerSettings(NamedTuple):
    """The checked settings. `acks` is -1, 1 or 0 here; the others are as in `Producer`."""

    acks: int
    is_idempotent: bool
    compression: Compression
    linger_s: float
    batch_bytes: int
    request_bytes_max: int
    buffer_bytes: int
    delivery_timeout_s: float
    request_timeout_s: float
    in_flight_max: int
    partitioner: Partitioner
    timeout_s: float
    metadata_max_age_s: float
    transaction_timeout_s: float
    transactional_id: str | None

    @classmethod
    def of(
        cls,
        acks: Acks,
        idempotent: bool | None,
        compression: CompressionName,
        partitioner: Partitioner,
        transactional_id: str | None,
        **numbers: float,
    ) -> Self:
        """Return the settings in their inner form.

        Raises:
            TypeError: one is of the wrong type.
            ValueError: one is out of range, or two contradict each other.
        """
        said = one_of("acks", acks, ("all", 0, 1, -1))
        number = said if isinstance(said, int) else -1
        settings = cls(
            acks=number,
            is_idempotent=number == -1 if idempotent is None else flag("idempotent", idempotent),
            compression=Compression[one_of("compression", compression, _COMPRESSIONS).upper()],
            partitioner=_partitioner(partitioner),
            transactional_id=None if transactional_id is None else text("transactional_id", transactional_id),
            **{name: _number(name, value) for name, value in numbers.items()},  # type: ignore[arg-type]
        )
        for is_right, rule in settings._rules():
            if not is_right:
                raise ValueError(rule)
        return settings

    def _rules(self) -> list[tuple[bool, str]]:
        timeouts = (self.request_timeout_s, self.timeout_s, self.metadata_max_age_s, self.transaction_timeout_s)
        return [
            (self.acks == -1 or not self.is_idempotent, f"idempotence needs acks='all', not {self.acks!r}"),
            (self.is_idempotent or self.transactional_id is None, "transactions need acks='all' and idempotence"),
            (
                self.in_flight_max <= IDEMPOTENT_IN_FLIGHT_MAX or not self.is_idempotent,
                f"in_flight_max is at most {IDEMPOTENT_IN_FLIGHT_MAX} when idempotent",
            ),
            (self.delivery_timeout_s > self.linger_s, "delivery_timeout_s must be longer than linger_s"),
            (min(timeouts) > 0, _POSITIVE),
            (self.batch_bytes <= self.request_bytes_max, "batch_bytes must be from 1 to request_bytes_max"),
            (self.buffer_bytes >= 4 * self.batch_bytes, "buffer_bytes must hold four batches"),
        ]


def _number(name: str, value: float) -> float:
    if name in _SIZES:
        return whole_number(name, value, 1, INT32_MAX if name != "buffer_bytes" else INT64_MAX)
    return seconds(name, value)


def _partitioner(value: Partitioner) -> Partitioner:
    if not isinstance(value, str):
        return callable_of("partitioner", value)
    return one_of("partitioner", value, PARTITIONERS)
