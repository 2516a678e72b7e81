"""The cache of fetch sessions: who goes when there is no room, and what it holds (KIP-227)."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps import outcome

from barnabas_broker.server import fetch_sessions
from barnabas_broker.server.fetch_sessions import EVICTION_MS, IDLE_MS, FetchRow, FetchSession, FetchSessions
from barnabas_clients.protocol.fetch import FetchPartition, FetchTopic, ForgottenTopic, PartitionData

MIB = 1 << 20


class Cache(FetchSessions):
    """Numbers its sessions from 1, and takes all steps at once."""

    def __init__(self, slots_max: int = 3, bytes_max: int = 32 * MIB) -> None:
        self.number = 0
        super().__init__(slots_max, bytes_max, self.next_number)

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def begin(self, row_count: int, now_ms: int = 0) -> FetchSession | None:
        made = outcome(self.make([named(range(row_count))], by_id=False))[0]
        return None if made is None else outcome(self.open(made, by_id=False, now_ms=now_ms))[0]

    def follow(self, session: FetchSession, numbers: Sequence[int], forgotten: Sequence[int] = ()) -> bool:
        return outcome(self.change(session, [named(numbers)], [ForgottenTopic(topic="t", partitions=forgotten)]))[0]


def named(numbers: Sequence[int]) -> FetchTopic:
    return FetchTopic(topic="t", partitions=[FetchPartition(partition=number) for number in numbers])


def begun(session: FetchSession | None) -> FetchSession:
    assert session is not None
    return session


def test_a_full_cache_opens_none_while_all_are_young_and_used() -> None:
    cache = Cache()
    for _ in range(3):
        assert cache.begin(1) is not None
    assert cache.begin(100, EVICTION_MS) is None
    assert len(cache) == 3


def test_the_one_that_was_used_least_lately_goes_first_if_that_is_long_ago() -> None:
    cache = Cache()
    first, second, third = (begun(cache.begin(size)) for size in (9, 1, 1))
    cache.use(first, 10)
    now_ms = EVICTION_MS + 1
    assert cache.begin(1, now_ms) is not None
    assert (first.is_over, second.is_over, third.is_over) == (False, True, False)


def test_a_larger_one_takes_the_place_of_the_smallest_that_is_not_young() -> None:
    cache = Cache()
    old = [begun(cache.begin(size)) for size in (5, 3, 4)]
    now_ms = EVICTION_MS + 1
    for session in old:
        cache.use(session, now_ms)
    assert cache.begin(3, now_ms) is None, "it is no larger"
    new = begun(cache.begin(4, now_ms))
    assert [session.is_over for session in old] == [False, True, False]
    assert cache.get(new.session_id) is new
    assert cache.begin(4, now_ms) is None, "of the others, the smallest is as large, or it is young"


def test_without_slots_there_are_no_sessions() -> None:
    assert Cache(slots_max=0).begin(1) is None


def test_memory_is_bounded_for_each_session_and_for_all() -> None:
    cache = Cache(slots_max=1_000, bytes_max=MIB)
    of_one = cache.session_bytes_max // (fetch_sessions.ROW_BYTES + 1)
    assert cache.begin(of_one + 1) is None
    count = 0
    while cache.begin(of_one - 10) is not None:
        count += 1
        assert cache.size_bytes <= cache.bytes_max
    assert count == fetch_sessions.SESSION_SHARE


def test_a_name_of_wide_characters_counts_for_what_it_takes() -> None:
    cache = Cache()
    topic = FetchTopic(topic="\U0001f642" * 8_000, partitions=[FetchPartition()])
    made = outcome(cache.make([topic], by_id=False))[0]
    assert made is not None
    assert made.size_bytes > topic.topic.__sizeof__()


def test_a_session_that_grows_too_large_ends() -> None:
    cache = Cache(bytes_max=MIB)
    session = begun(cache.begin(1))
    assert cache.follow(session, range(300))
    assert not cache.follow(session, range(300, 10_000))
    assert session.is_over
    assert (len(cache), cache.size_bytes) == (0, 0)


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=4), st.lists(st.integers(0, 5), max_size=4))))
def test_rows_are_those_that_were_named_and_not_forgotten_and_their_bytes_are_counted(
    changes: list[tuple[list[int], list[int]]],
) -> None:
    cache = Cache()
    session = begun(cache.begin(2))
    expected = {0, 1}
    for added, forgotten in changes:
        assert cache.follow(session, added, forgotten)
        expected = (expected | set(added)) - set(forgotten)
        assert {number for _, number in session.rows} == expected
        row_bytes = fetch_sessions.ROW_BYTES + 1
        assert cache.size_bytes == session.size_bytes == fetch_sessions.SESSION_BYTES + row_bytes * len(expected)
    cache.end(session)
    cache.end(session)
    assert (len(cache), cache.size_bytes) == (0, 0)


def test_the_end_of_a_session_is_told_to_who_waits_for_its_news() -> None:
    cache = Cache()
    session = begun(cache.begin(1))
    ends = [0]

    def end() -> None:
        ends[0] += 1

    session.watch = cast("Any", SimpleNamespace(end=end))
    cache.end(session)
    cache.end(session)
    assert ends == [1]


def test_sessions_that_nobody_uses_end_one_after_the_other() -> None:
    cache = Cache()
    first, second = begun(cache.begin(1)), begun(cache.begin(1, 1_000))
    assert cache.sweep(1_000) == IDLE_MS - 1_000
    assert cache.sweep(IDLE_MS + 1_000) == 0
    assert (first.is_over, second.is_over) == (True, False)
    assert cache.sweep(IDLE_MS + 1_000) is None
    assert cache.sweep(IDLE_MS + 1_000) is None
    assert len(cache) == 0


def test_epochs_go_round_without_nought() -> None:
    assert fetch_sessions.next_epoch(1) == 2
    assert fetch_sessions.next_epoch(2**31 - 1) == 1


def partition(**more: Any) -> Any:
    values = {"changes": 1, "high_watermark": 5, "last_stable_offset": 3}
    return SimpleNamespace(**(values | more))


def looked_at(fetch_offset: int, seen: Any, **result: Any) -> FetchRow:
    row = FetchRow(("t", 0), FetchPartition(fetch_offset=fetch_offset))
    row.tell(PartitionData(high_watermark=5, last_stable_offset=3, log_start_offset=0, **result), (seen, seen.changes))
    return row


def test_a_row_is_quiet_until_its_partition_changes() -> None:
    for change in ({"changes": 2}, {"high_watermark": 6}, {"last_stable_offset": 4}):
        seen = partition()
        row = looked_at(5, seen)
        assert row.is_quiet(is_committed=False)
        assert row.is_quiet(is_committed=True)
        for name, value in change.items():
            setattr(seen, name, value)
        assert not row.is_quiet(is_committed=False)


def test_a_row_with_something_to_read_is_not_quiet_for_those_who_may_read_it() -> None:
    row = looked_at(3, partition())
    assert row.is_quiet(is_committed=True)
    assert not row.is_quiet(is_committed=False)
    row.ask(FetchPartition(fetch_offset=5))
    assert not row.is_quiet(is_committed=True), "it was not looked at since"


@pytest.mark.parametrize("what", [{"error_code": 1}, {"preferred_read_replica": 2}])
def test_what_must_be_told_each_time_is_not_quiet(what: dict[str, Any]) -> None:
    row = looked_at(5, partition(), **what)
    assert not row.is_quiet(is_committed=False)
    assert row.tell(PartitionData(high_watermark=5, last_stable_offset=3, log_start_offset=0, **what), None)


def test_many_rows_are_made_and_changed_in_pieces() -> None:
    cache = Cache(bytes_max=256 * MIB)
    rows = named(range(1_000))
    assert outcome(cache.make([rows], by_id=False))[1] >= 1_000 // fetch_sessions.PIECE
    session = begun(cache.begin(1))
    assert outcome(cache.change(session, [rows], []))[1] >= 1_000 // fetch_sessions.PIECE
    gone = ForgottenTopic(topic="t", partitions=range(1_000))
    assert outcome(cache.change(session, [], [gone]))[1] >= 1_000 // fetch_sessions.PIECE
    again = FetchTopic(topic="t", partitions=[FetchPartition()] * 1_000)
    assert outcome(cache.make([again], by_id=False))[1] >= 1_000 // fetch_sessions.PIECE
    assert outcome(cache.change(session, [FetchTopic()] * 500, [ForgottenTopic()] * 500))[1] >= 1_000
