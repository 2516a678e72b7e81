"""Committed records are read ahead by every replica, and never twice."""

from typing import Any, cast

import pytest
from broker.coordinators.runtime.numbers import Name, NumberTable, NumberWorld
from broker.coordinators.runtime.replica_world import WALL_MS, Log, writer_for

from barnabas_broker.coordinators.runtime.contracts import Writer
from barnabas_broker.coordinators.runtime.standby import STANDBY_ENTRIES, Standby
from barnabas_raftlog.records.builder import write_header
from barnabas_raftlog.records.header import CONTROL
from barnabas_raftlog.records.markers import EndMarker, marker_batch

A, B = Name("a"), Name("b")
COORDINATOR = "barnabas_broker.coordinators.runtime.coordinator"


def ahead(world: NumberWorld) -> Standby[NumberTable]:
    """Return what the replica knows while it follows."""
    return world.observer._standby


def test_a_follower_reads_on_when_so_many_entries_are_committed_that_it_has_not_read(world: NumberWorld) -> None:
    world.lose()
    world.follow([{A: number} for number in range(STANDBY_ENTRIES - 1)])
    world.breathe(5)
    assert ahead(world).applied_index == 0, "a leader reads that many in a few milliseconds"
    world.follow([{A: STANDBY_ENTRIES}, {B: 1}])
    world.breathe(4 * STANDBY_ENTRIES)
    assert ahead(world).applied_index == world.log.last_index
    assert ahead(world).table.numbers == {A: STANDBY_ENTRIES, B: 1}


def test_a_table_hears_in_whose_transaction_a_batch_is_and_how_that_ends(world: NumberWorld) -> None:
    marker = EndMarker(7, 2, True, 5)
    shard = world.lead()
    with world.step():
        shard.set({A: 1})
        shard.set({B: 1}, writer=writer_for(world.partition, 7, 1))
        shard.runtime.append_marker(marker, lambda: None, None, bumps_epoch=True, weight=0)
    world.commit()
    fresh = Standby(NumberTable)
    world.loop.run_until_complete(fresh.advance(cast("Any", world.log), world.log.last_index, lambda: True))
    assert fresh.table.heard == [Writer(7, 1), marker]
    assert fresh.record_count == 2, "a marker is no record of anybody's"


def test_a_control_batch_that_is_no_marker_says_nothing(world: NumberWorld) -> None:
    frame = marker_batch(EndMarker(7, 0, True, 5), WALL_MS)
    write_header(frame, attributes=CONTROL, record_count=1, base_timestamp=WALL_MS, max_timestamp=WALL_MS)
    world.lose()
    world.log.put_batch(world.raft.term, frame)
    fresh = Standby(NumberTable)
    world.loop.run_until_complete(fresh.advance(cast("Any", world.log), world.log.last_index, lambda: True))
    assert (fresh.table.heard, fresh.applied_index) == ([], world.log.last_index)
    world.log.truncate_from(world.log.last_index)


def test_a_new_leader_reads_only_what_was_not_read_ahead(world: NumberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{COORDINATOR}.STANDBY_ENTRIES", 2)
    world.lose()
    world.follow([{A: 1}, {A: 2}, {A: 3}])
    world.breathe(20)
    known_count = ahead(world).record_count
    assert known_count > 0
    world.follow([{B: 1}])
    shard = world.lead()
    assert shard.runtime.standby.record_count == 4, "each once"
    assert (shard.get(A), shard.get(B)) == (3, 1)
    assert world.events[-1][2].startswith(f"numbers from {4 - known_count} records in 0 ms")


def test_a_leader_waits_for_the_reading_that_is_under_way(world: NumberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{COORDINATOR}.STANDBY_ENTRIES", 2)
    world.lose()
    world.follow([{A: 1}, {A: 2}, {A: 3}])
    world.breathe()
    assert ahead(world).record_count < 3, "it is still reading"
    shard = world.lead()
    assert shard.get(A) == 3
    # The entry that it was reading in that moment has been taken in whole.
    assert shard.runtime.standby.record_count == 3


def test_a_replica_does_not_read_on_where_a_shard_that_ended_is_still_reading(
    world: NumberWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that read the same would take in the older of two numbers behind the newer one."""
    monkeypatch.setattr(f"{COORDINATOR}.STANDBY_ENTRIES", 2)
    world.lose(said=[{A: 1, B: 1}, {A: 2, B: 2}])
    world.win()
    world.breathe()
    loading = world.runtime.shards[0].standby
    assert 0 < loading.applied_index < world.partition.producers.commit_index
    world.lose(said=[{A: number, B: number} for number in range(3, 7)])
    world.breathe(20)
    assert ahead(world) is not loading
    assert ahead(world).table.numbers == {A: 6, B: 6}


def test_a_log_that_was_rewritten_elsewhere_is_read_from_its_beginning(world: NumberWorld) -> None:
    world.lead()
    world.lose(said=[{A: 1}, {B: 1}])
    world.lead()
    world.lose(said=[{A: None}])
    world.rewrite_elsewhere()
    assert world.log.first_index > 1
    world.check()
    shard = world.lead()
    assert (shard.get(A), shard.get(B)) == (None, 1)


async def test_a_replaced_log_is_read_even_while_it_is_empty() -> None:
    """A snapshot has come, and nothing behind it: otherwise reading ahead would try for ever."""
    log = Log()
    standby = Standby(NumberTable)
    standby.table.put(A, 5)
    log.first_index = 14_486
    log.last_index = 14_485
    await standby.advance(cast("Any", log), 14_485, lambda: True)
    assert standby.applied_index == 14_485
    assert standby.table.numbers == {}


def test_a_shard_that_has_ended_keeps_the_table_that_it_had(world: NumberWorld) -> None:
    shard = world.lead()
    shard_table = shard.table
    world.lose(said=[{A: 1}])
    world.rewrite_elsewhere()
    world.lead()
    assert shard.table is shard_table
    assert shard.get(A) is None
