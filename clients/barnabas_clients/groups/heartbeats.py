"""Sends a member's heartbeats, and watches partitions and the user's polls.

`Heartbeats.run` is a task of the session (session.py), from its start to its end. In all situations but OUT it sends a
heartbeat every `heartbeat_interval_s`. Each has a deadline of a third of the session timeout, at most 5 s. When that
passes, the coordinator's connections are dropped, and with them the join that waits there. The connection is watched
between heartbeats, so a coordinator that dies is noticed at once. `GroupMember` decides what the answers mean.

*The leader's watch.* At every heartbeat the known numbers of partitions are compared with those of the last division.
The cluster is asked anew every `WATCH_INTERVAL_S`, and at every heartbeat while a topic of the group does not exist.

*The user's time.* `polled` starts it anew. When it is up, the member leaves and has lost its partitions.

Limits: one heartbeat under way; between failures pauses grow to 1 s.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection

from barnabas_clients.backoff import Backoff, Jitter
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for

from .coordinator import FIND_TIMEOUT_S, GROUP_LANE, LEAVE_TIMEOUT_S, Coordinator, send_leave
from .group_log import GroupLog
from .member import GroupMember, Situation
from .user_time import UserTime

__all__ = ["Heartbeats", "known_counts"]

HEARTBEAT_TIMEOUT_MAX_S = 5.0
WATCH_INTERVAL_S = 30.0


class Heartbeats:
    """The heartbeats of one member. `changed` is called after each event that may matter to the session."""

    def __init__(
        self,
        coordinator: Coordinator,
        member: GroupMember,
        backoff: Backoff,
        jitter: Jitter,
        changed: Callable[[], None],
        log: GroupLog,
    ) -> None:
        self._user = UserTime(member.settings.rebalance_timeout_s)
        self._coordinator = coordinator
        self._cluster: Cluster = coordinator.cluster
        self._member = member
        self._settings = member.settings
        self._backoff = backoff
        self._jitter = jitter
        self._changed = changed
        self._log = log
        self._answered_at_s = 0.0
        self._watched: dict[str, int | None] | None = None
        self._watched_at_s = 0.0
        self._is_joining = asyncio.Event()

    @property
    def is_stalled(self) -> bool:
        """True from the end of the user's time to the next poll."""
        return self._user.is_stalled

    def polled(self) -> None:
        """Start the user's time anew."""
        if self._user.polled(_now()):
            self._changed()

    def begin(self) -> None:
        """Note that a join begins, in this turn of the loop."""
        if not self._is_joining.is_set():
            self._is_joining.set()
            self._answered_at_s = _now()

    def watch(self, counts: dict[str, int | None] | None) -> None:
        """Watch these numbers of partitions from now on (None for a missing topic); None if this is not the leader."""
        self._watched = counts
        self._watched_at_s = _now()

    async def run(self) -> None:
        """Run until cancelled, or until the cluster is closed."""
        failures = 0
        while True:
            if self._member.is_out:
                self._is_joining.clear()
                await self._is_joining.wait()
            await self._wait(failures)
            if not self._user.left_s(_now()):
                await self._give_way()
            if self._member.is_out:
                continue
            try:
                await self._send()
                self._log.heartbeat_answered(_now() - self._answered_at_s)
                self._answered_at_s = _now()
                await self._look()
                failures = 0
            except KafkaError as error:
                if not error.retriable:
                    self._member.fail(error)
                failures += 1
                self._tell_failure(error)
            except ClientError as error:
                if not error.retriable:
                    raise
                failures += 1
                self._tell_failure(error)
            self._changed()

    def _tell_failure(self, error: Exception) -> None:
        self._log.heartbeat_failed(_now() - self._answered_at_s, self._settings.session_timeout_s, error)

    async def _wait(self, failures: int) -> None:
        """Wait for the next heartbeat's time, the end of the user's time, or the end of the connection."""
        if failures:
            await asyncio.sleep(self._backoff.delay_s(failures - 1, self._jitter))
            return
        pause_s = min(self._settings.heartbeat_interval_s, self._user.left_s(_now()))
        if self._coordinator.node_id is None and self._member.situation is Situation.IN:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                # A join looks for the coordinator by itself.
                node_id = await self._coordinator.wait_found()
                await self._cluster.wait_lost(node_id, GROUP_LANE)
                # A connection that cannot be held must not be tried without a pause.
                await asyncio.sleep(self._backoff.initial_s)

    async def _send(self) -> None:
        limit_s = min(self._settings.session_timeout_s / 3, HEARTBEAT_TIMEOUT_MAX_S)
        sent_as = self._member.identity
        request = self._member.heartbeat_request()
        response = await self._coordinator.ask(request, _now() + FIND_TIMEOUT_S + limit_s, limit_s)
        self._member.on_heartbeat(response.error_code, sent_as)
        is_elsewhere = await self._coordinator.forget_if_moved(response.error_code)
        if is_elsewhere or response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            raise error_for(response.error_code, "heartbeat")

    async def _look(self) -> None:
        """Rejoin if topics of the group have other numbers of partitions than at the last division."""
        watched = self._watched
        if watched is None or self._member.situation is not Situation.IN:
            return
        # A topic that does not exist is expected any moment.
        if None in watched.values() or _now() - self._watched_at_s >= WATCH_INTERVAL_S:
            self._watched_at_s = _now()
            await self._cluster.refresh(watched.keys(), timeout_s=self._settings.heartbeat_interval_s)
        changed = [topic for topic, count in known_counts(self._cluster, watched).items() if count != watched[topic]]
        if changed and self._watched is watched:
            self._member.request_rejoin(f"partitions of {', '.join(sorted(changed))} have changed")

    async def _give_way(self) -> None:
        """Leave the group for a user that does not poll."""
        request = self._member.leave_request("the user has not polled for max.poll.interval.ms")
        self._member.leave(lost_because=self._user.end())
        self._changed()
        await send_leave(self._coordinator, request, _now() + LEAVE_TIMEOUT_S)


def known_counts(cluster: Cluster, topics: Collection[str]) -> dict[str, int | None]:
    """Return the known number of partitions of each topic; None if it does not exist."""
    known = cluster.view.topics
    return {topic: len(known[topic].partitions) if topic in known else None for topic in topics}


def _now() -> float:
    return asyncio.get_running_loop().time()
