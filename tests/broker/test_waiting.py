"""The waiting lists against lists."""

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.waiting import CommitWaiters, Deadline, Deadlines, FetchWaiters

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


@given(st.lists(st.tuples(st.sampled_from(["park", "take", "discard"]), st.sets(st.integers(0, 4)))))
@MANY
def test_fetch_waiters_are_woken_once_by_any_of_their_partitions(actions: list[tuple[str, set[int]]]) -> None:
    waiters: FetchWaiters[int, Waiter] = FetchWaiters()
    model: list[tuple[Waiter, set[int]]] = []
    for kind, keys in actions:
        if kind == "park":
            waiter = Waiter()
            waiters.park(waiter, sorted(keys) * 2)
            model.append((waiter, keys))
        elif kind == "take" and keys:
            key = min(keys)
            concerned = [waiter for waiter, mine in model if key in mine]
            assert waiters.count(key) == len(concerned)
            taken = waiters.take(key, 3)
            assert taken == concerned[:3]
            model = [(waiter, mine) for waiter, mine in model if waiter not in taken]
        elif model:
            waiter, _ = model.pop(len(keys) % len(model))
            assert waiters.discard(waiter)
            assert not waiters.discard(waiter)
        assert all((waiter in waiters) for waiter, _ in model)
        assert {key for key in range(5) if waiters.count(key)} == {key for _, mine in model for key in mine}
    assert waiters.take_all() == [waiter for waiter, _ in model]
    assert not any(waiters.count(key) for key in range(5))


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
