"""Has partitions led by their preferred replica because somebody asks for it, whichever broker leads them now.

A leadership is handed over by its leader alone. So the broker that was asked sends each leader the partitions that it
should hand over, `AT_ONCE` at a time; the leader begins with those whose target can be reached and has caught up, and
says which it did not begin. One that is in sync, and of which a new leader has not heard yet that it has caught up, is
asked for again. Then the asker waits until it has heard of the new leaders. A leader gives a transfer up
after an election timeout, and leads on: so after `AGAIN_S` it is asked once more, `ROUNDS` times for one lot.

Nothing is elected against the groups: a replica without all that is committed is never made a leader, by any request.

Limits: `AT_ONCE` partitions in one question; one lot at a time for each request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

import msgspec

from barnabas_metadata_quorum.leaders.table import NO_LEADER
from barnabas_raftlog.errors import BarnabasError, MalformedMessageError
from barnabas_raftlog.unpacking import UNREADABLE

from .known_leaders import KnownLeaders

__all__ = ["METHOD", "ElectionFate", "Elections", "Wanted"]

METHOD = "elect preferred leaders"
AT_ONCE = 200
"""Each costs its partition's producers a round trip or two."""
AGAIN_S = 1.0
ROUNDS = 5


class ElectionFate(IntEnum):
    """What came of it for one partition. As a leader's word, ELECTED means only that it has begun."""

    ELECTED = 0
    NOT_AVAILABLE = 1
    NOT_YET = 2


class Wanted(NamedTuple):
    """A partition, and the replica that should lead it."""

    topic_id: bytes
    partition: int
    target: int


class Led(Protocol):
    """The part of a partition that is used here."""

    @property
    def can_serve(self) -> bool: ...
    @property
    def electable(self) -> tuple[int, ...]: ...
    @property
    def isr(self) -> Sequence[int]: ...
    def has_caught_up(self, node_id: int) -> bool: ...
    def transfer(self, node_id: int) -> None: ...


Find = Callable[[bytes, int], Led | None]
Call = Callable[[int, str, bytes, float], Awaitable[bytes]]
_questions: msgspec.msgpack.Decoder[list[tuple[bytes, int, int]]] = msgspec.msgpack.Decoder(
    list[tuple[bytes, int, int]]
)
_answers: msgspec.msgpack.Decoder[list[ElectionFate]] = msgspec.msgpack.Decoder(list[ElectionFate])


class Elections:
    """See the module. `find` returns a partition that this node has a replica of; `call` asks another node."""

    def __init__(self, node_id: int, find: Find, leaders: KnownLeaders, call: Call, clock: Callable[[], int]) -> None:
        self._node_id = node_id
        self._find = find
        self._leaders = leaders
        self._call = call
        self._now_ms = clock

    async def elect(self, wanted: Sequence[Wanted], until_ms: int) -> list[ElectionFate]:
        """Return what came of each, in order. Cancelled, leaderships may move nevertheless.

        `until_ms`: of the monotonic clock.
        """
        fates: list[ElectionFate] = []
        for first in range(0, len(wanted), AT_ONCE):
            fates += await self._elect_some(wanted[first : first + AT_ONCE], until_ms)
            await asyncio.sleep(0)  # When the time is up nothing else waits.
        return fates

    async def answer(self, _source: int, body: bytes) -> bytes:
        """Begin to hand over what another broker asks for; return a fate for each.

        Raises:
            MalformedMessageError: the body is no such question.
        """
        try:
            asked = _questions.decode(body)
        except UNREADABLE as error:
            raise MalformedMessageError(f"not a question about leaders: {error}") from error
        if len(asked) > AT_ONCE:
            raise MalformedMessageError(f"{len(asked)} partitions at once; {AT_ONCE} are the maximum")
        return msgspec.msgpack.encode([self._begin(Wanted(*one)) for one in asked])

    async def _elect_some(self, wanted: Sequence[Wanted], until_ms: int) -> list[ElectionFate]:
        refused: set[Wanted] = set()
        for _ in range(ROUNDS):
            waiting = [one for one in wanted if one not in refused and self._leader_id(one) != one.target]
            left_s = self._left_s(until_ms)
            if not waiting or not left_s:
                break
            refused |= await self._ask_all(waiting, left_s)
            await self._wait_for([one for one in waiting if one not in refused], min(AGAIN_S, left_s))
        return [self._fate(one, refused) for one in wanted]

    async def _ask_all(self, wanted: Sequence[Wanted], timeout_s: float) -> set[Wanted]:
        """Ask the leaders of partitions to hand them over; return those that cannot be."""
        by_leader: dict[int, list[Wanted]] = {}
        for one in wanted:
            by_leader.setdefault(self._leader_id(one), []).append(one)
        refused = set(by_leader.pop(NO_LEADER, ()))
        for leader_id, asked in by_leader.items():
            fates = await self._ask(leader_id, asked, timeout_s)
            refused.update(one for one, fate in zip(asked, fates, strict=True) if fate is ElectionFate.NOT_AVAILABLE)
        return refused

    async def _wait_for(self, wanted: list[Wanted], timeout_s: float) -> None:
        """Wait until all that are wanted lead, or the time is up. Takes the list."""

        def is_undecided() -> bool:
            # Asked at every change, so it looks no further than to the first that has to be waited for.
            while wanted and self._leader_id(wanted[-1]) == wanted[-1].target:
                wanted.pop()
            return bool(wanted)

        await self._leaders.wait_while(is_undecided, timeout_s)

    def _fate(self, one: Wanted, refused: set[Wanted]) -> ElectionFate:
        if self._leader_id(one) == one.target:
            return ElectionFate.ELECTED
        return ElectionFate.NOT_AVAILABLE if one in refused else ElectionFate.NOT_YET

    async def _ask(self, leader_id: int, asked: Sequence[Wanted], timeout_s: float) -> list[ElectionFate]:
        if leader_id == self._node_id:
            return [self._begin(one) for one in asked]
        try:
            body = await self._call(leader_id, METHOD, msgspec.msgpack.encode(list(asked)), timeout_s)
            fates = _answers.decode(body)
        except (BarnabasError, TimeoutError, *UNREADABLE):
            return [ElectionFate.NOT_YET] * len(asked)  # It may be gone, and another leads already.
        return fates if len(fates) == len(asked) else [ElectionFate.NOT_YET] * len(asked)

    def _begin(self, one: Wanted) -> ElectionFate:
        partition = self._find(one.topic_id, one.partition)
        if partition is None or not partition.can_serve or one.target == self._node_id:
            return ElectionFate.NOT_YET
        is_there = self._leaders.available_since_ms(one.target) is not None
        if not (is_there and one.target in partition.electable):
            return ElectionFate.NOT_AVAILABLE
        if not partition.has_caught_up(one.target):
            # In sync it may be all the same: a leader that is new has not heard from everybody yet.
            return ElectionFate.NOT_YET if one.target in partition.isr else ElectionFate.NOT_AVAILABLE
        partition.transfer(one.target)
        return ElectionFate.ELECTED

    def _leader_id(self, one: Wanted) -> int:
        leadership = self._leaders.leadership(one.topic_id, one.partition)
        return NO_LEADER if leadership is None else leadership.leader_id

    def _left_s(self, until_ms: int) -> float:
        return max(0, until_ms - self._now_ms()) / 1000
