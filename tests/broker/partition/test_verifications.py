"""The guards of transactions that a leader asks the coordinator about."""

import pytest

from barnabas_broker.partition import verifications as verifications_module
from barnabas_broker.partition.verifications import Verification, Verifications


def guard(guards: Verifications, pid: int, epoch: int = 0, sequence: int = 0, *, term: int = 1) -> Verification:
    return guards.guard(term, pid, epoch, sequence, begins=True)


def test_a_guard_holds_for_its_producer_and_epoch_until_it_is_dropped() -> None:
    guards = Verifications()
    found = guard(guards, 7, 1)
    assert guard(guards, 7, 1) is found
    assert [guards.holds(*place, found) for place in ((7, 1), (7, 2), (8, 1))] == [True, False, False]
    assert not guards.holds(7, 1, None)
    other = guard(guards, 7, 2)
    guards.drop(7)
    assert not guards.holds(7, 1, found)
    assert not guards.holds(7, 2, other)
    assert guard(guards, 7, 1) is not found


def test_a_guard_of_another_term_is_none() -> None:
    guards = Verifications()
    found = guard(guards, 7)
    assert guard(guards, 7, term=2) is not found
    guards.clear()
    assert len(guards) == 0


def test_a_guard_knows_the_lowest_sequence_that_is_under_way() -> None:
    guards = Verifications()
    assert [guard(guards, 7, sequence=sequence).lowest_sequence for sequence in (5, 3, 4)] == [5, 3, 3]


def test_there_are_so_many_guards_at_most_and_the_first_ones_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifications_module, "PRODUCERS_MAX", 2)
    monkeypatch.setattr(verifications_module, "EPOCHS_MAX", 2)
    guards = Verifications()
    found = [guard(guards, pid) for pid in (1, 2, 3)]
    assert [guards.holds(pid, 0, one) for pid, one in zip((1, 2, 3), found, strict=True)] == [False, True, True]
    found = [guard(guards, 2, epoch) for epoch in (0, 1, 2)]
    assert [guards.holds(2, epoch, one) for epoch, one in enumerate(found)] == [False, True, True]


def test_a_guard_is_let_go_by_itself_if_it_is_still_the_one() -> None:
    guards = Verifications()
    first, second = guard(guards, 7, 1), guard(guards, 7, 2)
    guards.forget(7, first)
    assert [guards.holds(7, 1, first), guards.holds(7, 2, second)] == [False, True]
    later = guard(guards, 7, 1)
    guards.forget(7, first)
    assert guards.holds(7, 1, later), "another has taken its place"
    guards.forget(7, later)
    guards.forget(7, second)
    guards.forget(7, second)
    assert len(guards) == 0
