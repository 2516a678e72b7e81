"""What is said of an open transaction, by what its coordinator knows of it, and who may know more."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_broker.cli.commands.txn import aborting, holding, standing
from barnabas_broker.cli.commands.txn.standing import Coordinators, OpenTransaction
from barnabas_broker.cli.errors import CommandError
from barnabas_clients import TopicPartition
from barnabas_clients.admin.values import PartitionProducer, TransactionDescription

AT = TopicPartition("t", 3)
PRODUCER = PartitionProducer(7, 1, 0, 1_000, -1, 5)
DEAF = "broker 2 did not answer: it is gone"


def opened(
    state: str = "", *, has_it: bool = True, unheard: str = "", started_at_ms: int | None = 0
) -> OpenTransaction:
    known = TransactionDescription(
        "x", state, 1, 7, 1, 60.0, started_at_ms, frozenset({AT if has_it else TopicPartition("t", 4)})
    )
    (found,) = standing.open_in({AT: [PRODUCER]}, Coordinators({7: known} if state else {}, unheard))
    return found


@pytest.mark.parametrize(
    ("transaction", "hangs", "said", "refusal"),
    [
        (opened("Ongoing"), False, "aborts it at 1970-01-01T00:01:00.000Z", "it ends by 1970-01-01T00:01:00.000Z"),
        (opened("Ongoing", unheard=DEAF), False, "aborts it at 1970", "does not hang"),
        (opened("PrepareCommit"), False, "it is decided, and its marker has yet to be written", "marker is on its way"),
        (opened("Ongoing", has_it=False), True, "is Ongoing, without this partition: the transaction hangs", ""),
        (opened("CompleteAbort", has_it=False, unheard=DEAF), True, "the transaction hangs", ""),
        (opened(), True, "no coordinator knows that producer: the transaction hangs", ""),
        (opened(unheard=DEAF), None, f"is unknown: {DEAF}", f"is unknown: {DEAF}; --force"),
    ],
)
def test_a_transaction_hangs_if_no_coordinator_is_going_to_end_it(
    transaction: OpenTransaction, hangs: bool | None, said: str, refusal: str
) -> None:
    assert transaction.hangs is hangs
    (line,) = holding._coordinated(transaction)
    assert said in line
    assert ("barnabas txn abort t 3 --start-offset 5" in line) == bool(hangs)
    if refusal:
        with pytest.raises(CommandError) as caught:
            aborting._check_hangs(transaction)
        assert refusal in str(caught.value)
    else:
        aborting._check_hangs(transaction)


@pytest.mark.parametrize(
    ("leaders", "silent", "said"),
    [
        ({0: 1, 1: 3}, {2: "gone"}, ""),
        ({0: 1, 1: 2}, {2: "gone"}, "broker 2 did not answer: gone"),
        ({0: 1, 1: -1}, {}, "1 partition of __transaction_state without a leader: 1"),
        ({}, {2: "gone"}, ""),
    ],
)
def test_only_who_leads_a_partition_of_the_coordinators_can_know_more(
    leaders: dict[int, int], silent: dict[int, str], said: str
) -> None:
    async def list_topics(*, include_internal: bool) -> list[Any]:
        assert include_internal
        views = {number: SimpleNamespace(leader_id=leader_id) for number, leader_id in leaders.items()}
        return [SimpleNamespace(name="t", partitions={0: SimpleNamespace(leader_id=-1)})] + (
            [SimpleNamespace(name="__transaction_state", partitions=views)] if leaders else []
        )

    admin = cast("Any", SimpleNamespace(list_topics=list_topics))
    assert asyncio.run(standing._unheard(admin, silent)) == said


def test_what_ends_between_two_answers_holds_nothing() -> None:
    first = opened("Ongoing")
    assert holding.Held(AT, 5, 9, [first]).holder is first
    assert holding.Held(AT, 5, 9, [first]).is_clear
    assert not holding.Held(AT, 4, 9, [first]).is_clear, "the last stable offset has moved on since"
    assert holding.Held(AT, 9, 9, []).is_clear
    assert "the marker of one is on its way" in holding._told(holding.Held(AT, 4, 9, []))[1]
