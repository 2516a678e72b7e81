"""LeaderEpochs against the dumbest model: the list of every entry's term and offset."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas_raftlog.log.segments.leader_epochs import LeaderEpochs


class LeaderEpochsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.epochs = LeaderEpochs()
        self.model: list[tuple[int, int]] = []  # model[index - 1] == (term, end offset after the entry)
        self.start_index = 0

    def _end(self) -> int:
        return self.model[-1][1] if self.model else 0

    @rule(terms_ahead=st.integers(0, 3), sizes=st.lists(st.integers(0, 3), min_size=1, max_size=4))
    def append(self, terms_ahead: int, sizes: list[int]) -> None:
        term = max(1, (self.model[-1][0] if self.model else 0) + terms_ahead)
        for size in sizes:
            self.epochs.assign(term, len(self.model) + 1, self._end())
            self.model.append((term, self._end() + size))

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        index = self.start_index + 1 + int(share * (len(self.model) - self.start_index))
        self.epochs.truncate_from(index)
        del self.model[index - 1 :]

    @rule(share=st.floats(0, 1))
    def drop_prefix(self, share: float) -> None:
        self.start_index += int(share * (len(self.model) - self.start_index))
        self.epochs.drop_prefix(self.start_index)

    @rule()
    def save_and_load(self) -> None:
        self.epochs = LeaderEpochs.from_rows(self.epochs.rows())

    @invariant()
    def knows_every_term_that_raft_may_ask_for(self) -> None:
        for index in range(max(1, self.start_index), len(self.model) + 1):
            assert self.epochs.term_at(index) == self.model[index - 1][0]

    @invariant()
    def knows_where_epochs_end(self) -> None:
        known = [item for item in self.model if not self.start_index or item[0] >= self.model[self.start_index - 1][0]]
        for asked in range((self.model[-1][0] if self.model else 0) + 2):
            older = [item for item in known if item[0] <= asked]
            expected = older[-1] if older else None
            assert self.epochs.end_offset_for(asked, self._end()) == expected

    @invariant()
    def knows_who_wrote_the_record_at_an_offset(self) -> None:
        first = self.model[self.start_index - 1][1] if self.start_index else 0
        for offset in range(first, self._end()):
            written_by = next(term for term, end_offset in self.model if end_offset > offset)
            assert self.epochs.term_at_offset(offset) == written_by


TestLeaderEpochs = LeaderEpochsMachine.TestCase
TestLeaderEpochs.settings = settings(max_examples=50, deadline=None)
