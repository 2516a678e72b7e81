"""Finds terms and indexes that no honest cluster reaches, and mends them if asked. Pure.

A node takes over a term that it hears of (Raft paper 5.1), and an earlier version believed any. So one forged message
could put a term into the hard states of a whole cluster in which no entry can be stored: epochs of batches end at
`TERM_MAX`. Today such messages are refused (`links.raft_frames`, `multiraft.multiraft`); a directory that has such a
term is not started from, because every way on from there ends soon.

A hard state is *forged* if it is above `TERM_HONEST_MAX`, where a million terms and no honest election are left, or
more than `TERMS_WITHOUT_ENTRY` above the log's last entry, beside a log none of whose entries is of such a term: no
leader that this node followed led in it, so nothing was acknowledged in it. Of an empty log, or none, only the first is
known: its group may be far ahead. A log is forged, too, if it begins behind an entry of a term above `TERM_MAX`, or of
an index above `INDEX_MAX`: a snapshot put it there, and took all that was before it.

A *mended* hard state has a term that is `TERMS_SKIPPED` above every honest one that the directory shows (hard states
that the journal or the checkpoint still has, and the log), and no vote. That is safe, for one replica as for all of
them. Raft needs that nobody votes twice in a term, and that a replica's term is not below its entries'. The second is
plain; the first holds unless this node voted in more than `TERMS_SKIPPED` elections, one every second for six days, of
which neither an entry nor a hard state is left here: in the mended term, and in those above it, it has voted for
nobody. A replica that was not forged, or is mended from another log, is in another term; it catches up with the highest
as after any election, for that is less than `TERM_JUMP_MAX` away (`multiraft.multiraft`). A replica still has all that
it acknowledged, unless the forged leader had it truncate: then it is *uncertain* (`raft.uncertainty`) until an honest
leader has sent it all. A log that a forged snapshot has replaced is begun anew, *blank*.

A broker with a forged term beside a mended one is not safe; neither starts from such a directory, nor listens to the
terms of one that runs. So all brokers are stopped, each forged directory is mended, and all are started.

A log that was being filled from its beginning when its node died, in a group that was led so far ahead long ago, looks
forged and is not. Mended, it hears of its group's terms no more (`TERM_JUMP_MAX`), which is safe, and needs an empty
directory in the end.

Not here: a log with entries of the last million terms, which were stored in honest elections after a forged term. It
is left as it is, and works until the terms are used up (`election.campaign`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_raftlog.log.checkpoint import ReplicaRow
from barnabas_raftlog.raft.messages import INDEX_MAX, TERM_HONEST_MAX, TERM_MAX, HardState

from .plan import ReplicaPlan

__all__ = ["TERMS_SKIPPED", "TERMS_WITHOUT_ENTRY", "Forged", "find_forged", "mended_state"]

TERMS_SKIPPED = 1 << 19
TERMS_WITHOUT_ENTRY = 1 << 24  # elections of half a year, one a second, none of which succeeded


class Forged(NamedTuple):
    """The forged terms of hard states by group, and the (index, term) behind which logs are said to begin."""

    terms: dict[bytes, int]
    starts: dict[bytes, tuple[int, int]]

    @property
    def groups(self) -> list[bytes]:
        return sorted({*self.terms, *self.starts})

    def describe(self, group: bytes, name: str) -> str:
        """Say what is forged of one group, whose replica is in the directory `name`."""
        found = [f"term {self.terms[group]}"] if group in self.terms else []
        if group in self.starts:
            found.append("a log that begins after entry {} of term {}".format(*self.starts[group]))
        return f"{name or 'group ' + group.hex()} has {' and '.join(found)}"


def find_forged(
    hard_states: Mapping[bytes, HardState], rows: Mapping[bytes, ReplicaRow], plans: Mapping[bytes, ReplicaPlan]
) -> Forged:
    """Look through the hard states and rows of a checkpoint, and the plans that the journal behind it makes."""
    terms = {
        group: state.term
        for group, state in hard_states.items()
        if state.term > TERMS_WITHOUT_ENTRY
        and state.term > _highest_after(_last_term(rows.get(group), plans.get(group)))
    }
    starts: dict[bytes, tuple[int, int]] = {}
    for group in {*rows, *plans}:
        index, term = _start(rows.get(group), plans.get(group))
        if index > INDEX_MAX or term > TERM_MAX:
            starts[group] = index, term
    return Forged(terms, starts)


def mended_state(honest: HardState | None, last_term: int) -> HardState:
    """Return the hard state for a forged one's place; `honest` is an earlier one if there is, `last_term` the log's.

    If so many terms are not left, it is the last one, in which only `honest` may have voted.
    """
    if honest is not None and honest.term > _highest_after(last_term):
        honest = None
    known = max(last_term, 0 if honest is None else honest.term)
    term = min(known + TERMS_SKIPPED, TERM_MAX)
    is_same = honest is not None and honest.term == term
    return HardState(term, honest.voted_for if is_same and honest is not None else None)


def _highest_after(last_term: int) -> int:
    """Return the highest term that a hard state may have beside a log that ends in `last_term`; 0: that is empty."""
    if last_term > TERM_HONEST_MAX:
        return TERM_MAX
    return min(TERM_HONEST_MAX, last_term + TERMS_WITHOUT_ENTRY) if last_term else TERM_HONEST_MAX


def _start(row: ReplicaRow | None, plan: ReplicaPlan | None) -> tuple[int, int]:
    """Return index and term of the entry behind which a log begins."""
    if plan is not None and plan.adopted is not None:
        row = plan.adopted
    elif plan is not None and plan.start is not None:
        return plan.start[:2]
    if row is None or (plan is not None and plan.is_new):
        return 0, 0
    return row.start_index, row.epochs[0][0] if row.epochs else 0


def _last_term(row: ReplicaRow | None, plan: ReplicaPlan | None) -> int:
    """Return a term that no entry of a log exceeds; more than that may be truncated in the end."""
    found = [plan.entries.last_term, plan.start[1] if plan.start is not None else 0] if plan is not None else []
    if plan is not None and plan.adopted is not None:
        row = plan.adopted
    if row is not None and row.epochs and not (plan is not None and plan.is_new):
        found.append(row.epochs[-1][0])
    return max(found, default=0)
