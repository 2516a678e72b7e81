"""A leader's view of one follower."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas_raftlog.raft.membership import UNKNOWN_DIRECTORY
from barnabas_raftlog.raft.progress import APPENDS_IN_FLIGHT_MAX, Progress, ProgressState


def replicating(match_index: int = 0) -> Progress:
    progress = Progress(2, UNKNOWN_DIRECTORY, match_index + 1, now_ms=0, is_voter=True, live=True)
    progress.match_index = match_index
    progress.become_replicate()
    return progress


def test_window_is_bounded_by_bytes() -> None:
    progress = replicating()
    progress.sent(1, 60)
    assert progress.has_room(100)
    progress.sent(2, 60)
    assert not progress.has_room(100)
    progress.acknowledge(1, 2, now_ms=1)
    assert progress.has_room(100)


def test_window_is_bounded_by_count() -> None:
    progress = replicating()
    for index in range(1, APPENDS_IN_FLIGHT_MAX + 1):
        assert progress.has_room(1 << 20)
        progress.sent(index, 1)
    assert not progress.has_room(1 << 20)


def test_lower_acknowledgement_is_old_news() -> None:
    progress = replicating(5)
    assert not progress.acknowledge(3, 5, now_ms=1)
    assert progress.match_index == 5


def test_in_sync_is_having_been_at_the_log_end_lately() -> None:
    """As Kafka counts it: the log end moves on all the time, so what counts is the end at the last answer."""
    progress = replicating()
    progress.acknowledge(0, 10, now_ms=1_000)  # The log ends at 10.
    progress.acknowledge(10, 20, now_ms=2_000)  # It has reached that end, which was right at 1,000 ms.
    assert progress.caught_up_ms == 1_000
    assert progress.is_in_sync(20, 1_500, lag_ms_max=600)
    assert not progress.is_in_sync(20, 2_000, lag_ms_max=600)
    progress.acknowledge(20, 20, now_ms=3_000)
    assert progress.is_in_sync(20, 999_999, lag_ms_max=0)  # Nothing is missing, however long ago that was said.


class Window(RuleBasedStateMachine):
    """Any order of sends, acknowledgements and resets, against a list."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = replicating()
        self.model = list[tuple[int, int]]()
        self.last_index = 0

    @rule(size=st.integers(1, 50), count=st.integers(1, 3))
    def send(self, size: int, count: int) -> None:
        if self.progress.state is ProgressState.REPLICATE:
            self.last_index = self.progress.next_index - 1 + count
            self.progress.sent(self.last_index, size)
            self.model.append((self.last_index, size))

    @rule(share=st.integers(0, 4))
    def acknowledge(self, share: int) -> None:
        index = self.progress.match_index + (self.last_index - self.progress.match_index) * share // 4
        self.progress.acknowledge(index, self.last_index, now_ms=0)
        self.model = [(last, size) for last, size in self.model if last > index]

    @rule()
    def probe_and_resume(self) -> None:
        self.progress.become_probe(self.progress.match_index + 1)
        self.progress.become_replicate()
        self.model = []

    @invariant()
    def window_is_what_was_not_acknowledged(self) -> None:
        assert list(self.progress.in_flight) == self.model
        assert self.progress.in_flight_bytes == sum(size for _, size in self.model)
        assert self.progress.match_index < self.progress.next_index


TestWindow = Window.TestCase
