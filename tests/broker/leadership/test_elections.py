"""Elections that somebody asks for: what a leader begins, what it refuses, and what the asker makes of it."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from barnabas_broker.leadership.elections import AT_ONCE, METHOD, ROUNDS, ElectionFate, Elections, Wanted
from barnabas_metadata_quorum.leaders.table import NO_LEADER
from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.links.links import LinkDownError

TOPIC = bytes(16)
ME, FIRST, OTHER = 1, 2, 3


class Leaders:
    """Who is said to lead, and who could be handed a leadership."""

    def __init__(self) -> None:
        self.leader_ids: dict[int, int] = {}
        self.there = {ME, FIRST, OTHER}

    def leadership(self, _: bytes, index: int) -> Any:
        leader_id = self.leader_ids.get(index)
        return None if leader_id is None else SimpleNamespace(leader_id=leader_id)

    def available_since_ms(self, node_id: int) -> int | None:
        return 0 if node_id in self.there else None

    async def wait_while(self, is_undecided: Callable[[], bool], timeout_s: float) -> None:
        for _ in range(5):
            if timeout_s <= 0 or not is_undecided():
                return
            await asyncio.sleep(0)


class Replica:
    """A partition that this node leads; a transfer works at once."""

    def __init__(self, leaders: Leaders, index: int, *, electable: tuple[int, ...] = (ME, FIRST)) -> None:
        self.leaders, self.index, self.electable = leaders, index, electable
        self.can_serve = True
        self.is_behind = False
        self.isr: tuple[int, ...] = (ME,)
        self.asked: list[int] = []

    def has_caught_up(self, _: int) -> bool:
        return not self.is_behind

    def transfer(self, node_id: int) -> None:
        self.asked.append(node_id)
        self.leaders.leader_ids[self.index] = node_id


def made(leaders: Leaders, replicas: dict[int, Replica], call: Any = None) -> Elections:
    return Elections(ME, lambda _, index: replicas.get(index), leaders, call, lambda: 0)  # type: ignore[arg-type]


async def test_a_leader_begins_with_what_may_take_over_and_refuses_the_rest() -> None:
    leaders = Leaders()
    replicas = {index: Replica(leaders, index) for index in range(4)}
    replicas[1].is_behind = True
    replicas[2].electable = (ME,)
    leaders.leader_ids = dict.fromkeys(range(5), ME)
    wanted = [Wanted(TOPIC, index, FIRST) for index in range(5)]
    refused, unknown = ElectionFate.NOT_AVAILABLE, ElectionFate.NOT_YET
    elected = ElectionFate.ELECTED
    assert await made(leaders, replicas).elect(wanted, 10_000) == [elected, refused, refused, elected, unknown]
    assert [replica.asked for replica in replicas.values()] == [[FIRST], [], [], [FIRST]]
    leaders.there.discard(FIRST)
    leaders.leader_ids[0] = ME
    assert await made(leaders, replicas).elect(wanted[:1], 10_000) == [refused]


async def test_one_in_sync_of_which_a_new_leader_has_not_heard_is_asked_for_again() -> None:
    leaders = Leaders()
    leaders.leader_ids = {0: ME}
    replica = Replica(leaders, 0)
    replica.is_behind = True
    replica.isr = (ME, FIRST)
    looks = []
    behind = replica.has_caught_up

    def has_caught_up(_: int) -> bool:
        looks.append(FIRST)
        replica.is_behind = len(looks) < 3
        return behind(FIRST)

    replica.has_caught_up = has_caught_up  # type: ignore[method-assign]
    assert await made(leaders, {0: replica}).elect([Wanted(TOPIC, 0, FIRST)], 10_000) == [ElectionFate.ELECTED]
    assert (looks, replica.asked) == ([FIRST] * 3, [FIRST])


async def test_leaders_elsewhere_are_asked_in_lots_and_their_silence_is_no_refusal() -> None:
    leaders = Leaders()
    leaders.leader_ids = dict.fromkeys(range(AT_ONCE + 1), OTHER)
    asked: list[int] = []

    async def call(node_id: int, method: str, body: bytes, _: float) -> bytes:
        assert (node_id, method) == (OTHER, METHOD)
        rows = msgspec.msgpack.decode(body)
        asked.append(len(rows))
        if len(asked) == 2:
            raise LinkDownError("gone")
        for _, index, target in rows:
            leaders.leader_ids[index] = target
        return msgspec.msgpack.encode([ElectionFate.ELECTED] * len(rows))

    wanted = [Wanted(TOPIC, index, FIRST) for index in range(AT_ONCE + 1)]
    fates = await made(leaders, {}, call).elect(wanted, 10_000)
    assert asked == [AT_ONCE, 1, 1]  # The last one is asked again.
    assert fates == [ElectionFate.ELECTED] * (AT_ONCE + 1)


async def test_a_transfer_that_is_given_up_is_begun_again() -> None:
    leaders = Leaders()
    leaders.leader_ids = {0: ME}
    replica = Replica(leaders, 0)
    begun = []

    def transfer(node_id: int) -> None:
        begun.append(node_id)
        if len(begun) == 3:
            leaders.leader_ids[0] = node_id

    replica.transfer = transfer  # type: ignore[method-assign]
    assert await made(leaders, {0: replica}).elect([Wanted(TOPIC, 0, FIRST)], 10_000) == [ElectionFate.ELECTED]
    assert begun == [FIRST] * 3
    leaders.leader_ids[0] = ME
    assert await made(leaders, {0: replica}).elect([Wanted(TOPIC, 0, FIRST)], 10_000) == [ElectionFate.NOT_YET]
    assert len(begun) == 3 + ROUNDS


async def test_a_partition_without_a_leader_has_nobody_to_ask() -> None:
    leaders = Leaders()
    leaders.leader_ids = {0: NO_LEADER}
    wanted = [Wanted(TOPIC, 0, FIRST), Wanted(TOPIC, 1, FIRST)]
    assert await made(leaders, {}).elect(wanted, 10_000) == [ElectionFate.NOT_AVAILABLE] * 2


@pytest.mark.parametrize(
    "body", [b"", b"\x80", b"\x91\x91\x00", msgspec.msgpack.encode([(TOPIC, 0, 1)] * (AT_ONCE + 1))]
)
async def test_what_is_no_question_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        await made(Leaders(), {}).answer(OTHER, body)


async def test_a_question_is_answered_with_a_fate_for_each() -> None:
    leaders = Leaders()
    replicas = {0: Replica(leaders, 0)}
    body = msgspec.msgpack.encode([(TOPIC, 0, FIRST), (TOPIC, 7, FIRST), (TOPIC, 0, ME)])
    answer = msgspec.msgpack.decode(await made(leaders, replicas).answer(OTHER, body))
    assert answer == [ElectionFate.ELECTED, ElectionFate.NOT_YET, ElectionFate.NOT_YET]
