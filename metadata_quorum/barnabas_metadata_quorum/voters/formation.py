"""Founds a new metadata group: with all controllers, and with the directories that they have.

A controller without a log cannot tell whether its cluster is new or its own disk is. If it is the disk, then it has
forgotten its votes and acknowledgements, and must not count as the voter that it was. So a node without a log begins as
nobody: it follows a leader and answers questions, but it stands for nothing, and its votes and acknowledgements count
only with its own directory. Two ways lead on from there.

*The group exists.* The node registers as a broker, with its new directory; the leader removes the member that was lost
and brings in the new one (`membership`). This module only finds out from the others who leads (`leader_id`): a leader
tells nothing to a disk that it does not know.

*The group is new.* The controller with the lowest id asks all nodes what they have. Only if **every** controller has
answered, in one round, that it has nothing, they found the group: they, with the directories that they have shown.
That configuration is given to all of them before the first of them stands, so no two of them ever begin with different
ones; from there on the group is one like those of partitions. A node that has missed it asks for it: it is valid only
for its members with their very directories, so such a node has lost nothing.

*Why all.* A majority of controllers has all that was ever acknowledged. As long as fewer than a majority of disks are
lost, one of those that are left has it, and says no. Asking a majority would not do: it may be those without.

*Fewer controllers than nodes*: the others only learn, and a group without its controllers' disks is lost. Still they
have its log, so they are asked, too: one that has metadata keeps a controller from beginning without it. Those that do
not answer are waited for `LEARNERS_S`, and not for longer: a new cluster must not need every broker.

Limits: a node without a log asks each other node once in `RETRY_S`, and whenever a link changes; `ASK_S` for an answer,
and up to `ASK_S_MAX` where answers take longer.

Not here: the ways out for an operator when the disks of a majority are gone (docs/moving.md).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import msgpack
import msgspec

from barnabas_metadata_quorum.answer_limit import AnswerLimit
from barnabas_metadata_quorum.controller.commands import RefusalReason, Refused
from barnabas_metadata_quorum.pulse import Pulse
from barnabas_raftlog.errors import MalformedMessageError, StorageFailedError
from barnabas_raftlog.links.interfaces import NodeLinks
from barnabas_raftlog.links.links import LinkDownError, RemoteError
from barnabas_raftlog.raft.membership import NOBODY, UNKNOWN_DIRECTORY, Configuration
from barnabas_raftlog.raft.messages import Fact

from .membership import Membership, founders

__all__ = ["Formation", "FoundingLog"]

METHOD = "metadata.formation"
FORMAT = 1
ASK_S = 1.0
ASK_S_MAX = 16.0
RETRY_S = 0.5
LEARNERS_S = 2.0
PATIENT_S = 3.0  # before an operator is told that this node waits


class FoundingLog(Protocol):
    """The part of the group's log that is read here."""

    @property
    def configuration(self) -> Configuration: ...
    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def failed(self) -> StorageFailedError | None: ...
    def configuration_at(self, index: int) -> Configuration: ...


class FoundedGroup(Protocol):
    """The part of the group that is used here."""

    @property
    def leader_id(self) -> int | None: ...
    def begin_with(self, configuration: Configuration, *, stand: bool) -> None: ...


class Answer(msgspec.Struct, frozen=True):
    """A node's state: its directory, whether it has nothing; and, if known, the founders and the leader."""

    directory_id: bytes
    has_nothing: bool
    founders: Configuration
    leader_id: int | None = None


