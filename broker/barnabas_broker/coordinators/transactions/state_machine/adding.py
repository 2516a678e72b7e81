"""Decides what AddPartitionsToTxn and AddOffsetsToTxn get: which partitions a transaction has. Pure.

The first partition opens the transaction. A partition may be written to once the record that names it has committed,
since from then on whoever coordinates knows that it needs a marker. All partitions stand in each record of the
transaction, so there are at most `PLACES_MAX` of them: to encode a record of so many takes a few milliseconds. (In
Kafka the length of a record is the limit.) Whoever wants more is told to abort.

*Verification* changes nothing. The leader of a partition asks, for a client that does not do so itself, whether a
batch belongs to an open transaction of this partition. The answer is what has committed.
"""

from collections.abc import Collection, Mapping

from barnabas_clients.protocol.error_codes import ErrorCode

from .messages import Answer, Decision, Place, SavedTransaction, Transition
from .outcomes import begun
from .producers import Producer
from .states import TransactionEvent, TransactionState

__all__ = ["PLACES_MAX", "add", "not_owner", "verify"]

PLACES_MAX = 4_000


def not_owner(saved: SavedTransaction | None, producer: Producer) -> ErrorCode:
    """Return why `producer` may do nothing under this transactional id; NONE if it may."""
    if saved is None or saved.owner.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if saved.owner == producer else ErrorCode.PRODUCER_FENCED


def add(
    saved: SavedTransaction | None,
    producer: Producer,
    places: Collection[Place],
    client_version: int,
    now_ms: int,
    *,
    may_be_lost: bool = False,
) -> Decision:
    """Decide about partitions that are to be in the transaction.

    `may_be_lost`: a marker in one of them may be lost later, so how the transaction ends is to be kept.
    """
    error = not_owner(saved, producer)
    if error != ErrorCode.NONE:
        return Answer(error)
    assert saved is not None
    if saved.state.is_prepared:
        # Of v2, a client is the owner already when the markers of its last transaction are on their way.
        return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    if saved.is_kept:
        return Answer(ErrorCode.INVALID_TXN_STATE)
    if saved.places.issuperset(places):
        return Answer()
    all_places = saved.places.union(places)
    if len(all_places) > PLACES_MAX:
        return Answer(ErrorCode.TRANSACTION_ABORTABLE)
    begins = saved.state is not TransactionState.ONGOING
    added = saved._replace(
        state=TransactionState.ONGOING,
        places=all_places,
        started_ms=now_ms if begins else saved.started_ms,
        updated_ms=max(saved.updated_ms, now_ms),
        previous_producer_id=producer.producer_id,
        last_epoch=-1,  # Whoever acts has heard what it was told.
        client_version=client_version,
        outcomes=begun(saved.outcomes, producer) if may_be_lost else saved.outcomes,
    )
    return Transition(TransactionEvent.ADD, added)


def verify(saved: SavedTransaction | None, producer: Producer, places: Collection[Place]) -> Mapping[Place, ErrorCode]:
    """Say of each partition whether it is in the open transaction of `producer`."""
    error = not_owner(saved, producer)
    if error == ErrorCode.NONE:
        assert saved is not None
        if saved.state.is_prepared:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif saved.is_kept:
            error = ErrorCode.INVALID_TXN_STATE
        else:
            absent = ErrorCode.TRANSACTION_ABORTABLE
            return {place: ErrorCode.NONE if place in saved.places else absent for place in places}
    return dict.fromkeys(places, error)
