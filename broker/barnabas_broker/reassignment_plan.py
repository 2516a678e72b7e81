"""Where partitions should go when they may use only certain brokers: the plan that `barnabas reassign` makes. Pure.

As little as possible is moved: a replica that is on one of the brokers already stays. Each further one goes to the
broker that, in this order, is in a rack with the fewest replicas of the partition, holds the fewest replicas of those
that are planned, and has the lowest id. The first replica, who should lead, stays if it can; else it becomes the one of
the partition's replicas that leads the fewest.

The witness of two replicas is not planned here, the controller chooses it; only whether to ask for one is decided
(`lacks_witness`).

The same question gets the same answer. Not here: weighing partitions by size or load, moving replicas between brokers
that are both allowed.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

__all__ = ["lacks_witness", "plan_targets"]

Key = TypeVar("Key")


def plan_targets(
    current: Mapping[Key, tuple[int, ...]], racks: Mapping[int, str | None], replication_factor: int | None = None
) -> dict[Key, tuple[int, ...]]:
    """Return the replicas of each partition, in the order of `current`.

    Args:
        current: Where they are.
        racks: The brokers that may be used, and their racks.
        replication_factor: How many replicas each shall have; None: as many as now.

    Raises:
        ValueError: there are fewer brokers than replicas.
    """
    kept: dict[Key, list[int]] = {}
    for key, replicas in current.items():
        factor = len(replicas) if replication_factor is None else replication_factor
        if not 1 <= factor <= len(racks):
            raise ValueError(f"{factor} replicas do not fit on {len(racks)} brokers")
        kept[key] = [node_id for node_id in replicas if node_id in racks][:factor]
    load = Counter(node_id for replicas in kept.values() for node_id in replicas)
    led = Counter(replicas[0] for key, replicas in kept.items() if replicas and replicas[0] == current[key][0])
    plan = {}
    for key, chosen in kept.items():
        factor = len(current[key]) if replication_factor is None else replication_factor
        while len(chosen) < factor:
            used = Counter(racks[node_id] for node_id in chosen)
            wishes = {id_: (used[racks[id_]], load[id_], id_) for id_ in racks if id_ not in chosen}
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
        witness: Who is its witness now; None: nobody.
        up: The brokers that are there.
    """
    if len(target) != 2 or set(up) <= {*target, witness}:
        return False
    return witness is None or witness in target or witness not in up
