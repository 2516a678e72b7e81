"""The transition table is exactly what groups do: stories walk each step in it."""

from barnabas_broker.coordinators.groups.state_machine.messages import GroupConfig
from barnabas_broker.coordinators.groups.state_machine.states import TRANSITIONS, GroupEvent, GroupState, may_follow
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import REBALANCE_MS, SESSION_MS, Desk, RecordingGroup

Step = tuple[GroupState, GroupEvent, GroupState]
CONFIG = GroupConfig()


def walk() -> set[Step]:
    """Live through everything that can happen to a group, and return the steps that groups took."""
    groups: list[RecordingGroup] = []

    def desk(size: int = 0) -> Desk:
        groups.append(RecordingGroup("g", CONFIG))
        desk = Desk(group=groups[-1])
        if size:
            desk.stable(size)
        return desk

    def completing() -> Desk:
        one = desk()
        one.join()
        one.join()
        one.advance(1_000)
        return one

    def preparing() -> Desk:
        one = desk(2)
        one.join("m1")
        return one

    left_early = desk()
    left_early.join()
    left_early.leave("m1")
    left_early.advance(500)
    preparing().join("m2")
    preparing().leave("m2")
    preparing().leave("m1", "m2")
    preparing().advance(REBALANCE_MS)
    completing().join()
    completing().leave("m2")
    completing().advance(SESSION_MS)
    unsaved = completing()
    unsaved.sync("m1", {})
    unsaved.saved(ErrorCode.REQUEST_TIMED_OUT)
    completing().sync("m1", {"m1": bytes(1_000)}, record_bytes_max=1_000)
    desk(2).advance(SESSION_MS)
    desk(2).leave("m2")
    for one in (desk(), preparing(), completing(), desk(1)):
        one.end()
    saved = desk(2).group.to_saved(0)
    groups += [RecordingGroup.from_saved("g", saved, config, 0) for config in (CONFIG, GroupConfig(size_max=1))]
    return {step for group in groups for step in group.__dict__.get("steps", ())}


def test_the_table_is_exactly_what_can_be_reached() -> None:
    table = {
        (state, event, follower)
        for state, events in TRANSITIONS.items()
        for event, followers in events.items()
        for follower in followers
    }
    assert walk() == table


def test_every_state_is_in_the_table_and_the_last_one_is_final() -> None:
    assert set(TRANSITIONS) == set(GroupState)
    assert not TRANSITIONS[GroupState.DEAD]
    assert not may_follow(GroupState.DEAD, GroupEvent.LOAD, GroupState.EMPTY)


def test_states_have_the_names_that_kafkas_tools_show() -> None:
    assert [state.value for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
