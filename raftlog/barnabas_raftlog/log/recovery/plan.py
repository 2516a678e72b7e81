"""Replays the journal into plans: what must become of each replica after a crash. Pure.

Recovery knows three things: the checkpoint (how far each replica's segment files were synced, and where in the journal
that was), the journal from there on, and the segment files themselves, which may hold anything behind the synced part.

For a replica in *fsync* mode the journal is the truth. Replaying it from the checkpoint gives exactly the entries that
follow the synced part, whatever the segment files say; entries that they already have need not be written again. The
checkpoint may have been taken later than the journal position it names, so the replay meets entries that the segments
already have, and truncations that they already show. Both are harmless, by three rules: a TRUNCATE from i takes away
every entry at and after i, synced or not; an entry at an index that is still there after that is already there; and a
TRUNCATE is durable before any segment file shows it, so an entry that was replaced is never the last word.

Of large entries the journal says only that they are STORED: they, and everything before them in their log, were synced
in the segment files before that was written. So up to there the files must agree with the journal; if they do not, that
is damage, and nothing is cut away.

For a replica in *page-cache* mode the segment files are the truth (entries never enter the journal), and the journal
only says how far not to trust them: a TRUNCATE that was carried out is followed by a TRUNCATED, which is durable before
anything is appended in place of the truncated entries. Without it, everything from the truncation on is cut.

Entries also leave from the beginning, in both modes. A PREFIX is durable before a segment file is deleted, so entries
that the files below it still show are gone; when it takes all of the synced part, the log begins behind it. An INSTALL
takes everything, and begins the log anew: as a truncation of all that the files show, in page-cache mode open until
TRUNCATED says otherwise; in fsync mode a file left from before it can only agree with the journal (equal index and
term: equal entry).

An ADOPT puts other segments, which are complete and synced, in place of all that there was, and has their rows as a
checkpoint would. Its number tells whether the checkpoint shows it already; then the checkpoint is believed instead,
because it also has all that became of those segments since. Either way no earlier record of the journal counts.

A DELETE takes everything, and the checkpoint's row with it: a REPLICA that follows one makes another replica, which may
have the same name. All that became of it is in the journal, so a row that was taken later than both is not missed. The
DELETE says whether the hard state is left behind. A replica that is made beside such a hard state is *blank*, as is one
that was emptied (an INSTALL of 0): neither holds the entries that were acknowledged in its name. CERTAIN ends that.

The members of the group (MEMBERS) are in the journal in both modes, before the entry that names them: they outlive that
entry, which may leave with a prefix. A record whose entry is not there in the end, in that term, says nothing.

Not here: reading files, and the scan of segment tails (`replica`).
"""

from collections.abc import Mapping
from typing import Literal

from barnabas_raftlog.log.checkpoint import ReplicaRow, decode_row
from barnabas_raftlog.log.journal.entries import STORED, JournalEntries
from barnabas_raftlog.log.journal.format import (
    LEFT_BEHIND,
    PARTIAL_BIT,
    PLACE_BYTES,
    RecordKind,
    decode_place,
    stored_size,
)
from barnabas_raftlog.log.journal.scan import JournalRecord
from barnabas_raftlog.raft.messages import TERM_HONEST_MAX, HardState, Place

__all__ = ["WITH_PAYLOAD", "Replay", "ReplicaPlan", "merge_hard_state"]

_ENTRY = int(RecordKind.ENTRY)
_TAKES_AWAY = frozenset({RecordKind.TRUNCATE, RecordKind.INSTALL, RecordKind.ADOPT})

WITH_PAYLOAD = frozenset(
    {RecordKind.REPLICA, RecordKind.INSTALL, RecordKind.PREFIX, RecordKind.ADOPT, RecordKind.MEMBERS, RecordKind.STORED}
)


