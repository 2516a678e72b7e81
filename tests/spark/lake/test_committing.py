"""A commit is compared with exactly the version that it goes onto, and what is not known is looked for first."""

from collections.abc import Callable, Sequence

import pytest

from barnabas_spark.lake.committing import NotCommittedError, commit_ranges
from barnabas_spark.lake.ranges import CommittedRange, NotNextError, PartitionKey, Purpose, Span, after
from barnabas_spark.lake.table import ConflictError, DataFile, TableError, TableState, UnknownOutcomeError

KEY = PartitionKey("cluster", "8a2b", 0)
OTHER = KEY._replace(partition=1)


def proposed(start: int, end: int, key: PartitionKey = KEY) -> CommittedRange:
    return CommittedRange(key, start, end, 5, "read_uncommitted", end - start, 7, "orders")


class FakeTable:
    """A table in memory. `script` has what happens at each commit: called before it, with the commit as an argument."""

    def __init__(self, *script: Callable[["FakeTable", Callable[[], None]], None]) -> None:
        self.script = [*script]
        self.spans: dict[PartitionKey, list[Span]] = {}
        self.paths: list[str] = []
        self.version = 0
        self.loads: list[Exception] = []
        self.attempts = 0

    def load(self) -> TableState:
        if self.loads:
            raise self.loads.pop(0)
        return TableState(self.version, dict(self.spans))

    def commit(
        self, state: TableState, files: Sequence[DataFile], ranges: Sequence[CommittedRange], purpose: Purpose
    ) -> None:
        self.attempts += 1

        def do() -> None:
            if state.version != self.version:
                raise ConflictError("another version")
            self.add([one.path for one in files], ranges)

        (self.script.pop(0) if self.script else lambda _, act: act())(self, do)

    def add(self, paths: Sequence[str], ranges: Sequence[CommittedRange]) -> None:
        for one in ranges:
            self.spans[one.key] = after(self.spans.get(one.key, ()), one.start_offset, one.end_offset, 5)
        self.paths += paths
        self.version += 1

    def files(self, state: TableState) -> Sequence[str]:
        return sorted(self.paths)


def committed(
    table: FakeTable, *ranges: CommittedRange, purpose: Purpose = Purpose.ARCHIVE, rounds_max: int = 5
) -> int:
    return commit_ranges(table, [DataFile("ours", 1, 1)], ranges, purpose, wait=lambda _: None, rounds_max=rounds_max)


def unknown_after(table: FakeTable, act: Callable[[], None]) -> None:
    act()
    raise UnknownOutcomeError("the answer was lost")


def unknown_before(table: FakeTable, act: Callable[[], None]) -> None:
    raise UnknownOutcomeError("nothing was sent")


def test_an_unrelated_writer_costs_a_round() -> None:
    def beside(table: FakeTable, act: Callable[[], None]) -> None:
        table.add(["theirs"], [proposed(0, 9, OTHER)])
        act()

    table = FakeTable(beside)
    assert committed(table, proposed(0, 10)) == 2
    assert table.spans == {KEY: [Span(0, 10, 5)], OTHER: [Span(0, 9, 5)]}
    assert table.paths == ["theirs", "ours"]


def test_another_archiver_makes_the_comparison_fail() -> None:
    def first(table: FakeTable, act: Callable[[], None]) -> None:
        table.add(["theirs"], [proposed(0, 7)])
        act()

    table = FakeTable(first)
    with pytest.raises(NotNextError, match="the table ends at 7"):
        committed(table, proposed(0, 10))
    assert table.paths == ["theirs"]


def test_a_commit_that_went_through_unseen_is_found() -> None:
    table = FakeTable(unknown_after)
    assert committed(table, proposed(0, 10)) == 2
    assert (table.attempts, table.paths) == (1, ["ours"])


def test_a_commit_that_did_not_go_through_is_made_again() -> None:
    table = FakeTable(unknown_before, unknown_before)
    assert committed(table, proposed(0, 10)) == 3
    assert table.paths == ["ours"]


def test_the_same_ranges_of_another_archiver_are_not_ours() -> None:
    def swapped(table: FakeTable, act: Callable[[], None]) -> None:
        table.add(["theirs"], [proposed(0, 10)])
        raise UnknownOutcomeError("nothing was sent")

    table = FakeTable(swapped)
    with pytest.raises(NotNextError):
        committed(table, proposed(0, 10))
    assert table.paths == ["theirs"]


def test_a_commit_of_its_own_that_arrives_late_is_ours() -> None:
    """The request was thought lost, and arrives between the reload and the second try."""
    late: list[Callable[[], None]] = []

    def lost(table: FakeTable, act: Callable[[], None]) -> None:
        late.append(act)
        raise UnknownOutcomeError("no answer")

    def second(table: FakeTable, act: Callable[[], None]) -> None:
        late.pop()()
        act()

    table = FakeTable(lost, second)
    assert committed(table, proposed(0, 10)) == 3
    assert table.paths == ["ours"]


@pytest.mark.parametrize("purpose", list(Purpose))
def test_ranges_without_files_are_found_by_themselves(purpose: Purpose) -> None:
    table = FakeTable(unknown_after)
    assert commit_ranges(table, [], [proposed(0, 10)], purpose, wait=lambda _: None) == 2


def test_a_table_that_cannot_be_read_for_a_while_costs_rounds() -> None:
    table = FakeTable(unknown_after)
    table.loads = [OSError("the network")]
    assert committed(table, proposed(0, 10)) == 3
    assert table.paths == ["ours"]


def test_a_table_that_contradicts_itself_ends_it_at_once() -> None:
    table = FakeTable()
    table.loads = [TableError("a RESTORE")]
    with pytest.raises(TableError, match="a RESTORE"):
        committed(table, proposed(0, 10))


@pytest.mark.parametrize(("fault", "doubt"), [(unknown_before, "may still have gone through"), (None, "")])
def test_rounds_are_bounded_and_doubt_is_said(
    fault: Callable[[FakeTable, Callable[[], None]], None] | None, doubt: str
) -> None:
    def conflict(table: FakeTable, act: Callable[[], None]) -> None:
        raise ConflictError("busy")

    table = FakeTable(*[fault or conflict] * 5)
    with pytest.raises(NotCommittedError, match=f"given up after 5 rounds.*{doubt}") as raised:
        committed(table, proposed(0, 10))
    assert raised.value.is_unknown is bool(doubt)
    assert (table.attempts, table.paths) == (5, [])
