"""What an expression matches is known at any time, whatever comes and goes meanwhile; it costs what is said."""

import random
import re
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest
from steps import outcome

from barnabas_broker.coordinators import patterns as engine
from barnabas_broker.coordinators.groups.consumer import topics as module
from barnabas_broker.coordinators.groups.consumer.patterns import TopicPattern
from barnabas_broker.coordinators.groups.consumer.subscriptions import Subscription, Subscriptions
from barnabas_broker.coordinators.groups.consumer.topics import (
    NODES_MAX,
    PATTERNS_MAX,
    KnownTopic,
    KnownTopics,
    TooManyPatternsError,
    digest_of,
)
from barnabas_broker.coordinators.patterns import Pattern, PatternError
from barnabas_raftlog.steps import at_once

NAMES = ["a", "b", "ab", "orders", "orders-eu", "orders-us", "x.y", "x_y"]
EXPRESSIONS = ["a.*", "orders(-[a-z]+)?", ".*", "x[._]y", "nothing"]
Steps = Generator[None, None, None]
LIVES = 50
STEPS = 60


@dataclass
class Group:
    """A group, and the subscriptions of its members as a list."""

    subscriptions: Subscriptions
    members: list[Subscription] = field(default_factory=list)


class World:
    """A dictionary of topics and Python's `re`, beside what is tested; changes and matching go on side by side."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.topics = KnownTopics()
        self.groups = [Group(Subscriptions(self.topics)) for _ in range(2)]
        self.model: dict[str, KnownTopic] = {}
        self.taking: Steps | None = None
        self.resolving: Steps | None = None
        self.made = 0
        self.steps = (self.change_topics, self.take, self.resolve, self.subscribe, self.leave)
        self.rare_steps = (self.refuse, self.end, self.compare)

    def step(self) -> None:
        self.chance.choice(self.rare_steps if self.chance.random() < 0.15 else self.steps)()

    def change_topics(self) -> None:
        if self.taking is not None:
            return
        gone = [self.model.pop(name) for name in self.chance.sample(NAMES, 2) if name in self.model]
        new = []
        for name in self.chance.sample(NAMES, 4):
            known = self.model.get(name)
            self.made += 1
            is_anew = known is None or self.chance.random() < 0.3
            topic_id = self.made.to_bytes(16, "big") if known is None or is_anew else known.topic_id
            self.model[name] = KnownTopic(name, topic_id, self.chance.randint(1, 4))
            new.append(self.model[name])
        self.taking = self.topics.take_in_steps(new, gone)

    def take(self) -> None:
        if self.taking is not None and next_of(self.taking, self.chance.randint(1, 30)):
            self.taking = None

    def resolve(self) -> None:
        if self.resolving is None:
            self.resolving = self.topics.resolve_in_steps()
        if next_of(self.resolving, self.chance.randint(1, 30)):
            self.resolving = None

    def subscribe(self) -> None:
        group = self.chance.choice(self.groups)
        before = group.members.pop() if group.members and self.chance.random() < 0.5 else None
        names = frozenset(self.chance.sample([*NAMES, "missing"], self.chance.randint(0, 2)))
        subscription = Subscription(names, self.chance.choice([None, *EXPRESSIONS]))
        group.members.append(group.subscriptions.put(subscription, before))

    def refuse(self) -> None:
        group = self.chance.choice(self.groups)
        before = (group.subscriptions.version, list(group.subscriptions.kinds), self.topics._nodes)
        regex = self.chance.choice(["(", "a**", "x{1001}"])
        with pytest.raises(PatternError):
            group.subscriptions.put(Subscription(frozenset({"a"}), regex), group.members[0] if group.members else None)
        assert before == (group.subscriptions.version, list(group.subscriptions.kinds), self.topics._nodes)

    def leave(self) -> None:
        group = self.chance.choice(self.groups)
        if group.members:
            group.subscriptions.remove(group.members.pop(0))

    def end(self) -> None:
        self.groups[1].subscriptions.close()
        self.groups[1] = Group(Subscriptions(self.topics))

    def compare(self) -> None:
        """When all is done, everything is as counted by hand."""
        if self.taking is not None:
            at_once(self.taking)
            self.taking = None
        at_once(self.topics.resolve_in_steps())
        for group in self.groups:
            assert group.subscriptions.is_resolved
            compare(group, self.topics, self.model)

    def check(self) -> None:
        """What is counted is right at any time."""
        for pattern in self.topics._patterns.values():
            places = list(pattern.places())
            placed = [self.topics._places[place] for place in places]
            assert len(places) == pattern.count
            assert all(one is not None and re.fullmatch(pattern.text, one.topic.name) for one in placed)
            assert pattern.digest == sum(one.digest for one in placed if one is not None) % (1 << 64)
        used = {kind.regex for group in self.groups for kind in group.members} - {None}
        assert self.topics._patterns.keys() == used
        assert self.topics._nodes == sum(one.pattern.node_count for one in self.topics._patterns.values())
        assert sum(one.users for one in self.topics._patterns.values()) == sum(
            len({kind.regex for kind in group.members} - {None}) for group in self.groups
        )


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_it_is_as_counted_by_hand(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WORK", 1)
    monkeypatch.setattr(module, "PIECE", 2)
    for number in range(LIVES):
        world = World(random.Random(f"{seed} {number}"))
        for _ in range(STEPS):
            world.step()
            world.check()
        world.compare()


def next_of(steps: Steps, count: int) -> bool:
    """Take some steps; tell whether that was the end."""
    for _ in range(count):
        try:
            next(steps)
        except StopIteration:
            return True
    return False


def compare(group: Group, topics: KnownTopics, model: dict[str, KnownTopic]) -> None:
    subscriptions, members = group.subscriptions, group.members

    def is_in(name: str, kind: Subscription) -> bool:
        is_matching = kind.regex is not None and name in model and re.fullmatch(kind.regex, name) is not None
        return name in kind.names or is_matching

    assert len(topics) == len(model)
    for name in [*NAMES, "missing"]:
        assert topics.get(name) == model.get(name)
        assert subscriptions.subscribers_of(name) == sum(is_in(name, kind) for kind in members)
        assert subscriptions.subscribes_to(name) == any(is_in(name, kind) for kind in members)
    assert subscriptions.is_homogeneous == (len(set(members)) <= 1)
    wanted = at_once(subscriptions.wanted_in_steps())
    for kind in members:
        assert wanted.topic_ids[kind] == {topic.topic_id for name, topic in model.items() if is_in(name, kind)}
    assert wanted.topic_ids.keys() == set(members)
    assert wanted.partition_counts == {
        topic.topic_id: topic.partition_count
        for name, topic in model.items()
        if any(is_in(name, kind) for kind in members)
    }
    # Another broker that hears of all this only now has the same hash.
    others = KnownTopics()
    at_once(others.take_in_steps(reversed(model.values())))
    fresh = Subscriptions(others)
    for kind in reversed(members):
        fresh.put(kind)
    at_once(others.resolve_in_steps())
    assert at_once(fresh.hash_in_steps()) == at_once(subscriptions.hash_in_steps())


def topic(name: str, number: int = 1, count: int = 3) -> KnownTopic:
    return KnownTopic(name, number.to_bytes(16, "big"), count)


@pytest.fixture
def topics() -> KnownTopics:
    topics = KnownTopics()
    at_once(topics.take_in_steps([topic("orders-eu", 1), topic("orders-us", 2), topic("users", 3)]))
    return topics


def resolved(topics: KnownTopics, text: str) -> TopicPattern:
    pattern = topics.acquire(text)
    at_once(topics.resolve_in_steps())
    return pattern


class TestPatterns:
    """What one expression matches."""

    def test_g13_it_is_matched_here_and_not_where_it_was_asked_for(self, topics: KnownTopics) -> None:
        """Whoever acquires it waits for nothing: what it matches is found by someone who has time."""
        pattern = topics.acquire("orders-.*")
        assert (pattern.is_resolved, list(topics.names_of(pattern))) == (False, [])
        _, pieces = outcome(topics.resolve_in_steps())
        assert pieces >= 2
        assert (pattern.is_resolved, sorted(topics.names_of(pattern))) == (True, ["orders-eu", "orders-us"])

    def test_a_topic_that_comes_is_matched_at_once(self, topics: KnownTopics) -> None:
        pattern = resolved(topics, "orders-.*")
        version = topics.version
        at_once(topics.take_in_steps([topic("orders-ch", 9)], [topic("orders-eu", 1)]))
        assert sorted(topics.names_of(pattern)) == ["orders-ch", "orders-us"]
        assert topics.version > version

    def test_a_topic_made_anew_is_another_one(self, topics: KnownTopics) -> None:
        """Also if the news of the old one's end comes with the news of the new one, or after it."""
        pattern = resolved(topics, "users")
        before = pattern.digest
        at_once(topics.take_in_steps([topic("users", 8)], [topic("users", 3)]))
        assert pattern.digest == digest_of(topic("users", 8)) != before
        at_once(topics.take_in_steps([topic("users", 7)]))
        at_once(topics.take_in_steps([], [topic("users", 8)]))
        assert topics.get("users") == topic("users", 7)
        assert pattern.digest == digest_of(topic("users", 7))

    def test_groups_share_it_until_the_last_has_gone(self, topics: KnownTopics) -> None:
        pattern = resolved(topics, "users")
        assert topics.acquire("users") is pattern
        topics.release(pattern)
        assert topics.acquire("users") is pattern
        topics.release(pattern)
        topics.release(pattern)
        assert topics.acquire("users") is not pattern

    def test_what_it_learnt_is_forgotten(self, topics: KnownTopics) -> None:
        pattern = resolved(topics, "(orders|users)-?.*")
        assert pattern.pattern._states == {}
        at_once(topics.take_in_steps([topic("users-ch", 9)]))
        assert pattern.pattern._states == {}
        assert pattern.count == 4

    def test_what_is_deleted_while_it_is_listed_is_not_listed(self, topics: KnownTopics) -> None:
        pattern = resolved(topics, ".*")
        listing = topics.topics_of(pattern)
        first = next(listing)
        gone = [one for one in (topic("orders-us", 2), topic("users", 3)) if one != first]
        at_once(topics.take_in_steps([], gone))
        assert gone[0] not in list(listing)


