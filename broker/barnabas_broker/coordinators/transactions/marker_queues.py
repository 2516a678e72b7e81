"""Decides which markers leave for which broker, and when again. Pure.

A transaction whose outcome is decided owes a marker to each of its partitions (`Owed`). What is owed stands in a queue
for each *place*, a topic's name and a partition, and a place is in one of these states:

```
               the leader is known           its turn comes               NONE
  unled ────────────────────────> ready ──────────────────> under way ──────────> nothing is owed any more
    ^  ^                           ^  ^                       │  │  │
    │  └── nobody leads ───────────┘  └────── time is up ── paused  │ another leads, or the link is down: located anew
    │                                                               │
    └───────────────────────────────────────────────────────────────┘
               the topic is not in the image ──> missing ── nor in a current one ──> counts as written
```

*One request a broker.* What is ready for a broker waits until its request is over, and then leaves together,
`PAIRS_MAX` markers at most. A request that does not end holds up nothing but its own broker: a place that has another
leader meanwhile is taken out of it, and asked of that one.

*Order.* A place is in one request at a time, and a producer owes a place one marker at a time: the next transaction
begins when every marker of this one is written. So the markers of a producer reach a place in the order of its
transactions. With transactions v1 all of these have one epoch, and a request of a link that has failed may still be
carried out: brokers carry out what they read before they read what came after it, and that is all there is to say.

*News, not polling.* A place without a leader, and a leader that cannot be reached, wait for news (`on_news`) and for
nothing else. After an answer that may be another soon, a place pauses, and after a request that has failed a broker
does: both in one heap of deadlines, longer each time, unless another leads. All places are looked at after news, in
steps, and then not again for as long as `LOOKS_PER_MS` says, so that news without end costs a part of the time.

*Codes.* Those of a place (`OF_THE_PLACE`) hold it up. Any other is of one marker, and of those there is nothing that
helps: INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED say that somebody newer coordinates, who will have this
one end. They are asked again all the same, seldom, and shown (`status`): a transaction that is not asked for any more
would be open for ever, and nobody would know why.

Memory: about 200 bytes for each marker that is owed, so in proportion to what the coordinator keeps of prepared
transactions; one entry for each place that is owed something, and one for each broker that has led one.

Not here: requests that travel (`markers`), and who leads (`find`).
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any, Final

from barnabas_broker.timing.deadlines import Deadline, Deadlines
from barnabas_clients.protocol.error_codes import ErrorCode

from .state_machine.messages import Markers, Place
from .state_machine.producers import Producer

__all__ = ["GONE", "NOBODY", "PAIRS_MAX", "MarkerQueues", "MarkerRequest", "Owed", "PlaceQueue"]

NOBODY: Final = -1
"""No leader is known, or it cannot be reached; there will be news."""
GONE: Final = -2
"""The image has no such topic or partition."""

PAIRS_MAX = 500
"""Markers in one request, each for one place: 2 ms to make, and an answer of 10 KB."""
PIECE = 50  # places between two yields
BACKOFF_MS = 20
BACKOFF_MS_MAX = 1_000
REFUSED_MS = 1_000
LOOKS_PER_MS = 50  # 2 us each: a tenth of the time
SHOWN_MAX = 10
SEARCHED_MAX = 1_000  # places that a status looks at

OF_THE_PLACE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""What says nothing about the marker, and may be otherwise soon."""


class Owner:
    """One leadership of a partition of the coordinator's log, and what it owes by transactional id."""

    __slots__ = ("is_over", "owed")

    def __init__(self) -> None:
        self.is_over = False
        self.owed: dict[str, Owed] = {}


