"""Lists the states of a consumer group, and the events that lead between them. Pure.

The table is data: it is asserted at every step, and tested. `TRANSITIONS` holds single steps. One call may take
several: a lone member that leaves takes its group from STABLE through PREPARING_REBALANCE to EMPTY within one LEAVE,
and both steps stand below. Heartbeats and offset commits are no events here because they change no state; SYNC is one
that never does: the assignment counts once it is saved.

The states and their names are Kafka's, as ListGroups and DescribeGroups show them.
"""

from enum import Enum
from typing import Final

__all__ = ["TRANSITIONS", "GroupEvent", "GroupState", "may_follow"]


class GroupState(Enum):
    """`value` is the name that Kafka's tools show."""

    EMPTY = "Empty"
    """No members; offsets may be committed by anyone and expire."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """The join phase: waits until the members have (re)joined."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The sync phase: a new generation exists, the leader's assignment is awaited or being saved."""

    STABLE = "Stable"
    """Every member can have its assignment."""

    DEAD = "Dead"
    """This broker does not coordinate the group (any more)."""


class GroupEvent(Enum):
    """A cause of a change of state: a request, time, the log's answer, or the coordinator itself."""

    LOAD = "load"
    JOIN = "join"
    SYNC = "sync"
    LEAVE = "leave"
    TICK = "tick"
    SAVED = "saved"
    END = "end"


_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE
_DEAD = GroupState.DEAD

TRANSITIONS: Final[dict[GroupState, dict[GroupEvent, frozenset[GroupState]]]] = {
    _EMPTY: {
        GroupEvent.LOAD: frozenset({_STABLE}),
        GroupEvent.JOIN: frozenset({_PREPARING}),
        GroupEvent.END: frozenset({_DEAD}),
    },
    _PREPARING: {
        GroupEvent.JOIN: frozenset({_COMPLETING}),
        GroupEvent.LEAVE: frozenset({_COMPLETING, _EMPTY}),
        GroupEvent.TICK: frozenset({_COMPLETING, _EMPTY}),
        GroupEvent.END: frozenset({_DEAD}),
    },
    _COMPLETING: {
        GroupEvent.JOIN: frozenset({_PREPARING}),
        GroupEvent.SYNC: frozenset({_PREPARING}),
        GroupEvent.LEAVE: frozenset({_PREPARING}),
        GroupEvent.TICK: frozenset({_PREPARING}),
        GroupEvent.SAVED: frozenset({_PREPARING, _STABLE}),
        GroupEvent.END: frozenset({_DEAD}),
    },
    _STABLE: {
        GroupEvent.LOAD: frozenset({_PREPARING}),
        GroupEvent.JOIN: frozenset({_PREPARING}),
        GroupEvent.LEAVE: frozenset({_PREPARING}),
        GroupEvent.TICK: frozenset({_PREPARING}),
        GroupEvent.END: frozenset({_DEAD}),
    },
    _DEAD: {},
}


def may_follow(state: GroupState, event: GroupEvent, next_state: GroupState) -> bool:
    """Say whether `event` may take a group from `state` to `next_state` in one step."""
    return next_state in TRANSITIONS[state].get(event, ())
