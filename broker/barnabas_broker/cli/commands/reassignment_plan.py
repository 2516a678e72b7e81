"""Plans where partitions should go if they may use only certain brokers. Pure.

As little as possible is moved: a replica that is on one of the brokers already stays. Each further one goes to the
broker that, in this order, is on a host and in a rack with the fewest replicas of the partition, holds the fewest
replicas of those that are planned, and has the lowest id. The first replica, which should lead, stays if it can; else
it becomes the one of the partition's replicas that leads the fewest.

The witness of two replicas is not planned here, the controller chooses it; only whether to ask for one is decided
(`lacks_witness`).

The same question gets the same answer. Not here: weighing partitions by size or load, moving replicas between brokers
that are both allowed.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from barnabas_broker.cli.wording import counted

__all__ = ["Place", "lacks_witness", "plan_targets"]

Key = TypeVar("Key")


class Place(NamedTuple):
    """The place of a broker. Those on one host fall together; those without a rack share one."""

    host: str
    rack: str | None


def plan_targets(
    current: Mapping[Key, tuple[int, ...]], places: Mapping[int, Place], replication_factor: int | None = None
) -> dict[Key, tuple[int, ...]]:
    """Return the replicas of each partition, in the order of `current`.

    Args:
        current: Where they are.
        places: The brokers that may be used, and where they are.
        replication_factor: How many replicas each shall have; None: as many as now.

    Raises:
        ValueError: there are fewer brokers than replicas.
    """
    kept: dict[Key, list[int]] = {}
    for key, replicas in current.items():
        factor = len(replicas) if replication_factor is None else replication_factor
        if not 1 <= factor <= len(places):
            raise ValueError(f"{counted(factor, 'replica')} do not fit on {counted(len(places), 'broker')}")
        kept[key] = [node_id for node_id in replicas if node_id in places][:factor]
    load = Counter(node_id for replicas in kept.values() for node_id in replicas)
    led = Counter(replicas[0] for key, replicas in kept.items() if replicas and replicas[0] == current[key][0])
    plan = {}
    for key, chosen in kept.items():
        factor = len(current[key]) if replication_factor is None else replication_factor
        while len(chosen) < factor:
            hosts = Counter(places[node_id].host for node_id in chosen)
            racks = Counter(places[node_id].rack for node_id in chosen)
            wishes = {
                node_id: (hosts[place.host], racks[place.rack], load[node_id], node_id)
                for node_id, place in places.items()
                if node_id not in chosen
            }
            best = min(wishes, key=wishes.__getitem__)
            chosen.append(best)
            load[best] += 1
        if chosen[0] != current[key][0]:
            # Of equals the first one, so that as little as possible changes its place.
            leader = min(chosen, key=led.__getitem__)
            led[leader] += 1
            chosen.remove(leader)
            chosen.insert(0, leader)
        plan[key] = tuple(chosen)
    return plan


def lacks_witness(target: Sequence[int], witness: int | None, up: Collection[int]) -> bool:
    """Tell whether a partition that goes to, or stays at, `target` has no witness that counts, and could have one.

    Args:
        target: Where its replicas should be.
        witness: Its witness now; None: nobody.
        up: The brokers that are there.
    """
    if len(target) != 2 or set(up) <= {*target, witness}:
        return False
    return witness is None or witness in target or witness not in up
