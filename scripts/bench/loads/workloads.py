"""The workloads of the comparison, as data: each is one `Load` on a warm system.

The *sustained* ones write two gigabytes or more, so that work that a system only puts off until later counts as well.
The others are there for their shape (sizes, copies, acknowledgements, compression, partitions) and write less.
"""

from typing import Any, NamedTuple

from msgspec.structs import replace

from .load import Load

__all__ = ["GROUPS", "TRANSACTIONS", "WORKLOADS", "Workload"]

GIB = 1 << 30
ALL = frozenset({"barnabas", "kafka", "nats"})
KAFKAS = frozenset({"barnabas", "kafka"})
TRANSACTIONS = "txn"
"""The group whose brokers must offer transactions."""


class Workload(NamedTuple):
    """One workload. `--groups` chooses by `group`; `systems` are those that can do it at all."""

    name: str
    group: str
    load: Load
    systems: frozenset[str] = ALL


def _throughput(name: str, group: str, systems: frozenset[str] = ALL, *, size: int = GIB, **more: Any) -> Workload:
    load = Load(kind="throughput", **more)
    return Workload(name, group, replace(load, records=size // load.record_bytes), systems)


def _all() -> list[Workload]:
    found = [
        _throughput("1 KiB", "sustained", size=2 * GIB),
        _throughput("100 B", "sustained", record_bytes=100),
        _throughput("16 KiB", "sizes", size=GIB // 2, record_bytes=16 << 10),
        _throughput("1 MiB", "sizes", size=GIB // 2, record_bytes=1_000_000),
        _throughput("1 KiB, RF 1", "sizes", size=GIB // 2, replicas=1),
        _throughput("1 KiB, acks=1", "sizes", KAFKAS, size=GIB // 2, acks="1"),
        _throughput("1 KiB, lz4", "sizes", KAFKAS, size=GIB // 2, compression="lz4"),
        _throughput("1 KiB, one leader", "cost", KAFKAS, led_by=1),
    ]
    found += [
        Workload(f"{rate} records/s", "latency", Load(kind="latency", rate=rate, seconds=20.0))
        for rate in (200, 1_000, 5_000)
    ]
    found += [
        Workload(f"RF {rf}, {n} in flight", "tiny", Load(kind="tiny", replicas=rf, in_flight=n, record_bytes=100))
        for rf in (3, 1)
        for n in (1, 16)
    ]
    one_batch = Load(kind="tiny", in_flight=16, record_bytes=100, led_by=1)
    found += [
        Workload(f"RF {rf}, 16 in flight, one leader", "cost", replace(one_batch, replicas=rf), KAFKAS) for rf in (3, 1)
    ]
    found += [
        Workload("1 producer, 10 consumers", "fan-out", Load(kind="fan-out", records=GIB // 4 // 1024)),
        Workload(
            "2,000 consumers that wait",
            "fan-out",
            Load(kind="idle-consumers", consumers=2_000, partitions=100, rate=200, seconds=20.0),
        ),
    ]
    for count in (1, 10, 100, 1_000, 10_000):
        systems = ALL if count <= 100 else KAFKAS if count <= 1_000 else frozenset({"barnabas"})
        found.append(_throughput(f"{count:,} partitions", "partitions", systems, partitions=count, is_active=True))
    found.append(Workload("kill -9 of a leader", "failover", Load(kind="failover", record_bytes=100)))
    found += [
        Workload(
            f"{count} {'producer' if count == 1 else 'producers'}, transactions of 100",
            TRANSACTIONS,
            Load(kind="transactions", producers=count, batch_records=100, seconds=20.0),
            KAFKAS,
        )
        for count in (16, 1)
    ]
    return found


WORKLOADS = _all()
GROUPS = tuple(dict.fromkeys(workload.group for workload in WORKLOADS))
