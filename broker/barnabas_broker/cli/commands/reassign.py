"""`barnabas reassign`, as kafka-reassign-partitions.sh, and `barnabas topic observers`; over `Admin`.

Without `--execute` nothing changes: the plan is printed, as a table, or with `--json` in the form that `--plan` (and
Kafka's tool) reads. To be able to move partitions back later, keep the plan of before in the same way.

The controller chooses the witness of two replicas, each time that it is asked where a partition should be. So a
partition whose replicas stay is sent to where it is if its witness is missing, or on a broker that is not there; and
only then.

Waiting asks the cluster twice a second. Ctrl-C ends the waiting, not the move.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas_broker.cli.admin import parse_topics
from barnabas_broker.cli.commands.administration.calls import administer, for_each
from barnabas_broker.cli.commands.administration.names import check_partitions, topics_named
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.limits import numbers_of
from barnabas_broker.cli.output import print_table, say, say_json, say_json_lines
from barnabas_broker.cli.wording import counted
from barnabas_broker.config.witness_rows import decode_witnesses
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.admin.client import ConfigResource, PartitionReassignment
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import NoReassignmentInProgressError

from .reassignment_plan import Place, lacks_witness, plan_targets

__all__ = ["brokers_of", "cancel", "move", "observers", "status"]

LOOK_S = 0.5
OBSERVERS = "replica.observers"
Targets = dict[TopicPartition, tuple[int, ...]]


def brokers_of(option: str, text: str) -> list[int]:
    """Read node ids, separated by commas.

    Raises:
        UsageError: it is something else, or names one twice.
    """
    found = numbers_of(text) if text.strip() else []
    if found is None:
        raise UsageError(f"{option} {text!r} is not a list of brokers; write their ids, as in 4,5,6")
    if len(set(found)) != len(found):
        raise UsageError(f"{option} {text!r} names a broker twice")
    return found


def move(
    bootstrap: str,
    topics: Sequence[str],
    brokers: str | None,
    replication_factor: int | None,
    plan: Path | None,
    timeout_s: float,
    *,
    execute: bool,
    wait: bool,
    as_json: bool,
) -> int:
    """Plan, and with `execute` carry out."""
    if (plan is None) == (brokers is None) or (plan is not None and (topics or replication_factor is not None)):
        raise UsageError("say where to: TOPIC... --brokers 4,5,6, or --plan FILE alone")
    if brokers is not None and not topics:
        raise UsageError("say which topics to move, as TOPIC or TOPIC:0,1")
    parse_topics(topics)  # A word that makes no sense is refused before anybody is asked.
    ids = [] if brokers is None else _targets_of(brokers, replication_factor)
    given = None if plan is None else _read_plan(plan)

    async def run(admin: Admin) -> None:
        if given is None:
            before = await _replicas(admin, topics)
            targets = await _planned(admin, before, ids, replication_factor)
        else:
            names = sorted({key.topic for key in given})
            now = await _replicas(admin, names)
            if missing := sorted(set(given) - set(now)):
                raise CommandError(f"--plan: there is no partition {missing[0]} [UNKNOWN_TOPIC_OR_PARTITION]")
            before = {key: now[key] for key in given}
            targets = given
        witnesses = await _witnesses(admin, sorted({key.topic for key in targets}))
        unwitnessed = await _unwitnessed(admin, targets, witnesses)
        changed = {key: target for key, target in targets.items() if target != before[key] or key in unwitnessed}
        if as_json:
            say_json(_plan(targets))
        else:
            _show_plan(before, targets, witnesses, unwitnessed)
        if not execute:
            if changed and not as_json:
                say("nothing is changed yet; --execute does it", to_stderr=True)
            return
        if changed:
            await admin.alter_partition_reassignments(changed)
        if wait:
            await _wait(admin, list(changed))

    administer(bootstrap, timeout_s, run)
    return 0


def _targets_of(brokers: str, replication_factor: int | None) -> list[int]:
    ids = brokers_of("--brokers", brokers)
    if not ids:
        raise UsageError("--brokers must name at least one broker; write their ids, as in 4,5,6")
    if replication_factor is not None and replication_factor > len(ids):
        raise UsageError(
            f"{counted(replication_factor, 'replica')} do not fit on {counted(len(ids), 'broker')}; "
            "name more --brokers, or a lower --replication-factor"
        )
    return ids


def status(bootstrap: str, topics: Sequence[str], timeout_s: float, *, as_json: bool) -> int:
    """Print the moves under way."""
    parse_topics(topics)

    async def run(admin: Admin) -> None:
        partitions = list(await _replicas(admin, topics)) if topics else None
        moving = await admin.list_partition_reassignments(partitions)
        if as_json:
            say_json_lines(_as_json(key, one) for key, one in sorted(moving.items()))
        else:
            _show_status(moving)

    administer(bootstrap, timeout_s, run)
    return 0


def cancel(bootstrap: str, topics: Sequence[str], timeout_s: float, *, wait: bool, as_json: bool) -> int:
    """Call moves off: of some topics, or all."""
    parse_topics(topics)

    async def run(admin: Admin) -> None:
        partitions = list(await _replicas(admin, topics)) if topics else None
        moving = await admin.list_partition_reassignments(partitions)
        if moving:
            # Refused for those that were called off before: they are on their way back already.
            with contextlib.suppress(NoReassignmentInProgressError):
                await admin.alter_partition_reassignments(dict.fromkeys(moving))
        if as_json:
            say_json_lines(
                {"topic": key.topic, "partition": key.partition, "cancelled": True} for key in sorted(moving)
            )
        else:
            say(f"called off: {counted(len(moving), 'partition')}")
        if wait:
            await _wait(admin, list(moving))

    administer(bootstrap, timeout_s, run)
    return 0


def observers(bootstrap: str, names: Sequence[str], brokers: str | None, timeout_s: float, *, as_json: bool) -> int:
    """Set the observers of topics; with None only name them."""
    check_topic_names(names)
    wanted = None if brokers is None else brokers_of("--brokers", brokers)

    async def run(admin: Admin) -> int:
        topics = [topic.name for topic in await topics_named(admin, names)]

        async def one(name: str) -> None:
            found = await _observers(admin, name) if wanted is None else wanted
            if wanted is not None:
                value = ",".join(map(str, wanted)) or None
                await admin.alter_configs(ConfigResource.topic(name), {OBSERVERS: value})
            if as_json:
                say_json({"name": name, "observers": found})
            else:
                say(f"{name}: observed by {_ids(found)}" if found else f"{name}: observed by nobody")

        return await for_each(topics, one)

    return administer(bootstrap, timeout_s, run)


async def _replicas(admin: Admin, words: Sequence[str]) -> Targets:
    """Return where the partitions of these topics, or these partitions, are meant to be now; without observers."""
    names, partitions = parse_topics(words)
    asked = sorted({*names, *(key.topic for key in partitions)})
    moving = await admin.list_partition_reassignments()
    found: Targets = {}
    for topic in await topics_named(admin, asked):
        check_partitions(topic, [key.partition for key in partitions if key.topic == topic.name])
        observers = await _observers(admin, topic.name)
        for index, view in sorted(topic.partitions.items()):
            key = TopicPartition(topic.name, index)
            if topic.name in names or key in partitions:
                replicas = moving[key].target if key in moving else view.replicas
                found[key] = tuple(node_id for node_id in replicas if node_id not in observers)
    return found


async def _observers(admin: Admin, name: str) -> list[int]:
    text = (await _configs(admin, name)).get(OBSERVERS) or ""
    return [int(word) for word in text.split(",") if word.strip()]


async def _witnesses(admin: Admin, names: Sequence[str]) -> dict[TopicPartition, int]:
    """Return the witnesses of the topics' partitions that have one."""
    found: dict[TopicPartition, int] = {}
    for name in names:
        rows = decode_witnesses(await _configs(admin, name))
        found |= {TopicPartition(name, partition): witness for partition, witness in rows.items()}
    return found


