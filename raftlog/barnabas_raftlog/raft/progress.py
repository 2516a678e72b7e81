"""Keeps what a leader knows about one follower, and what it may send it next. Pure.

Three states. PROBE: the leader does not know where the logs part; one append at a time asks. REPLICATE: the
follower's log is known to match, so appends are pipelined: `next_index` moves when entries are sent, not when they
are acknowledged, and only the window (bytes and number of appends in flight) holds the leader back. SNAPSHOT: the
entries that the follower needs are gone; a snapshot is under way and nothing else is sent but heartbeats.

Lost appends need no timer of their own. An active leader's heartbeats follow the last entry it has sent, so a
follower with a hole refuses the next one, and the refusal takes the follower back to PROBE.

*In sync* and *caught up* compare a follower with the leader as of a moment in the past (`log_ends`): while entries are
appended a follower never has what the leader has at the same instant, however well it keeps up. The two differ in how
old that moment may be, and whether it must have been seen: a new leader takes its followers to have been in sync when
its term began, because it cannot know better; nobody is promoted or handed a leadership on such an assumption.
"""

from enum import Enum, auto

from .log_ends import NEVER_MS, LogEnds

__all__ = ["APPENDS_IN_FLIGHT_MAX", "NEVER_MS", "Progress", "ProgressState"]

# A bound on bookkeeping, not on throughput: at 1 ms between nodes, 256 appends are 256,000 a second for one group.
APPENDS_IN_FLIGHT_MAX = 256


class ProgressState(Enum):
    """The way in which the leader may send to this follower; see the module."""

    PROBE = auto()
    REPLICATE = auto()
    SNAPSHOT = auto()


