"""A table of many entries: versions stay the same, and shared parts are not searched."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas_metadata_quorum.image.tables import BUCKETS, Table, TableDraft, by_last_bytes, differing

KEYS = st.integers(0, 2 * BUCKETS).map(lambda number: number.to_bytes(4, "big"))
# None takes the key out.
BATCHES = st.lists(st.lists(st.tuples(KEYS, st.none() | st.integers(0, 3)), max_size=8), max_size=6)
EMPTY: Table[bytes, int] = Table(by_last_bytes)


@given(BATCHES)
def test_each_version_is_what_a_dictionary_would_be(batches: list[list[tuple[bytes, int | None]]]) -> None:
    model: dict[bytes, int] = {}
    versions = [(EMPTY, dict(model))]
    for batch in batches:
        draft = TableDraft(versions[-1][0])
        for key, value in batch:
            if value is not None:
                draft.put(key, value)
                model[key] = value
            elif key in model:
                assert draft.pop(key) == model.pop(key)
            assert draft.now.get(key) == model.get(key)
        versions.append((draft.now, dict(model)))
    for table, was in versions:
        assert table == was
        assert table == Table(by_last_bytes, was)
        assert len(table) == len(was)
        assert dict(table.items()) == was
        assert all(key in table and table[key] == value for key, value in was.items())
    for old, before in versions:
        for new, after in versions:
            parts = list(differing(old, new))
            changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
            assert changed <= {key for mine, other in parts for key in (*mine, *other)}
            assert all(before[key] == mine[key] for mine, _ in parts for key in mine)


def test_the_next_version_copies_and_differs_in_what_is_written_to_alone() -> None:
    table = Table(by_last_bytes, {number.to_bytes(4, "big"): number for number in range(50 * BUCKETS)})
    draft = TableDraft(table)
    draft.put(bytes(4), 7)
    draft.put((BUCKETS).to_bytes(4, "big"), 7)
    [(old, new)] = differing(table, draft.now)
    assert len(old) == len(new) == 50
    assert list(differing(table, table)) == []


def test_a_draft_that_nobody_writes_to_is_the_table() -> None:
    assert TableDraft(EMPTY).now is EMPTY
