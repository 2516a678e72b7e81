"""Connects to the brokers of a cluster, knows its metadata, and asks until answered.

`Cluster` keeps one connection for each broker and lane, which it opens when it is first needed. It also keeps a
`ClusterView`, which is refreshed when an answer or a lost connection shows that it is out of date. Only one dial to a
broker and one refresh are under way at a time. Callers who need the same one wait for it within their own deadlines,
and a caller who leaves does not disturb the others.

The `request_…` methods retry the errors that are retriable (errors.py, protocol/errors.py), with growing pauses. At
their deadline they raise `DeadlineExceededError`, which names the last failure. A request may therefore be carried out
more than once.

*Silent brokers.* A broker that is suspended or cut off closes nothing and answers nothing. So a request that has waited
for `SUSPICION_S` starts a refresh, at another broker. A broker that is not listed any more loses its connection, and
its callers go on to the new leader. A broker that is still listed, but lets a whole `request_timeout_s` pass, loses its
connection too, because everything behind the unanswered request would share its fate.

*Lanes.* A broker answers the requests of a connection in order. So a fetch that waits for records, or a join that waits
for the rest of its group, holds back the requests behind it. Such requests name a lane, and each lane of a broker is a
connection of its own. Requests that are answered at once share the lane "".

Limits: at most one connection for each known broker and lane in use, plus the bootstrap servers; one refresh at a time,
one dial at a time to each of them. A topic that was asked for once stays in the periodic refresh.

Not here: what an answer means. The caller's `check` raises a `KafkaError` for an error code.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from barnabas_clients import chance
from barnabas_clients.arguments import text
from barnabas_clients.backoff import Backoff, Jitter
from barnabas_clients.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    DeadlineExceededError,
    UnknownLeaderError,
)
from barnabas_clients.protocol.errors import KafkaError, error_for
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_raftlog.wire.schema import Message

from .bootstrap import Endpoint, parse_bootstrap
from .cluster_log import ClusterLog
from .connection import IN_FLIGHT_MAX, Connection
from .features import Features
from .topic_view import BrokerAddress
from .trouble import Trouble, listed
from .view import ClusterView

__all__ = ["Check", "Cluster"]

Check = Callable[[Any], None]
"""Raises a `KafkaError` if the answer that it is given carries an error code."""

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
# Brokers answer from memory. One that needs longer is stopped or cut off, and the next one is asked.
METADATA_TIMEOUT_S = 1.5
# All requests share a refresh, so a poll that is merely long costs one small request a second for the whole client.
SUSPICION_S = 1.0


class _Way(NamedTuple):
    """A way to a broker: its `endpoint`, and the lane, which tells the traffic that may share the connection."""

    endpoint: Endpoint
    lane: str = ""


class _Flight(NamedTuple):
    """A refresh under way, and the topics that it asks for; None stands for all."""

    task: "asyncio.Task[None]"
    topics: frozenset[str] | None


class Cluster:
    """The cluster behind some bootstrap servers. Use it as `async with`, from one event loop.

    `view` is the metadata known now, `features` are the newest that a broker has named. Entering fills it, or fails
    within `timeout_s` (None: `request_timeout_s`).
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str = "barnabas",
        request_timeout_s: float = 30.0,
        timeout_s: float | None = None,
        metadata_max_age_s: float = 300.0,
        in_flight_max: int = IN_FLIGHT_MAX,
        allow_auto_topic_creation: bool = False,
        backoff: Backoff = Backoff(),  # noqa: B008 - an immutable value
        jitter: Jitter | None = None,
    ) -> None:
        self.view = ClusterView()
        self.features = Features()
        self.client_id = text("client_id", client_id, may_be_empty=True)
        self.request_timeout_s = request_timeout_s
        self._timeout_s = request_timeout_s if timeout_s is None else timeout_s
        self._bootstrap = parse_bootstrap(bootstrap)
        self._metadata_max_age_s = metadata_max_age_s
        self._in_flight_max = in_flight_max
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._backoff = backoff
        self._jitter: Jitter = jitter or chance.new_generator()
        self._topics: frozenset[str] = frozenset()
        self._refreshed_at_s = 0.0
        self._connections: dict[_Way, Connection] = {}
        self._dials: dict[_Way, asyncio.Task[Connection]] = {}
        self._flight: _Flight | None = None
        self._trouble = Trouble()
        self._closed = asyncio.Event()
        self._log = ClusterLog(self.client_id)

    @property
    def trouble(self) -> str:
        """Why nothing happens, for people: nobody answers, or what has been waited for longest; "" if all is well."""
        known = {(broker.host, broker.port) for broker in self.view.brokers.values()} or set(self._bootstrap)
        is_connected = any(connection.is_open for connection in self._connections.values())
        dialling = sorted({way.endpoint for way in self._dials})
        return self._trouble.text(self._now(), () if is_connected else sorted(known), dialling)

    async def __aenter__(self) -> Self:
        try:
            await self.retry("connecting", self._timeout_s, lambda deadline: self._refresh((), deadline))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; calls under way fail with `ClientClosedError`. Never waits for a broker."""
        self._closed.set()
        self._log.close()
        tasks: list[asyncio.Task[Any]] = [*self._dials.values()]
        if self._flight is not None:
            tasks.append(self._flight.task)
        for task in tasks:
            task.cancel()
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            # All of them before the first wait, in which this call may be cancelled.
            connection.abandon()
        if tasks:
            await asyncio.wait(tasks)
        for connection in connections:
            await connection.close()

    # Asking until answered.

    async def request_any(self, message: Message, timeout_s: float, check: Check | None = None) -> Any:
        """Ask any broker, until one answers."""
        return await self._request(message, self.ask_any, timeout_s, check)

    async def request_controller(self, message: Message, timeout_s: float, check: Check | None = None) -> Any:
        """Ask the controller, until it answers. Any broker forwards a request that only it may serve."""
        return await self._request(message, self.ask_controller, timeout_s, check)

    # Asking once.

    async def ask_any(self, message: Message, timeout_s: float, versions: range | None = None) -> Any:
        """Ask any broker, once; in one of `versions`, if only these will do."""
        deadline = self._now() + timeout_s
        connection = await self._any_connection(deadline, self._endpoints())
        return await self._request_on(connection, message, deadline, None, versions)

    async def ask_controller(self, message: Message, timeout_s: float) -> Any:
        """Ask the controller, once; any broker if the controller is not known."""
        if self.view.controller_id not in self.view.brokers:
            return await self.ask_any(message, timeout_s)
        return await self.ask_broker(self.view.controller_id, message, timeout_s)

    async def ask_broker(
        self, node_id: int, message: Message, timeout_s: float, lane: str = "", versions: range | None = None
    ) -> Any:
        """Ask one broker, once, in the lane for requests of this kind; in one of `versions`, if only these will do.

        Raises:
            UnknownLeaderError: the metadata does not list this broker.
        """
        broker = self.view.brokers.get(node_id)
        if broker is None:
            raise UnknownLeaderError(f"broker {node_id} is not in the metadata")
        return await self._ask(broker, message, self._now() + timeout_s, lane, versions)

    async def drop(self, node_id: int, lane: str, because: str = "") -> None:
        """Close the connection in a lane, if there is one. The next request there dials anew. Waits for no broker.

        `because` says what is wrong with the broker, if that is why.
        """
        if (broker := self.view.brokers.get(node_id)) is not None:
            connection = self._connections.pop(_Way((broker.host, broker.port), lane), None)
            if connection is not None:
                await connection.close(because)

    async def wait_lost(self, node_id: int, lane: str) -> None:
        """Return when the connection in a lane has ended, or at once if there is none. The caller sets the deadline."""
        if (broker := self.view.brokers.get(node_id)) is not None:
            connection = self._connections.get(_Way((broker.host, broker.port), lane))
            if connection is not None:
                await connection.wait_closed()

    async def connect(self, node_id: int, timeout_s: float, lane: str = "") -> Connection:
        """Return an open connection to one broker, for a caller who decides the order of requests.

        Raises:
            UnknownLeaderError: the metadata does not list this broker.
            ConnectionLostError, DeadlineExceededError: it cannot be reached.
        """
        broker = self.view.brokers.get(node_id)
        if broker is None:
            raise UnknownLeaderError(f"broker {node_id} is not in the metadata")
        return await self._connection((broker.host, broker.port), self._now() + timeout_s, lane)

    # Knowing.

    async def leader(self, topic: str, partition: int, timeout_s: float) -> BrokerAddress:
        """Return the leader of a partition; asks until there is one."""
        return await self.retry(
            f"the leader of {topic}-{partition}",
            timeout_s,
            lambda deadline: self.find_leader(topic, partition, deadline),
            (topic,),
        )

    async def find_leader(self, topic: str, partition: int, deadline: float) -> BrokerAddress:
        """Return the leader of a partition that is known now; asks only about an unknown topic, or with old metadata.

        Raises:
            KafkaError: the topic was refused. UnknownLeaderError: it exists, and has no leader.
        """
        is_old = self._now() - self._refreshed_at_s > self._metadata_max_age_s
        if is_old or topic not in self.view.topics:
            await self._refresh((topic,), deadline)
        leader = self.view.leader(topic, partition)
        if leader is not None:
            return leader
        if code := self.view.errors.get(topic):
            raise error_for(code, topic)
        view = self.view.topics.get(topic)
        if view is None or partition not in view.partitions:
            raise UnknownLeaderError(f"{topic}-{partition} is not in the metadata")
        raise UnknownLeaderError(f"{topic}-{partition} has no leader at the moment")

    async def refresh(self, topics: Collection[str] | None = (), *, timeout_s: float) -> ClusterView:
        """Ask for fresh metadata of the topics asked for so far and of `topics`; None asks for every topic.

        Topics that do not exist end up in `view.errors`. Cancellation: the refresh goes on for those who share it.

        Raises:
            DeadlineExceededError: no broker answered within `timeout_s`.
        """
        await self.retry("metadata", timeout_s, lambda deadline: self._refresh(topics, deadline))
        return self.view

    def learn_leader(
        self, topic: str, partition: int, leader_id: int, leader_epoch: int, address: BrokerAddress | None = None
    ) -> None:
        """Take the hint that came with an error (KIP-951). The next attempt follows it without asking for metadata."""
        before = self.view
        self.view = before.with_leader(topic, partition, leader_id, leader_epoch, address)
        self._log.moved(before, self.view)

    # The loop of attempts.

    async def _request(
        self,
        message: Message,
        ask: Callable[[Message, float], Awaitable[Any]],
        timeout_s: float,
        check: Check | None,
    ) -> Any:
        async def attempt(deadline: float) -> Any:
            response = await ask(message, deadline - self._now())
            if check is not None:
                check(response)
            return response

        return await self.retry(type(message).__name__, timeout_s, attempt)

    async def retry(
        self,
        what: str,
        timeout_s: float,
        attempt: Callable[[float], Awaitable[T]],
        topics: Collection[str] = (),
    ) -> T:
        """Call `attempt` with the deadline until it returns or fails for good. Between two calls refresh `topics`.

        An attempt that must ask several brokers keeps the answers it has in its own closure.

        Raises:
            DeadlineExceededError: no attempt succeeded within `timeout_s`; names `what` and the last failure.
        """
        deadline = self._now() + timeout_s
        failures = 0
        may_be_done = False
        last: ClientError | KafkaError | None = None
        with self._trouble.waiting(what, self._now()) as wait:
            while True:
                view = self.view
                try:
                    self._check_open()
                    return await attempt(deadline)
                except (ClientError, KafkaError) as error:
                    self._check_open()
                    if not error.retriable:
                        raise
                    may_be_done |= error.may_be_done is not False
                    # A deadline that passed says less than the failure of an attempt before it.
                    last = last if last and isinstance(error, DeadlineExceededError) else error
                    wait.last = str(last)
                pause_s = self._backoff.delay_s(failures, self._jitter)
                failures += 1
                if self._now() + pause_s >= deadline:
                    raise DeadlineExceededError(
                        f"{what}: timed out after {timeout_s:g} s; last: {last}", may_be_done=may_be_done
                    ) from last
                await self._pause(pause_s)
                if self.view is view and self.view.brokers:
                    try:
                        await self._refresh(topics, deadline)
                    except (ClientError, KafkaError) as error:
                        # The next attempt reports the problem in its own words.
                        if not error.retriable:
                            raise

    async def _pause(self, pause_s: float) -> None:
        """Sleep, but wake at a close."""
        try:
            async with asyncio.timeout(pause_s):
                await self._closed.wait()
        except TimeoutError:
            return

    # Connections.

    async def _ask(
        self, broker: BrokerAddress, message: Message, deadline: float, lane: str, versions: range | None
    ) -> Any:
        connection = await self._connection((broker.host, broker.port), deadline, lane)
        # A caller who names a lane knows how long a request there may take.
        limit_s = math.inf if lane else self.request_timeout_s
        return await self._request_on(connection, message, deadline, limit_s, versions)

    async def _request_on(
        self,
        connection: Connection,
        message: Message,
        deadline: float,
        limit_s: float | None = None,
        versions: range | None = None,
    ) -> Any:
        limit_s = self.request_timeout_s if limit_s is None else limit_s
        left_s = deadline - self._now()
        loop = asyncio.get_running_loop()
        watch: asyncio.TimerHandle

        def suspect() -> None:
            nonlocal watch
            self._start_refresh(self._topics)
            watch = loop.call_later(SUSPICION_S, suspect)

        watch = loop.call_later(SUSPICION_S, suspect)
        try:
            return await connection.request(message, min(left_s, limit_s), versions)
        except DeadlineExceededError as error:
            if left_s >= limit_s:
                await connection.close(str(error))
            raise
        finally:
            watch.cancel()

    async def _any_connection(self, deadline: float, endpoints: Iterable[Endpoint]) -> Connection:
        last: ClientError = ConnectionLostError("the cluster", "no broker is known")
        for endpoint in endpoints:
            try:
                return await self._connection(endpoint, deadline)
            except ClientError as error:
                if not error.retriable:
                    raise
                last = error
        raise last

    def _endpoints(self) -> list[Endpoint]:
        """Return the endpoints to ask, best first: idle connections, brokers without one, busy connections, bootstrap.

        A busy connection may lead to a broker that has stopped answering.
        """
        opened = {
            way.endpoint: connection
            for way, connection in self._connections.items()
            if connection.is_open and not way.lane
        }
        idle = [endpoint for endpoint, connection in opened.items() if not connection.in_flight]
        busy = [endpoint for endpoint in opened if endpoint not in idle]
        busy.sort(key=lambda endpoint: opened[endpoint].in_flight)
        known = self._shuffled((broker.host, broker.port) for broker in self.view.brokers.values())
        new = [endpoint for endpoint in known if endpoint not in opened]
        return list(dict.fromkeys([*idle, *new, *busy, *self._shuffled(self._bootstrap)]))

    def _shuffled(self, endpoints: Iterable[Endpoint]) -> list[Endpoint]:
        return sorted(endpoints, key=lambda _: self._jitter.random())

    async def _connection(self, endpoint: Endpoint, deadline: float, lane: str = "") -> Connection:
        """Return an open connection. At most one dial is under way for an endpoint and lane."""
        way = _Way(endpoint, lane)
        connection = self._connections.get(way)
        if connection is not None and connection.is_open:
            return connection
        dial = self._dials.get(way)
        if dial is None:
            self._check_open()
            dial = self._spawn(self._dial(way))
            self._dials[way] = dial
        return await self._join(dial, deadline)

    async def _dial(self, way: _Way) -> Connection:
        try:
            connection = await Connection.open(
                *way.endpoint, timeout_s=CONNECT_TIMEOUT_S, client_id=self.client_id, in_flight_max=self._in_flight_max
            )
        except ClientError as error:
            is_lost = isinstance(error, ConnectionLostError)
            self._trouble.failed(way.endpoint, error.reason if is_lost else f"no answer within {CONNECT_TIMEOUT_S:g} s")
            self._log.lost(self._broker_at(way.endpoint), error.reason)
            raise
        else:
            connection.on_lost = lambda reason: self._log.lost(self._broker_at(way.endpoint), reason)
            self._log.reached(self._broker_at(way.endpoint))
            self._connections[way] = connection
            self.features = self.features.newer(connection.features)
            self._trouble.reached(way.endpoint)
            return connection
        finally:
            del self._dials[way]

    def _broker_at(self, endpoint: Endpoint) -> BrokerAddress | None:
        """Return the broker that advertises this address, if one does."""
        return next((broker for broker in self.view.brokers.values() if (broker.host, broker.port) == endpoint), None)

    # Metadata.

    async def _refresh(self, topics: Collection[str] | None, deadline: float) -> None:
        """Run one refresh that covers `topics`, or wait for one that is under way."""
        while True:
            self._check_open()
            flight = self._start_refresh(topics)
            covered = flight.topics is None or (topics is not None and flight.topics.issuperset(topics))
            try:
                await self._join(flight.task, deadline)
            except (ClientError, KafkaError):
                # The failure of another caller's refresh is no answer to ours, unless time or cluster are gone.
                if covered or self._closed.is_set() or self._now() >= deadline:
                    raise
            if covered:
                return

    def _start_refresh(self, topics: Collection[str] | None) -> _Flight:
        """Return the refresh under way, or begin one that covers `topics`."""
        if self._flight is None:
            if topics is not None:
                self._topics |= frozenset(topics)
            wanted = None if topics is None else self._topics
            self._flight = _Flight(self._spawn(self._fetch_metadata(wanted)), wanted)
        return self._flight

    async def _fetch_metadata(self, topics: frozenset[str] | None) -> None:
        """Ask one broker after the other until one answers."""
        message = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(topics)],
            allow_auto_topic_creation=self._allow_auto_topic_creation,
        )
        began_s = self._now()
        try:
            last: ClientError | KafkaError = ConnectionLostError("the cluster", "no broker is known")
            for endpoint in self._endpoints():
                try:
                    connection = await self._connection(endpoint, self._now() + CONNECT_TIMEOUT_S)
                    response = await connection.request(message, METADATA_TIMEOUT_S)
                except ClientError as error:
                    if not error.retriable:
                        raise
                    last = error
                    continue
                if response.error_code:
                    last = error_for(response.error_code, "metadata")
                    continue
                await self._take(response, topics)
                return
            if isinstance(last, ClientError):
                self._log.no_answer(last, began_s)
            raise last
        finally:
            self._flight = None

    async def _take(self, response: MetadataResponse, topics: frozenset[str] | None) -> None:
        view = self.view
        before = {(broker.host, broker.port) for broker in view.brokers.values()}
        self.view = view.with_metadata(response, topics)
        self._log.learned(view, self.view)
        self._refreshed_at_s = self._now()
        listed = {(broker.host, broker.port) for broker in self.view.brokers.values()}
        self._trouble.forget_all_but(listed.union(self._bootstrap))
        useless: list[Connection] = []
        for way, connection in list(self._connections.items()):
            # A bootstrap server that has another name in the metadata may be busy with this refresh. A broker that was
            # listed and is not any more answers nobody.
            is_gone = way.endpoint in before - listed
            is_spare = bool(listed) and way.endpoint not in listed and not connection.in_flight
            if is_gone or is_spare or not connection.is_open:
                useless.append(self._connections.pop(way))
        for connection in useless:
            # Only now: during a close another one may be dialled, which would be taken for the one that it replaces.
            await connection.close()

    # Tasks and time.

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClientClosedError("the client is closed")

    def _spawn(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(coroutine)
        # Perhaps nobody waits for its failure any more. A look at it here keeps asyncio from reporting it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _join(self, task: "asyncio.Task[T]", deadline: float) -> T:
        """Wait for a shared task, which goes on if this caller leaves."""
        await asyncio.wait({task}, timeout=max(0.0, deadline - self._now()))
        if not task.done():
            where = listed(sorted({way.endpoint for way in self._dials}))
            raise DeadlineExceededError(f"the deadline passed while connecting{where and ' to '}{where}")
        if task.cancelled():
            raise ClientClosedError("the client is closed")
        return task.result()
