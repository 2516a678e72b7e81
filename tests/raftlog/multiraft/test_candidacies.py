"""Candidacies against a model of lists."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas_raftlog.multiraft import candidacies as module
from barnabas_raftlog.multiraft.candidacies import Candidacies, Line

ITEMS = st.integers(0, 9)
MAX = 4
HOPELESS_MAX = 1


class CandidaciesModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.before, module.STANDING_MAX = module.STANDING_MAX, MAX
        self.candidacies: Candidacies[int] = Candidacies()
        self.waiting: list[tuple[Line, int, int]] = []  # line, since when, item; sorted
        self.standing: dict[int, Line] = {}
        self.now_ms = 0

    def teardown(self) -> None:
        module.STANDING_MAX = self.before

    @rule(item=ITEMS, line=st.sampled_from(Line))
    def wait(self, item: int, line: Line) -> None:
        self.now_ms += 1
        self.candidacies.wait(item, self.now_ms, line)
        self.standing.pop(item, None)
        if any(known == item and is_in <= line for is_in, _, known in self.waiting):
            return
        self.forget(item)
        self.waiting = sorted([*self.waiting, (line, self.now_ms, item)])

    @rule(count_max=st.integers(0, 5))
    def admit(self, count_max: int) -> None:
        expected: list[int] = []
        for line, _, item in list(self.waiting):
            if len(expected) < count_max and self.may_stand(line):
                expected.append(item)
                self.forget(item)
                self.standing[item] = line
        assert self.candidacies.admit(count_max) == expected

    @rule(item=ITEMS)
    def end(self, item: int) -> None:
        self.candidacies.end(item)
        self.standing.pop(item, None)
        self.forget(item)

    def may_stand(self, line: Line) -> bool:
        hopeless_count = list(self.standing.values()).count(Line.HOPELESS)
        return len(self.standing) < MAX and (line is not Line.HOPELESS or hopeless_count < HOPELESS_MAX)

    def forget(self, item: int) -> None:
        self.waiting = [row for row in self.waiting if row[2] != item]

    @invariant()
    def agrees(self) -> None:
        assert self.candidacies.waiting_count == len(self.waiting)
        assert self.candidacies.has_turn == any(self.may_stand(line) for line, _, _ in self.waiting)
        assert [item for item in range(10) if self.candidacies.is_standing(item)] == sorted(self.standing)
        hopeful = [since_ms for line, since_ms, _ in self.waiting if line is not Line.HOPELESS]
        assert self.candidacies.waits_ms(self.now_ms) == self.now_ms - min(hopeful, default=self.now_ms)


TestCandidacies = CandidaciesModel.TestCase
TestCandidacies.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
