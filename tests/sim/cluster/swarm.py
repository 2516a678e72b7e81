"""The choices of a seed: cluster, workload, conditions, and the plan of faults.

Swarm testing: each seed leaves out most kinds of fault, so that it goes deeper into the others. The plan is made before
the run from the seed alone, as a list of independent faults in order of time; so a failing run can be repeated with
some of them left out, which is how it is shrunk.
"""

from random import Random
from typing import NamedTuple

from sim.cluster.machines.network import Conditions

from .groups.choice import draw_groups
from .service import Service, draw, transact
from .transactions.parts.choice import Parts, draw_parts
from .world import MS, SECOND

__all__ = [
    "LOSES_POWER",
    "MEAN_US",
    "SEGMENT_MS",
    "SPOILS_DISKS",
    "Choice",
    "Fault",
    "at_ease",
    "choose",
    "grouped",
    "transactional",
]

SEGMENT_MS = 300
TRANSACTIONS_BEGIN_US = 3 * SECOND
DEAF = 0.5


class Fault(NamedTuple):
    """Something bad at `at_us`. `nodes` are ids; an id of 0 means the leader of the first partition then."""

    at_us: int
    kind: str
    nodes: tuple[int, ...] = ()
    duration_us: int = 0
    detail: int = 0


class Choice(NamedTuple):
    """One seed's run, without the clients' and the network's small chances.

    `segment_ms`: after so long a segment is sealed, however small; 0: when it is full. `snapshot_records`: so many
    records of metadata become an image, and their log is dropped. `compacts`: only the newest record of each key stays.
    `is_transactional`, `is_grouped`: it has little but transactions, or groups, to do.
    """

    seed: int
    nodes: int
    replication_factor: int
    partitions: int
    flush_mode: str
    conditions: Conditions
    sync_us_max: int
    drift: tuple[float, ...]
    idempotent_producers: int
    plain_producers: int
    record_bytes: int
    pause_ms: int
    members: int
    deletes: bool
    topics_come_and_go: bool
    moves: bool
    observers: bool
    racks: int
    segment_ms: int
    snapshot_records: int
    compacts: bool
    service: Service
    safety_us: int
    kinds: tuple[str, ...]
    faults: tuple[Fault, ...]
    is_transactional: bool = False
    is_grouped: bool = False


MEAN_US = {  # between two faults of a kind
    "crash": 2_500 * MS,
    "crash_all": 6_000 * MS,
    "restart": 3_000 * MS,
    "ambush": 2_000 * MS,
    "stall": 2_000 * MS,
    "cut": 2_500 * MS,
    "cut_one_way": 2_000 * MS,
    "cut_tcp": 2_500 * MS,
    "cut_udp": 2_500 * MS,
    "reset": 1_500 * MS,
    "clock_jump": 3_000 * MS,
    "stuck_disk": 3_000 * MS,
    "full_disk": 3_000 * MS,
    "power": 2_500 * MS,
    "power_all": 5_000 * MS,
    "ambush_power": 2_500 * MS,
    "failed_sync": 2_500 * MS,
    "rot": 3_000 * MS,
    "new_disk": 4_000 * MS,
}
LOSES_POWER = {"power", "power_all", "ambush_power"}
SPOILS_DISKS = {"failed_sync", "rot", "new_disk"}


