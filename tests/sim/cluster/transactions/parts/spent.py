"""Looks into the sealed files of a compacted replica: what is left of transactions, and which markers are spent.

A marker that commits may lose its record (it is *spent*) when all records of its transaction are gone, and have been
for `delete.retention.ms`; one that aborts never. A batch that was emptied says since when, as its base timestamp.
"""

from collections.abc import Iterator
from typing import Any

from barnabas_raftlog.records.header import CONTROL, TRANSACTIONAL, BatchHeader, parse_header
from barnabas_raftlog.records.markers import is_spent
from sim.cluster.judges.history import Partition
from sim.cluster.machines.machine import Machine
from sim.cluster.world import WALL_MS, World

__all__ = ["compare_markers"]


def compare_markers(world: World, machine: Machine, partition: Partition, retention_ms: int) -> dict[int, int]:
    """Judge the replica of a partition on one machine, if it has one; return the records of each batch by offset."""
    record_counts = dict[int, int]()
    has_records = set[int]()  # producers whose transaction has records, and whose marker is yet to come
    gone_ms = dict[int, int]()
    now_ms = WALL_MS + world.now_us // 1_000
    for header in _sealed(machine, partition):
        producer_id = header.producer_id
        record_counts[header.base_offset] = header.record_count
        if not header.attributes & TRANSACTIONAL:
            continue
        if not header.attributes & CONTROL:
            if header.record_count:
                has_records.add(producer_id)
            else:
                world.counts["batches without records"] += 1
                gone_ms[producer_id] = max(header.base_timestamp, gone_ms.get(producer_id, 0))
            continue
        if is_spent(header):
            world.counts["markers without record"] += 1
            where = f"{machine.name}, {partition}: the marker at {header.base_offset} is spent"
            if producer_id in has_records:
                world.violate(f"{where}, and records of its transaction are there")
            since_ms = now_ms - gone_ms.get(producer_id, 0)
            if since_ms < retention_ms and not world.counts["fault clock_jump"]:
                world.violate(f"{where} {since_ms} ms after its records")
        has_records.discard(producer_id)
        gone_ms.pop(producer_id, None)
    return record_counts


def _sealed(machine: Machine, partition: Partition) -> Iterator[BatchHeader]:
    """Return the headers of all batches in sealed segments, in the order of the log."""
    topic, index = partition
    hosted = machine.node.partitions.topics.get(topic) if machine.node is not None else None
    found = hosted.partitions.get(index) if hosted is not None else None
    if found is None or found.is_witness:
        return
    log: Any = found.log
    files = dict(machine.disk.files_below("/data"))
    for segment in log.segments[:-1]:
        inode = files.get(segment.log.path)
        if inode is None:
            continue
        view = memoryview(bytes(inode.data[: segment.size_bytes]))
        position = 0
        while position < len(view):
            header = parse_header(view, position)
            yield header
            position += header.size_bytes
