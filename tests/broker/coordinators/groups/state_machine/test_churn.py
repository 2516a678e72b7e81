"""One member joins and leaves every 10 ms, for minutes, and the others work.

That is the promise of spacing. The others are clients as they are: they join again when a heartbeat tells them to,
sync when they are told of a generation, and the log takes a moment for each save.
"""

from dataclasses import dataclass, field

import pytest

from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import Desk

STEP_MS = 10
SAVE_MS = 20


@dataclass
class Client:
    """A steady member. `slowness_ms` is how long it takes to give up its partitions before it joins again."""

    member_id: str
    heartbeat_ms: int
    slowness_ms: int
    generation: int = 1
    next_heartbeat_ms: int = 0
    rejoins_at_ms: int | None = None
    join_ticket: int | None = None
    heard: list[ErrorCode] = field(default_factory=list)
    assigned: bool = True
    sync_ticket: int | None = None

    def step(self, desk: Desk) -> None:
        if self.join_ticket is not None:
            if desk.error(self.join_ticket) is None:
                return
            answer = desk.joined(self.join_ticket)
            self.join_ticket = None
            assert answer.error == ErrorCode.NONE, "a steady member is never thrown out"
            self.generation = answer.generation_id
            self.sync_ticket = desk.sync(self.member_id, {m.member_id: b"x" for m in answer.members})
        if self.sync_ticket is not None and desk.error(self.sync_ticket) is not None:
            error = desk.error(self.sync_ticket)
            self.sync_ticket = None
            if error == ErrorCode.REBALANCE_IN_PROGRESS:
                self.rejoins_at_ms = desk.now_ms
        if self.rejoins_at_ms is not None and self.rejoins_at_ms <= desk.now_ms:
            self.rejoins_at_ms = None
            self.join_ticket = desk.join(self.member_id)
            self.next_heartbeat_ms = desk.now_ms + self.heartbeat_ms
        elif self.next_heartbeat_ms <= desk.now_ms and self.sync_ticket is None:
            self.next_heartbeat_ms = desk.now_ms + self.heartbeat_ms
            self.heard.append(desk.heartbeat(self.member_id, self.generation))
            works = desk.state() is not GroupState.PREPARING_REBALANCE
            assert self.heard[-1] == (ErrorCode.NONE if works else ErrorCode.REBALANCE_IN_PROGRESS)
            if self.heard[-1] == ErrorCode.REBALANCE_IN_PROGRESS and self.rejoins_at_ms is None:
                self.rejoins_at_ms = desk.now_ms + self.slowness_ms


@dataclass
class Churner:
    """Joins, waits 10 ms, leaves, and so on. `vanishes`: its connection ends instead, and it never says so."""

    id_first: bool
    vanishes: bool
    ticket: int | None = None

    def step(self, desk: Desk) -> None:
        if self.ticket is None:
            self.ticket = desk.join(id_first=self.id_first)
            if self.id_first:
                self.ticket = desk.join(desk.joined(self.ticket).member_id, id_first=True)
            return
        member_id = list(desk.group.members)[-1]
        if not self.vanishes:
            desk.leave(member_id)
        elif desk.error(self.ticket) is None:
            desk.forget(self.ticket)
        self.ticket = None


@pytest.mark.parametrize("vanishes", [False, True])
@pytest.mark.parametrize("id_first", [False, True])
@pytest.mark.parametrize(("heartbeat_ms", "slowness_ms"), [(50, 0), (3_000, 500)])
def test_a_churning_member_leaves_the_others_at_least_half_of_the_time(
    heartbeat_ms: int, slowness_ms: int, id_first: bool, vanishes: bool
) -> None:
    desk = Desk()
    clients = [Client(member_id, heartbeat_ms, slowness_ms) for member_id in desk.stable(3)]
    churner = Churner(id_first, vanishes)
    stable_ms = 0
    saves_end_at_ms: list[int] = []
    steps = 60_000 // STEP_MS
    for _ in range(steps):
        desk.advance(STEP_MS)
        stable_ms += STEP_MS * (desk.state() is GroupState.STABLE)
        churner.step(desk)
        for client in clients:
            client.step(desk)
        saves_end_at_ms += [desk.now_ms + SAVE_MS] * (len(desk.unsaved) - len(saves_end_at_ms))
        while saves_end_at_ms and saves_end_at_ms[0] <= desk.now_ms:
            saves_end_at_ms.pop(0)
            desk.saved()
    assert stable_ms >= steps * STEP_MS / 2
    assert {client.member_id for client in clients} <= set(desk.group.members)
    assert desk.kinds().count("rebalance") > 5, "newcomers are let in, too"
    assert len(desk.facts) < 1_000, "whoever comes and goes does not fill the history"
