"""A long log is written once more behind its end, and its beginning goes."""

import pytest
from broker.coordinators.runtime.numbers import Name, NumberShard, NumberTable, NumberWorld

from barnabas_broker.coordinators.runtime.rewriting import rewrite
from barnabas_broker.coordinators.runtime.shard import REWRITE_BYTES, REWRITE_FACTOR, ShardRuntime
from barnabas_clients.protocol.error_codes import ErrorCode

NAMES = [Name("n", str(number)) for number in range(20)]
SHARD = "barnabas_broker.coordinators.runtime.shard"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_broker.coordinators.runtime.rewriting.BATCH_BYTES_MAX", 60)


def filled(world: NumberWorld) -> NumberShard:
    """Return a shard of a log that says each number five times."""
    shard = world.lead()
    for turn in range(5):
        for name in NAMES:
            with world.step():
                assert shard.set({name: turn}) is ErrorCode.NONE
    world.commit()
    return shard


def begin(world: NumberWorld, shard: NumberShard) -> None:
    shard.runtime.is_rewriting = True
    with world.step():
        world.runtime.rewrite(shard.runtime)


def finish(world: NumberWorld, shard: NumberShard) -> None:
    for _ in range(100):
        world.breathe()
        world.commit()
    assert not shard.runtime.is_rewriting


def test_a_rewritten_log_says_the_same_in_fewer_entries(world: NumberWorld) -> None:
    shard = filled(world)
    end = world.log.last_index
    begin(world, shard)
    finish(world, shard)
    assert world.log.first_index == end + 1
    assert shard.table.numbers == dict.fromkeys(NAMES, 4)
    assert [kind for kind, _, _ in world.events][-1] == "coordinator log compacted"
    world.check()
    world.lose()
    assert world.lead().table.numbers == dict.fromkeys(NAMES, 4)


def test_a_name_with_a_newer_record_under_way_is_left_out(world: NumberWorld) -> None:
    shard = filled(world)
    with world.step():
        shard.set({NAMES[0]: 100, NAMES[1]: None})
        end = world.log.last_index
        record_of = dict.fromkeys(NAMES, (b"n/x", b"0"))
        assert shard.runtime.append_again(NAMES[:3], record_of.__getitem__) is ErrorCode.NONE
        assert world.log.last_index == end + 1
        assert shard.runtime.append_again(NAMES[:2], record_of.__getitem__) is ErrorCode.NONE
        assert world.log.last_index == end + 1, "nothing is left to be written"
    assert list(world.said_in(world.log.entries[-1])) == [Name("n", "x")]
    world.lose()


def test_what_commits_meanwhile_is_not_taken_back(world: NumberWorld) -> None:
    shard = filled(world)
    with world.step():
        shard.set({NAMES[0]: 100})
    begin(world, shard)
    world.breathe()
    with world.step():
        shard.set({NAMES[1]: 200, NAMES[2]: None})
    finish(world, shard)
    expected = dict.fromkeys(NAMES, 4) | {NAMES[0]: 100, NAMES[1]: 200}
    del expected[NAMES[2]]
    assert shard.table.numbers == expected


def test_a_leader_that_is_lost_half_way_leaves_some_records_twice(world: NumberWorld) -> None:
    shard = filled(world)
    begin(world, shard)
    end = world.log.last_index
    while world.log.last_index == end:
        world.breathe()
    world.commit()
    world.lose(said=[{NAMES[0]: 7}])
    world.breathe(10)
    assert not any(kind == "coordinator log compacted" for kind, _, _ in world.events)
    assert world.log.first_index == 1, "nothing is cut"
    again = world.lead()
    assert again.table.numbers == dict.fromkeys(NAMES, 4) | {NAMES[0]: 7}
    begin(world, again)
    finish(world, again)
    assert world.log.first_index > 1


def test_a_log_is_rewritten_when_it_is_large_and_says_little(
    world: NumberWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[ShardRuntime[NumberTable, NumberShard]]()
    monkeypatch.setattr(world.runtime, "rewrite", begun.append)
    shard = filled(world)
    world.log.size_bytes = REWRITE_BYTES
    with world.step():
        shard.set({NAMES[0]: 1})
    assert begun == []
    world.log.size_bytes = REWRITE_BYTES + 1
    monkeypatch.setattr(NumberTable, "live_bytes", REWRITE_BYTES / REWRITE_FACTOR + 1)
    with world.step():
        shard.set({NAMES[0]: 1})
    assert begun == [], "it says a quarter of what it takes"
    monkeypatch.setattr(NumberTable, "live_bytes", REWRITE_BYTES / REWRITE_FACTOR)
    for _ in range(3):
        with world.step():
            shard.set({NAMES[0]: 1})
        shard.runtime.is_rewriting = False  # It has ended, and something else keeps the log long.
    assert begun == [shard.runtime]
    monkeypatch.setattr(f"{SHARD}.REWRITE_BYTES", 400)
    for _ in range(5):
        with world.step():
            shard.set({NAMES[0]: 1})
        shard.runtime.is_rewriting = False
    assert len(begun) > 2, "a quarter of the limit was appended since"


def test_rewriting_an_ended_shard_changes_nothing(world: NumberWorld) -> None:
    shard = filled(world)
    world.lose()
    end = world.log.last_index
    world.loop.run_until_complete(rewrite(shard.runtime))
    assert world.log.last_index == end
