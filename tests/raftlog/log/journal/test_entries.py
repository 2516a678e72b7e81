"""Places of journal entries in columns, against a dict."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.log.journal.entries import JournalEntries, Location

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("truncate"), st.integers(1, 12)),
        st.tuples(st.just("drop"), st.integers(0, 12)),
        st.tuples(st.just("next file"), st.just(0)),
    ),
    max_size=25,
)


@given(STEPS, st.integers(0, 20))
@settings(max_examples=200, deadline=None)
def test_entries_are_found_where_a_dict_has_them(steps: list[tuple[str, int]], behind: int) -> None:
    entries = JournalEntries()
    model: dict[int, Location] = {}
    following = 1
    term = 1
    sequence = 1
    position = 512
    for what, number in steps:
        if what == "append":
            for _ in range(number):
                model[following] = Location(term, sequence, position, 100 + following)
                entries.put(following, *model[following])
                following += 1
                position += 400
        elif what == "truncate":
            following = min(following, number)
            term += 1
            entries.truncate_from(number)
            model = {index: location for index, location in model.items() if index < number}
        elif what == "drop":
            entries.drop_up_to(number)
            model = {index: location for index, location in model.items() if index > number}
        else:
            sequence += 1
            position = 512
    expected = sorted(item for item in model.items() if item[0] > behind)
    if expected and expected[0][0] != behind + 1:
        with pytest.raises(ValueError, match=f"not entry {behind + 1}"):
            entries.after(behind)
    else:
        assert list(entries.after(behind)) == expected


def test_an_entry_that_is_there_twice_is_damage() -> None:
    entries = JournalEntries()
    for index in (1, 2, 3, 3):
        entries.put(index, 1, 1, 512, 100)
    with pytest.raises(ValueError, match="entry 3 twice"):
        entries.after(0)
