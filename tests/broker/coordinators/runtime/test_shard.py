"""One leadership from its beginning to its end: appends, answers, promises."""

import pytest
from broker.coordinators.runtime.numbers import TICK_MS, Name, NumberShard, NumberWorld
from broker.coordinators.runtime.replica_world import Outcome

from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_clients.protocol.error_codes import ErrorCode

NONE = ErrorCode.NONE
A, B = Name("a"), Name("b")
SHARD = "barnabas_broker.coordinators.runtime.shard"


def put(world: NumberWorld, shard: NumberShard, name: Name, number: int | None) -> Outcome:
    outcome = Outcome()
    with world.step():
        assert shard.set({name: number}, outcome) is NONE
    return outcome


def put_many(world: NumberWorld, shard: NumberShard, count: int) -> None:
    for number in range(count):
        with world.step():
            assert shard.set({Name("a", str(number)): number}) is NONE


class TestAppending:
    def test_a_number_shows_and_is_answered_when_it_is_committed(self, world: NumberWorld) -> None:
        shard = world.lead()
        outcome = put(world, shard, A, 1)
        assert (shard.get(A), outcome.code) == (None, None)
        assert A in shard.runtime.under_way
        world.commit()
        assert (shard.get(A), outcome.code) == (1, NONE)
        assert A not in shard.runtime.under_way

    def test_an_answer_waits_for_more_copies_and_what_it_says_does_not(self, world: NumberWorld) -> None:
        world.partition.min_insync = 3
        shard = world.lead()
        outcome = put(world, shard, A, 1)
        world.commit(copies=2)
        assert (shard.get(A), outcome.code) == (1, None)
        world.copy()
        assert outcome.code is NONE

    def test_what_is_under_way_when_leadership_ends_is_not_known_here(self, world: NumberWorld) -> None:
        shard = world.lead()
        outcome = put(world, shard, A, 1)
        world.lose()
        assert outcome.code is ErrorCode.NOT_COORDINATOR
        assert not shard.runtime.under_way.count

    def test_a_shard_that_has_ended_appends_nothing(self, world: NumberWorld) -> None:
        shard = world.lead()
        world.lose()
        end = world.log.last_index
        with world.step():
            assert shard.set({A: 1}, Outcome()) is ErrorCode.NOT_COORDINATOR
        assert world.log.last_index == end


class TestFailover:
    def test_a_committed_number_never_goes_back(self, world: NumberWorld) -> None:
        shard = world.lead()
        put(world, shard, A, 1)
        world.commit()
        put(world, shard, A, 2)
        world.lose(kept=1)
        assert world.lead().get(A) == 2

    def test_nothing_is_read_again_that_was_known(self, world: NumberWorld) -> None:
        shard = world.lead()
        put(world, shard, A, 1)
        world.commit()
        put(world, shard, A, 2)
        world.lose(kept=1)
        shard = world.lead()
        assert shard.runtime.standby.record_count == 1, "only what was under way"
        assert shard.get(A) == 2

    def test_a_later_leaders_entries_are_not_skipped_when_the_change_is_told_late(self, world: NumberWorld) -> None:
        """One message of the new leader brings its entries, committed; the change of leaders is told last."""
        shard = world.lead()
        for number, name in enumerate((A, B, Name("c"))):
            put(world, shard, name, number)
        world.lose(kept=1, said=[{A: 20}], is_told_late=True)
        world.check()
        shard = world.lead()
        assert [shard.get(name) for name in (A, B, Name("c"))] == [20, None, None]

    def test_each_shard_lives_once(self, world: NumberWorld) -> None:
        shard = world.lead()
        world.lose()
        world.breathe()
        again = world.lead()
        world.breathe()
        assert shard is not again
        assert shard.life == ["build", "begin", "end"]
        assert again.life == ["build", "begin"]

    def test_everybody_who_is_parked_is_told_a_piece_at_a_time(self, world: NumberWorld) -> None:
        shard = world.lead()
        outcomes = [Outcome() for _ in range(5)]
        shard.parked += outcomes
        world.lose()
        assert [one.code for one in outcomes] == [None] * 5, "the first piece tells nobody yet"
        world.breathe(20)
        assert [one.code for one in outcomes] == [ErrorCode.NOT_COORDINATOR] * 5


class TestTheEndInTheMiddle:
    def test_of_loading(self, world: NumberWorld) -> None:
        world.lose(said=[{A: number} for number in range(5)])
        world.win()
        world.breathe()
        runtime = world.runtime.shards[0]
        states = [runtime.state]
        world.lose(said=[{B: 1}])
        world.breathe(20)
        states.append(runtime.state)
        assert states == [ShardState.LOADING, ShardState.ENDED]
        assert sorted(runtime.shard.life) == ["build", "end without having served"]
        assert world.lead().get(A) == 4

    def test_of_taking_in_what_commits(self, world: NumberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(f"{SHARD}.APPLIED_STEP", 2)
        shard = world.lead()
        put_many(world, shard, 6)
        world.commit()
        assert len(shard.table.numbers) == 2
        world.lose()
        world.breathe(5)
        assert len(shard.table.numbers) == 2
        assert len(world.lead().table.numbers) == 6

    def test_of_waiting_for_a_commit(self, world: NumberWorld) -> None:
        shard = world.lead()
        put(world, shard, A, 1)
        with_it = world.loop.create_task(shard.runtime.wait_committed())
        world.breathe()
        world.lose()
        world.breathe()
        assert with_it.result() is False


class TestConfirming:
    def test_a_leader_that_is_confirmed_knows_what_had_been_committed_by_then(
        self, world: NumberWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{SHARD}.APPLIED_STEP", 2)
        shard = world.lead()
        put_many(world, shard, 40)
        world.commit()
        confirmed = world.loop.create_task(shard.runtime.confirm(1))
        world.breathe()
        assert not confirmed.done()
        world.breathe(20)
        assert confirmed.result() is NONE
        assert len(shard.table.numbers) == 40

    def test_a_deposed_leader_does_not_confirm(self, world: NumberWorld) -> None:
        shard = world.lead()
        world.stall()
        confirmed = world.loop.create_task(shard.runtime.confirm(1))
        world.breathe()
        world.lose()
        world.breathe(2)
        assert confirmed.result() is ErrorCode.NOT_COORDINATOR

    def test_a_leader_that_stood_still_lets_its_deadlines_begin_anew(self, world: NumberWorld) -> None:
        shard = world.lead()
        world.advance(TICK_MS)
        assert shard.ticks == 1
        world.stall(10 * TICK_MS)
        assert not shard.runtime.is_certain
        assert shard.runtime.is_recovering
        world.breathe()
        assert shard.ticks == 1, "nothing that was not heard of proves anything"
        world.recover()
        world.breathe(3)
        assert shard.life[-1] == "recover"
        world.advance(TICK_MS)
        assert shard.ticks == 2


def test_a_bug_in_a_piece_stops_the_process(world: NumberWorld) -> None:
    shard = world.lead()

    def fail() -> object:
        yield
        raise AssertionError("bug")

    with world.step():
        shard.runtime.in_slices(fail())  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="bug"):
        world.breathe(3)
    assert [str(error) for error in world.failures] == ["bug"]
    world.failures.clear()
