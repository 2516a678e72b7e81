"""The table of committed offsets agrees with a dictionary, and offsets expire in time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.coordinators.groups.state_machine.offsets import Membership, OffsetTable, expired, size_of
from barnabas_broker.coordinators.groups.state_machine.records import CommittedOffset, OffsetKey

ONE, OTHER = bytes([1] * 16), bytes([2] * 16)
OFFSETS = {("t", 0): CommittedOffset(5, commit_timestamp_ms=1_000)}
KEYS = [OffsetKey(group, topic, index) for group in ("g", "h") for topic in ("t", "u") for index in (0, 1)]
values = st.none() | st.builds(CommittedOffset, st.integers(0, 9), st.just(-1), st.text(max_size=3))
steps = st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=40)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_the_table_holds_what_a_dictionary_would(taken: list[tuple[OffsetKey, CommittedOffset | None]]) -> None:
    table = OffsetTable()
    model = dict[OffsetKey, CommittedOffset]()
    for key, value in taken:
        table.put(key, value)
        model.pop(key, None)
        if value is not None:
            model[key] = value
        assert {key: table.get(key) for key in KEYS} == {key: model.get(key) for key in KEYS}
        assert sorted(table.keys()) == sorted(model)
        assert len(table) == len(model)
        assert table.live_bytes == sum(size_of(key, value) for key, value in model.items())
        assert set(table.group_ids()) == {key.group_id for key in model}


def test_an_offset_of_another_topic_of_that_name_is_not_returned() -> None:
    table = OffsetTable()
    key = KEYS[0]
    table.put(key, CommittedOffset(5, topic_id=ONE))
    assert table.get_for(key, ONE) == table.get_for(key, bytes(16)) == table.get(key)
    assert table.get_for(key, OTHER) is None
    table.put(key, CommittedOffset(5))
    assert table.get_for(key, OTHER) is not None, "nobody said which topic it was for"


class TestExpiry:
    @pytest.mark.parametrize(
        ("membership", "ends_at_ms"),
        [
            (Membership(has_members=False), 1_100),
            (Membership(has_members=False, empty_since_ms=900), 1_100),
            (Membership(has_members=False, empty_since_ms=2_000), 2_100),
            (Membership(has_members=True, subscribed=frozenset({"u"})), 1_100),
            (Membership(has_members=True, subscribed=frozenset({"t"})), None),
            (Membership(has_members=True), None),
        ],
    )
    def test_an_offset_ends_when_nobody_has_used_it_for_long(
        self, membership: Membership, ends_at_ms: int | None
    ) -> None:
        if ends_at_ms is None:
            assert not expired(OFFSETS, membership, 2**60, 100)
        else:
            assert not expired(OFFSETS, membership, ends_at_ms - 1, 100)
            assert expired(OFFSETS, membership, ends_at_ms, 100) == [("t", 0)]

    @pytest.mark.parametrize("has_members", [False, True])
    def test_a_time_that_the_client_set_counts_instead(self, has_members: bool) -> None:
        offsets = {("t", 0): CommittedOffset(5, commit_timestamp_ms=1_000, expire_timestamp_ms=1_010)}
        assert not expired(offsets, Membership(has_members), 1_009, 1)
        assert expired(offsets, Membership(has_members), 1_010, 1_000) == [("t", 0)]