def choose(seed: int) -> Choice:
    """Return the run of `seed`."""
    rng = Random(f"{seed}/swarm")
    nodes = rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 6, 7))
    factor = min(nodes, rng.choice((1, 2, 3, 3, 3, 3, 4, 5)))
    safety_us = rng.randrange(6, 12) * SECOND
    flush_mode = rng.choice(("fsync", "fsync", "page-cache"))
    wanted = {kind for kind in MEAN_US if rng.random() < 0.25}
    # These strike one machine of a run only, because a majority must keep its data.
    lonely = SPOILS_DISKS | LOSES_POWER if flush_mode == "page-cache" else SPOILS_DISKS
    if flush_mode == "page-cache":
        wanted.discard("power_all")
    if factor < 3:
        wanted -= lonely
    kinds = tuple(sorted(wanted)) or ("crash",)
    # All producers together write some 200 batches, however many they are: more would cost time and show little.
    idempotent_producers = rng.choice((1, 2, 3))
    plain_producers = rng.choice((0, 1, 2))
    planned = sorted(fault for kind in kinds for fault in _plan(rng, kind, nodes, safety_us, kind in lonely))
    service = draw(seed, factor, safety_us)
    faults = [fault for fault in planned if not _is_within(fault, service.quiet_us)]
    return Choice(
        seed=seed,
        nodes=nodes,
        replication_factor=factor,
        partitions=rng.choice((1, 2, 3, 4)),
        flush_mode=flush_mode,
        conditions=Conditions(
            delay_us_min=rng.choice((20, 500)),
            delay_us_max=rng.choice((600, 5_000, 40_000)),
            loss_rate=rng.choice((0.0, 0.0, 0.05, 0.3)),
            duplicate_rate=rng.choice((0.0, 0.0, 0.2)),
            in_pieces=rng.random() < 0.3,
            distance_us_min=service.distance_us[0],
            distance_us_max=service.distance_us[1],
        ),
        # If two dozen files are synced one after the other, 50 ms each are the whole lag that is allowed there.
        sync_us_max=min(rng.choice((500, 5_000, 50_000)), 5_000 if service.is_judged else 50_000),
        drift=tuple(1.0 + rng.choice((0.0, 0.0, rng.uniform(-0.02, 0.02))) for _ in range(nodes)),
        idempotent_producers=idempotent_producers,
        plain_producers=plain_producers,
        record_bytes=rng.choice((60, 60, 500, 6_000)),
        pause_ms=rng.choice((40, 60, 110)) * (idempotent_producers + plain_producers),
        members=rng.choice((0, 0, 1, 2, 3)),
        deletes=rng.random() < 0.4,
        topics_come_and_go=rng.random() < 0.25,
        moves=nodes > 1 and rng.random() < 0.5,
        observers=nodes > factor and rng.random() < 0.4,
        racks=rng.choice((1, 1, 2, 3)),
        segment_ms=rng.choice((0, SEGMENT_MS)),
        snapshot_records=rng.choice((2_000, 15)),
        # Replicas compact each for itself, so a damaged segment may have no equal to be mended with.
        compacts=rng.random() < 0.3 and "rot" not in kinds,
        service=service,
        safety_us=safety_us,
        kinds=kinds,
        faults=tuple(faults),
    )


def transactional(seed: int) -> Choice:
    """Return the run of `seed` with transactions, and with little else to do.

    Its faults come later, because there are more topics to be made, and a coordinator to be found.
    """
    chosen = choose(seed)
    service = chosen.service
    kept = {
        name: getattr(service, name) for name in ("distance_us", "min_insync", "lag_ms", "tail_bytes", "rewrite_bytes")
    }
    later = [fault._replace(at_us=fault.at_us + TRANSACTIONS_BEGIN_US) for fault in chosen.faults]
    rng = Random(f"{seed}/deaf")
    if rng.random() < DEAF and chosen.nodes > 1:
        # Leaders whom nobody hears for a time: what they append meanwhile is truncated.
        for at_us in range(5 * SECOND, chosen.safety_us + TRANSACTIONS_BEGIN_US, 2_500 * MS):
            moment_us = at_us + rng.randrange(SECOND)
            later.append(Fault(moment_us, "cut_one_way", (0, 1), 1_500 * MS, 2 * rng.randrange(1 << 15) + 1))
    parts = _parts(seed, chosen.kinds)
    if parts.cuts and chosen.replication_factor > 1:
        later += _absences(seed, chosen)
    return chosen._replace(
        service=transact(seed, Service(**kept))._replace(parts=parts),
        safety_us=chosen.safety_us + TRANSACTIONS_BEGIN_US,
        faults=tuple(sorted(later)),
        is_transactional=True,
        partitions=1,
        idempotent_producers=1,
        plain_producers=0,
        pause_ms=400,
        members=0,
        deletes=False,
        topics_come_and_go=False,
        observers=False,
    )


