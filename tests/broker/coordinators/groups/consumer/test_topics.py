"""What an expression matches is known at any time, whatever comes and goes meanwhile; it costs what is said."""

import random
import re
from collections.abc import Generator, Sequence

import pytest
from steps import outcome

from barnabas_broker.coordinators import patterns as engine
from barnabas_broker.coordinators.groups.consumer import topics as module
from barnabas_broker.coordinators.groups.consumer.patterns import TopicPattern
from barnabas_broker.coordinators.groups.consumer.topics import (
    NODES_MAX,
    PATTERNS_MAX,
    KnownTopic,
    KnownTopics,
    TooManyPatternsError,
)
from barnabas_broker.coordinators.patterns import Pattern, PatternError
from barnabas_raftlog.steps import at_once

NAMES = ["a", "b", "ab", "orders", "orders-eu", "orders-us", "x.y", "x_y"]
EXPRESSIONS = ["a.*", "orders(-[a-z]+)?", ".*", "x[._]y", "nothing"]
Steps = Generator[None, None, None]
LIVES = 50
STEPS = 60


class World:
    """A dictionary of topics and Python's `re`, beside what is tested; changes and matching go on side by side."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.topics = KnownTopics()
        self.held: list[TopicPattern] = []
        self.model: dict[str, KnownTopic] = {}
        self.taking: Steps | None = None
        self.resolving: Steps | None = None
        self.made = 0
        self.steps = (self.change_topics, self.take, self.resolve, self.acquire, self.release)
        self.rare_steps = (self.refuse, self.compare)

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

    def acquire(self) -> None:
        self.held.append(self.topics.acquire(self.chance.choice(EXPRESSIONS)))

    def release(self) -> None:
        if self.held:
            self.topics.release(self.held.pop(self.chance.randrange(len(self.held))))

    def refuse(self) -> None:
        nodes = self.topics._nodes
        with pytest.raises(PatternError):
            self.topics.acquire(self.chance.choice(["(", "a**", "x{1001}"]))
        assert self.topics._nodes == nodes

    def compare(self) -> None:
        """When all is done, everything is as counted by hand."""
        if self.taking is not None:
            at_once(self.taking)
            self.taking = None
        if self.resolving is not None:
            at_once(self.resolving)
            self.resolving = None
        at_once(self.topics.resolve_in_steps())
        assert (self.topics.is_behind, self.topics._news) == (False, [])
        assert len(self.topics) == len(self.model)
        for name in [*NAMES, "missing"]:
            assert self.topics.get(name) == self.model.get(name)
        assert self.topics._names == {topic.topic_id: name for name, topic in self.model.items()}
        for pattern in self.held:
            assert pattern.is_resolved
            matching = sorted(name for name in self.model if re.fullmatch(pattern.text, name))
            assert sorted(self.topics.names_of(pattern)) == matching

    def check(self) -> None:
        """What is counted is right at any time."""
        for pattern in self.topics._patterns.values():
            places = list(pattern.places())
            placed = [self.topics._places[place] for place in places]
            assert len(places) == pattern.count
            assert all(one is not None and re.fullmatch(pattern.text, one.topic.name) for one in placed)
            assert list(self.topics.topics_of(pattern)) == [one.topic for one in placed if one is not None]
        assert self.topics._patterns.keys() == {pattern.text for pattern in self.held}
        assert self.topics._nodes == sum(one.pattern.node_count for one in self.topics._patterns.values())
        assert sum(one.users for one in self.topics._patterns.values()) == len(self.held)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_it_is_as_counted_by_hand(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WORK", 1)
    monkeypatch.setattr(module, "PIECE", 2)
    monkeypatch.setattr(module, "NEWS_SPARE", 0)
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


def topic(name: str, number: int = 1, count: int = 3) -> KnownTopic:
    return KnownTopic(name, number.to_bytes(16, "big"), count)


@pytest.fixture
def topics() -> KnownTopics:
    topics = KnownTopics()
    at_once(topics.take_in_steps([topic("orders-eu", 1), topic("orders-us", 2), topic("users", 3)]))
    return topics


def take(topics: KnownTopics, put: list[KnownTopic], deleted: Sequence[KnownTopic] = ()) -> None:
    """Let topics come and go, and all expressions look at them."""
    at_once(topics.take_in_steps(put, deleted))
    at_once(topics.resolve_in_steps())


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
        assert pieces >= 1
        assert (pattern.is_resolved, sorted(topics.names_of(pattern))) == (True, ["orders-eu", "orders-us"])

    def test_a_topic_that_comes_is_matched(self, topics: KnownTopics) -> None:
        pattern = resolved(topics, "orders-.*")
        version = topics.version
        take(topics, [topic("orders-ch", 9)], [topic("orders-eu", 1)])
        assert sorted(topics.names_of(pattern)) == ["orders-ch", "orders-us"]
        assert topics.version > version

    def test_a_topic_made_anew_is_another_one(self, topics: KnownTopics) -> None:
        """Also if the news of the old one's end comes with the news of the new one, or after it."""
        pattern = resolved(topics, "users")
        assert list(topics.topics_of(pattern)) == [topic("users", 3)]
        take(topics, [topic("users", 8)], [topic("users", 3)])
        assert list(topics.topics_of(pattern)) == [topic("users", 8)]
        take(topics, [topic("users", 7)])
        take(topics, [], [topic("users", 8)])
        assert topics.get("users") == topic("users", 7)
        assert list(topics.topics_of(pattern)) == [topic("users", 7)]

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
        take(topics, [topic("users-ch", 9)])
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
        _, pieces = outcome(topics.resolve_in_steps())
        assert pieces >= 1_000
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


