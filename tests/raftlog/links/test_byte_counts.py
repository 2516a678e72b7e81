"""Two ends of a connection compare their counts, and tell broken ones from slow ones."""

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.links.byte_counts import GAP_MS, NO_CONNECTION, ByteCounts, ByteWatch

PATIENCE_MS = 2_000
MARK = 7


class Connection:
    """Two ends, a report each way every 100 ms; `is_swallowing`: bytes from the first end do not arrive."""

    def __init__(self) -> None:
        self.now_ms = 5_000
        self.sent = 0
        self.arrived = 0
        self.is_swallowing = False
        self.sender = ByteWatch()
        self.receiver = ByteWatch()

    def report(self) -> tuple[bool, bool]:
        """Let both hear of each other; return whether the sender, and the receiver, take it for broken."""
        self.now_ms += 100
        if not self.is_swallowing:
            self.arrived = self.sent
        here = ByteCounts(MARK, self.sent, 50)
        there = ByteCounts(MARK, 50, self.arrived)
        return (
            self.sender.is_broken(here, there, self.now_ms, PATIENCE_MS),
            self.receiver.is_broken(there, here, self.now_ms, PATIENCE_MS),
        )

    def run(self, ms: int) -> tuple[bool, bool]:
        reports = [self.report() for _ in range(ms // 100)]
        return any(sender for sender, _ in reports), any(receiver for _, receiver in reports)


def test_an_idle_connection_is_whole_and_so_is_one_that_swallows_before_anything_is_sent() -> None:
    connection = Connection()
    connection.sent = 100
    assert connection.run(10_000) == (False, False)
    connection.is_swallowing = True
    assert connection.run(10_000) == (False, False), "nothing was sent, so nothing is missing"


def test_both_ends_notice_bytes_that_do_not_arrive_within_the_stated_time() -> None:
    connection = Connection()
    connection.sent = 100
    connection.run(1_000)
    connection.is_swallowing = True
    connection.sent += 1
    assert connection.run(PATIENCE_MS - 100) == (False, False)
    assert connection.run(300) == (True, True)


def test_more_that_is_sent_and_does_not_arrive_either_puts_nothing_off() -> None:
    connection = Connection()
    connection.run(1_000)
    connection.is_swallowing = True
    for _ in range(PATIENCE_MS // 100):
        connection.sent += 10
        connection.report()
    assert connection.run(300) == (True, True)


def test_slow_is_not_broken() -> None:
    connection = Connection()
    connection.is_swallowing = True  # but a byte now and then
    connection.sent = 1_000
    for _ in range(50):
        connection.arrived += 1
        assert connection.run(PATIENCE_MS - 100) == (False, False)


def test_whoever_stood_still_has_time_to_read() -> None:
    connection = Connection()
    connection.run(1_000)
    connection.is_swallowing = True
    connection.sent += 1
    for _ in range(5):
        assert connection.run(1_500) == (False, False)
        connection.now_ms += GAP_MS


def test_a_connection_that_the_other_end_does_not_have_is_broken() -> None:
    watch = ByteWatch()
    ours = ByteCounts(MARK, 10, 10)
    answers = [watch.is_broken(ours, NO_CONNECTION, now_ms, PATIENCE_MS) for now_ms in range(0, 2_100, 100)]
    assert answers == [False] * 20 + [True]
    assert not watch.is_broken(ours, ours, 2_100, PATIENCE_MS)
    another = ByteCounts(MARK + 1, 0, 0)
    assert not watch.is_broken(ours, another, 2_200, PATIENCE_MS), "the next one, which says nothing of this one"


@settings(deadline=None, max_examples=100)
@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=60))
def test_what_arrives_within_half_the_time_is_never_called_broken(steps: list[tuple[int, int]]) -> None:
    """Any bytes, each on the way for any time up to half of the patience, in order."""
    connection = Connection()
    connection.is_swallowing = True
    due = list[tuple[int, int]]()  # (when it arrives, the count then)
    for count, tenths in steps:
        connection.sent += count
        at_ms = max(connection.now_ms + tenths * PATIENCE_MS // 8, due[-1][0] if due else 0)
        due.append((at_ms, connection.sent))
        connection.arrived = max([connection.arrived, *[total for at, total in due if at <= connection.now_ms]])
        assert connection.report() == (False, False)
