"""Who may stand now: against two lists."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas_raftlog.multiraft import candidacies as module
from barnabas_raftlog.multiraft.candidacies import Candidacies

ITEMS = st.integers(0, 9)
MAX = 3


class CandidaciesModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.before, module.STANDING_MAX = module.STANDING_MAX, MAX
        self.candidacies: Candidacies[int] = Candidacies()
        self.first: list[tuple[int, int]] = []  # item, since when
        self.others: list[tuple[int, int]] = []
        self.standing: list[int] = []
        self.now_ms = 0

    def teardown(self) -> None:
        module.STANDING_MAX = self.before

    @property
    def waiting(self) -> list[tuple[int, int]]:
        return self.first + self.others

    @rule(item=ITEMS, is_first=st.booleans())
    def wait(self, item: int, is_first: bool) -> None:
        self.now_ms += 1
        self.candidacies.wait(item, self.now_ms, is_first=is_first)
        if item in self.standing:
            self.standing.remove(item)
        if item not in [known for known, _ in self.waiting]:
            (self.first if is_first else self.others).append((item, self.now_ms))

    @rule(count_max=st.integers(0, 5))
    def admit(self, count_max: int) -> None:
        expected = [item for item, _ in self.waiting[: min(count_max, MAX - len(self.standing))]]
        self.forget(set(expected))
        self.standing += expected
        assert self.candidacies.admit(count_max) == expected

    @rule(item=ITEMS)
    def end(self, item: int) -> None:
        self.candidacies.end(item)
        self.standing = [known for known in self.standing if known != item]
        self.forget({item})

    def forget(self, gone: set[int]) -> None:
        self.first = [pair for pair in self.first if pair[0] not in gone]
        self.others = [pair for pair in self.others if pair[0] not in gone]

    @invariant()
    def agrees(self) -> None:
        assert self.candidacies.waiting_count == len(self.waiting)
        assert self.candidacies.has_turn == (bool(self.waiting) and len(self.standing) < MAX)
        assert [item for item in range(10) if self.candidacies.is_standing(item)] == sorted(self.standing)
        since_ms = min((since_ms for _, since_ms in self.waiting), default=self.now_ms)
        assert self.candidacies.waits_ms(self.now_ms) == self.now_ms - since_ms


TestCandidacies = CandidaciesModel.TestCase
TestCandidacies.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
