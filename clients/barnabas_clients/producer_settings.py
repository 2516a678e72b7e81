"""What a producer can be told, checked before anything is opened. Pure."""

from typing import Literal, NamedTuple, Self

from barnabas_raftlog.records.compression import Compression

from .partitioner import Partitioner

__all__ = ["Acks", "CompressionName", "ProducerSettings"]

Acks = Literal["all", 0, 1, -1]
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
IDEMPOTENT_IN_FLIGHT_MAX = 5
"""So many batches of a producer a broker remembers per partition, to recognise repetitions."""


class ProducerSettings(NamedTuple):
    """`acks` is -1, 1 or 0 here. The rest is as in `Producer`."""

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

    @classmethod
    def of(
        cls,
        acks: Acks,
        idempotent: bool | None,
        compression: CompressionName,
        partitioner: Partitioner,
        **numbers: float,
    ) -> Self:
        """Return the settings in their inner form.

        Raises:
            ValueError: one is out of range, or two contradict each other.
        """
        number = -1 if acks == "all" else acks
        if compression.upper() not in Compression.__members__:
            raise ValueError(f"compression {compression!r} does not exist")
        settings = cls(
            acks=number,
            is_idempotent=number == -1 if idempotent is None else idempotent,
            compression=Compression[compression.upper()],
            partitioner=partitioner,
            **numbers,  # type: ignore[arg-type]
        )
        for is_right, rule in settings._rules():
            if not is_right:
                raise ValueError(rule)
        return settings

    def _rules(self) -> list[tuple[bool, str]]:
        timeouts = (self.request_timeout_s, self.timeout_s, self.metadata_max_age_s)
        is_named = self.partitioner in {"murmur2", "round-robin"} if isinstance(self.partitioner, str) else False
        return [
            (self.acks in {-1, 0, 1}, f"acks is {self.acks!r}; it must be 'all', 1 or 0"),
            (self.acks == -1 or not self.is_idempotent, f"idempotence needs acks='all', not {self.acks!r}"),
            (self.in_flight_max >= 1, "in_flight_max must be at least 1"),
            (
                self.in_flight_max <= IDEMPOTENT_IN_FLIGHT_MAX or not self.is_idempotent,
                f"in_flight_max is at most {IDEMPOTENT_IN_FLIGHT_MAX} when idempotent",
            ),
            (self.linger_s >= 0, "linger_s must not be negative"),
            (self.delivery_timeout_s > self.linger_s, "delivery_timeout_s must be longer than linger_s"),
            (min(timeouts) > 0, "request_timeout_s, timeout_s and metadata_max_age_s must be positive"),
            (1 <= self.batch_bytes <= self.request_bytes_max, "batch_bytes must be from 1 to request_bytes_max"),
            (self.buffer_bytes >= 4 * self.batch_bytes, "buffer_bytes must hold four batches"),
            (callable(self.partitioner) or is_named, f"partitioner {self.partitioner!r} does not exist"),
        ]
