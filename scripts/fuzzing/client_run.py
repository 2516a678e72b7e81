"""Sends frames to the client ports of real brokers, with a neighbour beside, and judges.

A run is split in rounds. After each, its topics and groups are deleted, logs are read, and memory is looked at. The
first rounds are a warm-up: codecs are compiled, tables and caches reach their size.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from machines.cluster_handle import ClusterHandle

from barnabas_clients import Admin

from .failures import Failure, keep
from .frames import PAIRS, Frame, frames, name_of
from .janitor import Janitor
from .lanes import Lanes
from .neighbour import Noticed, neighbour
from .watch import LogWatch, growth_bytes_max, reached, resident_bytes

__all__ = ["Outcome", "Plan", "replay", "run"]

ROUNDS = 20
WARM_ROUNDS = 6
BUSY_S_MAX = 1.0
"""Of the loop's own time, in a single pause: the first use of each codec compiles it, and a run uses all at once."""
LANES = 64


class Plan(NamedTuple):
    """The order of a run. `required` is how often each API and version must reach its handler."""

    seed: int
    frames: int
    required: int
    failures: Path


class Outcome(NamedTuple):
    """The outcome of a run; `problems` is empty if nothing was wrong. `waits` took too long, which is no fact."""

    lanes: Lanes
    reached: dict[str, int]
    noticed: Noticed
    resident: list[dict[int, int]]
    problems: list[str]
    waits: list[str]


def run(plan: Plan, cluster: ClusterHandle) -> Outcome:
    """Send everything that the plan says to the first broker of a cluster that nobody else uses."""
    return asyncio.run(_run(plan, cluster))


async def _run(plan: Plan, cluster: ClusterHandle) -> Outcome:
    log = LogWatch(cluster)
    async with Admin(cluster.bootstrap) as admin:
        janitor = Janitor(admin)
        await janitor.prepare()
        lanes = Lanes("127.0.0.1", cluster.port, janitor.names)
        resident: list[dict[int, int]] = []
        source = frames(plan.seed, plan.frames, janitor.names)
        pids = cluster.pids()
        with neighbour(cluster.bootstrap, pids[min(pids)]) as beside:
            try:
                async for _ in _rounds(source, plan, lanes, janitor):
                    _read(log, lanes)
                    resident.append(resident_bytes(pids))
            except (OSError, ExceptionGroup) as error:
                lanes.failures.append(Failure(f"a broker cannot be used any more: {error!r}", _recent(lanes)))
            noticed = await asyncio.to_thread(beside.finish)
        counts = await asyncio.to_thread(reached, cluster)
    _read(log, lanes)
    keep(plan.failures, plan.seed, janitor.names.topic_ids, lanes.failures)
    problems = _problems(plan, lanes, counts, noticed, resident)
    return Outcome(
        lanes=lanes, reached=counts, noticed=noticed, resident=resident, problems=problems, waits=_waits(noticed)
    )


async def _rounds(source: Iterator[Frame], plan: Plan, lanes: Lanes, janitor: Janitor) -> AsyncIterator[None]:
    for _ in range(ROUNDS):
        await lanes.send(islice(source, -(-plan.frames // ROUNDS)), LANES)
        await janitor.clean()
        yield


def _read(log: LogWatch, lanes: Lanes) -> None:
    for text, ports in log.trouble():
        sent = next((tuple(lanes.by_port[port]) for port in ports if port in lanes.by_port), _recent(lanes))
        lanes.failures.append(Failure(f"in the log: {text}", sent))


def _recent(lanes: Lanes) -> tuple[bytes, ...]:
    """Return the last frames of the last connections."""
    return tuple(frame for sent in list(lanes.by_port.values())[-LANES:] for frame in list(sent)[-8:])


def _problems(
    plan: Plan, lanes: Lanes, counts: dict[str, int], noticed: Noticed, resident: list[dict[int, int]]
) -> list[str]:
    problems = [failure.what for failure in lanes.failures] + noticed.trouble
    for key, version in PAIRS:
        if (count := counts.get(name_of(key, version), 0)) < plan.required:
            problems.append(f"{name_of(key, version)}: {count} requests reached the handler, {plan.required} should")
    if len(resident) == ROUNDS:
        allowed = growth_bytes_max(plan.frames * WARM_ROUNDS // ROUNDS)
        for node_id, last in resident[-1].items():
            grown = last - max(found.get(node_id, 0) for found in resident[:WARM_ROUNDS])
            if grown > allowed:
                problems.append(f"broker {node_id} has grown by {grown >> 20} MiB, {allowed >> 20} are allowed")
    return problems


def _waits(noticed: Noticed) -> list[str]:
    if noticed.busy_s <= BUSY_S_MAX:
        return []
    return [f"the neighbour waited while the broker worked for {noticed.busy_s:.2f} s without a break"]


def replay(kept_frames: list[tuple[bytes, ...]], cluster: ClusterHandle) -> list[str]:
    """Send frames once more, each failure's on a connection of its own; return the trouble in the brokers' logs."""

    async def send(bundle: tuple[bytes, ...]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.port)
        writer.write(b"".join(bundle))
        try:
            async with asyncio.timeout(2):
                while data := await reader.read(1 << 16):
                    print(f"answered: {data[:200].hex()}{'...' if len(data) > 200 else ''}")
        except (OSError, TimeoutError):
            print("no more answers")
        writer.close()

    log = LogWatch(cluster)
    for bundle in kept_frames:
        asyncio.run(send(bundle))
    return [text for text, _ in log.trouble()]
