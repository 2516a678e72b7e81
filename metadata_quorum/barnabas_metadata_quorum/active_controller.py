"""Decides commands while this node leads the metadata group: one instance per term of leadership.

Commands are decided one after the other against `_ahead`, the image as if everything proposed were committed, and
their records are proposed at once. The answer waits until the last record decided so far is applied here, also for a
command without records: TOPIC_ALREADY_EXISTS may rest on a creation that is not committed yet. Where nothing was
proposed, and this node has stalled since a majority last said that it leads, that is asked first.

Commands about topics are decided one in each iteration of the loop, in the order of their coming, and a command about a
topic with very many partitions in pieces. Urgent commands go past them: heartbeats, registrations, sessions. Meanwhile
no topic changes, so a decision against the image of the beginning holds at the end.

When leadership ends, the speculative image dies with this object and every waiting command gets NOT_CONTROLLER: its
records may or may not survive into the next term, and a retry with the same `command_id` finds out.

Limit: `COMMANDS_MAX` commands wait for their turn or their commit; more are refused at once with TIMED_OUT, which
clients retry.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import NamedTuple, Protocol, TypeAlias

from barnabas_metadata_quorum.controller.commands import (
    AlterReassignments,
    Answer,
    Command,
    CreateSnapshot,
    FinishMoves,
    ReadIndex,
    RefusalReason,
    Refused,
    Reply,
)
from barnabas_metadata_quorum.controller.controller import (
    ControllerConfig,
    Decision,
    TopicCommand,
    decide,
    decide_topics,
)
from barnabas_metadata_quorum.controller.sessions import Sessions
from barnabas_metadata_quorum.image.frames import encode_frame
from barnabas_metadata_quorum.image.image import Image, apply_all
from barnabas_metadata_quorum.image.records import Record
from barnabas_raftlog.raft.messages import Entry

__all__ = ["COMMANDS_MAX", "ActiveController", "Clocks", "not_controller"]

COMMANDS_MAX = 1_000

InOneStep: TypeAlias = AlterReassignments | FinishMoves | CreateSnapshot
"""Commands that wait for their turn like those about topics, and are decided in one go: they may take milliseconds."""


class Clocks(NamedTuple):
    """The sources of time: sessions are measured with the first, records are dated with the second."""

    monotonic_ms: Callable[[], int]
    wall_ms: Callable[[], int]


class Proposer(Protocol):
    """The part of a Raft group that the controller uses."""

    @property
    def confirmed(self) -> bool: ...

    def propose(self, frame: bytearray) -> Entry:
        """Append a frame to the log. Raises NotLeaderError, or StorageFailedError with nothing changed."""

    async def confirm(self) -> None:
        """Wait until a majority has said, from now on, that this node still leads. Raises NotLeaderError."""


def not_controller(leader_id: int | None) -> Refused:
    """Return the answer that sends a command to another node."""
    where = f"node {leader_id} is" if leader_id is not None else "nobody is known to be"
    return Refused(RefusalReason.NOT_CONTROLLER, f"this node is not the active controller; {where}")


class ActiveController:
    """See the module. `ahead` and `last_index` are the end of the log now, `applied_index` what is applied."""

    def __init__(
        self,
        term: int,
        group: Proposer,
        ahead: Image,
        last_index: int,
        applied_index: int,
        config: ControllerConfig,
        clocks: Clocks,
    ) -> None:
        self.term = term
        self._group = group
        self._config = config
        self._clocks = clocks
        self._ahead = ahead
        self._last_index = last_index
        self._applied_index = applied_index
        self._sessions = Sessions(config.session_timeout_ms)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._turn = asyncio.Lock()  # to change topics
        self._in_line = 0  # for it, or at it
        self._is_over = False
        self._next_leader_id: int | None = None

    async def carry_out(self, command: Command) -> Reply:
        """Decide, propose, and return when the outcome is committed.

        Cancelled while it waits, the command may still take effect.

        Raises:
            Refused: by the controller, or NOT_CONTROLLER because leadership ended before the commit.
            NotLeaderError: leadership ended before the command was proposed; it has no effect.
            StorageFailedError: the log takes no more; it has no effect.
        """
        waiting = len(self._waiting) + self._in_line
        if waiting >= COMMANDS_MAX:
            raise Refused(RefusalReason.TIMED_OUT, f"{waiting} commands wait for their commit already")
        before_index = self._last_index
        try:
            if isinstance(command, TopicCommand | InOneStep):
                answer = await self._decide_in_turn(command)
            else:
                answer = self.decide(command)
        except Refused:
            # The refusal, too, may rest on records that are not committed yet.
            await self._certain(before_index)
            raise
        version = self._ahead.version
        await self._certain(before_index, must_ask=isinstance(command, ReadIndex))
        return Reply(version, answer)

    async def _certain(self, before_index: int, *, must_ask: bool = False) -> None:
        """Wait until what was decided holds. A commit behind `before_index` says that this node leads, too."""
        is_proof = self._last_index > before_index
        await self._everything_applied()
        if must_ask or not (is_proof or self._group.confirmed):
            await self._group.confirm()

    def decide(self, command: Command) -> Answer:
        """Decide and propose at once; the answer holds when everything proposed so far is committed."""
        decision = decide(self._ahead, self._sessions, command, self._config, self._clocks.monotonic_ms())
        if decision.records:
            self._propose(decision.records)
        return decision.answer

    async def _decide_in_turn(self, command: TopicCommand | InOneStep) -> Answer:
        self._in_line += 1
        try:
            async with self._turn:
                self._check_leads()
                if not isinstance(command, TopicCommand):
                    answer = self.decide(command)
                else:
                    answer = await self._decide_topics(command)
                # The next command has the next iteration of the loop.
                await asyncio.sleep(0)
                return answer
        finally:
            self._in_line -= 1

    async def _decide_topics(self, command: TopicCommand) -> Answer:
        decision = await self._decided(decide_topics(self._ahead, command, self._config))
        if decision.records:
            self._propose(decision.records)
        return decision.answer

    async def _decided(self, steps: Generator[None, None, Decision]) -> Decision:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                decision: Decision = end.value
                return decision
            await asyncio.sleep(0)
            self._check_leads()

    def _check_leads(self) -> None:
        if self._is_over:
            raise not_controller(self._next_leader_id)

    def _propose(self, records: tuple[Record, ...]) -> None:
        entry = self._group.propose(encode_frame(records, self._clocks.wall_ms()))
        assert entry.index > self._last_index
        self._ahead = apply_all(self._ahead, records)
        self._last_index = entry.index

    async def _everything_applied(self) -> None:
        self._check_leads()
        if self._last_index > self._applied_index:
            applied = asyncio.get_running_loop().create_future()
            self._waiting.append((self._last_index, applied))
            await applied

    def applied(self, index: int) -> None:
        """Answer the commands that waited for `index`: all up to it is committed and in this node's image."""
        self._applied_index = index
        while self._waiting and self._waiting[0][0] <= index:
            _, future = self._waiting.popleft()
            if not future.done():  # otherwise its caller was cancelled
                future.set_result(None)

    def end(self, leader_id: int | None) -> None:
        """End leadership, or this node: the fate of the proposals is not known here."""
        self._is_over = True
        self._next_leader_id = leader_id
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(not_controller(leader_id))
