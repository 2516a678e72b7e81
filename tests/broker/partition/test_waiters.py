"""The waiting lists against lists."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.partition.waiters import SWEPT_MIN, CommitWaiters, FetchWaiters
from barnabas_broker.timing.deadlines import Deadline, Deadlines

MANY = settings(max_examples=60, deadline=None)


class Waiter:
    """Something with an identity."""

    has_given_up = False


@given(st.lists(st.one_of(st.integers(1, 9), st.tuples(st.sampled_from(["take", "from", "drop"]), st.integers(0, 9)))))
@MANY
def test_commit_waiters_leave_in_index_order(actions: list[int | tuple[str, int]]) -> None:
    waiters: CommitWaiters[Waiter] = CommitWaiters()
    model: list[tuple[int, Waiter]] = []
    for action in actions:
        if isinstance(action, int):
            waiter = Waiter()
            waiters.add(action, waiter)
            model.append((action, waiter))
            model.sort(key=lambda pair: pair[0])
            continue
        kind, index = action
        if kind == "take":
            assert waiters.take_committed(index) == [w for i, w in model if i <= index]
            model = [pair for pair in model if pair[0] > index]
        elif kind == "from":
            assert waiters.take_from(index) == [w for i, w in model if i >= index]
            model = [pair for pair in model if pair[0] < index]
        elif model:
            model.pop(index % len(model))[1].has_given_up = True
            waiters.sweep(lambda waiter: waiter.has_given_up)
        assert len(waiters) == len(model)
    assert waiters.take_all() == [waiter for _, waiter in model]


class Parked:
    """The bytes that one waiter lacks, told by the model at each step, and how often it was looked at."""

    def __init__(self, keys: list[int], missing: int, eager: set[int], full: set[int]) -> None:
        self.keys = keys
        self.missing = missing
        self.eager = eager
        self.full = full
        self.looks = 0

    def park(self, waiters: "FetchWaiters[int, Parked]") -> None:
        waiters.park(self, self.keys, self.missing, eager=self.eager, full=self.full)


KEYS = st.integers(0, 2)
PARKED = st.builds(
    Parked,
    st.lists(KEYS, max_size=6),
    st.integers(1, 5_000) | st.just(2**31 - 1),
    st.sets(KEYS, max_size=1),
    st.sets(KEYS),
)
GAINS = st.tuples(st.just("gain"), KEYS, st.integers(0, 200) | st.integers(0, 5_000))
OTHERS = st.tuples(st.sampled_from(["change", "discard"]), KEYS, st.just(0))


@given(st.lists(PARKED | GAINS | GAINS | OTHERS, max_size=60), st.integers(1, 5))
@settings(max_examples=300, deadline=None)
def test_fetch_waiters_are_taken_when_what_they_lack_is_there_and_seldom_before(
    actions: list[Parked | tuple[str, int, int]], at_once: int
) -> None:
    waiters: FetchWaiters[int, Parked] = FetchWaiters()
    parked: list[Parked] = []

    def drain(key: int, *, is_change: bool) -> None:
        taken = list[Parked]()
        again = list[Parked]()
        while waiters.is_due(key):
            some, count = waiters.take(key, at_once)
            assert len(some) <= count <= at_once
            taken += some
            for one in some:  # It is looked at, and parked again if there is too little.
                one.looks += 1
                if one.missing > 0 and not (is_change or key in one.eager):
                    one.park(waiters)
                    again.append(one)
        assert len({*taken}) == len(taken), "each once"
        for one in {*taken} - {*again}:
            parked.remove(one)

    for action in actions:
        if isinstance(action, Parked):
            action.park(waiters)
            parked.append(action)
            continue
        kind, key, count = action
        if kind == "gain":
            for one in parked:
                one.missing -= count * one.keys.count(key)
            waiters.gained(key, count)
            drain(key, is_change=False)
            assert all(one.missing > 0 and key not in one.eager for one in parked), "nobody has enough and waits"
        elif kind == "change":
            concerned = [one for one in parked if key in {*one.keys, *one.eager, *one.full}]
            assert waiters.changed(key) >= bool(concerned)
            drain(key, is_change=True)
            assert not {*concerned} & {*parked}
        elif parked:
            one = parked.pop(key % len(parked))
            assert waiters.discard(one)
            assert not waiters.discard(one)
        assert len(waiters) == len(parked)
        assert all(one in waiters for one in parked)
        assert all(one.looks <= 31 for one in parked)
    assert {*waiters.take_all()} == {*parked}
    assert len(waiters) == 0


@pytest.mark.parametrize("partitions", [1, 2, 50])
def test_what_is_missing_halves_from_look_to_look(partitions: int) -> None:
    waiters: FetchWaiters[int, Waiter] = FetchWaiters()
    waiter = Waiter()
    missing = 1 << 20
    looks = 0
    steps = 0
    waiters.park(waiter, range(partitions), missing)
    for turn in range(1 << 20):
        missing -= 1
        waiters.gained(turn % partitions, 1)
        while waiters.is_due(turn % partitions):
            taken, count = waiters.take(turn % partitions, 1)
            steps += count
            if taken and missing:
                looks += 1
                waiters.park(waiter, range(partitions), missing)
        if not missing:
            break
    assert waiter not in waiters
    assert looks <= (20 if partitions > 1 else 0)
    assert steps <= 21 * (2 * partitions + 1)


def test_what_is_given_twice_counts_twice_to_the_last_byte() -> None:
    waiters: FetchWaiters[int, Waiter] = FetchWaiters()
    waiter = Waiter()
    taken = list[Waiter]()
    waiters.park(waiter, [1, 1], 1_000)
    for count in (499, 1):
        waiters.gained(1, count)
        taken += waiters.take(1, 9)[0]
    assert taken == [waiter]


def test_thousands_that_lack_more_than_comes_are_no_work() -> None:
    waiters: FetchWaiters[int, Waiter] = FetchWaiters()
    for _ in range(4_000):
        waiters.park(Waiter(), [1], 2**31 - 1)
    for _ in range(50):
        assert not waiters.gained(1, 200)


def test_waits_that_are_over_take_no_memory_for_long() -> None:
    waiters: FetchWaiters[int, Waiter] = FetchWaiters()
    for missing in [1, 100] * 5_000:
        waiter = Waiter()
        waiters.park(waiter, [1], missing)
        waiters.discard(waiter)
    parked = waiters._by_key[1]
    assert len(parked.eager) + len(parked.heap or ()) <= SWEPT_MIN
    waiters.gained(1, 1)
    assert waiters.take(1, 9)[0] == []
    waiters.changed(1)
    waiters.take(1, 9)
    assert not waiters._by_key


@given(st.lists(st.tuples(st.sampled_from(["add", "add", "cancel", "due"]), st.integers(0, 30)), max_size=300))
@MANY
def test_deadlines_come_due_in_order_and_cancelled_ones_never(actions: list[tuple[str, int]]) -> None:
    deadlines: Deadlines[Waiter] = Deadlines()
    model: list[tuple[int, Waiter, Deadline[Waiter]]] = []
    for kind, at_ms in actions:
        if kind == "add":
            waiter = Waiter()
            model.append((at_ms, waiter, deadlines.add(at_ms, waiter)))
            model.sort(key=lambda entry: entry[0])
        elif kind == "due":
            assert deadlines.take_due(at_ms) == [waiter for due, waiter, _ in model if due <= at_ms]
            model = [entry for entry in model if entry[0] > at_ms]
        elif model:
            deadline = model.pop(at_ms % len(model))[2]
            deadlines.cancel(deadline)
            deadlines.cancel(deadline)
        assert len(deadlines) == len(model)
        assert not model or (deadlines.next_at_ms is not None and deadlines.next_at_ms <= model[0][0])


def test_cancelled_deadlines_take_no_memory_for_long() -> None:
    deadlines: Deadlines[Waiter] = Deadlines()
    for _ in range(10_000):
        deadlines.cancel(deadlines.add(1, Waiter()))
    assert len(deadlines._heap) <= 130