class Progress:
    """One follower as its leader sees it; made when the term begins, gone when it ends.

    Owned by the core; drivers read it. Invariants: `match_index` < `next_index` <= the leader's last index + 1;
    the window is empty unless the state is REPLICATE; `in_flight_bytes` is the sum over the window.
    """

    __slots__ = (  # noqa: RUF023 - in groups, in the order in which a reader wants them
        # Identity. Set when it is made, and again when the members change.
        "peer",  # its node id
        "directory_id",  # of the disk that it was added with
        "is_voter",
        "is_witness",
        "ends",  # where the leader's log ended, and when; one for all followers
        # Replication: its log, and the next sends.
        "state",  # how it may be sent to; see the module
        "match_index",  # it has the log durably up to here; 0 when that ceased to count
        "next_index",  # the next entry to be sent
        "in_flight",  # the window, oldest first: (last index of an append, its bytes)
        "in_flight_bytes",  # all of the window
        "probe_sent",  # the one append of PROBE is under way
        "probe_round",  # refusals of appends from before this round are old
        "loading",  # entries that it needs are being read from disk, until `EntriesLoaded`
        "snapshot_index",  # SNAPSHOT ends when it has the log up to here
        "snapshot_sent_ms",  # when it was sent the newest snapshot
        # Signs of life.
        "live",  # it answers, or its node was reported live since it last did not
        "is_missed",  # not live only because it does not answer; its node was not reported silent
        "is_lost",  # its node answers with another disk: this member never will again
        "round",  # the newest of the leader's rounds that it has answered
        "last_sent_ms",  # when it was last sent something, or began to be followed
        "last_answer_ms",  # when it last answered, or began to be followed
        # Acknowledgements that it may have lost (`uncertainty`).
        "uncertain",  # the number of the return from which it may have; 0: it has not, or has caught up
        "certain_index",  # it counts again once it has the log up to here,
        "certain_round",  # and answers from this round on
        "is_told",  # whether it was told that it counts again
        # Keeping up (`log_ends`).
        "assumed_ms",  # when it is taken to have had everything, unseen: as the term begins, or when what it had
        # acknowledged ceases to count; `NEVER_MS`: it has to be seen
    )

    def __init__(
        self,
        peer: int,
        directory_id: bytes,
        ends: LogEnds,
        next_index: int,
        now_ms: int,
        *,
        is_voter: bool,
        live: bool,
        is_witness: bool = False,
    ) -> None:
        self.peer = peer
        self.directory_id = directory_id
        self.is_voter = is_voter
        self.is_witness = is_witness
        self.ends = ends
        self.state = ProgressState.PROBE
        self.match_index = 0
        self.next_index = next_index
        self.in_flight = list[tuple[int, int]]()
        self.in_flight_bytes = 0
        self.probe_sent = False
        self.probe_round = 0
        self.loading = False
        self.snapshot_index = 0
        self.snapshot_sent_ms = 0
        self.live = live
        self.is_missed = False
        self.is_lost = False
        self.round = 0
        self.last_sent_ms = now_ms
        self.last_answer_ms = now_ms
        self.uncertain = 0
        self.certain_index = 0
        self.certain_round = 0
        self.is_told = False
        self.assumed_ms = now_ms

    def become_probe(self, next_index: int) -> None:
        """Forget the window and ask where the logs match, starting before `next_index`."""
        assert next_index > self.match_index
        self.state = ProgressState.PROBE
        self.next_index = next_index
        self.probe_sent = False
        self.in_flight.clear()
        self.in_flight_bytes = 0

    def become_replicate(self) -> None:
        """The log is known to match up to `match_index`: send from there on, without waiting."""
        assert not self.in_flight
        self.state = ProgressState.REPLICATE
        self.next_index = self.match_index + 1

    def become_snapshot(self, index: int, now_ms: int) -> None:
        """Wait for a snapshot up to `index` to arrive."""
        self.become_probe(max(index, self.match_index) + 1)
        self.state = ProgressState.SNAPSHOT
        self.snapshot_index = index
        self.snapshot_sent_ms = now_ms

    def has_room(self, bytes_max: int) -> bool:
        """True while another append may be sent. A single append may overshoot `bytes_max`."""
        return self.in_flight_bytes < bytes_max and len(self.in_flight) < APPENDS_IN_FLIGHT_MAX

    def sent(self, last_index: int, size_bytes: int) -> None:
        """Note an append that is now in flight."""
        self.in_flight.append((last_index, size_bytes))
        self.in_flight_bytes += size_bytes
        self.next_index = last_index + 1

    def acknowledge(self, match_index: int) -> bool:
        """Take in an acknowledgement; return True if `match_index` moved. A lower one is old news."""
        if match_index <= self.match_index:
            return False
        self.match_index = match_index
        window = self.in_flight
        while window and window[0][0] <= match_index:
            self.in_flight_bytes -= window.pop(0)[1]
        if match_index >= self.next_index:
            self.next_index = match_index + 1
        return True

    def forget_match(self, now_ms: int) -> None:
        """Let its acknowledgements count for nothing any more; how well it kept up until now still does."""
        self.assumed_ms = self.caught_up_ms(now_ms)
        self.match_index = 0

    @property
    def lacks_something(self) -> bool:
        """True while an entry is on its way to it, or will be: time alone can then put it out of sync."""
        return self.match_index < self.ends.last_index

    def caught_up_ms(self, now_ms: int) -> int:
        """Return the newest moment, known or assumed, at which the leader's log held nothing that is not here now.

        It is never later than the true one, and earlier by no more than `log_ends` says.
        """
        return max(self.assumed_ms, self.ends.reached_ms(self.match_index, now_ms))

    def is_in_sync(self, now_ms: int, lag_ms_max: int) -> bool:
        """True if this replica has everything that there was `lag_ms_max` ago."""
        return self.caught_up_ms(now_ms) >= now_ms - lag_ms_max

    def has_caught_up(self, now_ms: int, lag_ms_max: int) -> bool:
        """Tell whether it answers in step, and was seen to have everything that there was `lag_ms_max` ago."""
        if not self.live or self.state is not ProgressState.REPLICATE:
            return False
        return self.ends.reached_ms(self.match_index, now_ms) >= now_ms - lag_ms_max
