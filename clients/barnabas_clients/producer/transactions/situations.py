"""The situations of a transactional producer, and the ways between them. Pure.

                    initialise             answer            begin
    UNINITIALISED ------------> INITIALISING ----> READY ------------> IN_TRANSACTION
         ^                       |   ^   ^  ^        | ^                 |   |   |
         +-- refused, given up --+   |   |  |        | |         commit  |   |   |  failure
                                     |   |  +--------+ |                 |   |   |
                                     |   |   upgrade   |    answer       v   |   |
                                     |   +-------------+------ COMMITTING ---|-->+
                                     |     upgrade     |                     |   v
                                     |                 |    answer    abort  | ABORTABLE_ERROR
                                     +-----------------+------- ABORTING <---+   | ^
                                       epoch needed                ^             | | given up
                                                                   +--- abort ---+ |
                                                                   +---------------+

A producer that was given its id and epoch is READY at once. FATAL_ERROR can follow each of them, and nothing follows
it.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

__all__ = ["FAILED", "MISUSE", "OPEN", "TRANSITIONS", "Situation"]


class Situation(Enum):
    """The situation of a transactional producer."""

    UNINITIALISED = auto()
    INITIALISING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


TRANSITIONS: Final[Mapping[Situation, frozenset[Situation]]] = {
    source: frozenset((*targets, Situation.FATAL_ERROR))
    for source, targets in (
        (Situation.UNINITIALISED, (Situation.INITIALISING, Situation.READY)),
        (Situation.INITIALISING, (Situation.READY, Situation.UNINITIALISED)),
        (Situation.READY, (Situation.IN_TRANSACTION, Situation.INITIALISING)),
        (Situation.IN_TRANSACTION, (Situation.COMMITTING, Situation.ABORTING, Situation.ABORTABLE_ERROR)),
        (Situation.COMMITTING, (Situation.READY, Situation.INITIALISING, Situation.ABORTABLE_ERROR)),
        (Situation.ABORTING, (Situation.READY, Situation.INITIALISING, Situation.ABORTABLE_ERROR)),
        (Situation.ABORTABLE_ERROR, (Situation.ABORTING,)),
    )
} | {Situation.FATAL_ERROR: frozenset[Situation]()}

OPEN: Final = frozenset({Situation.IN_TRANSACTION, Situation.COMMITTING})
"""The transaction is there, and nothing is wrong with it."""
FAILED: Final = frozenset({Situation.ABORTABLE_ERROR, Situation.FATAL_ERROR})

MISUSE: Final[Mapping[Situation, str]] = {
    Situation.UNINITIALISED: "the producer has no producer id yet",
    Situation.INITIALISING: "the producer is still getting its producer id",
    Situation.READY: "no transaction is open; begin one first",
    Situation.IN_TRANSACTION: "a transaction is open; commit or abort it first",
    Situation.COMMITTING: "the transaction is being committed; wait for it",
    Situation.ABORTING: "the transaction is being aborted; wait for it",
}
"""The reason why a call is not possible in a situation that has no error."""