class TestLimits:
    """How many expressions there may be, and what they take."""

    def test_more_expressions_are_refused(self, topics: KnownTopics, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "PATTERNS_MAX", 2)
        one = topics.acquire("a")
        topics.acquire("b")
        with pytest.raises(TooManyPatternsError):
            topics.acquire("c")
        assert topics.acquire("a") is one
        topics.release(one)
        topics.release(one)
        topics.acquire("c")

    def test_more_nodes_are_refused(self, topics: KnownTopics) -> None:
        used = 0
        for number in range(NODES_MAX):
            try:
                used += topics.acquire(f"{number}x{{900}}").pattern.node_count
            except TooManyPatternsError:
                break
        assert NODES_MAX - 1_000 < used <= NODES_MAX
        assert PATTERNS_MAX == 4_000
        with pytest.raises(TooManyPatternsError):
            topics.acquire("y{900}")

    def test_an_expression_takes_a_bit_for_each_topic(self) -> None:
        topics = KnownTopics()
        at_once(topics.take_in_steps([topic(f"t{number}", number) for number in range(4_000)]))
        pattern = resolved(topics, ".*")
        assert pattern.count == 4_000
        assert pattern.held_bytes == pattern.pattern.held_bytes + 500

    def test_places_are_used_again(self, topics: KnownTopics) -> None:
        for number in range(100):
            at_once(topics.take_in_steps([topic("x", number)]))
            at_once(topics.take_in_steps([], [topic("x", number)]))
        assert len(topics._places) == 4

    def test_many_expressions_and_topics_are_done_in_pieces(self) -> None:
        topics = KnownTopics()
        for number in range(1_000):
            topics.acquire(f"t{number}.*")
        some = [topic(f"t{number}", number) for number in range(40)]
        _, pieces = outcome(topics.take_in_steps(some))
        assert pieces >= 40 * 1_000 // module.LOOKS
        _, pieces = outcome(topics.take_in_steps([one._replace(partition_count=9) for one in some]))
        assert pieces >= 8
        _, pieces = outcome(topics.take_in_steps([], some))
        assert pieces >= 8
        assert len(topics) == 0

    @pytest.mark.parametrize(
        "text", ["(a*)*b", "(a?){300}a{300}", "(?:a{0,30}){15}", "(.*)*(.*)*x", "((a|b|c){0,9}){15}"]
    )
    def test_a_hostile_expression_is_done_in_pieces(self, text: str) -> None:
        topics = KnownTopics()
        names = ["a" * (200 + number) for number in range(20)]
        at_once(topics.take_in_steps([topic(name, number) for number, name in enumerate(names)]))
        pattern = topics.acquire(text)
        _, pieces = outcome(topics.resolve_in_steps())
        assert pieces >= 1
        assert pattern.is_resolved
        assert at_once(Pattern.compile(text).matching(names[0])) == topics.matches(pattern, names[0])


