"""A leader's view of one follower."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas_raftlog.raft.log_ends import LogEnds
from barnabas_raftlog.raft.membership import UNKNOWN_DIRECTORY
from barnabas_raftlog.raft.progress import APPENDS_IN_FLIGHT_MAX, Progress, ProgressState


def replicating(match_index: int = 0) -> Progress:
    progress = Progress(
        peer=2,
        directory_id=UNKNOWN_DIRECTORY,
        ends=LogEnds(last_index=0, spacing_ms=100),
        next_index=match_index + 1,
        now_ms=0,
        is_voter=True,
        live=True,
    )
    progress.match_index = match_index
    progress.become_replicate()
    return progress


def test_window_is_bounded_by_bytes() -> None:
    progress = replicating()
    progress.sent(1, 60)
    assert progress.has_room(100)
    progress.sent(2, 60)
    assert not progress.has_room(100)
    progress.acknowledge(1)
    assert progress.has_room(100)


def test_window_is_bounded_by_count() -> None:
    progress = replicating()
    for index in range(1, APPENDS_IN_FLIGHT_MAX + 1):
        assert progress.has_room(1 << 20)
        progress.sent(index, 1)
    assert not progress.has_room(1 << 20)


def test_lower_acknowledgement_is_old_news() -> None:
    progress = replicating(5)
    assert not progress.acknowledge(3)
    assert progress.match_index == 5


def test_in_sync_is_having_had_everything_lately() -> None:
    progress = replicating()
    progress.ends.note(10, 1_000)
    assert progress.caught_up_ms(1_900) == 1_000  # Until then nothing was missing.
    progress.ends.note(20, 2_000)
    progress.acknowledge(9)
    assert progress.caught_up_ms(2_500) == 1_000
    progress.acknowledge(10)
    assert progress.caught_up_ms(2_500) == 2_000
    assert progress.is_in_sync(2_500, lag_ms_max=500)
    assert not progress.is_in_sync(2_501, lag_ms_max=500)
    assert progress.lacks_something
    progress.acknowledge(20)
    assert progress.is_in_sync(999_999, lag_ms_max=0)  # Nothing is missing, however long ago that was said.
    assert not progress.lacks_something


def test_more_acknowledgements_than_round_trips_leave_it_in_sync() -> None:
    """Each tells of the log as it was a while ago, and there are new entries by then, and before the next one."""
    progress = replicating()
    behind = 30
    for now_ms in range(1, 10_000):
        progress.ends.note(now_ms, now_ms)
        progress.acknowledge(max(0, now_ms - behind))
        assert progress.is_in_sync(now_ms, lag_ms_max=200)
    assert progress.has_caught_up(10_000, lag_ms_max=200)


def test_what_counts_no_more_does_not_put_it_out_of_sync_but_has_to_be_shown_again() -> None:
    progress = replicating()
    progress.ends.note(10, 1_000)
    progress.acknowledge(10)
    progress.forget_match(2_000)
    progress.become_probe(11)
    progress.ends.note(20, 2_000)
    assert progress.match_index == 0
    assert progress.caught_up_ms(2_500) == 2_000
    assert not progress.has_caught_up(2_500, lag_ms_max=1_000)
    progress.become_replicate()
    assert not progress.has_caught_up(2_500, lag_ms_max=1_000)
    progress.acknowledge(10)
    assert progress.has_caught_up(2_500, lag_ms_max=1_000)


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
        self.progress.acknowledge(index)
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
