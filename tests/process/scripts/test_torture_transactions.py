"""What the torture of transactions observes, and what it leaves in the history of a client that was killed."""

from pathlib import Path

import pytest
from trials.load import Recorder
from trials.transactions.leaders import led_by
from trials.transactions.mortals import Left
from trials.transactions.mutants import MUTANTS, Mutant
from trials.transactions.story import Book

from barnabas_broker.history import Event
from barnabas_broker.history import events as e
from barnabas_broker.history.checker import Checker
from barnabas_broker.history.violations import Rule
from barnabas_clients.protocol.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

ROOT = Path(__file__).resolve().parents[3]


def told(node_id: int, leader_id: int, epoch: int) -> list[tuple[str, int]]:
    partition = MetadataResponsePartition(partition_index=2, leader_id=leader_id, leader_epoch=epoch)
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition])])
    return led_by(node_id, response)


def test_only_what_a_broker_says_of_itself_counts() -> None:
    assert told(1, 1, 5) == [("t-2", 5)]
    assert told(2, 1, 5) == [], "hearsay"
    assert told(1, 1, -1) == [], "no epoch"


def test_two_brokers_that_say_to_lead_in_one_epoch_are_a_violation() -> None:
    checker = Checker()
    for node_id, epoch in ((1, 5), (2, 6), (1, 5), (3, 6)):
        [(place, seen)] = told(node_id, node_id, epoch)
        checker.feed(e.OwnerSeen(subject=place, epoch=seen, owner=f"broker {node_id}"))
    assert [(one.rule, one.subject) for one in checker.violations] == [(Rule.TWO_IN_ONE_EPOCH, "t-2")]


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(Book(Recorder(tmp_path / "history")), "feed")


def invoked(sequence: int) -> Event:
    return e.Invoked(producer="p", partition="t-0", sequence=sequence, transaction="p/1")


def test_nobody_knows_what_became_of_a_killed_clients_records_and_transaction(left: Left, tmp_path: Path) -> None:
    events = [e.Begun(transaction="p/1"), invoked(0), e.Acknowledged(producer="p", partition="t-0", sequence=0)]
    for event in [*events, invoked(1)]:
        left.tell(event)
    was_open = left.is_open
    left.close()
    assert (was_open, left.is_open) == (True, False)
    left._book.recorder.close()
    lines = (tmp_path / "history").read_bytes().splitlines()
    assert [e.decode(line, number) for number, line in enumerate(lines)][-2:] == [
        e.Unknown(producer="p", partition="t-0", sequence=1),
        e.Ended(transaction="p/1", outcome="unknown"),
    ]
    assert left._book.recorder.contradictions == []


def test_a_client_that_dies_between_its_transactions_leaves_nothing(left: Left) -> None:
    left.tell(e.Begun(transaction="p/1"))
    left.tell(e.Ending(transaction="p/1", commit=True))
    assert left._book.strike() == (1, ["feed"])
    left.tell(e.Ended(transaction="p/1", outcome="committed"))
    assert not left.is_open
    assert left._book.strike() == (0, [])
    left.close()
    left._book.recorder.close()
    assert left._book.recorder.checker.summary().transactions == {"committed": 1}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what.replace(" ", "_"))
def test_a_mutant_fits(mutant: Mutant) -> None:
    source = (ROOT / "broker/barnabas_broker" / mutant.file).read_text()
    assert source.count(mutant.line) == 1, "write it anew"
    compile(source.replace(mutant.line, mutant.instead), mutant.file, "exec")
