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
