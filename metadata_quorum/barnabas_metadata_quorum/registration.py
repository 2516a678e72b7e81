"""Makes a broker a member: it registers, then sends heartbeats until it leaves.

One loop runs on each broker: a heartbeat, by default twice a second (`ControllerConfig.beat_s`).
Registering does not wait for the beat: it is tried the moment the node starts, and goes through as soon as there is
a controller. The first heartbeat follows as soon as the registration is part of this node's own image; that unfences
the broker.

A broker whose registration was taken over (STALE_BROKER_EPOCH: another process runs with this node id) says so and
registers again at its next beat; two such processes would take turns, visibly, which is the least bad that either
can do alone.

Leaving: `begin_shutdown` makes the controller place nothing here any more, while the broker hands its leaderships
on; `finish_shutdown` fences it and ends the heartbeats.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec

from barnabas_metadata_quorum.controller.commands import (
    BrokerHeartbeat,
    BrokerRegistration,
    Command,
    ControlledShutdown,
    HeartbeatAnswer,
    RefusalReason,
    Refused,
    RegisterBroker,
    Reply,
)
from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.records import RECORD_LEVEL, UNKNOWN_DIRECTORY, ListenerAddress

from .answer_limit import AnswerLimit

__all__ = ["BrokerIdentity", "Registration"]

ATTEMPT_S = 2.0
ATTEMPT_S_MAX = 32.0  # where answers take longer

logger = logging.getLogger(__name__)

Submit = Callable[[Command, float], Awaitable[Reply]]
WaitUntil = Callable[[Callable[[Image], bool], float], Awaitable[Image]]


class BrokerIdentity(msgspec.Struct, frozen=True):
    """The identity of this process: the addresses for clients, the start of the process, and the disk.

    `listeners` is empty if there is one address, for everybody. `record_level` says which records it understands.
    """

    incarnation: int
    host: str
    port: int
    rack: str | None = None
    directory_id: bytes = UNKNOWN_DIRECTORY
    listeners: tuple[ListenerAddress, ...] = ()
    record_level: int = RECORD_LEVEL


class Registration:
    """This node's membership as a broker. `epoch` is None until the first registration."""

    def __init__(
        self, node_id: int, identity: BrokerIdentity, submit: Submit, wait_until: WaitUntil, beat_s: float
    ) -> None:
        self._node_id = node_id
        self._identity = identity
        self._submit = submit
        self._wait_until = wait_until
        self._beat_s = beat_s
        self.epoch: int | None = None
        self._leaving = False
        self._quiet = False
        self._limit = AnswerLimit(ATTEMPT_S, ATTEMPT_S_MAX)

    async def run(self) -> None:
        """Register and beat until `finish_shutdown` or cancellation, which has no further effect."""
        while not self._leaving:
            try:
                fresh = await self._step()
            except Refused as refused:
                fresh = refused.reason is RefusalReason.TIMED_OUT  # it has waited for long enough
                if fresh:
                    self._limit.on_silence(self._limit.limit_s)
                if refused.reason in {RefusalReason.STALE_BROKER_EPOCH, RefusalReason.BROKER_ID_NOT_REGISTERED}:
                    logger.warning("node %d must register again: %s", self._node_id, refused)
                    self.epoch = None
                elif not self._quiet:
                    logger.warning("node %d cannot reach the controller: %s", self._node_id, refused)
                self._quiet = True
            else:
                self._quiet = False
            if not fresh:
                await asyncio.sleep(self._beat_s)

    async def _step(self) -> bool:
        """Register, or send one heartbeat; return whether the next step is due at once."""
        if self.epoch is None:
            me = self._identity
            command = RegisterBroker(
                node_id=self._node_id,
                incarnation=me.incarnation,
                host=me.host,
                port=me.port,
                rack=me.rack,
                directory_id=me.directory_id,
                listeners=me.listeners or msgspec.UNSET,
                record_level=me.record_level,
            )
            reply = await self._submit(command, self._limit.limit_s)
            assert isinstance(reply.answer, BrokerRegistration)
            self.epoch = reply.answer.epoch
            return True
        epoch = self.epoch
        version = self.epoch
        # At once, but for the first heartbeat: it helps only when it can say that this node has its registration.
        with contextlib.suppress(TimeoutError):
            version = (await self._wait_until(lambda image: image.version > epoch, ATTEMPT_S)).version
        beat = BrokerHeartbeat(self._node_id, epoch, version, self._identity.record_level)
        await self._submit(beat, self._limit.limit_s)
        return False

    async def begin_shutdown(self, timeout_s: float) -> None:
        """Ask for no more replicas. Raises `Refused`."""
        if self.epoch is not None:
            await self._submit(ControlledShutdown(self._node_id, self.epoch, False), timeout_s)

    async def finish_shutdown(self, timeout_s: float) -> None:
        """Be fenced, and stop beating. Raises `Refused`; heartbeats have stopped even so."""
        self._leaving = True
        if self.epoch is not None:
            reply = await self._submit(ControlledShutdown(self._node_id, self.epoch, True), timeout_s)
            assert isinstance(reply.answer, HeartbeatAnswer)
