"""The steps of a driver that writes batches as a whole, and in which order. Pure.

`begin` comes before the tasks of a batch, `commit` behind them. Both are generators: they yield an effect, and whoever
carries it out sends back what came of it, or throws its error. A driver may die between any two.

*One driver.* `Fence` takes the sink's transactional id over: whatever a driver before has not decided by then, it never
will. Only then is the last decision read. `commit` goes on as the owner that `begin` has become; if there has been
another `begin` meanwhile, its `Write` is refused, and nothing has happened. All records are written in transactions of
that owner, so that a late one never stands behind a newer one.

*Decided means committed.* From `Write` of a decision on every transaction that it names will be committed: by this
driver, or by the next `begin`, which repeats all of it if it does not find the batch done. To end a transaction twice
in the same way does no harm. No attempt of another batch begins before.

*The rest is aborted* (`Sweep`): what is found open and was named by nobody. What is swept was listed before the owner
was found to be the present one. So it was begun by then, under this driver or one before, and cannot be a newer
driver's. It is aborted by its producer id and epoch: a newer driver's transactional id may be the same (vacancies.py).

*Before a decision* its transactions are looked at (`Verify`): one that has timed out, because the driver was away,
fails the batch while it still can fail. One that times out between that and its end leaves the batch torn, which `End`
finds out and says. Where the cluster has prepared transactions (KIP-939) none times out.

*Transactional ids.* The ends of a batch's transactions make their ids vacant, and the record that it is done has them.
`begin` looks which still are as the record says (`Look`): some may have expired, or belong to other settings. It only
spares attempts a failure. That no two attempts have one is the matter of vacancies.py.
"""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from barnabas_raftlog.errors import BarnabasError

from .decisions import NONE_DONE, Decision, Prepared, Vacant
from .vacancies import Owner, unused, vacant_after

__all__ = [
    "Begun",
    "Effect",
    "End",
    "EndAny",
    "Fence",
    "Fenced",
    "Look",
    "OtherQueryError",
    "Owner",
    "ReadLast",
    "Sweep",
    "Verify",
    "Write",
    "begin",
    "commit",
    "give_up",
]

T = TypeVar("T")


class Begun(NamedTuple):
    """What a batch starts from: the driver's identity, the last version that is done, and the query that wrote it.

    `vacant` are the transactional ids that attempts may go on with.
    """

    owner: Owner
    done: int = NONE_DONE
    application: str = ""
    vacant: tuple[Vacant, ...] = ()


class Fence(NamedTuple):
    """Become the sink's driver; answers with an `Owner`."""

    sink: str


class ReadLast(NamedTuple):
    """Read the last decision of a sink, all that was decided before now included; answers with it, or None."""

    sink: str


class Write(NamedTuple):
    """Write a decision as this owner; answers with the `Owner` of the next one. Refused if there is a newer driver."""

    owner: Owner
    decision: Decision


class Verify(NamedTuple):
    """Look whether these are open; fails if one is not."""

    prepared: tuple[Prepared, ...]


class End(NamedTuple):
    """Commit these; answers with the `Owner` of the next transaction of each, None if that is not known.

    Fails if one cannot be committed any more, as a newer driver's if `owner` has been fenced.
    """

    sink: str
    owner: Owner
    prepared: tuple[Prepared, ...]


class EndAny(NamedTuple):
    """Commit those of these that can be; answers for each whether it is committed. As `End` otherwise."""

    sink: str
    owner: Owner
    prepared: tuple[Prepared, ...]


class Look(NamedTuple):
    """Look which of these ids have nobody's transaction and are as they are to be; answers with them."""

    vacant: tuple[Vacant, ...]


class Sweep(NamedTuple):
    """Abort all attempts of a sink that are open, if this owner is still the driver when they have been listed."""

    sink: str
    owner: Owner


Effect = Fence | ReadLast | Write | Verify | End | EndAny | Sweep | Look


class Fenced(BarnabasError):  # noqa: N818 - says what happened
    """Another driver has taken the sink over."""


class OtherQueryError(BarnabasError):
    """A sink was named whose batches another query has numbered."""

    def __init__(self, sink: str) -> None:
        super().__init__(
            f"sink {sink!r} has batches of another query, which numbered them in its own way: "
            "a new checkpoint is a new sink; give it another txnAppId"
        )


def begin(sink: str) -> Generator[Effect, Any, Begun]:
    """Take a sink over, finish what was decided, and abort what was not; return what tasks start from."""
    owner: Owner = yield Fence(sink)
    last: Decision | None = yield ReadLast(sink)
    if last is not None and not last.is_done:
        owner, last = yield from _finish(owner, last)
    yield Sweep(sink, owner)
    if last is None:
        return Begun(owner)
    vacant: tuple[Vacant, ...] = (yield Look(last.vacant)) if last.vacant else ()
    return Begun(owner, last.version, last.application, vacant)


def commit(begun: Begun, decision: Decision) -> Generator[Effect, Any, bool]:
    """Decide that a batch is written, and see to it; False if it was before, and its attempts were aborted.

    The decision comes with all ids that were vacant when the batch began.
    """
    if begun.done != NONE_DONE and begun.application != decision.application:
        raise OtherQueryError(decision.sink)
    if decision.version <= begun.done:
        yield Sweep(decision.sink, begun.owner)
        return False
    yield Verify(decision.prepared)
    decision = decision._replace(vacant=unused(decision))
    owner: Owner = yield Write(begun.owner, decision)
    owner, _ = yield from _finish(owner, decision)
    # Attempts that lost, and those that were killed. One that begins only now is left to the next batch.
    yield Sweep(decision.sink, owner)
    return True


def give_up(begun: Begun, sink: str) -> Generator[Effect, Any, None]:
    """Abort what the attempts of a failed batch have left open."""
    yield Sweep(sink, begun.owner)


def _finish(owner: Owner, decision: Decision) -> Generator[Effect, Any, tuple[Owner, Decision]]:
    owners: tuple[Owner | None, ...] = yield End(decision.sink, owner, decision.prepared)
    done = decision._replace(prepared=(), is_done=True, vacant=vacant_after(decision, owners))
    next_owner: Owner = yield Write(owner, done)
    return next_owner, done
