"""The transition table is exactly what transactional ids do: stories walk each step in it."""

from barnabas_broker.coordinators.transactions.state_machine.messages import TransactionSettings, Transition
from barnabas_broker.coordinators.transactions.state_machine.states import (
    TRANSITIONS,
    TransactionEvent,
    TransactionState,
    may_follow,
)

from .desk import A0, A1, Desk

SETTINGS = TransactionSettings(two_phase_commit_enabled=True, expiration_ms=1_000_000)
Step = tuple[TransactionState, TransactionEvent, TransactionState]


class Walk(Desk):
    """Remembers each step with the state before it."""

    taken: set[Step]

    def _take(self, transition: Transition) -> Transition:
        state = TransactionState.DEAD if transition.saved is None else transition.saved.state
        self.__dict__.setdefault("taken", set()).add((self.state, transition.event, state))
        return super()._take(transition)


def walk() -> set[Step]:
    """Live through everything that can happen to a transactional id, and return the steps."""
    desks: list[Walk] = []

    def idle(kind: str) -> Walk:
        desks.append(Walk(SETTINGS))
        if kind == "empty":
            desks[-1].init()
        else:
            desks[-1].ended(desks[-1].begun(A0), commit=kind == "committed")
        return desks[-1]

    for kind in ("empty", "committed", "aborted"):
        idle(kind).init()
        desk = idle(kind)
        desk.add(desk.saved.owner, A0)
        desk.add(desk.saved.owner, A1)
        desk.init(keep=True)
        desk.init()
        desk = idle(kind)
        desk.end(desk.saved.owner, commit=False)
        desk = idle(kind)
        desk.begun(A0)
        desk.now_ms += 1 << 30
        assert desk.time_out()
        desk = idle(kind)
        desk.now_ms += 1 << 30
        assert desk.expire()
    return {step for desk in desks for step in desk.taken}


def test_the_table_is_exactly_what_can_be_reached() -> None:
    table = {
        (state, event, follower)
        for state, events in TRANSITIONS.items()
        for event, followers in events.items()
        for follower in followers
    }
    assert walk() == table


def test_every_state_is_in_the_table_and_an_outcome_is_final() -> None:
    assert set(TRANSITIONS) == set(TransactionState)
    for prepared, done in (("PREPARE_COMMIT", "COMPLETE_COMMIT"), ("PREPARE_ABORT", "COMPLETE_ABORT")):
        assert list(TRANSITIONS[TransactionState[prepared]].values()) == [{TransactionState[done]}]
    assert not may_follow(TransactionState.PREPARE_COMMIT, TransactionEvent.MARKED, TransactionState.COMPLETE_ABORT)


def test_states_have_kafkas_numbers_and_names() -> None:
    assert [TransactionState(number).title for number in range(8)] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
