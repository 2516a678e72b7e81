"""Decides what InitProducerId gets: the id and epoch under which a producer is the only one. Pure.

Without a transaction the producer is given the next epoch, and everybody before it is fenced. If one is open, it is
aborted first, under the next epoch already, and the client asks again: CONCURRENT_TRANSACTIONS. Only then it gets the
epoch after that. So it never goes on in a transaction that another process has begun, and the epoch of the abort is
never given to two.

A client that has an id and epoch (version 3 and later, KIP-360) shows them. They must be the present ones; or those
before, if the answer to the request that replaced them may have been lost: then it is given once more, and nothing is
raised. Any other is fenced.

*Two-phase commit* (version 6, KIP-939): `enables_two_phase` gives transactions that never time out, because another
system decides about them. `keeps_prepared` leaves the open transaction as it is, and gives it to a new owner who may
only end it. The owner's epoch is raised, that of the transaction is not: its data has been written under it, and
the other system knows it by that.

A difference to Kafka: a producer that shows an old epoch of the present id is fenced at once; there it first aborts the
open transaction of the one that replaced it.
"""

from barnabas_clients.protocol.error_codes import ErrorCode

from .ending import prepare
from .messages import (
    NO_TIMEOUT_MS,
    PRODUCER_ID_WANTED,
    Answer,
    Decision,
    InitRequest,
    SavedTransaction,
    TransactionSettings,
    Transition,
)
from .producers import NOBODY, Producer, successor_of
from .states import TransactionEvent, TransactionState

__all__ = ["initialize", "refusal"]


def refusal(transactional_id: str, request: InitRequest, settings: TransactionSettings) -> ErrorCode:
    """Return why a request is wrong whatever is known of the id; NONE if it is not."""
    if not transactional_id or (request.producer.producer_id < 0) != (request.producer.epoch < 0):
        return ErrorCode.INVALID_REQUEST
    if not settings.two_phase_commit_enabled:
        if request.enables_two_phase:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.keeps_prepared:
            return ErrorCode.UNSUPPORTED_VERSION
    if not request.enables_two_phase and not 0 < request.timeout_ms <= settings.timeout_ms_max:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def initialize(
    saved: SavedTransaction | None,
    request: InitRequest,
    settings: TransactionSettings,
    now_ms: int,
    new_producer_id: int | None,
) -> Decision:
    """Decide a request that `refusal` has nothing against. `saved` None: the transactional id is new."""
    if saved is None:
        return _begin(request, now_ms, new_producer_id)
    if saved.state.is_prepared:
        return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    if saved.state is not TransactionState.ONGOING:
        return _take_over(saved, request, now_ms, new_producer_id)
    if request.keeps_prepared:
        return _keep(saved, request, now_ms, new_producer_id)
    if request.producer not in {NOBODY, saved.owner}:
        return Answer(ErrorCode.PRODUCER_FENCED)
    aborted = prepare(saved, TransactionState.PREPARE_ABORT, settings.version, now_ms, new_producer_id, fences=True)
    if aborted is None:
        return PRODUCER_ID_WANTED
    if request.producer != NOBODY:
        # It has asked for this itself: when it asks again, it shows the same epoch.
        aborted = aborted._replace(last_epoch=saved.owner.epoch)
    return Transition(TransactionEvent.INITIALIZE, aborted, Answer(ErrorCode.CONCURRENT_TRANSACTIONS), is_again=True)


def _begin(request: InitRequest, now_ms: int, new_producer_id: int | None) -> Decision:
    if new_producer_id is None:
        return PRODUCER_ID_WANTED
    producer = Producer(new_producer_id, 0)
    saved = SavedTransaction(
        TransactionState.EMPTY,
        producer,
        timeout_ms=_timeout_ms(request),
        updated_ms=now_ms,
        previous_producer_id=new_producer_id,  # as Kafka writes it
    )
    return Transition(TransactionEvent.INITIALIZE, saved, Answer(producer=producer))


def _take_over(saved: SavedTransaction, request: InitRequest, now_ms: int, new_producer_id: int | None) -> Decision:
    """Decide when no transaction is open."""
    given, owner = request.producer, saved.owner
    if given not in {NOBODY, owner, saved.predecessor}:
        return Answer(ErrorCode.PRODUCER_FENCED)
    previous = saved.predecessor
    if given in {NOBODY, owner}:
        successor = successor_of(owner, new_producer_id)
        if successor is None:
            return PRODUCER_ID_WANTED
        previous = Producer(owner.producer_id, -1 if given == NOBODY else owner.epoch)
        owner = successor
    taken = saved._replace(
        state=TransactionState.EMPTY,
        producer=owner,
        timeout_ms=_timeout_ms(request),
        updated_ms=max(saved.updated_ms, now_ms),
        started_ms=-1,
        previous_producer_id=previous.producer_id,
        last_epoch=previous.epoch,
    )
    return Transition(TransactionEvent.INITIALIZE, taken, Answer(producer=owner))


def _keep(saved: SavedTransaction, request: InitRequest, now_ms: int, new_producer_id: int | None) -> Decision:
    """Give the open transaction to a new owner."""
    given, owner = request.producer, saved.owner
    if given != NOBODY and saved.is_kept and given == saved.predecessor:
        return Answer(producer=owner, ongoing=saved.producer)
    if given not in {NOBODY, owner}:
        return Answer(ErrorCode.PRODUCER_FENCED)
    successor = successor_of(owner, new_producer_id)
    if successor is None:
        return PRODUCER_ID_WANTED
    kept = saved._replace(
        next_producer=successor,
        # It is never shortened: another system may have decided already.
        timeout_ms=NO_TIMEOUT_MS if request.enables_two_phase else saved.timeout_ms,
        updated_ms=max(saved.updated_ms, now_ms),
        previous_producer_id=owner.producer_id,
        last_epoch=-1 if given == NOBODY else owner.epoch,
    )
    return Transition(TransactionEvent.INITIALIZE, kept, Answer(producer=successor, ongoing=saved.producer))


def _timeout_ms(request: InitRequest) -> int:
    return NO_TIMEOUT_MS if request.enables_two_phase else request.timeout_ms