class Owed:
    """The markers of one transaction. `left` counts those that stand in queues, `entering` what brings more."""

    __slots__ = (
        "coordinator_epoch",
        "entering",
        "is_commit",
        "left",
        "owner",
        "places",
        "producer",
        "transactional_id",
        "version",
    )

    def __init__(self, owner: Owner, coordinator_epoch: int, transactional_id: str, markers: Markers) -> None:
        self.owner = owner
        self.coordinator_epoch = coordinator_epoch
        self.transactional_id = transactional_id
        self.producer: Producer = markers.producer
        self.is_commit = markers.is_commit
        self.version = markers.version
        self.places = markers.places
        self.left = 0
        self.entering = 0


class PlaceQueue:
    """What is owed to one place.

    Each `Owed` is in one of `waiting`; `taken`, by `request`; and `refused`, until `retry`. `target`: the broker that
    leads, NOBODY or GONE. `refused_by`: the broker whose answer was such that it is not asked before `retry`.
    """

    __slots__ = (
        "failures",
        "place",
        "reason",
        "refused",
        "refused_by",
        "request",
        "retry",
        "taken",
        "target",
        "waiting",
    )

    def __init__(self, place: Place) -> None:
        self.place = place
        self.waiting: dict[Owed, None] = {}
        self.taken: dict[Owed, None] = {}
        self.refused: dict[Owed, None] = {}
        self.request: MarkerRequest | None = None
        self.target = NOBODY
        self.refused_by = NOBODY
        self.retry: Deadline[PlaceQueue | Target] | None = None
        self.failures = 0
        self.reason = ""

    def __contains__(self, owed: Owed) -> bool:
        return owed in self.waiting or owed in self.taken or owed in self.refused


class Target:
    """A broker that leads places: which are `ready`, the request under way, the pause after one that failed."""

    __slots__ = ("failures", "node_id", "ready", "reason", "request", "retry")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.ready: dict[PlaceQueue, None] = {}
        self.request: MarkerRequest | None = None
        self.retry: Deadline[PlaceQueue | Target] | None = None
        self.failures = 0
        self.reason = ""


class MarkerRequest:
    """What one broker is asked for at once. Of a producer it has one marker, for any number of places."""

    __slots__ = ("node_id", "pairs", "producers", "queues")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.pairs: list[tuple[PlaceQueue, Owed]] = []
        self.producers: dict[int, Owed] = {}
        self.queues: dict[PlaceQueue, None] = {}