class TestSubscriptions:
    """What members subscribe to all together."""

    def test_members_that_subscribe_alike_hold_one_subscription(self, topics: KnownTopics) -> None:
        subscriptions = Subscriptions(topics)
        first = subscriptions.put(Subscription(frozenset({"users", "orders-eu"})))
        second = subscriptions.put(Subscription(frozenset({"orders-eu", "users"})))
        assert first is second
        alike = [subscriptions.is_homogeneous]
        third = subscriptions.put(Subscription(frozenset({"users"})), second)
        alike.append(subscriptions.is_homogeneous)
        subscriptions.remove(first)
        alike.append(subscriptions.is_homogeneous)
        assert alike == [True, False, True]
        assert list(subscriptions.kinds) == [third]

    def test_g8_the_same_names_in_another_order_are_no_change(self, topics: KnownTopics) -> None:
        subscriptions = Subscriptions(topics)
        held = subscriptions.put(Subscription(frozenset(["a", "b", "c"])))
        version = subscriptions.version
        assert subscriptions.put(Subscription(frozenset(["c", "b", "a"])), held) is held
        assert subscriptions.version == version

    def test_the_hash_is_another_one_when_a_topic_of_the_group_changes(self, topics: KnownTopics) -> None:
        subscriptions = Subscriptions(topics)
        assert at_once(subscriptions.hash_in_steps()) == 0
        subscriptions.put(Subscription(frozenset({"users", "missing"}), "orders-.*"))
        at_once(topics.resolve_in_steps())
        seen = [at_once(subscriptions.hash_in_steps())]
        at_once(topics.take_in_steps([topic("elsewhere", 9)]))
        assert at_once(subscriptions.hash_in_steps()) == seen[0]
        changes: list[tuple[list[KnownTopic], list[KnownTopic]]] = [
            ([topic("users", 3, 4)], []),
            ([topic("users", 30, 4)], []),
            ([topic("missing", 4)], []),
            ([topic("orders-ch", 5)], []),
            ([], [topic("orders-eu", 1)]),
        ]
        for put, deleted in changes:
            at_once(topics.take_in_steps(put, deleted))
            seen.append(at_once(subscriptions.hash_in_steps()))
        assert len(set(seen)) == len(seen)
        assert all(-(1 << 63) <= value < 1 << 63 for value in seen)

    def test_the_hash_is_the_same_for_ever(self, topics: KnownTopics) -> None:
        """It is stored: another number would have every group assigned anew by a newer version."""
        subscriptions = Subscriptions(topics)
        subscriptions.put(Subscription(frozenset({"users"}), "orders-.*"))
        at_once(topics.resolve_in_steps())
        assert at_once(subscriptions.hash_in_steps()) == -675_874_323_164_800_277

    def test_what_changes_while_it_is_counted_is_counted_again(self, topics: KnownTopics) -> None:
        subscriptions = Subscriptions(topics)
        subscriptions.put(Subscription(frozenset(f"n{number}" for number in range(2_500)) | {"users"}))
        steps = subscriptions.hash_in_steps()
        next(steps)
        at_once(topics.take_in_steps([topic("n1", 50), topic("n2400", 51), topic("users", 3, 9)]))
        fresh = Subscriptions(topics)
        fresh.put(next(iter(subscriptions.kinds)))
        assert at_once(steps) == at_once(fresh.hash_in_steps())

    def test_nothing_is_counted_again_if_nothing_has_changed(self, topics: KnownTopics) -> None:
        subscriptions = Subscriptions(topics)
        subscriptions.put(Subscription(frozenset(f"n{number}" for number in range(2_500))))
        assert outcome(subscriptions.hash_in_steps())[1] == 2
        assert outcome(subscriptions.hash_in_steps())[1] == 0

    def test_a_full_broker_changes_nothing(self, topics: KnownTopics, monkeypatch: pytest.MonkeyPatch) -> None:
        subscriptions = Subscriptions(topics)
        held = subscriptions.put(Subscription(frozenset({"users"})))
        monkeypatch.setattr(module, "PATTERNS_MAX", 0)
        with pytest.raises(TooManyPatternsError):
            subscriptions.put(Subscription(frozenset(), "x"), held)
        assert list(subscriptions.kinds) == [held]
        assert subscriptions.subscribers_of("users") == 1
