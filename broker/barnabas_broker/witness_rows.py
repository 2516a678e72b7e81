"""Who is the witness of which partition, as clients are told: a read-only configuration of the topic. Pure.

Kafka's protocol has no place for a voter that serves nobody, and a witness among the replicas would make clients read
from it and tools count it. So `replica.witnesses` stands beside `replica.observers`: rows of `partition:broker`,
separated by commas, for those partitions that have one. A topic without any does not have the configuration at all, so
whoever never meets two replicas never meets this.
"""

from collections.abc import Sequence

from barnabas_metadata_quorum.image import Partition
from barnabas_metadata_quorum.records import NOBODY

__all__ = ["WITNESSES", "decode_witnesses", "encode_witnesses"]

WITNESSES = "replica.witnesses"


def encode_witnesses(partitions: Sequence[Partition]) -> str:
    """Return the rows of a topic; empty if no partition has a witness."""
    return ",".join(
        f"{index}:{partition.witness}" for index, partition in enumerate(partitions) if partition.witness != NOBODY
    )


def decode_witnesses(text: str | None) -> dict[int, int]:
    """Return the witness of each partition that has one.

    Raises:
        ValueError: it is something else.
    """
    rows = (row.split(":") for row in text.split(",")) if text else ()
    return {int(partition): int(witness) for partition, witness in rows}
