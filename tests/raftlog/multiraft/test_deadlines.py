"""The heap of deadlines against a dictionary."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas_raftlog.multiraft.deadlines import LOOKS_MAX, SLACK, Deadlines

ITEMS = st.integers(0, 9)


class DeadlinesModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.deadlines: Deadlines[int] = Deadlines()
        self.model: dict[int, int] = {}
        self.now_ms = 0

    @rule(item=ITEMS, deadline_ms=st.one_of(st.none(), st.integers(0, 100)))
    def set(self, item: int, deadline_ms: int | None) -> None:
        self.deadlines.set(item, deadline_ms)
        self.model.pop(item, None)
        if deadline_ms is not None:
            self.model[item] = deadline_ms

    @rule(passes_ms=st.integers(0, 20), count_max=st.integers(1, 12))
    def due(self, passes_ms: int, count_max: int) -> None:
        self.now_ms += passes_ms
        expected = sorted(item for item, deadline_ms in self.model.items() if deadline_ms <= self.now_ms)
        if expected:
            assert self.deadlines.has_due(self.now_ms)
        got = self.deadlines.due(self.now_ms, count_max)
        assert len(got) == min(count_max, len(expected))
        assert set(got) <= set(expected)
        for item in got:
            del self.model[item]

    @invariant()
    def sizes_agree(self) -> None:
        assert len(self.deadlines) == len(self.model)
        assert len(self.deadlines._heap) <= 2 * len(self.deadlines._filed) + SLACK + 1


TestDeadlines = DeadlinesModel.TestCase
TestDeadlines.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


def test_deadlines_that_move_to_later_cost_no_heap() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for deadline_ms in range(10_000):
        deadlines.set("group", deadline_ms)
    assert len(deadlines._heap) == 1
    assert deadlines.due(9_998, 10) == []
    assert deadlines.due(9_999, 10) == ["group"]
    assert not deadlines.has_due(1 << 40)


def test_the_earliest_come_first() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for item, deadline_ms in (("c", 30), ("a", 10), ("b", 20)):
        deadlines.set(item, deadline_ms)
    assert deadlines.due(100, 2) == ["a", "b"]
    assert deadlines.due(100, 2) == ["c"]


def test_of_thousands_that_were_put_off_some_are_looked_at_in_one_go() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for item in range(3 * LOOKS_MAX):
        deadlines.set(item, 10)
    for item in range(3 * LOOKS_MAX):
        deadlines.set(item, 20 + item)
    deadlines.set(-1, 11)
    looks = list[int]()
    while deadlines.has_due(12):
        looks.append(len(deadlines.due(12, 1_000)))
    assert looks == [0, 0, 0, 1]
    assert len(deadlines) == 3 * LOOKS_MAX