class TestTurns:
    """Who looks at topics next, and what others wait for."""

    HOSTILE = "(a?){300}a{300}"

    def test_a_topic_is_there_before_any_expression_has_looked_at_it(self) -> None:
        topics = KnownTopics()
        for number in range(50):
            topics.acquire(f"{self.HOSTILE}{number}")
        names = ["a" * 240, "b"]
        _, pieces = outcome(topics.take_in_steps([topic(name, number) for number, name in enumerate(names)]))
        assert pieces <= 1
        assert [topics.get(name) is not None for name in names] == [True, True]

    def test_an_expression_that_takes_long_delays_another_by_one_name(self) -> None:
        topics = KnownTopics()
        names = ["a" * (200 + number) for number in range(40)]
        take(topics, [topic(name, number) for number, name in enumerate(names)])
        hostile = topics.acquire(self.HOSTILE)
        matching = topics.resolve_in_steps()
        assert not next_of(matching, 1)
        quick = topics.acquire("a+")
        assert not next_of(matching, 300)
        assert (quick.is_resolved, quick.count) == (True, 40)
        assert not hostile.is_resolved
        assert hostile.looked_at is not None
        assert hostile.looked_at < len(names)

        # So it is with news.
        at_once(topics.take_in_steps([topic("aa", 99)]))
        assert not next_of(matching, 300)
        assert topics.matches(quick, "aa")
        assert not hostile.is_resolved

    def test_news_that_nobody_has_time_for_are_no_more_than_there_are_topics(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "NEWS_SPARE", 3)
        topics = KnownTopics()
        pattern = topics.acquire("x.*")
        for number in range(3, 50):
            at_once(topics.take_in_steps([topic(f"x{number % 3}", number)], [topic(f"x{number % 3}", number - 3)]))
            assert len(topics._news) <= 3 + module.NEWS_SPARE + 1
        at_once(topics.resolve_in_steps())
        assert pattern.count == 3

    def test_what_has_changed_is_remembered_for_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "CHANGES_MAX", 3)
        topics = KnownTopics()
        versions = [topics.version]
        for name in "abcd":
            at_once(topics.take_in_steps([topic(name, ord(name))]))
            versions.append(topics.version)
        assert topics.changed_since(versions[0]) is None
        assert topics.changed_since(versions[1]) == ["d", "c", "b"]
        assert topics.changed_since(versions[-1]) == []

    def test_it_is_compiled_once_for_who_asks_first_and_holds_it_then(self, monkeypatch: pytest.MonkeyPatch) -> None:
        topics = KnownTopics()
        compiled: list[str] = []
        compile_text = Pattern.compile

        def counted(text: str) -> Pattern:
            compiled.append(text)
            return compile_text(text)

        monkeypatch.setattr(Pattern, "compile", counted)
        topics.check("a+")
        assert not topics.is_behind
        topics.acquire("a+")
        assert compiled == ["a+"]
