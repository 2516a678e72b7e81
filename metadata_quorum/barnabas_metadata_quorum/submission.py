"""Brings a command to the active controller, wherever that is, until it answers.

The controller moves, links break and answers get lost, so this is a loop: ask the known leader; when that fails, wait
until something may have changed (a new leader, a link that came up) or for `RETRY_S`, and ask again. It ends when the
caller's time is up. Commands that must not be carried out twice carry a `command_id`, drawn here once for all tries.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from barnabas_metadata_quorum.controller.commands import (
    AlterConfigs,
    AlterReassignments,
    Command,
    CreatePartitions,
    CreateSnapshot,
    CreateTopics,
    DeleteSnapshot,
    DeleteTopics,
    Refusal,
    RefusalReason,
    Refused,
    Reply,
    UnregisterBroker,
    UpdateFeatures,
    decode_reply,
    encode_command,
)
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.links.links import LinkDownError, RemoteError

from .answer_limit import AnswerLimit
from .pulse import Pulse

__all__ = ["METHOD", "Submission"]

METHOD = "controller"
# Between tries when nothing is heard: an election takes 20 to 400 ms, and this bounds the time lost after it.
RETRY_S = 0.05
# One try: a leader that has been cut off may swallow a question. A try ends sooner when another one is known to lead.
# It has more time where answers take longer.
ATTEMPT_S = 2.0
ATTEMPT_S_MAX = 32.0


class Caller(Protocol):
    """The part of the links between nodes that a submission uses."""

    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes: ...


class Submission:
    """The way to the controller for one node. `changed` fires when trying again may go better."""

    def __init__(
        self,
        node_id: int,
        links: Caller,
        leader_id: Callable[[], int | None],
        carry_out_here: Callable[[Command], Awaitable[Reply]],
        changed: Pulse,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self._node_id = node_id
        self._links = links
        self._leader_id = leader_id
        self._carry_out_here = carry_out_here
        self._changed = changed
        self._new_id = new_id
        self._limit = AnswerLimit(ATTEMPT_S, ATTEMPT_S_MAX)

    async def submit(self, command: Command, timeout_s: float) -> Reply:
        """Return the controller's reply.

        Cancelled, or after a timeout, the command may have been carried out, or may still be.

        Raises:
            Refused: by the controller; or TIMED_OUT, with the reason why the last try failed.
        """
        command = with_identity(command, self._new_id)
        trouble = "no controller is known"
        unknown = False
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    leader_id = self._leader_id()
                    if leader_id is not None:
                        try:
                            return await self._ask(leader_id, command)
                        except Refused as refused:
                            if refused.reason is not RefusalReason.NOT_CONTROLLER:
                                raise
                            trouble = refused.message
                            unknown = True
                        except (LinkDownError, RemoteError, NotLeaderError, TimeoutError) as error:
                            trouble = f"node {leader_id}: {str(error) or 'no answer'}"
                            unknown = True
                    await self._try_again(leader_id)
        except TimeoutError as error:
            raise Refused(
                RefusalReason.TIMED_OUT, f"no answer in {round(timeout_s, 1):g} s; {trouble}", outcome_unknown=unknown
            ) from error

    async def _ask(self, leader_id: int, command: Command) -> Reply:
        if leader_id == self._node_id:
            # Refusals take the form that they have from elsewhere: a full disk is a refusal, not the end of this node.
            reply = await refusal_of(self._carry_out_here(command))
        else:
            reply = decode_reply(await self._call(leader_id, encode_command(command)))
        if isinstance(reply.answer, Refusal):
            raise Refused(reply.answer.reason, reply.answer.message)
        return reply

    async def _call(self, leader_id: int, body: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        limit_s = self._limit.limit_s
        began_s = loop.time()
        try:
            async with asyncio.timeout(limit_s) as limit:
                watch = loop.create_task(self._end_when_another_leads(leader_id, limit))
                try:
                    answer = await self._links.call(leader_id, METHOD, body, limit_s)
                finally:
                    watch.cancel()
                    await asyncio.wait([watch])
        except TimeoutError:
            if self._leader_id() in {leader_id, None}:
                self._limit.on_silence(limit_s)
            raise
        self._limit.on_answer(loop.time() - began_s)
        return answer

    async def _end_when_another_leads(self, asked: int, limit: asyncio.Timeout) -> None:
        while self._leader_id() in {asked, None}:
            await self._changed.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    async def _try_again(self, asked: int | None) -> None:
        """Return when it is worth trying again: at once if there is another leader than the one just asked."""
        if self._leader_id() != asked:
            return
        try:
            async with asyncio.timeout(RETRY_S):
                await self._changed.wait()
        except TimeoutError:
            return


def with_identity(command: Command, new_id: Callable[[], uuid.UUID] = uuid.uuid4) -> Command:
    """Return `command` with the ids that make a retry safe, where it needs any."""
    match command:
        case CreateTopics():
            topics = tuple(
                topic if topic.topic_id else msgspec.structs.replace(topic, topic_id=new_id().bytes)
                for topic in command.topics
            )
            return msgspec.structs.replace(command, topics=topics, command_id=command.command_id or new_id().bytes)
        case (
            CreatePartitions()
            | AlterConfigs()
            | DeleteTopics()
            | AlterReassignments()
            | CreateSnapshot()
            | DeleteSnapshot()
            | UpdateFeatures()
            | UnregisterBroker()
        ):
            return msgspec.structs.replace(command, command_id=command.command_id or new_id().bytes)
        case _:
            return command


async def refusal_of(carrying_out: Awaitable[Reply]) -> Reply:
    """Wait for a command that another node asked for; turn an error into a reply that can travel."""
    try:
        return await carrying_out
    except Refused as refused:
        return Reply(0, Refusal(refused.reason, refused.message))
    except NotLeaderError as error:
        return Reply(0, Refusal(RefusalReason.NOT_CONTROLLER, str(error), error.leader_id))
    except StorageFailedError as error:
        return Reply(0, Refusal(RefusalReason.KAFKA_STORAGE_ERROR, str(error)))
