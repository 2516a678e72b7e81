"""Lists the states of a transactional id, and the events that lead between them. Pure.

The table is data: it is asserted at every step, and tested. The states, their names and their numbers are Kafka's, as
the log has them and as ListTransactions and DescribeTransactions show them.

Kafka goes through PREPARE_EPOCH_FENCE in memory on the way from ONGOING to PREPARE_ABORT when somebody is fenced. Here
the new epoch and the abort are one record, so nothing is ever in that state.
"""

from enum import Enum, IntEnum
from typing import Final

__all__ = ["TRANSITIONS", "TransactionEvent", "TransactionState", "may_follow"]


class TransactionState(IntEnum):
    """The value is Kafka's number in the log, `title` the name that its tools show."""

    EMPTY = 0
    """A producer has its id and epoch; it has no transaction."""

    ONGOING = 1
    """A transaction is open; its partitions are known."""

    PREPARE_COMMIT = 2
    """It is decided that the transaction commits; markers are on their way to its partitions."""

    PREPARE_ABORT = 3
    """The same for an abort."""

    COMPLETE_COMMIT = 4
    """Every marker is written; the next transaction may begin."""

    COMPLETE_ABORT = 5
    """The same after an abort."""

    DEAD = 6
    """Nothing is known about the transactional id (any more)."""

    PREPARE_EPOCH_FENCE = 7
    """See the module."""

    @property
    def title(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are owed."""
        return self in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction, so that one may begin and the id may expire."""
        return self in _IDLE


class TransactionEvent(Enum):
    """A cause of a change of state: a request, time, or the markers' end."""

    INITIALIZE = "initialize"
    ADD = "add"
    END = "end"
    TIME_OUT = "time out"
    MARKED = "marked"
    EXPIRE = "expire"


_EMPTY = TransactionState.EMPTY
_ONGOING = TransactionState.ONGOING
_PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
_PREPARE_ABORT = TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
_COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
_DEAD = TransactionState.DEAD
_IDLE: Final = frozenset({_EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT})

_FROM_IDLE: Final = {
    TransactionEvent.INITIALIZE: frozenset({_EMPTY}),
    TransactionEvent.ADD: frozenset({_ONGOING}),
    TransactionEvent.END: frozenset({_PREPARE_ABORT}),
    TransactionEvent.EXPIRE: frozenset({_DEAD}),
}

TRANSITIONS: Final[dict[TransactionState, dict[TransactionEvent, frozenset[TransactionState]]]] = {
    _EMPTY: _FROM_IDLE,
    _ONGOING: {
        TransactionEvent.INITIALIZE: frozenset({_ONGOING, _PREPARE_ABORT}),
        TransactionEvent.ADD: frozenset({_ONGOING}),
        TransactionEvent.END: frozenset({_PREPARE_COMMIT, _PREPARE_ABORT}),
        TransactionEvent.TIME_OUT: frozenset({_PREPARE_ABORT}),
    },
    _PREPARE_COMMIT: {TransactionEvent.MARKED: frozenset({_COMPLETE_COMMIT})},
    _PREPARE_ABORT: {TransactionEvent.MARKED: frozenset({_COMPLETE_ABORT})},
    _COMPLETE_COMMIT: _FROM_IDLE,
    _COMPLETE_ABORT: _FROM_IDLE,
    _DEAD: {TransactionEvent.INITIALIZE: frozenset({_EMPTY})},
    TransactionState.PREPARE_EPOCH_FENCE: {},
}


def may_follow(state: TransactionState, event: TransactionEvent, next_state: TransactionState) -> bool:
    """Say whether `event` may take a transactional id from `state` to `next_state`."""
    return next_state in TRANSITIONS[state].get(event, ())
