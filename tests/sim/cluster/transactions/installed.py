"""What replicas are sent that lack the beginning of a log: the state beside it must be that of exactly one index.

A replica that comes back behind the start of its leader's log gets the segments from there on, and with their manifest
the open transactions, the aborted ones and the producers as of one committed entry, perhaps far behind those segments.
`compare_installed` holds that state against the model at that entry, before the log is there; from the moment on at
which the log has come, `inside` compares the replica as any other.
"""

from typing import Any

from barnabas_raftlog.raft.messages import InstallSnapshot
from sim.cluster.world import World

from .model import Model, is_left_of

__all__ = ["compare_installed"]

EVERYWHERE = 1 << 62


def compare_installed(world: World, partition: Any, model: Model, snapshot: InstallSnapshot, *, compacts: bool) -> None:
    """Judge the state of a replica that has just been given a snapshot. `compacts`: the topic is compacted."""
    state = partition.state
    index = state.producers.applied_index
    counts = world.counts
    counts["states installed"] += 1
    if index < snapshot.snapshot_index:
        world.violate(f"{partition}: a state as of {index} came with a log that begins at {snapshot.snapshot_index}")
    if index > model.committed_index:
        counts["not held against the model"] += 1
        return
    wanted = model.at(index)
    where = f"node {partition.host.node_id}, installed as of entry {index}"
    found = {one.producer_id: (one.epoch, one.first_offset) for one in state.transactions.open_transactions()}
    counts["installed with transactions open"] += bool(wanted.open)
    if found != wanted.open and not compacts:
        world.violate(f"{partition}: open by its table: {found}, by the log: {wanted.open} ({where})")
    start = state.starts.offset_as_of(index)
    rows = sorted(tuple(row) for row in state.transactions.aborted.between(0, EVERYWHERE) if row[2] >= start)
    due = sorted(row for row in model.aborted[: wanted.aborted] if row[2] >= start)
    counts["installed with aborted transactions"] += bool(due)
    if rows != due and not (compacts and is_left_of(rows, due)):
        world.violate(f"{partition}: aborted by its table: {rows}, by the log: {due} ({where})")
    producers = state.producers
    for producer_id, last in wanted.last.items():
        batches = producers.batches(producer_id)
        has = (batches[-1].log_index, batches[-1].epoch) if batches else None
        if has != last and (batches or producer_id > producers.forgotten_id_max):
            world.violate(f"{partition}: {has} is last of producer {producer_id}, not {last} ({where})")