class MarkerQueues:
    """See the module. `find` says who leads a place: a node, NOBODY or GONE. Times are of the monotonic clock.

    After `add`, `forget`, `on_news`, and when `next_at_ms` has come, `in_steps` has something to do; then
    `next_request` gives what is to be sent while `is_wanting`. Each request ends once, by `finish` or `fail`, after
    `judge` was told of each of its pairs. `missing`: places to ask `take_missing` about when the image is current.
    """

    def __init__(self, find: Callable[[Place], int]) -> None:
        self.missing: dict[PlaceQueue, None] = {}
        self.owed_count = 0
        self._find = find
        self._queues: dict[Place, PlaceQueue] = {}
        self._targets: dict[int, Target] = {}
        self._wanting: dict[Target, None] = {}  # something is ready, nothing under way
        self._owners: dict[int, Owner] = {}
        self._entering: deque[tuple[Owed, Iterator[Place]]] = deque()
        self._leaving: deque[Owner] = deque()
        self._retries: Deadlines[PlaceQueue | Target] = Deadlines()
        self._look_at_ms: int | None = None
        self._look_next_ms = 0

    # What is owed.

    def add(self, shard_partition: int, coordinator_epoch: int, transactional_id: str, markers: Markers) -> None:
        """Owe these; those of them that are owed already are owed once."""
        owner = self._owners.setdefault(shard_partition, Owner())
        owed = owner.owed.get(transactional_id)
        places = markers.places
        if owed is not None:
            assert owed.producer == markers.producer, "a transaction begins when the one before has its markers"
            assert owed.is_commit == markers.is_commit, transactional_id
            places -= owed.places
            owed.places |= places
        elif places:
            owed = owner.owed[transactional_id] = Owed(owner, coordinator_epoch, transactional_id, markers)
        if owed is not None and places:
            owed.entering += 1
            self._entering.append((owed, iter(sorted(places))))

    def forget(self, shard_partition: int) -> None:
        """Owe nothing any more in the name of this partition's leadership: it has ended."""
        owner = self._owners.pop(shard_partition, None)
        if owner is not None:
            owner.is_over = True
            self._leaving.append(owner)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed, so that no news matters."""
        return not self._queues and not self._entering

    # Work.

    def has_work(self, now_ms: int) -> bool:
        """Tell whether `in_steps` or `next_request` has something to do now."""
        at_ms = self.next_at_ms
        return bool(self._entering or self._leaving or self._wanting) or (at_ms is not None and at_ms <= now_ms)

    @property
    def next_at_ms(self) -> int | None:
        """When there is something to do, if nothing happens before; None: never."""
        times = [at_ms for at_ms in (self._look_at_ms, self._retries.next_at_ms) if at_ms is not None]
        return min(times, default=None)

    def on_news(self, now_ms: int) -> None:
        """Leaders, brokers or topics have changed: look at all places anew, as soon as that is due."""
        if self._look_at_ms is None and self._queues:
            self._look_at_ms = max(now_ms, self._look_next_ms)

    def in_steps(self, clock: Callable[[], int]) -> Generator[None, None, None]:
        """Take in what has happened, so that what is to be sent now is ready."""
        yield from self._take_out()
        yield from self._take_in()
        while due := self._retries.take_due(clock(), PIECE):
            for item in due:
                self._on_due(item)
            yield
        if self._look_at_ms is not None and self._look_at_ms <= clock():
            self._look_at_ms = None
            queues = list(self._queues.values())
            for number, queue in enumerate(queues, 1):
                self._look(queue)
                if not number % PIECE:
                    yield
            self._look_next_ms = clock() + len(queues) // LOOKS_PER_MS

    def _take_in(self) -> Generator[None, None, None]:
        while self._entering:
            owed, places = self._entering[0]
            piece = [] if owed.owner.is_over else list(islice(places, PIECE))
            for place in piece:
                self._put(owed, place)
            if len(piece) < PIECE:
                self._entering.popleft()
                owed.entering -= 1
                self._clear(owed)
            yield

    def _put(self, owed: Owed, place: Place) -> None:
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = PlaceQueue(place)
        if owed in queue:
            return
        queue.waiting[owed] = None
        owed.left += 1
        self.owed_count += 1
        if len(queue.waiting) == 1 and queue.request is None:
            self._locate(queue)

    def _take_out(self) -> Generator[None, None, None]:
        """Sweep out what leaderships that have ended owed; what is under way goes when that is over."""
        count = 0
        while self._leaving:
            for owed in self._leaving[0].owed.values():
                for place in owed.places:
                    self._withdraw(owed, place)
                    count += 1
                    if not count % PIECE:
                        yield
            self._leaving.popleft()

    def _withdraw(self, owed: Owed, place: Place) -> None:
        queue = self._queues.get(place)
        if queue is None or not (_popped(queue.waiting, owed) or _popped(queue.refused, owed)):
            return
        self.owed_count -= 1
        if not queue.waiting and queue.request is None:
            self._locate(queue)

    def _on_due(self, item: PlaceQueue | Target) -> None:
        item.retry = None
        if isinstance(item, Target):
            self._offer(item)
            return
        item.refused_by = NOBODY
        item.waiting.update(item.refused)
        item.refused.clear()
        if item.request is None:
            self._locate(item)

    def _look(self, queue: PlaceQueue) -> None:
        leader_id = self._find(queue.place)
        if queue.request is not None:
            if leader_id not in {NOBODY, queue.request.node_id}:
                self._release(queue)
        elif leader_id != queue.target:
            was_unled = queue.target == NOBODY
            self._locate(queue)
            target = self._targets.get(leader_id)
            if was_unled and target is not None and target.retry is not None:
                # It is back: the pause was for what was wrong before.
                self._retries.cancel(target.retry)
                target.retry = None
                self._offer(target)

    # Where a place is.

    def _locate(self, queue: PlaceQueue) -> None:
        """Put a place that is in no request where it belongs now; forget it if nothing is owed to it."""
        assert queue.request is None
        self._leave(queue)
        if not queue.waiting:
            self._drop_empty(queue)
            return
        queue.target = leader_id = self._find(queue.place)
        if leader_id == GONE:
            self.missing[queue] = None
        elif leader_id >= 0:
            if queue.refused_by not in {NOBODY, leader_id}:
                queue.refused_by = NOBODY
                queue.failures = 0
            if queue.refused_by == NOBODY:
                target = self._targets.get(leader_id)
                if target is None:
                    target = self._targets[leader_id] = Target(leader_id)
                target.ready[queue] = None
                self._offer(target)

    def _leave(self, queue: PlaceQueue) -> None:
        if queue.target >= 0:
            self._targets[queue.target].ready.pop(queue, None)
        self.missing.pop(queue, None)
        queue.target = NOBODY

    def _drop_empty(self, queue: PlaceQueue) -> None:
        if queue.refused:
            return
        if queue.retry is not None:
            self._retries.cancel(queue.retry)
            queue.retry = None
        if self._queues.get(queue.place) is queue:
            del self._queues[queue.place]

    def _offer(self, target: Target) -> None:
        if target.ready and target.request is None and target.retry is None:
            self._wanting[target] = None

    # Requests.

    @property
    def is_wanting(self) -> bool:
        """Whether a broker is to be sent something. `next_request` may find that its places have other leaders."""
        return bool(self._wanting)

    def next_request(self) -> MarkerRequest | None:
        """Return what a broker is to be asked for next; it is under way from now on."""
        target = next(iter(self._wanting))
        del self._wanting[target]
        request = MarkerRequest(target.node_id)
        # Taken at once: to find the first entry of a dict takes the longer, the more were deleted before it.
        for queue in list(islice(target.ready, PAIRS_MAX)):
            if len(request.pairs) == PAIRS_MAX:
                break
            if self._find(queue.place) == target.node_id:
                del target.ready[queue]
                self._fill(request, queue)
            else:
                self._locate(queue)
        if request.pairs:
            target.request = request
            return request
        self._offer(target)
        return None

    def _fill(self, request: MarkerRequest, queue: PlaceQueue) -> None:
        room = PAIRS_MAX - len(request.pairs)
        chosen: list[Owed] = []
        over: list[Owed] = []
        for owed in queue.waiting:
            if owed.owner.is_over:
                over.append(owed)
            elif request.producers.setdefault(owed.producer.producer_id, owed) is owed:
                chosen.append(owed)
                if len(chosen) == room:
                    break
        for owed in over:
            del queue.waiting[owed]
            self.owed_count -= 1
        for owed in chosen:
            del queue.waiting[owed]
            queue.taken[owed] = None
            request.pairs.append((queue, owed))
        if chosen or queue.waiting:
            queue.request = request
            request.queues[queue] = None
        else:
            self._locate(queue)

    def judge(self, request: MarkerRequest, queue: PlaceQueue, owed: Owed, code: int, now_ms: int) -> bool:
        """Take in the answer for one pair; True: tell the coordinator that this marker is written.

        A success counts whoever leads by now; another answer only if the place was not taken out of the request.
        """
        if code == ErrorCode.NONE:
            queue.failures = 0
            if not queue.refused:
                queue.reason = ""
            found = queue.taken if queue.request is request else queue.waiting
            if not (_popped(found, owed) or _popped(queue.refused, owed)):
                return False  # Swept out, or asked of another leader meanwhile, who says the same.
            if not queue.waiting and queue.request is None:
                self._locate(queue)
            return self.settle(owed)
        if queue.request is not request or owed not in queue.taken:
            return False
        name = ErrorCode(code).name if code in _CODES else f"error {code}"
        queue.reason = f"node {request.node_id} answers {name}"
        if code not in OF_THE_PLACE:
            del queue.taken[owed]
            queue.refused[owed] = None
            self._pause(queue, now_ms + REFUSED_MS)
        elif queue.refused_by == NOBODY:
            queue.refused_by = request.node_id
            self._pause(queue, now_ms + _backoff_ms(queue.failures))
            queue.failures += 1
        return False

    def settle(self, owed: Owed) -> bool:
        """One marker fewer is owed; True: its coordinator wants to know."""
        self.owed_count -= 1
        owed.left -= 1
        self._clear(owed)
        return not owed.owner.is_over

    def _clear(self, owed: Owed) -> None:
        of_owner = owed.owner.owed
        is_swept = owed.owner.is_over
        if not (is_swept or owed.left or owed.entering) and of_owner.get(owed.transactional_id) is owed:
            del of_owner[owed.transactional_id]

    def _pause(self, queue: PlaceQueue, at_ms: int) -> None:
        if queue.retry is not None:
            if queue.retry.at_ms <= at_ms:
                return
            self._retries.cancel(queue.retry)
        queue.retry = self._retries.add(at_ms, queue)

    def finish(self, request: MarkerRequest) -> None:
        """The request has been answered, and every pair judged."""
        target = self._targets[request.node_id]
        target.failures = 0
        target.reason = ""
        self._end(target, request)

    def fail(self, request: MarkerRequest, reason: str, now_ms: int) -> None:
        """The request has no answer; whether it was carried out is not known."""
        target = self._targets[request.node_id]
        target.retry = self._retries.add(now_ms + _backoff_ms(target.failures), target)
        target.failures += 1
        target.reason = reason
        self._end(target, request)

    def _end(self, target: Target, request: MarkerRequest) -> None:
        assert target.request is request
        target.request = None
        for queue in request.queues:
            if queue.request is request:
                self._release(queue)
        self._offer(target)

    def _release(self, queue: PlaceQueue) -> None:
        """Take a place out of its request."""
        queue.request = None
        for owed in queue.taken:
            if owed.owner.is_over:
                self.owed_count -= 1
            else:
                queue.waiting[owed] = None
        queue.taken.clear()
        self._locate(queue)

    def take_missing(self, queue: PlaceQueue) -> list[Owed]:
        """Return what a place was owed that is in no current image; `settle` is to be called with each."""
        if queue not in self.missing:
            return []
        self._locate(queue)
        if queue.target != GONE:
            return []
        owed = [*queue.waiting, *queue.refused]
        queue.waiting.clear()
        queue.refused.clear()
        self._locate(queue)
        return owed

    def status(self) -> dict[str, Any]:
        """Return what is owed, and a few places that do not get it, with the reason."""
        held_up: list[dict[str, Any]] = []
        for queue in islice(self._queues.values(), SEARCHED_MAX):
            if (reason := self._reason(queue)) and len(held_up) < SHOWN_MAX:
                held_up.append({"topic": queue.place[0], "partition": queue.place[1], "reason": reason})
        under_way = {
            target.node_id: len(target.request.pairs) for target in self._targets.values() if target.request is not None
        }
        return {
            "markers": self.owed_count,
            "partitions": len(self._queues),
            "under_way": under_way,
            "held_up": held_up,
        }

    def _reason(self, queue: PlaceQueue) -> str:
        if queue.target == GONE:
            return "it is not known whether the topic is deleted"
        if queue.reason:
            return queue.reason
        if queue.request is not None:
            return ""
        target = self._targets.get(queue.target)
        return "no leader is known, or it cannot be reached" if target is None else target.reason


_CODES: Final = frozenset(int(code) for code in ErrorCode)


def _popped(owed_ones: dict[Owed, None], owed: Owed) -> bool:
    if owed not in owed_ones:
        return False
    del owed_ones[owed]
    return True


def _backoff_ms(failures: int) -> int:
    return int(min(BACKOFF_MS << min(failures, 10), BACKOFF_MS_MAX))