def grouped(seed: int) -> Choice:
    """Return the run of `seed` with groups whose members come and go, and with little else to do.

    Its faults come later, as in those with transactions.
    """
    chosen = choose(seed)
    service = chosen.service
    kept = ("distance_us", "min_insync", "lag_ms", "tail_bytes", "rewrite_bytes", "offsets_min_insync")
    later = [fault._replace(at_us=fault.at_us + TRANSACTIONS_BEGIN_US) for fault in chosen.faults]
    return chosen._replace(
        service=Service(**{name: getattr(service, name) for name in kept}, groups=draw_groups(seed)),
        safety_us=chosen.safety_us + TRANSACTIONS_BEGIN_US,
        faults=tuple(later),
        is_grouped=True,
        partitions=1,
        idempotent_producers=1,
        plain_producers=0,
        pause_ms=400,
        members=0,
        deletes=False,
        topics_come_and_go=False,
        observers=False,
        compacts=False,
    )


def _absences(seed: int, chosen: Choice) -> list[Fault]:
    """Return crashes of brokers that stay away for so long that their logs end before those of the others begin."""
    rng = Random(f"{seed}/absences")
    faults = list[Fault]()
    at_us = 4 * SECOND
    while (at_us := at_us + rng.randrange(SECOND, 4 * SECOND)) < chosen.safety_us + TRANSACTIONS_BEGIN_US:
        node_id = rng.randrange(1, chosen.nodes + 1)
        faults.append(Fault(at_us, "crash", (node_id, node_id), 2_500 * MS))
    return faults


def _parts(seed: int, kinds: tuple[str, ...]) -> Parts:
    parts = draw_parts(seed)
    # As with the compacted topics of other runs: a damaged segment may have no equal.
    return parts._replace(compacts=False) if "rot" in kinds else parts


def at_ease(seed: int = 0) -> Choice:
    """Return the run of `seed` without faults, distances, and other demands of its service."""
    chosen = choose(seed)
    near = chosen.conditions._replace(distance_us_min=0, distance_us_max=0)
    return chosen._replace(kinds=(), faults=(), conditions=near, service=Service())


def _is_within(fault: Fault, quiet_us: tuple[int, int]) -> bool:
    """Tell whether a fault strikes in a quiet window, or is not over when that begins."""
    begin_us, end_us = quiet_us
    return fault.at_us < end_us and fault.at_us + fault.duration_us > begin_us


def _plan(rng: Random, kind: str, nodes: int, safety_us: int, is_lonely: bool) -> list[Fault]:
    faults = []
    mean_us = MEAN_US[kind] // rng.choice((1, 1, 2))
    at_us = 2 * SECOND
    while (at_us := at_us + rng.randrange(mean_us // 4, 2 * mean_us)) < safety_us:
        target = rng.choice((0, rng.randrange(1, nodes + 1)))
        other = rng.randrange(1, nodes + 1)
        side = tuple(sorted(rng.sample(range(1, nodes + 1), rng.randrange(1, max(2, nodes // 2 + 1)))))
        duration_us = rng.choice((30 * MS, 400 * MS, 1_500 * MS, 3_000 * MS))
        if is_lonely:
            target = other = 1 + nodes // 2
        chosen = side if kind in {"cut", "cut_tcp", "cut_udp"} else (target, other)
        faults.append(
            Fault(at_us=at_us, kind=kind, nodes=chosen, duration_us=duration_us, detail=rng.randrange(1 << 16))
        )
    return faults
