"""Has a `MarkerSender` in a cluster that a test plays: who leads, what arrives, what is heard of it, and when.

Nothing happens by itself: time passes by `advance`, news comes by `tell_news`, and a request that is under way ends
when the test says how (`carry_out`, `answer`, `lose`). What is true (`leaders`, `topics`) and what the sender's broker
has heard of it (`known_leaders`, `known_topics`) are two things. `history` is what each place's log has, markers that
are there already excepted.

After each step the loop turns until nothing is ready any more; a sender that never rests fails there.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any, Self, cast

from broker.coordinators.runtime.replica_world import ManualTimers

from barnabas_broker.coordinators.runtime.shard_host import ShardHost
from barnabas_broker.coordinators.transactions.marker_queues import BACKOFF_MS_MAX, GONE, NOBODY
from barnabas_broker.coordinators.transactions.markers import METHOD, VERSION, MarkerSender
from barnabas_broker.coordinators.transactions.state_machine.messages import V2, Markers, Place
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.pulse import Pulse
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.links.rpc import LinkDownError
from barnabas_raftlog.loop_meter import LoopMeter

__all__ = ["BROKERS", "NODE", "MarkerWorld", "Request", "markers_of"]

NODE = 1
BROKERS = (NODE, 2, 3)
TURNS_MAX = 1_000
Pair = tuple[int, Place]
"""A producer id and a place."""


class Request:
    """One that is under way. `codes`: what was decided about each pair; the others are decided by `carry_out`."""

    def __init__(self, node_id: int, message: WriteTxnMarkersRequest) -> None:
        self.node_id = node_id
        self.message = message
        self.answer: asyncio.Future[WriteTxnMarkersResponse] = asyncio.get_running_loop().create_future()
        self.codes: dict[Pair, ErrorCode] = {}

    @property
    def pairs(self) -> list[Pair]:
        return [
            (marker.producer_id, (topic.name, index))
            for marker in self.message.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]

    def response(self) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self.codes[marker.producer_id, (topic.name, index)],
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in self.message.markers
            ]
        )


class MarkerWorld:
    """See the module. `under_way` has the requests by broker; `asked` counts them; `written` is what was told."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.now_ms = 0
        self.failures: list[BaseException] = []
        self.topics: dict[str, int] = {}
        self.known_topics: dict[str, int] = {}
        self.leaders: dict[Place, int] = {}
        self.known_leaders: dict[Place, int] = {}
        self.refusals: dict[Pair, ErrorCode] = {}
        self.history: dict[Place, list[tuple[Producer, bool]]] = {}
        self.under_way: dict[int, Request] = {}
        self.written: list[tuple[str, Producer, Place]] = []
        self.asked: Counter[int] = Counter()
        self.finds = 0
        self.controller_is_there = True
        self._news = Pulse()
        self.timers = ManualTimers(lambda: self.now_ms)
        clocks = Clocks(lambda: self.now_ms, lambda: self.now_ms)
        self.host = ShardHost(self.timers, clocks, lambda *_: None, self.failures.append, LoopMeter())
        self.sender = MarkerSender(
            NODE,
            self.host,
            self,
            self._ask,
            self._write_here,
            lambda *told: self.on_written(*told),  # noqa: PLW0108 - a test may replace it
        )

    # Leaders, as the sender's broker sees them.

    def find(self, place: Place) -> int:
        self.finds += 1
        if place[1] >= self.known_topics.get(place[0], 0):
            return GONE
        return self.known_leaders.get(place, NOBODY)

    def news(self) -> "asyncio.Future[None]":
        return self._news.wait()

    async def confirm(self) -> None:
        await asyncio.sleep(0)
        if not self.controller_is_there:
            raise TimeoutError("no controller")
        self.known_topics = dict(self.topics)

    # The other end.

    async def _ask(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
        assert node_id != NODE
        assert method == METHOD
        assert timeout_s > 0
        answer = await self._answer(node_id, WriteTxnMarkersRequest.decode(body, VERSION))
        return answer.to_bytes(VERSION)

    async def _write_here(self, message: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return await self._answer(NODE, message)

    async def _answer(self, node_id: int, message: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        assert node_id not in self.under_way, "two requests are under way"
        request = self.under_way[node_id] = Request(node_id, message)
        assert len(set(request.pairs)) == len(request.pairs) > 0
        self.asked[node_id] += 1
        try:
            return await request.answer
        finally:
            del self.under_way[node_id]

    def carry_out(self, request: Request, places: Iterable[Place] | None = None) -> None:
        """Let the broker decide about these of a request's places, or all that it has not decided about."""
        for marker in request.message.markers:
            producer = Producer(marker.producer_id, marker.producer_epoch)
            for pair in request.pairs:
                wanted = places is None or pair[1] in places
                if pair[0] == marker.producer_id and wanted and pair not in request.codes:
                    request.codes[pair] = self._decide(request.node_id, producer, marker.transaction_result, pair[1])

    def _decide(self, node_id: int, producer: Producer, is_commit: bool, place: Place) -> ErrorCode:
        if place[1] >= self.topics.get(place[0], 0):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.leaders.get(place) != node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if (refusal := self.refusals.get((producer.producer_id, place))) is not None:
            return refusal
        marker = producer, is_commit
        log = self.history.setdefault(place, [])
        if marker not in log:
            log.append(marker)
        return ErrorCode.NONE

    def answer(self, node_id: int) -> None:
        """Let the request of a broker be carried out, and answered."""
        request = self.under_way[node_id]
        self.carry_out(request)
        request.answer.set_result(request.response())
        self.turn()

    def lose(self, node_id: int, error: BarnabasError | TimeoutError | None = None) -> None:
        """Let the request of a broker have no answer."""
        self.under_way[node_id].answer.set_exception(error or LinkDownError("the link is down"))
        self.turn()

    def answer_all(self, rounds: int = 1_000) -> None:
        """Answer everything, until nothing is asked any more."""
        for _ in range(rounds):
            if not self.under_way:
                return
            for node_id in list(self.under_way):
                self.answer(node_id)
        raise AssertionError("it never ends")

    # What happens.

    def on_written(self, transactional_id: str, producer: Producer, place: Place) -> None:
        self.written.append((transactional_id, producer, place))

    def make_topic(self, name: str, count: int, leader_id: int = NODE, *, is_known: bool = True) -> None:
        self.topics[name] = count
        for index in range(count):
            self.leaders[name, index] = leader_id
            self.history.pop((name, index), None)
        if is_known:
            self.known_topics[name] = count
            self.known_leaders |= {(name, index): leader_id for index in range(count)}

    def delete_topic(self, name: str) -> None:
        """Delete it; that it is gone is known when the test says so."""
        for index in range(self.topics.pop(name)):
            self.leaders.pop((name, index), None)

    def lead(self, place: Place, leader_id: int) -> None:
        """Let a broker lead a place, in truth."""
        for request in self.under_way.values():
            # What a broker has read it does before it can lead once more.
            if leader_id != self.leaders.get(place) == request.node_id:
                self.carry_out(request, [place])
        self.leaders[place] = leader_id

    def tell_news(self) -> None:
        """Let the sender's broker know everything."""
        self.known_topics = dict(self.topics)
        self.known_leaders = dict(self.leaders)
        self._fire()

    def tell_leader(self, place: Place, leader_id: int) -> None:
        """Let the sender's broker believe that."""
        self.known_leaders[place] = leader_id
        self._fire()

    def _fire(self) -> None:
        self._news.fire()
        self.turn()

    def send(self, shard: int, transactional_id: str, markers: Markers, *, term: int = 1) -> None:
        """Have the coordinator send these, and let them leave."""
        self.send_only(shard, transactional_id, markers, term=term)
        self.turn()

    def send_only(self, shard: int, transactional_id: str, markers: Markers, *, term: int = 1) -> None:
        with self.running():
            self.sender.send(shard, term, transactional_id, markers)

    def forget(self, shard: int) -> None:
        with self.running():
            self.sender.forget(shard)
        self.turn()

    def advance(self, duration_ms: int) -> None:
        """Let time pass, a millisecond at a time as far as something is due."""
        until_ms = self.now_ms + duration_ms
        while True:
            due_ms = self.timers._deadlines.next_at_ms
            if due_ms is None or due_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            with self.running():
                self.timers._fire()
            self.turn()
        self.now_ms = until_ms

    def running(self) -> Any:
        return _Running(self.loop)

    def turn(self) -> None:
        """Let the loop turn until nothing is ready."""
        ready = cast("Any", self.loop)._ready
        for _ in range(TURNS_MAX):
            self.loop.run_until_complete(asyncio.sleep(0))
            assert not self.failures, self.failures
            if not ready:
                return
        raise AssertionError("it never rests")

    @property
    def tasks(self) -> int:
        return len(asyncio.all_tasks(self.loop))

    @property
    def timers_set(self) -> int:
        return len(self.timers._deadlines)

    def comes_to_rest(self) -> bool:
        """Tell whether nothing is left of anything after a moment: no task, no deadline, no queue."""
        self.advance(BACKOFF_MS_MAX)  # A deadline that was cancelled may be looked at once more.
        queues = self.sender._queues
        left = queues.owed_count or queues._queues or queues.missing or queues._leaving or queues._entering
        owed = any(owner.owed for owner in queues._owners.values())
        return not (self.tasks or self.timers_set or left or owed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self.running():
            self.sender.close()
        self.loop.run_until_complete(self.host.close())
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


class _Running:
    """Has a loop as the running one, without letting it turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        asyncio.events._set_running_loop(self._loop)

    def __exit__(self, *_: object) -> None:
        asyncio.events._set_running_loop(None)


def markers_of(producer_id: int, *places: Place, epoch: int = 1, is_commit: bool = True) -> Markers:
    return Markers(Producer(producer_id, epoch), is_commit, V2, frozenset(places))
