"""Declares the values that enter and leave the Raft core. Pure.

Messages carry `term`, `source` and `target`; local events carry none. An *entry* is one frame at one index:
the core reads `index`, `term` and `size_bytes` and never looks at `frame`.

These are slotted structs that nobody changes after creation; they are not frozen because a produce request
builds several of them, and freezing costs four times the time of building.
"""

from collections.abc import Sequence
from typing import NewType, Protocol, TypeAlias

import msgspec

from .membership import NOBODY, UNKNOWN_DIRECTORY, Configuration

__all__ = [
    "INDEX_MAX",
    "TERM_HONEST_MAX",
    "TERM_JUMP_MAX",
    "TERM_MAX",
    "AppendEntries",
    "AppendResponse",
    "Buffer",
    "Campaign",
    "EntriesLoaded",
    "Entry",
    "Event",
    "Fact",
    "GiveUp",
    "GroupId",
    "HardState",
    "InstallSnapshot",
    "LeadershipEnded",
    "LogReader",
    "Message",
    "PeerDigest",
    "PeerLive",
    "PeerSilent",
    "Persisted",
    "Place",
    "Proposed",
    "Ready",
    "Removed",
    "Rng",
    "Stalled",
    "StartRound",
    "Tick",
    "TimeoutNow",
    "TransferLeadership",
    "VoteRequest",
    "VoteResponse",
]

TERM_MAX = (1 << 31) - 1
"""Terms are stamped into batches as leader epochs, which have 32 bits."""
TERM_HONEST_MAX = TERM_MAX - (1 << 20)
"""An election every second takes 68 years to come here, and leaves twelve days of them."""
TERM_JUMP_MAX = 1 << 20
"""Elections of twelve days, one after the other: no node that was away has missed so many."""
INDEX_MAX = (1 << 53) - 1
"""No log of a million entries a second comes here in 285 years."""

Buffer = bytes | bytearray | memoryview
Place: TypeAlias = tuple[int, int]
"""(term, index) of an entry: of two that a leader of their time had, the greater one is newer."""
GroupId = NewType("GroupId", bytes)
"""Names a Raft group in the whole cluster: a topic id (16 bytes) and a partition (u32), or the metadata group."""


class Rng(Protocol):
    """The one thing the core needs from `random.Random`; tests pass a seeded instance."""

    def randrange(self, start: int, stop: int) -> int: ...


class Entry(msgspec.Struct):
    """One frame at its place in the log. `frame` is read-only from here on; it may be a view of a larger buffer."""

    index: int
    term: int
    frame: Buffer

    @property
    def size_bytes(self) -> int:
        return len(self.frame)


class LogReader(Protocol):
    """The log as the core sees it. The driver changes the log between steps, never during one."""

    @property
    def first_index(self) -> int:
        """Lowest index still held; 1 for a log that never lost its prefix. May be `last_index` + 1."""

    @property
    def last_index(self) -> int:
        """Highest index held, durable or not; 0 when the log is empty and always was."""

    @property
    def last_term(self) -> int:
        """Term of `last_index`; 0 for an empty log."""

    @property
    def durable_index(self) -> int:
        """Highest index that the group's durability mode calls durable. At most `last_index`."""

    @property
    def may_forget(self) -> bool:
        """A loss of power may take what is called durable, changes of members excepted (page-cache mode)."""

    @property
    def partial_since(self) -> Place | None:
        """Place of the configuration that made this a witness's log, without its beginning; None: it is whole."""

    def term_at(self, index: int) -> int | None:
        """Term of the entry at `index`; 0 for index 0; the snapshot's term at `first_index` - 1; else None."""

    @property
    def configuration(self) -> Configuration:
        """The newest configuration in the log, committed or not. Another object whenever another one holds."""

    @property
    def configuration_index(self) -> int:
        """The entry that brought it, or an index that a snapshot covers; 0: the group began with it."""

    def configuration_at(self, index: int) -> Configuration:
        """Return what holds once entry `index` is in the log, for an index from `first_index` - 1 on."""

    def entries(self, start_index: int, bytes_max: int) -> Sequence[Entry] | None:
        """Return entries from `start_index` on: at least one, about `bytes_max` bytes.

        None means that they are not in memory: the log loads them, and the driver then steps the core
        with `EntriesLoaded`.
        """


