"""Translates errors of appending to a coordinator's log into a coordinator's, as Kafka does. Pure."""

from barnabas_broker.partition.producer_state import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import BarnabasError, NotLeaderError, StorageFailedError

__all__ = ["REFUSALS", "coordinator_error", "refusal"]

_REFUSALS: dict[type[BarnabasError], ErrorCode] = {
    NotLeaderError: ErrorCode.NOT_COORDINATOR,
    # The disk is behind or full, or the log has failed: in time this coordinator or another can again.
    StorageFailedError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # As on the way of a produced batch, whatever the version of the request: never PRODUCER_FENCED.
    InvalidProducerEpochError: ErrorCode.INVALID_PRODUCER_EPOCH,
    InvalidTransactionStateError: ErrorCode.INVALID_TXN_STATE,
    CoordinatorFencedError: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
}
REFUSALS = tuple(_REFUSALS)
"""What a partition raises when it does not append a coordinator's batch."""

_COORDINATOR_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def refusal(error: BarnabasError) -> ErrorCode:
    """Return the error for a client when the partition has raised one of `REFUSALS`."""
    return next(code for kind, code in _REFUSALS.items() if isinstance(error, kind))


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """Return the error for a client when an append to the coordinator's log has failed with `error`."""
    return _COORDINATOR_ERRORS.get(error, error)