class Formation:
    """One node's part. Made before the links start; `run` when the group has been added, until it has members.

    `changed` fires when a link has changed; `on_fact` gets news for an operator. `leader_id` is the group's leader, as
    the others say, while this node belongs to no group.
    """

    def __init__(
        self,
        membership: Membership,
        links: NodeLinks,
        log: FoundingLog,
        changed: Pulse,
        monotonic_ms: Callable[[], int],
        on_fact: Callable[[Fact], None],
    ) -> None:
        self._membership = membership
        self._links = links
        self._log = log
        self._changed = changed
        self._monotonic_ms = monotonic_ms
        self._on_fact = on_fact
        self._others = sorted((membership.voters | membership.learners) - {membership.node_id})
        self._limit = {node_id: AnswerLimit(ASK_S, ASK_S_MAX) for node_id in self._others}
        self._group: FoundedGroup | None = None
        self.waiting = ""
        self._told = ""
        self.leader_id: int | None = None
        links.serve(METHOD, self._serve)

    def _has_begun(self) -> bool:
        return bool(self._log.configuration.voters) or self._log.failed is not None

    async def run(self, group: FoundedGroup) -> None:
        """Return when this node knows the members of its group, or its log has failed. Cancelled, nothing is left."""
        self._group = group
        self._changed.fire()
        started_ms = self._monotonic_ms()
        while not self._has_begun():
            asked = self._live()
            answers = await self._ask(asked, NOBODY)
            waited_ms = self._monotonic_ms() - started_ms
            self._note_leader(answers)
            if not self._take_founders(answers):
                self._tell(self._why_not(answers, waited_ms), waited_ms)
                if not self.waiting:
                    await self._found(answers)
            if not self._has_begun() and self._live() == asked:
                await self._pause()
        self.waiting = ""
        self.leader_id = None

    def _note_leader(self, answers: Mapping[int, Answer]) -> None:
        told = [answer.leader_id for answer in answers.values() if answer.leader_id is not None]
        before = self.leader_id
        self.leader_id = max(told, key=told.count, default=None)
        if self.leader_id != before:
            self._changed.fire()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(RETRY_S):
                await self._changed.wait()
        except TimeoutError:
            return

    def _live(self) -> list[int]:
        return [node_id for node_id in self._others if self._links.is_live(node_id)]

    async def _ask(self, node_ids: Collection[int], configuration: Configuration) -> dict[int, Answer]:
        """Ask all of these at once for their state; give them `configuration`, unless that is nobody."""
        body: bytes = msgpack.packb([FORMAT, configuration.encode() if configuration.voters else b""])
        async with asyncio.TaskGroup() as tasks:
            asking = {node_id: tasks.create_task(self._ask_one(node_id, body)) for node_id in node_ids}
        answers = {node_id: task.result() for node_id, task in asking.items()}
        return {node_id: answer for node_id, answer in answers.items() if answer is not None}

    async def _ask_one(self, node_id: int, body: bytes) -> Answer | None:
        limit = self._limit[node_id]
        limit_s = limit.limit_s
        began_s = asyncio.get_running_loop().time()
        try:
            answer = _decode_answer(await self._links.call(node_id, METHOD, body, limit_s))
        except TimeoutError:
            limit.on_silence(limit_s)
        except (LinkDownError, RemoteError, MalformedMessageError):
            pass
        else:
            limit.on_answer(asyncio.get_running_loop().time() - began_s)
            return answer
        return None  # It is asked again.

    async def _serve(self, source: int, body: bytes) -> bytes:
        """Take the founders of the group, if this node waits for them; answer with this node's state."""
        if source < 0:
            raise Refused(RefusalReason.INVALID_REQUEST, "only nodes found a metadata group")
        given = _decode_question(body)
        async with asyncio.timeout(ASK_S):
            while self._group is None:  # Asked before it has its log.
                await self._changed.wait()
        if given.voters:
            self._begin_with(given, stand=False)
        log = self._log
        known = log.configuration_at(0) if log.first_index == 1 else NOBODY
        leader_id = self._group.leader_id
        return _encode_answer(Answer(self._membership.directory_id, self._has_nothing, known, leader_id))

    @property
    def _has_nothing(self) -> bool:
        return not self._log.last_index and not self._has_begun()

    def _begin_with(self, configuration: Configuration, *, stand: bool) -> bool:
        """Begin with the founders if this very directory is among them, or learns from them."""
        me = self._membership.member
        belongs = me in configuration.voters or configuration.has_learner(me)
        # Entries behind the founders, in a log that has its beginning, are of the group that they founded.
        if self._group is None or self._has_begun() or self._log.first_index > 1 or not belongs:
            return False
        self._group.begin_with(configuration, stand=stand)
        self._changed.fire()
        return True

    def _take_founders(self, answers: Mapping[int, Answer]) -> bool:
        known = [answer.founders for answer in answers.values() if answer.founders.voters]
        return any(self._begin_with(configuration, stand=False) for configuration in known)

    def _why_not(self, answers: Mapping[int, Answer], waited_ms: int) -> str:
        """Say why this node does not found the group now; nothing if it does."""
        me = self._membership
        group = self._group
        having = sorted(node_id for node_id, answer in answers.items() if not answer.has_nothing)
        if having and not me.voters.intersection(having) and me.node_id in me.voters:
            return (
                f"nodes {having} have this cluster's metadata, and this controller has an empty directory: it begins "
                "no new cluster beside them; give a controller its directory back, or empty those of all nodes"
            )
        if having or self._log.last_index or self.leader_id is not None or (group and group.leader_id is not None):
            whose = f"nodes {having} have" if having else "there is"
            return f"{whose} metadata, and it does not know this directory: its controller has to let this node in"
        missing = sorted(me.voters - answers.keys() - {me.node_id})
        if missing:
            return f"there is no metadata here, and a new cluster begins when controllers {missing} answer, too"
        if me.node_id != min(me.voters):
            return f"controller {min(me.voters)} begins the new cluster"
        absent = sorted(me.learners - answers.keys())
        if absent and waited_ms < LEARNERS_S * 1_000:
            return f"nodes {absent} may have metadata, and have not answered yet"
        return ""

    def _tell(self, why: str, waited_ms: int) -> None:
        if why and why != self._told and waited_ms >= PATIENT_S * 1_000:
            self._told = why
            self._on_fact(Fact("waiting for controllers", 0, why))
        self.waiting = why

    async def _found(self, answers: Mapping[int, Answer]) -> None:
        """Found the group with all controllers, now that they have answered; begin when all of them have begun."""
        me = self._membership
        directories = {node_id: answer.directory_id for node_id, answer in answers.items()}
        configuration = founders(me, {**directories, me.node_id: me.directory_id})
        accepted = await self._ask(sorted(answers), configuration)
        others = me.voters - {me.node_id}
        if all(node_id in accepted and accepted[node_id].founders == configuration for node_id in others):
            self._begin_with(configuration, stand=True)


def _decode_question(body: bytes) -> Configuration:
    try:
        version, encoded = msgpack.unpackb(body)
        if version != FORMAT:
            raise MalformedMessageError(f"a question of format {version} about the metadata group's beginning")
        return Configuration.decode(encoded) if encoded else NOBODY
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MalformedMessageError(f"a question about the metadata group's beginning: {error}") from error


def _encode_answer(answer: Answer) -> bytes:
    known = answer.founders.encode() if answer.founders.voters else b""
    encoded: bytes = msgpack.packb([FORMAT, answer.directory_id, answer.has_nothing, known, answer.leader_id])
    return encoded


def _decode_answer(body: bytes) -> Answer:
    try:
        version, directory_id, has_nothing, known, leader_id = msgpack.unpackb(body)
        if version != FORMAT or len(directory_id) != len(UNKNOWN_DIRECTORY):
            raise MalformedMessageError(f"an answer of format {version} about the metadata group's beginning")
        return Answer(directory_id, bool(has_nothing), Configuration.decode(known) if known else NOBODY, leader_id)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MalformedMessageError(f"an answer about the metadata group's beginning: {error}") from error