class HardState(msgspec.Struct, frozen=True):
    """State that must survive a crash: the term, and the vote of this node in it."""

    term: int
    voted_for: int | None


class VoteRequest(msgspec.Struct):
    """A candidate asks for a vote. `pre` asks whether it would be granted in `term`, which nobody enters yet.

    `transfer` says that the leader itself asked for this election, so leader stickiness does not apply.
    `is_learner`: nobody shall grant it; it is how a learner says that it misses its leader.
    """

    term: int
    source: int
    target: int
    last_index: int
    last_term: int
    pre: bool
    transfer: bool
    is_learner: bool = False


class VoteResponse(msgspec.Struct):
    """The answer; a refusal is sent too. A granted `pre` vote echoes the term that was asked for.

    `directory_id` says which disk promises this: a node with another disk does not vote in the lost one's name.
    `uncertain`: the voter may have forgotten entries that it acknowledged (`uncertainty`). `commit_*`: the last entry
    that it knows to be committed, no later than the candidate's last one; said only where logs may forget, else 0.
    `blank`: it is uncertain, and may have forgotten changes of members, too.
    """

    term: int
    source: int
    target: int
    granted: bool
    pre: bool
    directory_id: bytes = UNKNOWN_DIRECTORY
    uncertain: bool = False
    commit_index: int = 0
    commit_term: int = 0
    blank: bool = False


class AppendEntries(msgspec.Struct):
    """The leader sends entries that follow (`prev_index`, `prev_term`), or none: a heartbeat.

    `round` numbers the leader's questions "do you still follow me?"; the answer echoes it (ReadIndex, CheckQuorum).
    `quiesce`: the receiver may fall silent if its log ends exactly here and all of it is committed.
    `certain`: the receiver of this number has caught up with all that it may have lost (`uncertainty`); 0: nothing.
    `released_index`: what a witness may forget up to; 0 for everybody else (`witness`).
    """

    term: int
    source: int
    target: int
    prev_index: int
    prev_term: int
    commit_index: int
    round: int
    quiesce: bool
    entries: Sequence[Entry]
    certain: int = 0
    released_index: int = 0


class AppendResponse(msgspec.Struct):
    """`match_index`: durable here and equal to the leader's log. Rejected: `hint_*` name where to try next.

    On rejection `match_index` is the `prev_index` that was refused, by which the leader knows an old rejection;
    `hint_index` is the highest index that could match and `hint_term` the term the follower has there,
    so that the leader skips a whole term at a time (Raft paper, end of 5.3). `directory_id` as in a vote.
    `uncertain`: 0, or the number of a follower that may have lost what it acknowledged earlier (`uncertainty`).
    """

    term: int
    source: int
    target: int
    match_index: int
    round: int
    rejected: bool
    hint_index: int
    hint_term: int
    directory_id: bytes = UNKNOWN_DIRECTORY
    uncertain: int = 0


class InstallSnapshot(msgspec.Struct):
    """The state up to `snapshot_index`, for a follower whose next entry the leader no longer has.

    `configuration` is what holds there. `witness_since`: the receiver is a witness by the configuration that stands at
    that (term, index); there is no state in this then, only where its log may begin.
    """

    term: int
    source: int
    target: int
    snapshot_index: int
    snapshot_term: int
    data: Buffer
    configuration: Configuration = NOBODY
    witness_since: Place | None = None


class TimeoutNow(msgspec.Struct):
    """The leader asks `target` to hold an election at once (thesis 3.10)."""

    term: int
    source: int
    target: int


class LeadershipEnded(msgspec.Struct):
    """`source` does not lead this group (any more) in `term`: a member that trusts it must stop."""

    term: int
    source: int
    target: int


