"""Sends the heartbeats of a member of a group of KIP-848, and watches the user's polls.

`ConsumerHeartbeats.run` is a task of the session (consumer_session.py), from its start to its end. In all situations
but OUT it sends a heartbeat when the coordinator wants one, and at once when there is news: who joins, gives partitions
up or wants other topics has others waiting. The connection is watched between heartbeats, so a coordinator that dies is
noticed at once. `ConsumerMember` decides what is said, and what the answers mean. One that leaves says so in the same
lane, so the coordinator hears it after the heartbeat before.

*The user's time.* `polled` starts it anew. When it is up, the member leaves and has lost its partitions.

Limits: one heartbeat under way, for `HEARTBEAT_TIMEOUT_S`; between failures pauses grow to 1 s.
"""

import asyncio
from collections.abc import Callable

from barnabas_clients.backoff import Backoff, Jitter
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError, UnsupportedVersionError
from barnabas_clients.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas_clients.protocol.error_codes import RETRIABLE
from barnabas_clients.protocol.errors import KafkaError, error_for

from .consumer_member import NOT_SERVED, ConsumerMember, Wishes
from .coordinator import FIND_TIMEOUT_S, GROUP_LANE, LEAVE_TIMEOUT_S, Coordinator, send_leave
from .group_log import GroupLog
from .member import Situation
from .user_time import UserTime

__all__ = ["ConsumerHeartbeats"]

HEARTBEAT_TIMEOUT_S = 10.0
"""A coordinator may wait for its disks for 5 s (offsets.commit.timeout.ms) before it says so; a session is longer."""
VERSIONS = range(1, 2)
"""Before, members did not make their ids, and patterns were unknown."""


class ConsumerHeartbeats:
    """The heartbeats of one member.

    `changed` is called after each event that may matter to the session, `new_epoch` when an answer has brought one.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        member: ConsumerMember,
        wishes: Callable[[], Wishes],
        backoff: Backoff,
        jitter: Jitter,
        changed: Callable[[], None],
        new_epoch: Callable[[], None],
        log: GroupLog,
    ) -> None:
        self.answered = asyncio.Event()
        """Set by the next attempt, failed or not; each attempt has another event."""
        self._user = UserTime(member.settings.rebalance_timeout_s)
        self._coordinator = coordinator
        self._cluster: Cluster = coordinator.cluster
        self._member = member
        self._wishes = wishes
        self._backoff = backoff
        self._jitter = jitter
        self._changed = changed
        self._new_epoch = new_epoch
        self._log = log
        self._sent_at_s = 0.0
        self._answered_at_s = 0.0
        self._urged = asyncio.Event()
        self._is_urgent = False

    @property
    def is_stalled(self) -> bool:
        """True from the end of the user's time to the next poll."""
        return self._user.is_stalled

    def polled(self) -> None:
        """Start the user's time anew."""
        if self._user.polled(_now()):
            self._changed()

    def look(self) -> None:
        """Look at the member, which may have news, or have begun to join."""
        self._urged.set()

    def urge(self) -> None:
        """Send a heartbeat as soon as possible, with news or without."""
        self._is_urgent = True
        self._urged.set()

    async def run(self) -> None:
        """Run until cancelled, until the cluster is closed, or until it proves not to serve this protocol."""
        failures = 0
        while True:
            while self._is_out():
                self._answered_at_s = _now()
                self._urged.clear()
                await self._urged.wait()
            await self._wait(failures)
            if not self._user.left_s(_now()):
                await self._give_way()
            if self._is_out():
                continue
            try:
                await self._send()
                self._log.heartbeat_answered(_now() - self._answered_at_s)
                self._answered_at_s = _now()
                # Who was thrown out joins again, and not without a pause.
                failures = failures + 1 if self._is_out() else 0
            except (ClientError, KafkaError) as error:
                self._fail(error)
                failures += 1
            self.release()
            self._changed()

    def release(self) -> None:
        """End the waits for the next answer."""
        answered, self.answered = self.answered, asyncio.Event()
        answered.set()

    def _fail(self, error: ClientError | KafkaError) -> None:
        self._member.on_silence()
        if not error.retriable:
            if isinstance(error, KafkaError):
                self._member.fail(error)
                return
            raise self._not_served(error) if isinstance(error, UnsupportedVersionError) else error
        if self._member.situation is Situation.JOINING:
            self._log.hindered(error)
        self._log.heartbeat_failed(_now() - self._answered_at_s, None, error)

    def _not_served(self, error: UnsupportedVersionError) -> UnsupportedVersionError:
        return UnsupportedVersionError(f"group {self._coordinator.group_id}: {NOT_SERVED} ({error})")

    def _is_out(self) -> bool:
        return self._member.is_out

    def _due_s(self) -> float:
        """Return how long the next heartbeat has time, at most."""
        if self._is_urgent or self._coordinator.node_id is None or self._member.has_news(self._wishes()):
            return 0.0
        return max(0.0, self._sent_at_s + self._member.interval_s - _now())

    async def _wait(self, failures: int) -> None:
        """Wait for the next heartbeat's time, for news, the end of the user's time, or the end of the connection."""
        if failures:
            await asyncio.sleep(self._backoff.delay_s(failures - 1, self._jitter))
            return
        while not self._is_out():
            self._urged.clear()
            pause_s = min(self._due_s(), self._user.left_s(_now()))
            if pause_s <= 0:
                return
            waits = {asyncio.create_task(self._urged.wait()), lost := asyncio.create_task(self._until_lost())}
            try:
                await asyncio.wait(waits, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                if lost.done():
                    # What was on its way may be lost, too. A connection that cannot be held is not tried at once.
                    self._member.on_silence()
                    await asyncio.sleep(self._backoff.initial_s)
                    return
            finally:
                for wait in waits:
                    wait.cancel()
                await asyncio.wait(waits)

    async def _until_lost(self) -> None:
        await self._cluster.wait_lost(await self._coordinator.wait_found(), GROUP_LANE)

    async def _send(self) -> None:
        self._is_urgent = False
        self._sent_at_s = _now()
        beat = self._member.heartbeat(self._wishes())
        response: ConsumerGroupHeartbeatResponse = await self._coordinator.ask(
            beat.request, _now() + FIND_TIMEOUT_S + HEARTBEAT_TIMEOUT_S, HEARTBEAT_TIMEOUT_S, versions=VERSIONS
        )
        was_out = beat.request.member_epoch == 0
        if self._member.on_answer(response, beat):
            self._new_epoch()
            if was_out:
                self._log.entered(self._member.epoch, self._member.member_id)
        code = response.error_code
        if await self._coordinator.forget_if_moved(code) or code in RETRIABLE:
            raise error_for(code, response.error_message or "heartbeat")

    async def _give_way(self) -> None:
        """Leave the group for a user that does not poll."""
        request = self._member.leave_request("the user has not polled for max.poll.interval.ms")
        self._member.leave(lost_because=self._user.end())
        self._changed()
        await send_leave(self._coordinator, request, _now() + LEAVE_TIMEOUT_S)


def _now() -> float:
    return asyncio.get_running_loop().time()