async def _unwitnessed(admin: Admin, targets: Targets, witnesses: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """Return the partitions that the controller would give a witness, or another one, where their replicas stay."""
    up = {one.node_id for one in (await admin.describe_cluster()).brokers}
    able = {name: up.difference(await _observers(admin, name)) for name in sorted({key.topic for key in targets})}
    return {key for key, target in targets.items() if lacks_witness(target, witnesses.get(key), able[key.topic])}


async def _configs(admin: Admin, topic: str) -> dict[str, str | None]:
    """Return the values of a topic's configurations by name; none from a cluster that cannot say."""
    resource = ConfigResource.topic(topic)
    try:
        entries = (await admin.describe_configs([resource]))[resource]
    except ClientError:
        return {}
    return {name: entry.value for name, entry in entries.items()}


async def _planned(admin: Admin, before: Targets, ids: Sequence[int], replication_factor: int | None) -> Targets:
    known = {one.node_id: Place(one.host, one.rack) for one in (await admin.describe_cluster()).brokers}
    if unknown := [node_id for node_id in ids if node_id not in known]:
        there = ", ".join(map(str, sorted(known)))
        raise CommandError(f"--brokers: there is no broker {unknown[0]}; there are {there}")
    try:
        return plan_targets(before, {node_id: known[node_id] for node_id in sorted(ids)}, replication_factor)
    except ValueError as error:
        raise CommandError(f"--brokers: {error}") from error


async def _wait(admin: Admin, partitions: Sequence[TopicPartition]) -> None:
    """Return when none of them is on its way; say on stderr how many are left, whenever that changes."""
    left = -1
    while True:
        moving = await admin.list_partition_reassignments(partitions)
        if len(moving) != left:
            left = len(moving)
            text = f"{left} of {counted(len(partitions), 'partition')} on the way" if left else "done"
            say(text, to_stderr=True)
        if not left:
            return
        await asyncio.sleep(LOOK_S)


def _read_plan(path: Path) -> Targets:
    try:
        rows = json.loads(path.read_text() if str(path) != "-" else sys.stdin.read())["partitions"]
        targets = {
            TopicPartition(str(row["topic"]), int(row["partition"])): tuple(int(one) for one in row["replicas"])
            for row in rows
        }
    except OSError as error:
        raise CommandError(f"--plan {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise CommandError(f"--plan {path} is not a plan: {error}") from error
    if len(targets) != len(rows):
        raise CommandError(f"--plan {path} names a partition twice")
    return targets


def _plan(targets: Targets) -> dict[str, Any]:
    rows = [
        {"topic": key.topic, "partition": key.partition, "replicas": list(replicas)}
        for key, replicas in targets.items()
    ]
    return {"version": 1, "partitions": rows}


def _show_plan(
    before: Targets, targets: Targets, witnesses: Mapping[TopicPartition, int], unwitnessed: Collection[TopicPartition]
) -> None:
    rows = []
    for key, target in targets.items():
        now = _ids(before[key]) + (f", witness {witnesses[key]}" if key in witnesses else "")
        planned = _ids(target) if target != before[key] else "stays"
        rows.append((key, now, planned + (", gets a witness" if key in unwitnessed else "")))
    print_table(("partition", "now", "planned"), rows)


def _show_status(moving: Mapping[TopicPartition, PartitionReassignment]) -> None:
    if not moving:
        say("no partition is on its way")
        return
    print_table(
        ("partition", "to", "adding", "removing"),
        [(key, _ids(one.target), _ids(one.adding), _ids(one.removing)) for key, one in sorted(moving.items())],
    )


def _as_json(key: TopicPartition, one: PartitionReassignment) -> dict[str, Any]:
    return {
        "topic": key.topic,
        "partition": key.partition,
        "target": list(one.target),
        "adding": list(one.adding),
        "removing": list(one.removing),
    }


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "-"
