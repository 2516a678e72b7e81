"""Finds out how transactions stand that partitions have open: which transactional id each is of, and whether it hangs.

The leader of a partition knows the producer and the offset of each. Coordinators know to which transactional id a
producer belongs, and which partitions its transaction still has to end. A transaction that its leader has and no
coordinator does *hangs*: nobody but an operator ends it. To say so every coordinator must have been heard, which is not
the same as every broker: one that leads no partition of the coordinators' topic knows nothing.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from barnabas_broker.cli.commands.administration.calls import administer
from barnabas_broker.cli.errors import CommandError
from barnabas_broker.cli.wording import counted, listed
from barnabas_broker.config.quantities import shown_duration_ms
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.admin.client import PartitionProducer, TransactionDescription
from barnabas_clients.errors import UnsupportedVersionError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError

__all__ = [
    "SURVEY_TIMEOUT_S",
    "Coordinators",
    "OpenTransaction",
    "ago",
    "ask",
    "coordinators_of",
    "now_ms",
    "open_in",
    "times_out_at_ms",
]

NONE = "the brokers have no transactions; they are from before them"
TRANSACTION_TOPIC = "__transaction_state"
"""That of the coordinators, here and in Apache Kafka."""
SURVEY_TIMEOUT_S = 3.0
"""Coordinators answer from memory; whoever does not by then is stopped or cut off."""

T = TypeVar("T")


class Coordinators(NamedTuple):
    """What the coordinators know of some producers. `unheard`: why one may know more; "" if all were heard."""

    by_producer: Mapping[int, TransactionDescription]
    unheard: str


class OpenTransaction(NamedTuple):
    """A transaction that a partition has open, from `start_offset` on. `known` is its transactional id, if one is."""

    partition: TopicPartition
    start_offset: int
    producer: PartitionProducer
    known: TransactionDescription | None
    unheard: str

    @property
    def is_coordinated(self) -> bool:
        """Whether a coordinator has yet to end it in this partition."""
        return self.known is not None and self.partition in self.known.partitions

    @property
    def hangs(self) -> bool | None:
        """None: that cannot be told, because not every coordinator was heard."""
        if self.is_coordinated:
            return False
        return None if self.known is None and self.unheard else True

    def as_json(self) -> dict[str, Any]:
        known = self.known
        return {
            **self.partition._asdict(),
            "start_offset": self.start_offset,
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.producer_epoch,
            "last_timestamp_ms": self.producer.last_timestamp_ms,
            "transactional_id": known and known.transactional_id,
            "state": known and known.state,
            "coordinator_id": known and known.coordinator_id,
            "started_at_ms": known.started_at_ms if known and self.is_coordinated else None,
            "times_out_at_ms": times_out_at_ms(known) if known and self.is_coordinated else None,
            "hangs": self.hangs,
        }


def ask(bootstrap: str, timeout_s: float, use: Callable[[Admin], Awaitable[T]]) -> T:
    """Do what `administer` does, and say of brokers without transactions that they have none."""

    async def run(admin: Admin) -> T:
        try:
            return await use(admin)
        except UnsupportedVersionError as error:
            raise CommandError(NONE if "does not offer" in str(error) else str(error)) from error

    return administer(bootstrap, timeout_s, run)


async def coordinators_of(admin: Admin, producer_ids: Collection[int], timeout_s: float) -> Coordinators:
    """Return what the coordinators know of producers now."""
    if not producer_ids:
        return Coordinators({}, "")
    found = await admin.reachable_transactions(
        producer_ids=sorted(producer_ids), timeout_s=min(timeout_s, SURVEY_TIMEOUT_S)
    )
    names = [row.transactional_id for row in found.transactions]
    described = await _described(admin, names)
    by_producer = {one.producer_id: one for one in described}
    if by_producer.keys() >= set(producer_ids):
        return Coordinators(by_producer, "")
    return Coordinators(by_producer, await _unheard(admin, found.silent))


async def _described(admin: Admin, names: Collection[str]) -> list[TransactionDescription]:
    try:
        return list((await admin.describe_transactions(names)).values())
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        if len(names) == 1:
            return []
    # One has expired meanwhile, and the answer does not say which.
    return [one for name in names for one in await _described(admin, [name])]


async def _unheard(admin: Admin, silent: Mapping[int, str]) -> str:
    """Return why some coordinator may not have been heard, given the brokers that did not answer."""
    topics = [topic for topic in await admin.list_topics(include_internal=True) if topic.name == TRANSACTION_TOPIC]
    leaders = {number: view.leader_id for topic in topics for number, view in topic.partitions.items()}
    if without := [number for number, leader_id in leaders.items() if leader_id < 0]:
        return f"{counted(len(without), 'partition')} of {TRANSACTION_TOPIC} without a leader: {listed(without)}"
    deaf = sorted(set(leaders.values()) & silent.keys())
    return "; ".join(f"broker {node_id} did not answer: {silent[node_id]}" for node_id in deaf)


def open_in(
    producers: Mapping[TopicPartition, Collection[PartitionProducer]], coordinators: Coordinators
) -> list[OpenTransaction]:
    """Return the transactions that partitions have open, by partition and offset."""
    found = [
        OpenTransaction(at, one.start_offset, one, coordinators.by_producer.get(one.producer_id), coordinators.unheard)
        for at, rows in producers.items()
        for one in rows
        if one.start_offset is not None
    ]
    return sorted(found, key=lambda each: (each.partition, each.start_offset))


def times_out_at_ms(known: TransactionDescription) -> int | None:
    """Return when a coordinator aborts a transaction that goes on; None if there is none, or it is decided."""
    if known.started_at_ms is None or known.state != "Ongoing":
        return None
    return known.started_at_ms + round(known.timeout_s * 1000)


def now_ms() -> int:
    """Return the time in ms since 1970."""
    return int(time.time() * 1000)


def ago(at_ms: int | None) -> str | None:
    """Return how long ago something was, to the second: `3m20s`; None if it never was."""
    if at_ms is None or at_ms < 0:
        return None
    seconds = max(0, now_ms() - at_ms) // 1000
    return shown_duration_ms(seconds * 1000) if seconds else "0s"
