"""PendingIndexes against a disk on which every ticket wrote its own version of an entry."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas_raftlog.log.replica.pending import PendingIndexes


class PendingMachine(RuleBasedStateMachine):
    """Each entry is a distinct object with the ticket that writes it; durable means: written *as it is now*."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = PendingIndexes(0)
        self.log: list[int] = []  # ticket of each entry
        self.ticket = 0
        self.completed = 0

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        self.ticket += 1
        self.log += [self.ticket] * count
        self.pending.queue(self.ticket, len(self.log))

    @rule()
    def append_under_the_same_ticket(self) -> None:
        if self.ticket > self.completed and self.log and self.log[-1] == self.ticket:
            self.log.append(self.ticket)
            self.pending.queue(self.ticket, len(self.log))

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        index = 1 + int(share * len(self.log))
        self.pending.truncate_from(index)
        del self.log[index - 1 :]
        self.ticket += 1  # the truncation has a ticket too

    @rule(share=st.floats(0, 1))
    def complete(self, share: float) -> None:
        self.completed += int(share * (self.ticket - self.completed))
        before = self.pending.reached
        assert self.pending.complete(self.completed) == (self.pending.reached != before)

    @invariant()
    def counts_what_was_written_and_nothing_else(self) -> None:
        written = 0
        while written < len(self.log) and self.log[written] <= self.completed:
            written += 1
        assert self.pending.reached == written


TestPending = PendingMachine.TestCase
TestPending.settings = settings(max_examples=60, deadline=None)


def test_an_old_completion_does_not_count_an_entry_that_was_appended_again() -> None:
    pending = PendingIndexes(0)
    pending.queue(1, 5)
    pending.truncate_from(3)
    pending.queue(2, 5)
    pending.complete(1)
    assert pending.reached == 2
    pending.complete(2)
    assert pending.reached == 5


def test_a_reset_makes_everything_under_way_meaningless() -> None:
    pending = PendingIndexes(4)
    pending.queue(1, 9)
    pending.reset(100)
    assert not pending.complete(1)
    assert pending.reached == 100
