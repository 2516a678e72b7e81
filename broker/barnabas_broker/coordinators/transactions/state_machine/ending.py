"""Decides what EndTxn gets, and how a transaction ends: by its client, by another, or by time. Pure.

*The outcome is decided* by the record of PREPARE_COMMIT or PREPARE_ABORT: when that has committed, the client is
answered and markers leave. It is *complete* when every partition has its marker.

*v1* (EndTxn before version 5) ends a transaction under the epoch in which the next one begins. So an EndTxn that was
delayed in the network may end the next transaction, and nobody can tell: Jepsen has shown it. *v2* (KIP-890) raises the
epoch with each end, and answers with the new one. An EndTxn of the epoch before is a repetition, one of the present
epoch is about the next transaction, and all others are fenced:

| state | repeated, same outcome | repeated, other outcome | commit | abort |
| --- | --- | --- | --- | --- |
| EMPTY | PRODUCER_FENCED | PRODUCER_FENCED | INVALID_TXN_STATE | is aborted |
| ONGOING | PRODUCER_FENCED | PRODUCER_FENCED | is committed | is aborted |
| PREPARE | CONCURRENT_TRANSACTIONS | INVALID_TXN_STATE | CONCURRENT_TRANSACTIONS | CONCURRENT_TRANSACTIONS |
| COMPLETE | NONE, and the new epoch | INVALID_TXN_STATE | INVALID_TXN_STATE | is aborted |

*After a timeout* the same table holds. With v2 the owner's end is a repetition of an abort that it has not asked for:
its commit hears INVALID_TXN_STATE, its abort succeeds and tells it the next epoch, and it is fenced only when another
has taken over. With v1 it is fenced at once. Kafka's coordinator says the same.

An abort without a transaction is legal, because a client does not always know whether one was opened for it. It goes
through the same states.

*Differences to Kafka.* A repetition is recognised only after an end of v2; otherwise a fenced client of v2 could be
told the epoch of one of v1. A fence that uses up the last epoch goes on to a new id with v1, too.
"""

from barnabas_clients.protocol.error_codes import ErrorCode

from .adding import not_owner
from .messages import PRODUCER_ID_WANTED, V1, V2, Answer, Decision, EndRequest, SavedTransaction, Transition
from .outcomes import ended
from .producers import EPOCH_MAX, NOBODY, Producer, successor_of
from .states import TransactionEvent, TransactionState

__all__ = ["complete", "end", "prepare"]

_PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


def end(saved: SavedTransaction | None, request: EndRequest, now_ms: int, new_producer_id: int | None) -> Decision:
    """Decide an EndTxn."""
    if saved is None:
        return Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.version >= V2 and _is_repeated(saved, request):
        return _repeated(saved, request, Answer(producer=saved.owner))
    error = not_owner(saved, request.producer)
    if error != ErrorCode.NONE:
        return Answer(error)
    if saved.state is TransactionState.ONGOING:
        return _decide(saved, request, now_ms, new_producer_id)
    if request.version < V2:
        # It cannot be told from a repetition.
        return _repeated(saved, request, Answer())
    if saved.state.is_prepared:
        return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    if request.is_commit:
        return Answer(ErrorCode.INVALID_TXN_STATE)
    return _decide(saved, request, now_ms, new_producer_id)


def _is_repeated(saved: SavedTransaction, request: EndRequest) -> bool:
    has_ended = saved.state.is_prepared or saved.state in _COMPLETE.values()
    return has_ended and request.producer == saved.predecessor


def _repeated(saved: SavedTransaction, request: EndRequest, done: Answer) -> Answer:
    if saved.state is _COMPLETE[request.is_commit]:
        return done
    if saved.state is _PREPARED[request.is_commit]:
        return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    return Answer(ErrorCode.INVALID_TXN_STATE)


def _decide(saved: SavedTransaction, request: EndRequest, now_ms: int, new_producer_id: int | None) -> Decision:
    prepared = prepare(saved, _PREPARED[request.is_commit], request.version, now_ms, new_producer_id)
    if prepared is None:
        return PRODUCER_ID_WANTED
    answer = Answer(producer=prepared.owner if request.version >= V2 else NOBODY)
    return Transition(TransactionEvent.END, prepared, answer)


def prepare(
    saved: SavedTransaction,
    state: TransactionState,
    version: int,
    now_ms: int,
    new_producer_id: int | None,
    *,
    fences: bool = False,
) -> SavedTransaction | None:
    """Return the state in which the outcome is decided; None if that takes a new producer id.

    `fences`: the owner has not asked for it, and is replaced. The epoch is raised once for both reasons: an abort of v2
    that fences is one step, not two.
    """
    owner, producer = saved.owner, saved.producer
    raises = fences or version >= V2
    successor = successor_of(owner, new_producer_id) if raises else owner
    if successor is None:
        return None
    if raises:
        producer = Producer(producer.producer_id, min(producer.epoch + 1, EPOCH_MAX))
    return saved._replace(
        state=state,
        producer=producer,
        started_ms=now_ms if saved.state.is_idle else saved.started_ms,
        updated_ms=max(saved.updated_ms, now_ms),
        next_producer=NOBODY if successor == producer else successor,
        previous_producer_id=owner.producer_id,
        last_epoch=owner.epoch if version >= V2 else -1,
        client_version=V2 if version >= V2 else V1,
        outcomes=ended(saved.outcomes, saved.producer, is_commit=state is TransactionState.PREPARE_COMMIT),
    )


def complete(saved: SavedTransaction, now_ms: int) -> SavedTransaction:
    """Return the state in which every marker is written."""
    assert saved.state.is_prepared
    return saved._replace(
        state=_COMPLETE[saved.state is TransactionState.PREPARE_COMMIT],
        producer=saved.owner,
        next_producer=NOBODY,
        places=frozenset(),
        updated_ms=max(saved.updated_ms, now_ms),
    )