class ReplicaPlan:
    """The plan for one replica. `trusted_index`: the synced part of its segments is right up to here.

    After the replay, in fsync mode the log must consist of the segments up to `trusted_index` and then
    `entries.after` it. In page-cache mode it is all that is valid in the segments, below `cut_from`.
    """

    def __init__(
        self,
        name: str,
        trusted_index: int,
        *,
        page_cache: bool,
        shown: int = 0,
        before: "ReplicaPlan | None" = None,
        is_new: bool = False,
    ) -> None:
        self.name = name
        # The journal shows how it was made: the checkpoint's row of that name is not needed, or is another replica's.
        self.is_new = is_new
        self.page_cache = page_cache
        self.shown = shown  # the number of the newest truncation that the checkpoint's row has seen
        self.is_blank: bool = before is not None and before.is_blank
        self.is_certain = False  # also if the checkpoint says otherwise
        self.adopted: ReplicaRow | None = None  # in place of the checkpoint's row
        self.trusted_index = self._synced_index = trusted_index
        # (index, term, end_offset) of the last entry that left from the beginning, or that a snapshot covers.
        self.start: tuple[int, int, int] | None = None
        self.state = b""  # the state file that came with a snapshot
        # The place since which this is a witness's log that lacks its beginning; False: the journal does not say.
        self.partial_since: Place | Literal[False] | None = False
        # index: (term, encoded configuration). A replica whose mode changes keeps what it knows of its members.
        self.members: dict[int, tuple[int, bytes]] = before.members if before and before.name == name else {}
        self.entries = JournalEntries()
        self._open_truncations: dict[int, int] = {}
        self.truncations = 0

    def apply(self, record: JournalRecord, payload: bytes) -> None:
        """Replay a record of this replica, other than its entries, its making and its end."""
        kind = record.kind
        if kind == RecordKind.CERTAIN:
            self.is_blank = False
            self.is_certain = True
        elif kind == RecordKind.TRUNCATE:
            self.truncated_from(record.index, record.term)
        elif kind == RecordKind.TRUNCATED:
            self.truncation_done(record.term)
        elif kind == RecordKind.INSTALL:
            end_offset = int.from_bytes(payload[:8], "big")
            number = int.from_bytes(payload[8:16], "big")
            self.installed(record.index, record.term, end_offset, number, payload[16:])
        elif kind == RecordKind.ADOPT:
            self.adopt(decode_row(payload[8:]), int.from_bytes(payload[:8], "big"))
        elif kind == RecordKind.MEMBERS:
            self.members[record.index] = (record.term, payload)
        elif kind == RecordKind.PREFIX:
            end_offset = int.from_bytes(payload[:8], "big")
            self.prefix_dropped(record.index, record.term, end_offset, decode_place(payload[8:]))

    @property
    def cut_from(self) -> int | None:
        """The first index that the segments must not show, because a truncation may not have been carried out."""
        return min(self._open_truncations.values(), default=None)

    def truncated_from(self, index: int, number: int) -> None:
        self.trusted_index = min(self.trusted_index, index - 1)
        self.entries.truncate_from(index)
        for gone in [known for known in self.members if known >= max(index, 1)]:
            del self.members[gone]
        self._open_truncations[number] = index
        self.truncations = max(self.truncations, number)

    def truncation_done(self, number: int) -> None:
        self._open_truncations.pop(number, None)

    @property
    def is_begun_anew(self) -> bool:
        """True if nothing of the synced part is left: the log begins behind `start`."""
        return self.start is not None and self.start[0] >= self.trusted_index

    def prefix_dropped(self, index: int, term: int, end_offset: int, partial_since: Place | None = None) -> None:
        if partial_since is not None:
            self.partial_since = partial_since
        if self.start is not None and index <= self.start[0]:
            return
        self.start = (index, term, end_offset)
        if index > self.trusted_index:
            self.trusted_index = index
            self.entries.drop_up_to(index)

    def installed(self, index: int, term: int, end_offset: int, number: int = 0, state: bytes = b"") -> None:
        self.partial_since = None
        if number >> PARTIAL_BIT:
            number -= 1 << PARTIAL_BIT
            self.partial_since = decode_place(state)
            state = state[PLACE_BYTES:]
        self.entries.clear()
        self.is_blank |= not index
        self.is_certain &= bool(index)
        # The members that hold there were written down first.
        self.members = {known: row for known, row in self.members.items() if (known, row[0]) == (index, term)}
        self._open_truncations = {number: index + 1}
        self.truncations = max(self.truncations, number)
        self.start = (index, term, end_offset)
        self.trusted_index = index
        self.state = state
        self.adopted = None

    def adopt(self, row: ReplicaRow, number: int) -> None:
        self.entries.clear()
        self.members.clear()
        self.start = None
        self.state = b""
        self.partial_since = False
        if number <= self.shown:
            # The checkpoint's row comes from it, so that row counts, and nothing that the journal had said before.
            self._open_truncations.clear()
            self.trusted_index = self._synced_index
            return
        self._open_truncations = {number: row.last_index + 1}
        self.truncations = max(self.truncations, number)
        self.trusted_index = row.last_index
        self.adopted = row
        self.partial_since = row.partial_since


