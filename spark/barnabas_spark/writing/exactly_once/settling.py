"""Brings a sink to rest without a next batch, for an operator who gives it up, or whose last batch is torn. Pure.

A sink that is given up may have left transactions open. Where they are prepared nobody ends them but its next batch,
and there is none. `settle` does what the beginning of that would do: the decided batch is committed, the rest is
aborted. The sink is taken over for that, so a driver that is alive after all is refused from then on.

A batch is *torn* if it was decided, and one of its transactions cannot be committed any more. Then no further batch is
written, since the rows that are missing would be missed by nobody. `settle` commits what can be committed of it, and
writes down that it is done if it is told the number of that very batch (`accepted`). So nobody accepts by accident what
he has not looked at, or a batch that is torn later. The rows of the lost transactions are missing then; to write them
is the matter of who accepts it.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

from barnabas_raftlog.errors import BarnabasError

from .decisions import NONE_DONE, Decision, Prepared
from .plan import Effect, EndAny, Fence, Owner, ReadLast, Sweep, Write
from .vacancies import unused

__all__ = ["OPEN", "UNKNOWN", "NotTornError", "Settled", "TornBatchError", "check_accepted", "outcome_of", "settle"]

COMMITTED, ABORTED, OPEN, UNKNOWN, REPLACED = "committed", "aborted", "open", "unknown", "replaced"
SHOWN_MAX = 5


class Settled(NamedTuple):
    """What a sink has come to: its last batch, and the transactions of that batch that are lost, if it was accepted."""

    version: int = NONE_DONE
    lost: tuple[Prepared, ...] = ()


class TornBatchError(BarnabasError):
    """The last batch of a sink is torn, and nobody has accepted that."""

    def __init__(self, decision: Decision, lost: tuple[Prepared, ...]) -> None:
        ids = ", ".join(one.transactional_id for one in lost[:SHOWN_MAX])
        more = f" and {len(lost) - SHOWN_MAX:,} more" if len(lost) > SHOWN_MAX else ""
        super().__init__(
            f"batch {decision.version} of sink {decision.sink!r} is torn: the rows of {len(lost):,} of its "
            f"{len(decision.prepared):,} transactions are lost ({ids}{more}), and those of the others are committed; "
            f"--accept-torn {decision.version} lets the sink go on without them"
        )
        self.lost = lost


class NotTornError(BarnabasError):
    """A batch was accepted as torn that is not the one that waits to be finished."""


def check_accepted(sink: str, last: Decision | None, accepted: int | None) -> None:
    """Raise NotTornError unless the accepted batch is the one that is not finished."""
    if accepted is None or (last is not None and not last.is_done and last.version == accepted):
        return
    if last is None:
        what = "it has no batch yet"
    else:
        what = f"its last batch is {last.version}, which is {'done' if last.is_done else 'not done'}"
    raise NotTornError(f"batch {accepted} of sink {sink!r} cannot be accepted as torn: {what}")


def settle(sink: str, accepted: int | None) -> Generator[Effect, Any, Settled]:
    """Take a sink over, commit what was decided, and abort the rest.

    Raises:
        TornBatchError: a decided transaction cannot be committed, and its batch is not `accepted`. All else is done.
        NotTornError: another batch is.
    """
    owner: Owner = yield Fence(sink)
    last: Decision | None = yield ReadLast(sink)
    check_accepted(sink, last, accepted)
    lost: tuple[Prepared, ...] = ()
    if last is not None and not last.is_done:
        are_committed: tuple[bool, ...] = yield EndAny(sink, owner, last.prepared)
        lost = tuple(one for one, is_committed in zip(last.prepared, are_committed, strict=True) if not is_committed)
        if not lost or accepted is not None:
            owner = yield Write(owner, last._replace(prepared=(), is_done=True, vacant=unused(last)))
    yield Sweep(sink, owner)
    if lost and accepted is None:
        assert last is not None
        raise TornBatchError(last, lost)
    return Settled(NONE_DONE if last is None else last.version, lost)


def outcome_of(one: Prepared, state: str, producer_id: int, epoch: int) -> str:
    """Return what became of a decided transaction, by what its id is now."""
    is_same = producer_id == one.producer_id and epoch == one.epoch
    if state == "Ongoing":
        return OPEN if is_same else REPLACED
    # Its end has raised the epoch, or has gone on to another producer id; in the first protocol neither.
    if (
        not is_same
        and (producer_id, epoch) != (one.producer_id, one.epoch + 1)
        and (producer_id == one.producer_id or epoch)
    ):
        return REPLACED
    if state in {"PrepareCommit", "CompleteCommit"}:
        return COMMITTED
    return ABORTED if state in {"PrepareAbort", "CompleteAbort", "PrepareEpochFence"} else REPLACED
