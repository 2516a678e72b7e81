"""Members of groups in a process of their own; `rounds` and `scale` start it.

Each member is a `Consumer` that works like an ordinary service: it asks for records, deals with them, commits, and asks
again. Each event of its life is a line of JSON on standard output, for the parent process: partitions given and taken,
records handed out, commits and their failures. `at` and `began` are CLOCK_MONOTONIC, the same clock for all processes
of a machine. SIGTERM makes the members leave; so does the end of standard input, so that none outlives its parent.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

from barnabas_clients.consumer.consumer import Consumer
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.topic_partition import TopicPartition

COMMIT_LIMIT_S = 30.0
PAUSE_AFTER_FAILURE_S = 0.05


Protocol: TypeAlias = Literal["classic", "consumer"]


class Job(NamedTuple):
    """The work of one worker process. `members` are (name, group) pairs."""

    bootstrap: str
    topic: str
    members: list[tuple[str, str]]
    assignors: list[str]
    session_timeout_s: float = 10.0
    heartbeat_interval_s: float = 0.5
    ask_s: float = 0.1
    """The time for which a member waits for records before it commits and asks again."""
    protocol: Protocol = "classic"
    """With "consumer" the coordinator divides the partitions, with the first of `assignors`, and sets all times."""


Say = Callable[[dict[str, Any]], None]


def say(line: dict[str, Any]) -> None:
    # One write for a line: several members share the pipe.
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def work(job: Job, name: str, group: str, stop: asyncio.Event) -> None:
    """Be one member until `stop`."""

    async def told(what: str, consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        numbers = sorted(place.partition for place in partitions)
        say({"what": what, "member": name, "group": group, "partitions": numbers, "at": time.monotonic()})

    settings: dict[str, Any] = {"group_protocol": job.protocol}
    if job.protocol == "classic":
        settings |= {
            "assignors": job.assignors,
            "session_timeout_s": job.session_timeout_s,
            "heartbeat_interval_s": job.heartbeat_interval_s,
        }
    else:
        settings["group_remote_assignor"] = job.assignors[0]
    async with Consumer(
        job.bootstrap,
        topics=[job.topic],
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        auto_commit=False,
        fetch_max_wait_s=max(0.5, job.ask_s),
        on_assigned=partial(told, "assigned"),
        on_revoked=partial(told, "revoked"),
        on_lost=partial(told, "lost"),
        **settings,
    ) as consumer:
        while not stop.is_set():
            try:
                found = await consumer.get_many(500, job.ask_s)
            except (ClientError, KafkaError) as error:
                say({"what": "failed", "member": name, "group": group, "error": repr(error), "at": time.monotonic()})
                await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
                continue
            handed = {place.partition: [records[0].offset, records[-1].offset] for place, records in found.items()}
            membership = consumer._core.group  # the generation is nobody's business but this check's
            generation = -1 if membership is None else membership.session.generation_id
            if handed:
                line = {"what": "handed", "member": name, "group": group, "handed": handed, "generation": generation}
                say(line | {"at": time.monotonic()})
            if consumer.assignment:
                await commit(consumer, name, group, generation)


async def commit(consumer: Consumer, name: str, group: str, generation: int) -> None:
    """Commit the positions of all partitions, also if nothing came: it shows that the coordinator works."""
    began = time.monotonic()
    line: dict[str, Any] = {"member": name, "group": group, "generation": generation, "began": began}
    try:
        offsets = {place: await consumer.position(place) for place in consumer.assignment}
        await consumer.commit(offsets, timeout_s=COMMIT_LIMIT_S)
    except (ClientError, KafkaError) as error:
        say(line | {"what": "refused", "error": repr(error), "at": time.monotonic()})
    else:
        numbers = {place.partition: offset for place, offset in offsets.items()}
        say(line | {"what": "committed", "committed": numbers, "at": time.monotonic()})


async def main() -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    job = Job(**json.loads(sys.stdin.readline()))
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the parent decides
    loop.add_reader(sys.stdin.fileno(), stop.set)  # nothing more is ever written: readable means that it ended
    async with asyncio.TaskGroup() as tasks:
        for name, group in job.members:
            tasks.create_task(work(job, name, group, stop))


if __name__ == "__main__":
    asyncio.run(main())
