"""Lets anything happen to markers on their way, in any order.

Requests and answers are late or lost, leaders move, topics go, coordinators end and begin anew; the machine does with a
`MarkerSender` what a coordinator does, naively. What must hold after each step: the coordinator is told of a marker
only if the place's log has it, or the place is gone; the log of a place has the transactions of a producer in their
order; what is kept is in proportion to what is owed; the loop comes to rest. And in the end, when everything is there
again and everybody knows it, every transaction has its markers, and nothing is left.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_broker.coordinators.transactions.marker_queues import NOBODY
from barnabas_broker.coordinators.transactions.state_machine.messages import Markers, Place
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.links.rpc import LinkDownError

from .marker_world import BROKERS, MarkerWorld

SHARDS = 2
TRANSACTIONS = 6
TOPICS = {"t": 2, "u": 1}
PLACES: list[Place] = [(name, index) for name, count in TOPICS.items() for index in range(count)]
LEADERS = (*BROKERS, NOBODY)
REFUSALS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)


class Transactional:
    """One transactional id. `markers` are owed if there are any; `missing` is what was not told of."""

    def __init__(self, number: int) -> None:
        self.transactional_id = f"x{number}"
        self.shard = number % SHARDS
        self.producer = Producer(100 + number, 0)
        self.markers: Markers | None = None
        self.missing: set[Place] = set()


class MarkerMachine(RuleBasedStateMachine):
    """See the module. `terms`: of each shard that is led here."""

    def __init__(self) -> None:
        super().__init__()
        self.world = MarkerWorld()
        self.world.on_written = self.on_written  # type: ignore[method-assign]
        self.ids = [Transactional(number) for number in range(TRANSACTIONS)]
        self.by_id = {one.transactional_id: one for one in self.ids}
        self.terms = dict.fromkeys(range(SHARDS), 1)
        self.term = 1
        self.deleted: set[tuple[str, Place]] = set()
        """Markers that were owed to a place when it went."""
        self.completed = 0

    def teardown(self) -> None:
        try:
            if not self.world.failures:
                self.heal()
        finally:
            self.world.close()

    @initialize(leaders=st.lists(st.sampled_from(LEADERS), min_size=len(PLACES), max_size=len(PLACES)))
    def begin(self, leaders: list[int]) -> None:
        for name, count in TOPICS.items():
            self.world.make_topic(name, count)
        for place, leader_id in zip(PLACES, leaders, strict=True):
            self.world.lead(place, leader_id)
        self.world.tell_news()

    def on_written(self, transactional_id: str, producer: Producer, place: Place) -> None:
        one = self.by_id[transactional_id]
        assert one.shard in self.terms, "its shard has ended"
        assert one.markers is not None
        assert one.markers.producer == producer, "of another transaction"
        assert place in one.missing, "told twice"
        is_there = (producer, one.markers.is_commit) in self.world.history.get(place, [])
        assert is_there or (transactional_id, place) in self.deleted, "it is not written"
        one.missing.discard(place)
        if not one.missing:
            one.markers = None
            self.completed += 1

    # The coordinator.

    @rule(
        number=st.integers(0, TRANSACTIONS - 1),
        places=st.sets(st.sampled_from(PLACES), min_size=1),
        is_commit=st.booleans(),
        turns=st.booleans(),
    )
    def an_outcome_is_decided(self, number: int, places: set[Place], is_commit: bool, turns: bool) -> None:
        one = self.ids[number]
        if one.markers is not None or one.shard not in self.terms:
            return
        one.producer = one.producer._replace(epoch=one.producer.epoch + 1)
        one.markers = Markers(one.producer, is_commit, 2, frozenset(places))
        one.missing = set(places)
        self.deleted = {(name, place) for name, place in self.deleted if name != one.transactional_id}
        self.deleted |= {(one.transactional_id, place) for place in places if not self.is_there(place)}
        self.world.send_only(one.shard, one.transactional_id, one.markers, term=self.terms[one.shard])
        if turns:
            self.world.turn()

    @rule(shard=st.integers(0, SHARDS - 1))
    def a_shard_ends(self, shard: int) -> None:
        if self.terms.pop(shard, None) is not None:
            self.world.forget(shard)

    @rule(shard=st.integers(0, SHARDS - 1))
    def a_shard_is_led_again(self, shard: int) -> None:
        if shard in self.terms:
            return
        self.term += 1
        self.terms[shard] = self.term
        for one in self.ids:
            if one.shard == shard and one.markers is not None:
                one.missing = set(one.markers.places)
                self.world.send_only(shard, one.transactional_id, one.markers, term=self.term)
        self.world.turn()

    # The cluster.

    def is_there(self, place: Place) -> bool:
        return place[1] < self.world.topics.get(place[0], 0)

    @rule(place=st.sampled_from(PLACES), leader_id=st.sampled_from(LEADERS), is_told=st.booleans())
    def a_leader_moves(self, place: Place, leader_id: int, is_told: bool) -> None:
        self.world.lead(place, leader_id)
        if is_told:
            self.world.tell_leader(place, leader_id)

    @rule(place=st.sampled_from(PLACES), leader_id=st.sampled_from(LEADERS))
    def news_is_wrong(self, place: Place, leader_id: int) -> None:
        self.world.tell_leader(place, leader_id)

    @rule()
    def news_comes(self) -> None:
        self.world.tell_news()

    @rule(name=st.sampled_from(sorted(TOPICS)))
    def a_topic_is_deleted(self, name: str) -> None:
        if name not in self.world.topics:
            return
        for node_id in list(self.world.under_way):
            # What a broker has read is carried out, or not, before it knows.
            request = self.world.under_way[node_id]
            self.world.carry_out(request, [place for place in PLACES if place[0] == name])
        self.world.delete_topic(name)
        self.deleted |= {
            (one.transactional_id, place) for one in self.ids for place in one.missing if not self.is_there(place)
        }

    @rule(name=st.sampled_from(sorted(TOPICS)), leader_id=st.sampled_from(LEADERS), is_known=st.booleans())
    def a_topic_is_made_anew(self, name: str, leader_id: int, is_known: bool) -> None:
        if name not in self.world.topics:
            self.world.make_topic(name, TOPICS[name], leader_id, is_known=is_known)

    @rule(name=st.sampled_from(sorted(TOPICS)))
    def the_image_is_behind(self, name: str) -> None:
        """It lacks a topic that is there; that shows when the controller is asked."""
        self.world.known_topics.pop(name, None)
        self.world._fire()

    @rule(is_there=st.booleans())
    def the_controller(self, is_there: bool) -> None:
        self.world.controller_is_there = is_there

    # The network.

    def is_asked(self) -> bool:
        return bool(self.world.under_way)

    def one_asked(self, number: int) -> int:
        asked = sorted(self.world.under_way)
        return asked[number % len(asked)]

    @precondition(is_asked)
    @rule(number=st.integers(0, 2))
    def a_request_is_answered(self, number: int) -> None:
        self.world.answer(self.one_asked(number))

    @precondition(is_asked)
    @rule(number=st.integers(0, 2), places=st.sets(st.sampled_from(PLACES)))
    def a_request_is_carried_out(self, number: int, places: set[Place]) -> None:
        """In part, perhaps, and not answered yet: others answer before."""
        self.world.carry_out(self.world.under_way[self.one_asked(number)], places)

    @precondition(is_asked)
    @rule(number=st.integers(0, 2), is_late=st.booleans())
    def a_request_or_its_answer_is_lost(self, number: int, is_late: bool) -> None:
        self.world.lose(self.one_asked(number), TimeoutError() if is_late else LinkDownError("lost"))

    @rule(
        number=st.integers(0, TRANSACTIONS - 1),
        place=st.sampled_from(PLACES),
        code=st.sampled_from(REFUSALS) | st.none(),
    )
    def a_place_refuses(self, number: int, place: Place, code: ErrorCode | None) -> None:
        pair = self.ids[number].producer.producer_id, place
        if code is None:
            self.world.refusals.pop(pair, None)
        else:
            self.world.refusals[pair] = code

    @rule(duration_ms=st.sampled_from([1, 19, 20, 100, 1_000, 60_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.world.advance(duration_ms)

    # What must hold.

    @invariant()
    def the_order_of_a_producer_is_kept(self) -> None:
        for log in self.world.history.values():
            by_producer: dict[int, list[int]] = {}
            for producer, _ in log:
                by_producer.setdefault(producer.producer_id, []).append(producer.epoch)
            assert all(epochs == sorted(set(epochs)) for epochs in by_producer.values())

    @invariant()
    def what_is_kept_is_what_is_owed(self) -> None:
        self.world.turn()
        queues = self.world.sender._queues
        owed = sum(len(one.missing) for one in self.ids if one.shard in self.terms)
        under_way = sum(len(request.pairs) for request in self.world.under_way.values())
        assert queues.owed_count <= owed + under_way
        kept = [queue for queue in queues._queues.values() if queue.waiting or queue.taken or queue.refused]
        assert len(kept) == len(queues._queues)
        assert sum(len(queue.waiting) + len(queue.taken) + len(queue.refused) for queue in kept) == queues.owed_count
        assert self.world.tasks <= len(BROKERS) + 1
        assert self.world.timers_set <= 2

    @invariant()
    def what_is_owed_is_on_its_way_or_waits_for_something(self) -> None:
        """Nobody polls, so nothing may be left lying."""
        queues = self.world.sender._queues
        for place, queue in queues._queues.items():
            if queue.waiting and queue.request is None:
                leader_id = self.world.known_leaders.get(place, NOBODY)
                busy = self.world.under_way.get(leader_id)
                target = queues._targets.get(leader_id)
                is_paused = queue.retry is not None or (target is not None and target.retry is not None)
                is_to_be_looked_at = queues._look_at_ms is not None
                is_unknown = place[1] >= self.world.known_topics.get(place[0], 0) or leader_id == NOBODY
                assert busy is not None or is_paused or is_to_be_looked_at or is_unknown, place
        assert not queues._look_at_ms or self.world.timers_set

    def heal(self) -> None:
        """Let everything be there, and known; then nothing is left undone."""
        world = self.world
        world.refusals.clear()
        world.controller_is_there = True
        for place in PLACES:
            if self.is_there(place) and world.leaders.get(place, NOBODY) == NOBODY:
                world.lead(place, BROKERS[0])
        for shard in range(SHARDS):
            self.a_shard_is_led_again(shard)
        world.tell_news()
        for _ in range(100):
            world.answer_all()
            world.advance(1_000)
            if not any(one.markers for one in self.ids):
                break
        undone: Any = [(one.transactional_id, one.missing) for one in self.ids if one.markers]
        assert not undone
        assert world.comes_to_rest()
