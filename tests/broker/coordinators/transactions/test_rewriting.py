"""A log of `__transaction_state` that is written anew while transactions run says the same to whoever reads it."""

from collections.abc import Callable, Iterator

import pytest

from barnabas_broker.coordinators.transactions.state_machine.messages import SavedTransaction
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.coordinators.transactions.table import TransactionName
from barnabas_clients.protocol.error_codes import ErrorCode

from .transaction_world import World, as_logged

State = TransactionState
STEPS = 12  # in which a rewriting of these few is over


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a rewriting take a batch for each id or two, so that it has a middle."""
    monkeypatch.setattr("barnabas_broker.coordinators.runtime.rewriting.BATCH_BYTES_MAX", 60)


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def in_every_state(world: World) -> dict[str, Producer]:
    """Have an id in each state, and return their owners."""
    world.lead()
    owners = {"empty": world.given("empty")}
    for name in ("ongoing", "commit", "abort", "committed", "aborted", "gone"):
        owners[name] = world.opened(0, 1, transactional_id=name)
    for name in ("committed", "aborted", "gone"):
        owners[name] = ended(world, owners[name], name, is_commit=name != "aborted")
        world.write_all(name)
        world.commit()
    for name in ("commit", "abort"):
        owners[name] = ended(world, owners[name], name, is_commit=name == "commit")
        world.write(0, name)
    return owners


def ended(world: World, producer: Producer, name: str, *, is_commit: bool) -> Producer:
    heard = world.end(producer, commit=is_commit, transactional_id=name)
    world.commit()
    world.breathe()
    return heard.producer


def known(world: World) -> dict[str, SavedTransaction]:
    """Return what the coordinator knows to be committed, as a log can say it."""
    shard = world.shard
    assert shard is not None
    saved = {name: hosted.transaction.saved for name, hosted in shard.ids.items()}
    return {name: as_logged(one) for name, one in saved.items() if one is not None}


def begin_to_rewrite(world: World) -> None:
    shard = world.shard
    assert shard is not None
    shard.runtime.is_rewriting = True
    with world.step():
        world.runtime.rewrite(shard.runtime)


def turn(world: World) -> None:
    world.breathe()
    world.commit()


def reload(world: World) -> dict[str, SavedTransaction]:
    world.lose()
    world.breathe(3)
    world.lead()
    return known(world)


def test_a_log_that_was_written_anew_says_the_same_to_the_next_coordinator(world: World) -> None:
    in_every_state(world)
    before = known(world)
    assert {name: saved.state for name, saved in before.items()} == {
        "empty": State.EMPTY,
        "ongoing": State.ONGOING,
        "commit": State.PREPARE_COMMIT,
        "abort": State.PREPARE_ABORT,
        "committed": State.COMPLETE_COMMIT,
        "aborted": State.COMPLETE_ABORT,
        "gone": State.COMPLETE_COMMIT,
    }
    end = world.log.last_index
    begin_to_rewrite(world)
    for _ in range(STEPS):
        turn(world)
    assert world.log.first_index > end, "the old records are there yet"
    assert known(world) == before
    assert reload(world) == before
    assert world.markers.owed["commit"].markers.places == {("t", 0), ("t", 1)}


def begin_one(world: World, owners: dict[str, Producer]) -> None:
    world.add(owners["committed"], 2, transactional_id="committed")


def add_a_partition(world: World, owners: dict[str, Producer]) -> None:
    world.add(owners["ongoing"], 2, 3, transactional_id="ongoing")


def decide(world: World, owners: dict[str, Producer]) -> None:
    world.end(owners["ongoing"], transactional_id="ongoing")


def complete(world: World, _: dict[str, Producer]) -> None:
    world.write(1, "commit")


def take_over(world: World, _: dict[str, Producer]) -> None:
    world.initialize("ongoing")


def come(world: World, _: dict[str, Producer]) -> None:
    world.initialize("new")


def expire(world: World, _: dict[str, Producer]) -> None:
    world.advance(3_600_000 + 1)
    world.expire_round()


CHANGES = [begin_one, add_a_partition, decide, complete, take_over, come, expire]


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_meanwhile_is_in_the_new_log(
    change: Callable[[World, dict[str, Producer]], None],
) -> None:
    """It comes before each step of the rewriting, and its record commits behind the next one, or the one after."""
    for at in range(STEPS):
        with World() as world:
            owners = in_every_state(world)
            before = known(world)
            begin_to_rewrite(world)
            for step in range(2 * STEPS):
                if step == at:
                    change(world, owners)
                    if at % 2:
                        world.breathe()
                turn(world)
            after = known(world)
            assert after != before, "nothing has changed"
            shard = world.shard
            assert shard is not None
            assert not shard.runtime.is_rewriting
            truth = {name.transactional_id: as_logged(saved) for name, saved in world.truth().items()}
            assert after == truth
            assert reload(world) == after


@pytest.mark.parametrize("at", range(STEPS))
def test_a_coordinator_that_is_lost_while_it_writes_anew_leaves_the_same_state(world: World, at: int) -> None:
    owners = in_every_state(world)
    before = known(world)
    begin_to_rewrite(world)
    for _ in range(at):
        turn(world)
    heard = world.end(owners["ongoing"], transactional_id="ongoing")
    world.breathe()
    assert reload(world) == before, "the end was not committed, and is gone with its leader"
    assert heard.code == ErrorCode.NOT_COORDINATOR
    begin_to_rewrite(world)
    for _ in range(STEPS):
        turn(world)
    assert TransactionName("ongoing") in world.truth()
    assert reload(world) == before
