"""Holds what coordinators know against what the log says, read anew from its beginning by each replica.

What a coordinator knows to be committed must be exactly that, up to the same entry; a group of KIP-848 that nothing is
under way of must be what is committed; and what is committed under one name is a group of one kind.
"""

from collections.abc import Mapping
from typing import Any

from barnabas_broker.coordinators.groups.consumer.saved import GroupRecords
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.coordinators.groups.table import GroupTable
from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_broker.coordinators.runtime.standby import Standby
from barnabas_raftlog.errors import BarnabasError
from sim.cluster.machines.machine import Machine
from sim.cluster.world import SECOND, World

__all__ = ["compare"]

READING_US = 10 * SECOND
Said = dict[str, Any]
"""Everything that a table says, by kind."""


def compare(world: World, machines: Mapping[int, Machine]) -> None:
    """Compare all, now; what is committed while the logs are read is left out."""
    told = dict[int, tuple[int, Said]]()
    for machine in machines.values():
        node = machine.node
        for index, runtime in node.broker.coordinator.runtime.shards.items() if node is not None else ():
            shard = runtime.shard
            if runtime.state is ShardState.ACTIVE and isinstance(shard, GroupShard):
                table = runtime.standby.table
                told[index] = runtime.standby.applied_index, _said(table)
                if both := table.consumers.keys() & table.saved.keys():
                    world.violate(f"groups {sorted(both)} are of both kinds")
                _compare_groups(world, shard)
    for machine in machines.values():
        node = machine.node
        hosted = None if node is None else node.partitions.topics.get(OFFSETS_TOPIC)
        # Time passes while a log is read, and a replica whose damage is seen by that makes way for another one.
        for index, partition in list(hosted.partitions.items()) if hosted is not None else ():
            at, known = told.get(index, (0, {}))
            # A witness has no records, and a log whose beginning went says less.
            if at and partition.producers.commit_index >= at and partition.log.first_index == 1:
                found = _read(world, machine, partition, at)
                if found is not None:
                    world.counts["group logs read"] += 1
                    _hold(world, f"{OFFSETS_TOPIC}-{index} up to {at} on {machine.name}", known, found)


def _compare_groups(world: World, shard: GroupShard) -> None:
    for group_id, hosted in shard.consumers.groups.items():
        saved = shard.consumers.saved(group_id)
        if hosted.flights or hosted.is_planning or hosted.waiting or saved is None:
            continue
        one, other = _records_of(hosted.group), _records_of(saved)
        world.counts["groups held against their records"] += 1
        if one != other:
            world.violate(f"group {group_id} is {_differences(one, other)}, as it is and as it is committed")


def _records_of(group: GroupRecords) -> dict[Any, Any]:
    return {key: group.get(key) for key in list(group.keys())}


def _said(table: GroupTable) -> Said:
    offsets = {
        (group_id, place): value
        for group_id in table.offsets.group_ids()
        for place, value in table.offsets.of_group(group_id).items()
    }
    records = dict[Any, Any]()
    for group in table.consumers.values():
        records |= _records_of(group)
    return {"offsets": offsets, "groups": {name: saved for name, (saved, _) in table.saved.items()}, "records": records}


def _hold(world: World, where: str, known: Said, found: Said) -> None:
    for kind, values in known.items():
        if values != found[kind]:
            world.violate(f"{where}, {kind}: {_differences(values, found[kind])}, as it is known and as the log says")


def _differences(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> str:
    keys = sorted((key for key in {**one, **other} if one.get(key) != other.get(key)), key=repr)
    return ", ".join(f"{key}: {one.get(key)} and {other.get(key)}" for key in keys[:3])


def _read(world: World, machine: Machine, partition: Any, at: int) -> Said | None:
    """Return what the log says; None: a bit of it has rotted, and nobody has met that before."""
    standby = Standby(GroupTable)
    done = list[bool]()
    loop = machine.loop
    assert loop is not None

    async def read() -> None:
        try:
            await standby.advance(partition.log, at, _always)
        except BarnabasError:
            if not machine.is_excused:
                raise
            done.append(False)
        else:
            done.append(True)

    loop.arrive(lambda: loop.create_task(read()))
    assert world.run_until(world.now_us + READING_US, lambda: bool(done)), "a log is not read"
    return _said(standby.table) if done[0] else None


def _always() -> bool:
    return True