class Removed(msgspec.Struct):
    """`target` is no member by the configuration at entry `index` of term `index_term`, which is committed."""

    term: int
    source: int
    target: int
    index: int
    index_term: int


class Tick(msgspec.Struct):
    """Time has moved: `now_ms` is an argument of every step.

    `is_behind`: messages of peers wait to be taken in, so that their silence proves little.
    """

    is_behind: bool = False


class Proposed(msgspec.Struct):
    """The driver has appended entries of the current term to the leader's log; send them."""


class Persisted(msgspec.Struct):
    """`durable_index` of the log has moved."""

    index: int


class EntriesLoaded(msgspec.Struct):
    """Entries that `LogReader.entries` did not have in memory are there now."""


class PeerLive(msgspec.Struct):
    """The link to `peer` works (again), perhaps to a new incarnation: nothing it said before may be trusted."""

    peer: int


class PeerDigest(msgspec.Struct):
    """The place of `peer` in this group, told when the link works again or one of the two began to take part.

    `leader_id`: the leader that it follows, itself if it leads. `at_rest`: its log is durable to its end; on a leader
    also that everything is committed and nothing under way. `round` is the leader's. `wants_answer` is for the shell.
    `directory_id` as in a vote.
    """

    peer: int
    term: int
    leader_id: int | None
    last_index: int
    last_term: int
    round: int
    at_rest: bool
    wants_answer: bool
    directory_id: bytes = UNKNOWN_DIRECTORY


class PeerSilent(msgspec.Struct):
    """`peer`'s connection closed or its datagrams stopped: it is not to be trusted as a leader.

    `for_ms`: how long ago it was last known to hear this node and to be heard, as far as that is known.
    """

    peer: int
    for_ms: int = 0


class Stalled(msgspec.Struct):
    """This node did not run for a while: deadlines mean nothing, leadership must be confirmed anew."""


class StartRound(msgspec.Struct):
    """Ask all members now whether this node still leads (ReadIndex, thesis 6.4).

    The step begins a new `core.round`; once `core.answered_round` reaches it, everything committed before is readable.
    """


class Campaign(msgspec.Struct):
    """Stand for election now, by way of a pre-vote."""


class GiveUp(msgspec.Struct):
    """An operator says that voter `peer` never comes back (`uncertainty`)."""

    peer: int


class TransferLeadership(msgspec.Struct):
    """Hand leadership to `peer` once it has everything."""

    peer: int


Message: TypeAlias = (
    VoteRequest
    | VoteResponse
    | AppendEntries
    | AppendResponse
    | InstallSnapshot
    | TimeoutNow
    | LeadershipEnded
    | Removed
)
Event: TypeAlias = (
    Message
    | Tick
    | Proposed
    | Persisted
    | EntriesLoaded
    | PeerDigest
    | PeerLive
    | PeerSilent
    | Stalled
    | StartRound
    | Campaign
    | GiveUp
    | TransferLeadership
)


class Fact(msgspec.Struct, frozen=True):
    """Something an operator will ask about: `kind` is a short noun phrase, `cause` says why it happened."""

    kind: str
    term: int
    cause: str


class Ready(msgspec.Struct):
    """One batch of work for the driver, to be carried out in this order.

    1. `truncate_from`: drop entries at and after this index.
    2. `append`: add these entries verbatim.  `append_no_op`: the node just won `core.term`; append one NO_OP
       control frame of that term, then step `Proposed`.  `repeat_members`: append the newest configuration of the log
       once more, then step `Proposed`.
    3. `install`: replace log and state by this snapshot; when durable, step `Persisted`.
    4. `hard_state`: save it. `messages_after_persist` leave only when it is on disk (thesis 3.8).
    5. `messages` leave at once.
    """

    hard_state: HardState | None = None
    truncate_from: int | None = None
    append: Sequence[Entry] = ()
    append_no_op: bool = False
    install: InstallSnapshot | None = None
    messages: Sequence[Message] = ()
    messages_after_persist: Sequence[Message] = ()
    facts: Sequence[Fact] = ()
    repeat_members: bool = False