def merge_hard_state(known: HardState | None, found: HardState) -> HardState:
    """Return the later of two states; a checkpoint's may be ahead of the journal that is replayed over it."""
    if known is None or found.term > known.term:
        return found
    if found.term == known.term and known.voted_for is None:
        return found
    return known


class Replay:
    """The sum of a checkpoint and the journal behind it: `apply` takes the journal's records, one after the other."""

    def __init__(self, rows: Mapping[bytes, ReplicaRow], hard_states: Mapping[bytes, HardState]) -> None:
        self.plans = {
            group: ReplicaPlan(row.name, row.last_index, page_cache=row.page_cache, shown=row.truncations)
            for group, row in rows.items()
        }
        self.hard_states: dict[bytes, HardState] = {}
        # By group: states of terms above all those, which may be forged (`forgery`).
        self.beyond: dict[bytes, HardState] = {}
        self.cut_beyond: set[bytes] = set()  # groups whose logs lost entries in those terms
        for group, state in hard_states.items():
            self._note(group, state)
        self.deleted: set[str] = set()  # directories to remove
        self.tickets: set[int] = set()  # of the deletions

    def apply(self, record: JournalRecord, sequence: int, payload: bytes) -> None:
        """Replay one record of journal file `sequence`. `payload` is needed for the kinds in `WITH_PAYLOAD`."""
        kind = record.kind
        group = record.group
        if kind == _ENTRY:
            # Nearly every record is one.
            if (plan := self.plans.get(group)) is not None:
                plan.entries.put(record.index, record.term, sequence, record.position, record.size_bytes)
        elif kind == RecordKind.STORED:
            if (plan := self.plans.get(group)) is not None:
                plan.entries.put(record.index, record.term, STORED, 0, stored_size(payload))
        elif kind == RecordKind.HARD_STATE:
            voted_for = record.index - 1 if record.index else None
            self._note(group, HardState(record.term, voted_for))
        elif kind == RecordKind.REPLICA:
            self._make(group, payload.decode(), record)
        elif kind == RecordKind.DELETE:
            self._delete(group, record)
        elif (plan := self.plans.get(group)) is not None:
            plan.apply(record, payload)
            if kind in _TAKES_AWAY and group in self.beyond:
                self.cut_beyond.add(group)
        # A group that is not known is left over from before a DELETE that an earlier checkpoint already contains.

    def _note(self, group: bytes, found: HardState) -> None:
        states = self.hard_states if found.term <= TERM_HONEST_MAX else self.beyond
        states[group] = merge_hard_state(states.get(group), found)

    def _make(self, group: bytes, name: str, record: JournalRecord) -> None:
        self.deleted.discard(name)
        before = self.plans.get(group)
        is_new = before is None or before.is_new
        plan = ReplicaPlan(name, record.index, page_cache=record.term == 1, before=before, is_new=is_new)
        plan.is_blank |= before is None and (group in self.hard_states or group in self.beyond)
        self.plans[group] = plan

    def _delete(self, group: bytes, record: JournalRecord) -> None:
        self.tickets.add(record.index)
        if record.term != LEFT_BEHIND:
            self.hard_states.pop(group, None)
            self.beyond.pop(group, None)
        if (gone := self.plans.pop(group, None)) is not None:
            self.deleted.add(gone.name)
