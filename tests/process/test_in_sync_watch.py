"""The excuses that rounds under load accept for a missing replica. Pure: no broker runs."""

import pytest
from trials.in_sync_watch import Excuses, InSync, refusals

WHOLE = InSync(frozenset({1, 2, 3}), frozenset({1, 2, 3}))
WITHOUT_2 = InSync(frozenset({1, 2, 3}), frozenset({1, 3}))
GRACE_S = 4.0


def excuses() -> Excuses:
    return Excuses(GRACE_S)


def test_a_replica_that_is_missing_without_a_fault_is_a_violation_once_until_it_is_back() -> None:
    judge = excuses()
    for at_s, found in enumerate((WHOLE, WITHOUT_2, WITHOUT_2, WHOLE, WITHOUT_2)):
        judge.sample(at_s, at_s + 0.1, {"t-0": found, "t-1": WHOLE})
    assert judge.violations == [
        "t-0: replica 2 is out of sync without a fault, at 1.0 s",
        "t-0: replica 2 is out of sync without a fault, at 4.0 s",
    ]
    assert judge.samples == 5


@pytest.mark.parametrize(
    ("asked_s", "answered_s", "is_excused"),
    [
        (9.0, 9.9, False),
        (9.0, 10.1, True),
        (12, 12.1, True),
        (15.9, 15.95, True),
        (16.0, 16.5, True),
        (16.1, 17, False),
    ],
)
def test_a_fault_excuses_its_broker_from_the_strike_until_the_grace_after_the_mending_is_over(
    asked_s: float, answered_s: float, is_excused: bool
) -> None:
    judge = excuses()
    judge.strike([2], 10.0)
    judge.mend([2], 12.0)
    judge.sample(asked_s, answered_s, {"t-0": WITHOUT_2})
    assert (judge.violations == []) == is_excused


def test_a_fault_that_is_not_mended_excuses_its_broker_for_as_long_as_it_lasts() -> None:
    judge = excuses()
    judge.strike([2], 10.0)
    judge.strike([2], 11.0)
    judge.sample(1_000, 1_001, {"t-0": WITHOUT_2})
    judge.sample(9.0, 9.5, {"t-1": WITHOUT_2})
    assert [text.partition(":")[0] for text in judge.violations] == ["t-1"]


def test_a_fault_excuses_no_other_broker() -> None:
    judge = excuses()
    judge.strike([1], 10.0)
    judge.sample(11, 11.1, {"t-0": WITHOUT_2})
    assert judge.violations


@pytest.mark.parametrize(("first_s", "last_s", "is_excused"), [(11, 12, True), (9, 12, False), (15, 17, False)])
def test_while_brokers_have_no_processor_and_for_the_grace_after_it_all_is_excused(
    first_s: int, last_s: int, is_excused: bool
) -> None:
    judge = excuses()
    for at_s in range(first_s, last_s + 1):
        judge.sample(at_s, at_s, {"t-0": WITHOUT_2})
    assert len(judge.violations) == 1
    judge.starve([(10, 10.5), (11, 12)])
    assert (judge.violations == []) == is_excused
    assert [judge.is_starved(at_s, at_s) for at_s in (9.9, 10, 16, 16.1)] == [False, True, True, False]


def test_refusals_are_found_in_what_brokers_log() -> None:
    said = "2026-11-21 23:18:03,221 INFO barnabas_broker.status.events: "
    lines = [
        f"{said}torture-3: acks=all refused: in sync are [1], min.insync.replicas is 2\n",
        f"{said}torture-3: leader elected: votes of [2, 3] (term 3)\n",
        f"{said}acks=all refused: 7 more, too many for a line each\n",
        "Traceback (most recent call last):\n",
    ]
    assert [text for _, text in refusals(lines)] == [
        "torture-3: acks=all refused: in sync are [1], min.insync.replicas is 2",
        "acks=all refused: 7 more, too many for a line each",
    ]
