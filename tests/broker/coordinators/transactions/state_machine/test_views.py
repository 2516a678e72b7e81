"""What ListTransactions and DescribeTransactions show has committed."""

import pytest

from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.coordinators.transactions.state_machine.views import (
    Described,
    Listed,
    ListFilter,
    describe,
    list_filter,
    listed,
)

from .desk import A0, A1, B0, TIMEOUT_MS, TWO_PHASE, Desk


def is_listed(desk: Desk, wanted: ListFilter) -> bool:
    return listed("t", desk.transaction.saved, wanted, desk.now_ms) is not None


class TestDescribe:
    def test_an_open_transaction(self) -> None:
        desk = Desk()
        producer = desk.begun(B0, A1, A0)
        assert describe(desk.transaction) == Described(
            TransactionState.ONGOING, producer, TIMEOUT_MS, desk.now_ms, (A0, A1, B0), producer
        )

    def test_one_whose_outcome_is_decided_shows_where_its_markers_are_missing(self) -> None:
        desk = Desk()
        desk.end(desk.begun(A0, B0), commit=True)
        desk.mark(A0)
        found = describe(desk.transaction)
        assert found is not None
        assert (found.state.title, found.places) == ("PrepareCommit", (B0,))

    def test_one_that_is_kept_shows_who_may_end_it(self) -> None:
        desk = Desk(TWO_PHASE)
        old = desk.begun(A0)
        new = desk.init(keep=True).producer
        found = describe(desk.transaction)
        assert found is not None
        assert (found.producer, found.owner) == (old, new)

    def test_what_has_not_committed_is_not_there(self) -> None:
        desk = Desk(commits=False)
        desk.init()
        assert describe(desk.transaction) is None
        assert describe(None) is None
        assert not is_listed(desk, ListFilter())


class TestList:
    def test_all(self) -> None:
        desk = Desk()
        producer = desk.begun(A0)
        found = listed("t", desk.saved, ListFilter(), desk.now_ms)
        assert found == Listed("t", producer.producer_id, TransactionState.ONGOING)

    def test_by_state(self) -> None:
        desk = Desk()
        desk.begun(A0)
        assert is_listed(desk, list_filter(["Ongoing", "Empty"])[0])
        assert not is_listed(desk, list_filter(["Empty"])[0])

    def test_states_that_do_not_exist_are_named_and_nothing_is_in_them(self) -> None:
        desk = Desk()
        desk.begun(A0)
        wanted, unknown = list_filter(["ongoing", "Asleep"])
        assert unknown == ("ongoing", "Asleep")
        assert not is_listed(desk, wanted)
        wanted, unknown = list_filter(["Ongoing", "Asleep"])
        assert unknown == ("Asleep",)
        assert is_listed(desk, wanted)

    def test_by_producer_id(self) -> None:
        desk = Desk()
        producer_id = desk.begun(A0).producer_id
        assert is_listed(desk, list_filter([], [producer_id, 7])[0])
        assert not is_listed(desk, list_filter([], [producer_id + 1])[0])

    @pytest.mark.parametrize(("running_ms", "is_in"), [(-1, True), (0, True), (999, True), (1_000, False)])
    def test_by_how_long_it_runs(self, running_ms: int, is_in: bool) -> None:
        desk = Desk()
        desk.begun(A0)
        desk.now_ms += 1_000
        assert is_listed(desk, list_filter([], running_ms=running_ms)[0]) == is_in

    def test_what_has_never_run_is_not_running_for_long(self) -> None:
        desk = Desk()
        desk.init()
        assert is_listed(desk, list_filter([])[0])
        assert not is_listed(desk, list_filter([], running_ms=0)[0])

    def test_by_name(self) -> None:
        desk = Desk()
        desk.init()
        assert is_listed(desk, list_filter([], matches=lambda name: name == "t")[0])
        assert not is_listed(desk, list_filter([], matches=lambda name: name != "t")[0])

    def test_a_producer_of_two_is_found_by_the_transactions(self) -> None:
        desk = Desk(TWO_PHASE)
        desk.begun(A0)
        desk.transaction.saved = desk.saved._replace(next_producer=Producer(500, 0))
        assert not is_listed(desk, list_filter([], [500])[0])
