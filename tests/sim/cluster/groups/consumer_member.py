"""A member of KIP-848: it says in heartbeats what it wants and has, and takes what it is given.

It makes its member id, says everything when it joins and when an answer was lost, and else what has changed. What it
is to give up it commits and drops before it says so; a lazy one takes its time, and may be thrown out for that.
"""

from collections.abc import Iterable
from re import fullmatch
from typing import Any
from uuid import UUID

from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from sim.cluster.clients.client import Trouble
from sim.cluster.world import MS

from .model import Place
from .process import FORGED, Process

__all__ = ["ConsumerMember"]

VERSIONS = range(1, 2)
REST_S_MAX = 0.7
LAZY_MS = (200, 6_000)
OUT = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
JOINING, LEAVING, GOING_FOR_A_WHILE = 0, -1, -2


class ConsumerMember(Process):
    """See the module. `names`, `pattern`: what it subscribes to; the crowd changes them and `assignor` at any time."""

    names: list[str]
    pattern: str | None = None
    assignor: str | None = None
    is_lazy = False
    comes_back = False  # it says so when it goes

    _member_id = ""
    _is_unsure = True  # whether the group has heard everything
    _said: tuple[Any, ...] = ()
    _said_places: frozenset[Place] | None = None
    _lost = frozenset[Place]()
    _drops_at_us = 0
    _interval_s = 0.2

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def wanted(self) -> set[Place]:
        names = list(self.names)
        if self.pattern is not None:
            known = [*self.topics.lasting, *self.topics.passing]
            names += [name for name in known if fullmatch(self.pattern, name)]
        return self.topics.places_of(names)

    async def run(self) -> None:
        while not self.is_over:
            try:
                if self.is_asked_to_go:
                    await self._go()
                    break
                await self._beat()
                await self._work()
            except Trouble as trouble:
                self.world.note(self.client.name, f"{self.group}: {trouble}")
                self._is_unsure = True
                await self.client.pause()
                continue
            await self.rest(min(self._interval_s, REST_S_MAX))
        self.is_over = True

    async def _work(self) -> None:
        if self._lost and self.world.now_us >= self._drops_at_us:
            await self._give_up()
            return
        stay = self.stay
        if stay is None:
            return
        for place in sorted(stay.has - self.positions.keys()):
            if self.topics.name_of(place[0]) is not None and place in stay.has and not await self.look_up(place):
                break
        await self.commit_some(0.5)
        if self.forges:
            self.forges = False
            await self.forge_commit()
            await self._forge_beat()

    async def _give_up(self) -> None:
        """Commit a last time, and use it no more."""
        lost, self._lost = self._lost, frozenset()
        stay = self.stay
        assert stay is not None
        try:
            for place in sorted(lost & self.positions.keys()):
                await self.commit(place, self.positions[place] + 1)
        finally:
            for place in lost:
                self.positions.pop(place, None)
            self.model.drop(stay, lost)
            stay.asked_us = None
        self.world.counts["group revocations"] += 1
        self.woken.set()

    # Heartbeats.

    async def _beat(self) -> None:
        if self.stay is None:
            self.begin_stay()
            self._is_unsure = True
            if self.instance_id is not None:
                self.model.come_back(self.instance_id, self.client.name, is_classic=False)
            if not self._member_id:
                self._member_id = str(UUID(bytes=self.client.rng.randbytes(16)))
        stay = self.stay
        assert stay is not None
        joins = stay.epoch == JOINING
        is_full = self._is_unsure or joins
        subscription = (tuple(self.names), self.pattern, self.assignor)
        says_all = is_full or subscription != self._said
        places = frozenset(stay.has)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=stay.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_ms if is_full else -1,
            subscribed_topic_names=self.names if says_all else None,
            subscribed_topic_regex=(self.pattern or "") if says_all else None,
            server_assignor=self.assignor if says_all else None,
            topic_partitions=_topics(() if joins else places) if is_full or places != self._said_places else None,
        )
        sent_us = self.world.now_us
        known = self.model.know() if joins else None
        answer = await self.ask(request, versions=VERSIONS)
        self._check(answer.error_code)
        if self.stay is not stay:
            return
        self._is_unsure = False
        self._said, self._said_places = subscription, places
        self.world.counts["group joins"] += joins
        self.model.heard(stay, answer.member_epoch, sent_us, known)
        self._interval_s = answer.heartbeat_interval_ms / 1_000
        if answer.assignment is not None:
            self._take({(t.topic_id, n) for t in answer.assignment.topic_partitions for n in t.partitions}, sent_us)

    def _take(self, target: set[Place], sent_us: int) -> None:
        stay = self.stay
        assert stay is not None
        gained = target - stay.has
        self._lost = frozenset(stay.has - target)
        if gained or self._lost:
            shown = f"{len(gained)} more, {len(self._lost)} less"
            self.world.note(self.client.name, f"{self.group}: epoch {stay.epoch}, {shown} of {len(target)}")
            self.woken.set()
        self.model.give(stay, gained)
        if self._lost and stay.asked_us is None:
            stay.asked_us = sent_us
            late_us = self.client.rng.randrange(*LAZY_MS) * MS if self.is_lazy else 0
            self._drops_at_us = self.world.now_us + late_us
        elif not self._lost:
            stay.asked_us = None

    def _check(self, code: int) -> None:
        if code in OUT:
            self.world.counts["group members out"] += 1
            self.world.counts[f"group {ErrorCode(code).name}"] += 1
            self._lose_all(is_removed=code == ErrorCode.UNKNOWN_MEMBER_ID)
            raise Trouble(ErrorCode(code).name)
        if code == ErrorCode.UNRELEASED_INSTANCE_ID:
            self.world.counts["group instances unreleased"] += 1
            self._lose_all()
            raise Trouble(ErrorCode(code).name)
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.world.counts["group FENCED_INSTANCE_ID"] += 1
            self._lose_all()
            self.is_over = True
            raise Trouble(ErrorCode(code).name)
        self.pass_over(code)

    def _lose_all(self, *, is_removed: bool = False) -> None:
        self.end_stay(is_removed=is_removed)
        self._lost = frozenset()
        self._said_places = None

    async def _forge_beat(self) -> None:
        """Say an epoch that there is not."""
        stay = self.stay
        if stay is None or not stay.epoch:
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=stay.epoch + FORGED,
            instance_id=self.instance_id,
        )
        code = (await self.ask(request, versions=VERSIONS)).error_code
        assert code != ErrorCode.NONE, "an epoch that nobody was told is taken"
        self.world.counts["group forged epochs fenced"] += code == ErrorCode.FENCED_MEMBER_EPOCH
        self._check(code)

    async def _go(self) -> None:
        """Leave, once: an answer that does not come is nobody's trouble."""
        stay = self.stay
        if stay is None:
            return
        # What it was to give up is nobody's, and if an answer is missing that may be anything.
        places = set[Place]() if self._is_unsure else stay.has - self._lost
        stays_reserved = self.comes_back and self.instance_id is not None
        self._lose_all()
        known = self.model.know()
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=GOING_FOR_A_WHILE if stays_reserved else LEAVING,
            instance_id=self.instance_id,
        )
        code = (await self.ask(request, versions=VERSIONS)).error_code
        if code == ErrorCode.NONE:
            stay.is_removed = True
            self.world.counts["group static leaves" if stays_reserved else "group leaves"] += 1
            if stays_reserved:
                self.model.keep(stay, places)
        elif code == ErrorCode.GROUP_ID_NOT_FOUND and (self.model.is_mixed or not self.model.is_there(known)):
            pass  # Its join has come to nothing, or it was thrown out, and the others are a classic group.
        else:
            self._check(code)


def _topics(places: Iterable[Place]) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    by_topic = dict[bytes, list[int]]()
    for topic_id, index in sorted(places):
        by_topic.setdefault(topic_id, []).append(index)
    return [ConsumerGroupHeartbeatTopicPartitions(topic_id=one, partitions=some) for one, some in by_topic.items()]
