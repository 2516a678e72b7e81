"""Reads both topics to their ends when all is over, and compares what went in with what came out."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

from barnabas_broker.history import events as e
from barnabas_clients.consumer.consumer import Consumer
from barnabas_clients.consumer.record import ConsumerRecord
from barnabas_clients.topic_partition import TopicPartition
from trials.load import WAIT_LIMIT_S, HangError

from .story import consumed_of, source_of
from .topics import Flow

__all__ = ["audit", "mismatches", "wait_worked_off"]


def _consumer(bootstrap: str, *, committed: bool, group: str | None = None) -> Consumer:
    return Consumer(
        bootstrap, read_committed=committed, request_timeout_s=5.0, timeout_s=60.0, group_id=group, auto_commit=False
    )


async def wait_worked_off(bootstrap: str, flow: Flow, limit_s: float = WAIT_LIMIT_S) -> None:
    """Wait until no transaction is open in either topic, and the group has come to the end of the input.

    Raises:
        HangError: not within the limit; says where it stands.
    """
    deadline = asyncio.get_running_loop().time() + limit_s
    places = flow.inputs + flow.outputs
    async with (
        _consumer(bootstrap, committed=True) as committed,
        _consumer(bootstrap, committed=False, group=flow.group) as everything,
    ):
        while True:
            stable = await committed.end_offsets(places)
            ends = await everything.end_offsets(places)
            undecided = {str(place): (stable[place], ends[place]) for place in places if stable[place] != ends[place]}
            if not undecided and not (behind := await _unread(bootstrap, flow, everything)):
                return
            if asyncio.get_running_loop().time() > deadline:
                text = f"open transactions (stable end, end): {undecided}" if undecided else f"not worked off: {behind}"
                raise HangError(f"after {limit_s:.0f} s {text}")
            await asyncio.sleep(0.3)


async def _unread(bootstrap: str, flow: Flow, grouped: Consumer) -> dict[str, int]:
    """Return the partitions in which committed records lie behind the group's offset, and how many."""
    stored = await grouped.committed(*flow.inputs)
    starts = {place: stored[place].offset if place in stored else 0 for place in flow.inputs}
    found = await _read(bootstrap, starts, committed=True)
    return {str(place): len(records) for place, records in found.items() if records}


async def _read(
    bootstrap: str, starts: Mapping[TopicPartition, int], *, committed: bool
) -> dict[TopicPartition, list[ConsumerRecord]]:
    """Return all records from the starts to the ends of this moment."""
    found: dict[TopicPartition, list[ConsumerRecord]] = {place: [] for place in starts}
    async with _consumer(bootstrap, committed=committed) as consumer:
        await consumer.assign(list(starts))
        ends = await consumer.end_offsets(list(starts))
        for place, start in starts.items():
            await consumer.seek(place, start)
        deadline = asyncio.get_running_loop().time() + WAIT_LIMIT_S
        while any([await consumer.position(place) < ends[place] for place in starts]):
            for place, records in (await consumer.get_many(1_000, 0.2)).items():
                found[place] += records
            if asyncio.get_running_loop().time() > deadline:
                raise HangError(f"an audit does not come to the ends {ends}")
    return found


async def audit(
    tell: Callable[[e.Event], None], bootstrap: str, flow: Flow, name: str, *, committed: bool
) -> dict[TopicPartition, list[ConsumerRecord]]:
    """Read all there is, and tell it; nobody writes any more."""
    tell(e.DeclaredConsumer(consumer=name, read_committed=committed))
    places = flow.inputs + flow.outputs
    found = await _read(bootstrap, dict.fromkeys(places, 0), committed=committed)
    async with _consumer(bootstrap, committed=committed) as consumer:
        ends = await consumer.end_offsets(places)
    for place, records in found.items():
        where = f"{place.topic}-{place.partition}"
        tell(e.Positioned(consumer=name, partition=where, offset=0))
        for record in records:
            tell(consumed_of(name, record))
        tell(e.EndReached(consumer=name, partition=where, offset=ends[place]))
    return found


def mismatches(flow: Flow, found: Mapping[TopicPartition, list[ConsumerRecord]]) -> list[str]:
    """Compare committed input and output: each record of the input has made one of the output."""
    inputs = Counter(
        f"{place.topic}-{place.partition}@{record.offset}"
        for place, records in found.items()
        if place.topic == flow.input
        for record in records
    )
    outputs = Counter(
        source_of(record) for place, records in found.items() if place.topic == flow.output for record in records
    )
    return [
        *(f"{source} has come out {count} times" for source, count in outputs.items() if count > 1),
        *(f"{source} came out and is not there" for source in outputs.keys() - inputs.keys()),
        *(f"{source} has not come out" for source in inputs.keys() - outputs.keys()),
    ]
