"""A coordinator tells leaders of partitions how transactions of a producer id have ended, as of what has committed."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from broker.coordinators.transactions.transaction_world import World

from barnabas_broker.coordinators.transactions.outcome_messages import (
    VERSION,
    OpenTransactionRow,
    OutcomesRequest,
    OutcomesResponse,
)
from barnabas_broker.coordinators.transactions.state_machine.outcomes import Outcome
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState

OTHER = "u"
"""A topic that is synced."""


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        hosted = world.partitions.topics["t"]
        hosted.settings = SimpleNamespace(flush_mode="page-cache")
        world.partitions.topics[OTHER] = SimpleNamespace(
            topic=SimpleNamespace(name=OTHER, partitions=range(9)),
            partitions={},
            settings=SimpleNamespace(flush_mode="fsync"),
        )
        world.lead()
        yield world


def ask(world: World, *rows: tuple[Producer, int]) -> tuple[list[int], dict[int, tuple[int, int, int]]]:
    """Ask as another broker does; return which partitions were looked through, and what is known by row."""
    request = OutcomesRequest(
        rows=[
            OpenTransactionRow(producer_id=producer.producer_id, producer_epoch=producer.epoch, topic="t", partition=at)
            for producer, at in rows
        ]
    )
    body = world.run(world.coordinator.answer_outcomes(2, request.to_bytes(VERSION)))
    response = OutcomesResponse.decode(body, VERSION)
    known = {one.row: (one.outcome, one.marker_epoch, one.coordinator_epoch) for one in response.ended}
    return list(response.coordinated), known


def ended(world: World, producer: Producer, *, commit: bool, topic: str = "t") -> Producer:
    """Have a transaction of partition 0, complete; return who comes next."""
    world.add(producer, 0, topic=topic)
    world.commit()
    heard = world.end(producer, commit=commit)
    world.finish()
    return heard.producer


def test_outcomes_are_told_while_the_next_transaction_is_open(world: World) -> None:
    first = world.given()
    second = ended(world, first, commit=True)
    third = ended(world, second, commit=False)
    world.add(third, 1)
    world.commit()
    term = world.raft.term
    rows = [(first, 0), (second, 0), (third, 1), (third, 0), (Producer(77, 0), 0)]
    assert ask(world, *rows) == (
        [0],
        {
            0: (Outcome.COMMIT, first.epoch + 1, term),
            1: (Outcome.ABORT, second.epoch + 1, term),
            2: (Outcome.OPEN, third.epoch, term),
            3: (Outcome.ABORT, third.epoch, term),
        },
    )


def test_the_next_coordinator_knows_them_too(world: World) -> None:
    first = world.given()
    following = ended(world, ended(world, first, commit=True), commit=True)
    world.add(following, 2)
    world.commit()
    world.lose()
    world.lead()
    assert ask(world, (first, 0))[1] == {0: (Outcome.COMMIT, first.epoch + 1, world.raft.term)}


def test_of_partitions_that_lose_nothing_nothing_is_kept(world: World) -> None:
    first = world.given()
    second = ended(world, first, commit=True, topic=OTHER)
    saved = world.saved()
    assert saved is not None
    assert saved.outcomes == ()
    third = ended(world, second, commit=True)
    ended(world, third, commit=False, topic=OTHER)
    saved = world.saved()
    assert saved is not None
    assert len(saved.outcomes) == 1
    assert len(saved.outcomes[0].runs) == 4


def test_what_has_not_committed_is_not_told(world: World) -> None:
    first = world.given()
    world.add(first, 0)
    world.commit()
    world.end(first, commit=True)
    assert ask(world, (first, 0))[1] == {0: (Outcome.OPEN, first.epoch, world.raft.term)}
    world.commit()
    assert world.state() is TransactionState.PREPARE_COMMIT
    assert ask(world, (first, 0))[1] == {0: (Outcome.OPEN, first.epoch + 1, world.raft.term)}
    world.finish()
    assert ask(world, (first, 0))[1] == {0: (Outcome.COMMIT, first.epoch + 1, world.raft.term)}


def test_who_is_not_certain_to_lead_answers_for_nothing(world: World) -> None:
    first = world.given()
    world.lose()
    assert ask(world, (first, 0)) == ([], {})
