"""Batches that are appended and not committed, against a plain list of them."""

from functools import partial

from broker.coordinators.runtime.numbers import Name
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.coordinators.runtime.under_way import UnderWay

OWNERS = ("g", "h")
NAMES = [Name(owner, name) for owner in OWNERS for name in ("", "a", "b")]
batches = st.tuples(st.just("add"), st.lists(st.sampled_from(NAMES), max_size=4))
steps = st.lists(st.one_of(batches, st.tuples(st.sampled_from(["commit", "clear"]), st.integers(0, 3))), max_size=30)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_what_is_under_way_is_taken_in_once_and_in_order(taken: list[tuple[str, list[Name] | int]]) -> None:
    under_way = UnderWay()
    last_index = 0
    model: list[tuple[int, list[Name]]] = []
    applied = list[int]()
    expected = list[int]()
    for act, argument in taken:
        if isinstance(argument, list):
            last_index += 2  # Control entries are nobody's here.
            under_way.add(last_index, argument, partial(applied.append, last_index))
            model.append((last_index, argument))
        elif act == "commit":
            commit_index = last_index - argument
            under_way.commit(commit_index)
            expected += [index for index, _ in model if index <= commit_index]
            model = [batch for batch in model if batch[0] > commit_index]
        else:
            under_way.clear()
            model.clear()
        assert applied == expected
        names = {name for _, batch in model for name in batch}
        assert {name for name in NAMES if name in under_way} == names
        for owner in OWNERS:
            assert set(under_way.of_owner(owner)) == {name for name in names if name.owner == owner}


def test_a_batch_that_is_taken_in_by_parts_is_under_way_until_its_last_one() -> None:
    under_way = UnderWay()
    said = list[str]()
    parts = iter(["a", "b", "c"])

    def take_part() -> bool:
        said.append(next(parts))
        return said[-1] != "c"

    under_way.add(3, [NAMES[0]], take_part)
    under_way.add(4, [NAMES[1]], partial(said.append, "next"))
    assert [under_way.commit(4) for _ in range(2)] == [2, 2]
    assert said == ["a", "b"]
    assert NAMES[0] in under_way
    assert under_way.commit(4) == 4
    assert said == ["a", "b", "c", "next"]
    assert not under_way.count


def test_a_batch_counts_for_as_much_as_it_takes_in() -> None:
    under_way = UnderWay()
    said = list[int]()
    for index in range(1, 5):
        under_way.add(index, (), partial(said.append, index), weight=10)
    assert under_way.commit(4, 20) == 2
    assert said == [1, 2]
