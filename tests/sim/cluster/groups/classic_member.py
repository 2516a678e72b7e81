"""A member of the classic protocol: it joins, its leader divides, all give everything up when they join again."""

from contextlib import suppress

from barnabas_clients.assignors.assignor import Subscription
from barnabas_clients.assignors.built_in import RANGE
from barnabas_clients.assignors.subscription import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas_clients.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_clients.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from sim.cluster.clients.client import Trouble

from .model import Known, Place
from .process import FORGED, Process

__all__ = ["ClassicMember"]

JOIN_S = 12.0
REST_S = 0.3
OUT = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
VERSIONS_3 = range(3, 5)


class ClassicMember(Process):
    """See the module. `names`: what it subscribes to; `session_ms`: how long it may be silent."""

    names: list[str]
    session_ms = 3_000
    names_itself = False
    is_classic = True

    joined: tuple[str, ...] = ()
    """The names to which it subscribed when it joined last."""

    _member_id = ""

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def wanted(self) -> set[Place]:
        return self.topics.places_of(self.names)

    async def run(self) -> None:
        while not self.is_over:
            try:
                if self.is_asked_to_go:
                    await self._go()
                    break
                if self.stay is None or self.joined != tuple(self.names):
                    await self._join()
                await self._work()
            except Trouble as trouble:
                self.world.note(self.client.name, f"{self.group}: {trouble}")
                await self.client.pause()
                continue
            await self.rest(REST_S)
        self.is_over = True

    async def _work(self) -> None:
        stay = self.stay
        if stay is None:
            return
        sent_us = self.world.now_us
        beat = HeartbeatRequest(
            group_id=self.group,
            generation_id=stay.epoch,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
        )
        code = (await self.ask(beat, versions=VERSIONS_3)).error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self.commit_some(1.0)
            self.end_stay()
            self.world.counts["group rebalances"] += 1
            raise Trouble(ErrorCode(code).name)
        self._check(code)
        self.model.heard(stay, stay.epoch, sent_us, None)
        for place in sorted(stay.has - self.positions.keys()):
            await self.look_up(place)
        await self.commit_some(0.5)
        if self.forges:
            self.forges = False
            await self._forge(stay.epoch)
            await self.forge_commit()

    async def _forge(self, epoch: int) -> None:
        beat = HeartbeatRequest(group_id=self.group, generation_id=epoch + FORGED, member_id=self._member_id)
        code = (await self.ask(beat)).error_code
        assert code != ErrorCode.NONE, "a generation that there is not is taken"
        self.world.counts["group forged epochs fenced"] += code == ErrorCode.ILLEGAL_GENERATION
        self._check(code)

    def _check(self, code: int) -> None:
        if code in OUT:
            self.world.counts["group members out"] += 1
            self.world.counts[f"group {ErrorCode(code).name}"] += 1
            self.end_stay(is_removed=code == ErrorCode.UNKNOWN_MEMBER_ID)
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            self.is_over = self.is_over or code == ErrorCode.FENCED_INSTANCE_ID
            raise Trouble(ErrorCode(code).name)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.end_stay()
            raise Trouble(ErrorCode(code).name)
        self.pass_over(code)

    async def _join(self) -> None:
        if self.stay is not None:
            with suppress(Trouble):  # Who may be out of the group already joins all the same, as clients do.
                await self.commit_some(1.0)
        self.end_stay()
        if self.instance_id is not None:
            self.model.come_back(self.instance_id, self.client.name, is_classic=True)
        self.joined = tuple(self.names)
        said = encode_subscription(Subscription(frozenset(self.names)))
        while True:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=self.rebalance_ms,
                member_id=self._member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name=RANGE.name, metadata=said)],
            )
            known = self.model.know()
            joined: JoinGroupResponse = await self.ask(request, JOIN_S)
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
            self._member_id = joined.member_id
        self._check(joined.error_code)
        self._member_id = joined.member_id
        self.world.counts["group joins"] += 1
        await self._sync(joined, known)

    async def _sync(self, joined: JoinGroupResponse, known: Known) -> None:
        shares = list[SyncGroupRequestAssignment]()
        if joined.leader == self._member_id and not joined.skip_assignment:
            members = {
                one.member_id: decode_subscription(one.metadata, one.group_instance_id) for one in joined.members
            }
            counts = dict.fromkeys(self.topics.lasting, self.topics.partitions)
            for member_id, share in sorted(RANGE.assign(counts, members).items()):
                shares.append(SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(share)))
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=RANGE.name,
            assignments=shares,
        )
        sent_us = self.world.now_us
        stay = self.begin_stay()
        self.stay = None  # It is none before it hears of its share.
        synced = await self.ask(request, JOIN_S)
        self._check(synced.error_code)
        self.stay = stay
        self.model.heard(stay, joined.generation_id, sent_us, known)
        ids = self.topics.lasting
        places = {(ids[topic], index) for topic, index in decode_assignment(synced.assignment) if topic in ids}
        self.world.note(self.client.name, f"{self.group}: generation {stay.epoch}, {len(places)} partitions")
        self.model.give(stay, places)

    async def _go(self) -> None:
        """Leave; a static member leaves as an administrator would have it leave."""
        stay = self.stay
        self.end_stay()
        if not self._member_id:
            return
        who = MemberIdentity(member_id=self._member_id, group_instance_id=self.instance_id)
        answer = await self.ask(LeaveGroupRequest(group_id=self.group, member_id=self._member_id, members=[who]))
        code = answer.error_code or (answer.members[0].error_code if answer.members else 0)
        if code == ErrorCode.NONE:
            if stay is not None:
                stay.is_removed = True
            self.world.counts["group leaves"] += 1
        else:
            self._check(code)
