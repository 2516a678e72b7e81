"""Whatever members do, in whatever order: no partition has two owners, and left alone they share all there is."""

import re
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_broker.coordinators.groups.consumer.messages import Refusal
from barnabas_clients.protocol.error_codes import ErrorCode

from .consumer_desk import REBALANCE_MS, Client, Desk, SomeTopics, settle, topic_id

NAMES = ("t", "u", "v")
members = st.integers(0, 4)
some_names = st.lists(st.sampled_from(NAMES), unique=True)


class ConsumerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(SomeTopics(t=4, u=1))
        self.clients: dict[int, Client] = {}
        self.made = 0

    def make(self, number: int, names: list[str], pattern: str | None) -> Client:
        self.made += 1
        static = f"i{number}" if number < 2 else None
        said: dict[str, Any] = {} if pattern is None else {"topic_pattern": pattern}
        return Client(self.desk, f"m{self.made}", *names, instance=static, **said)

    @rule(number=members, names=some_names, pattern=st.sampled_from([None, "", "t", "[tuv]"]))
    def joins(self, number: int, names: list[str], pattern: str | None) -> None:
        old = self.clients.get(number)
        client = self.make(number, names, pattern)
        answer = client.beat()
        if isinstance(answer, Refusal):
            assert answer.error is ErrorCode.UNRELEASED_INSTANCE_ID
            assert old is not None
            assert number < 2
        else:
            self.clients[number] = client

    @rule(number=members, is_lost=st.booleans(), gives_up=st.booleans())
    def beats(self, number: int, is_lost: bool, gives_up: bool) -> None:
        client = self.clients.get(number)
        if client is not None:
            client.gives_up = gives_up
            answer = client.beat(is_lost=is_lost)
            if isinstance(answer, Refusal) and not is_lost:
                assert answer.error in {
                    ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID,
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                }  # fmt: skip
                if answer.error in {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID}:
                    del self.clients[number]

    @rule(number=members, names=some_names)
    def subscribes_to_something_else(self, number: int, names: list[str]) -> None:
        client = self.clients.get(number)
        if client is not None:
            client.names = names
            client._is_unsaid = True

    @rule(number=members, comes_back=st.booleans())
    def leaves(self, number: int, comes_back: bool) -> None:
        client = self.clients.pop(number, None)
        if client is not None:
            client.leave(-2 if comes_back and client.instance else -1)

    @rule(name=st.sampled_from(NAMES), count=st.sampled_from([None, 1, 3, 5]))
    def topics_change(self, name: str, count: int | None) -> None:
        known = self.desk.topics.find(name)
        if count is None and known is None:
            return
        if count is not None and known is not None and count < known[1]:
            return
        incarnation = 0 if known is None else known[0][-1]
        self.desk.topics.put(name, count, incarnation + (known is None))

    @rule(duration_ms=st.sampled_from([10, 1_000, 20_000, REBALANCE_MS]))
    def time_passes(self, duration_ms: int) -> None:
        self.desk.advance(duration_ms)

    @rule()
    def another_coordinator_takes_over(self) -> None:
        self.desk.take_over()

    @precondition(lambda self: self.clients)
    @rule()
    def they_are_left_alone(self) -> None:
        """Everybody comes by until nothing changes: all that exists and is subscribed to has one owner."""
        desk = self.desk
        desk.advance(50_000)  # Who is away is gone.
        for client in self.clients.values():
            client.gives_up = True
            client.epoch = 0
            client.has = set()
        settle(*self.clients.values(), rounds=30)
        desk.advance(10_001)  # Patterns are looked at again.
        settle(*self.clients.values(), rounds=30)
        assert desk.group.state == "Stable"
        subscribed = {name for one in desk.group.members.values() for name in one.topic_names}
        subscribed |= {
            name
            for one in desk.group.members.values()
            for name in NAMES
            if one.topic_pattern and re.fullmatch(one.topic_pattern, name)
        }
        existing = {name: known for name in subscribed if (known := desk.topics.find(name)) is not None}
        wanted = {(topic, number) for topic, count in existing.values() for number in range(count)}
        has = [pair for client in self.clients.values() for pair in client.has]
        assert sorted(has) == sorted(wanted)

    @invariant()
    def all_is_well(self) -> None:
        self.desk.check()
        for number, client in self.clients.items():
            known = self.desk.group.assignments.get(client.member_id)
            if known is None or client.epoch != known.epoch or number >= 2:
                continue
            # Of what it may use nobody else has anything.
            for topic, partition in client.has:
                assert self.desk.group.owners.get(topic, {}).get(partition) in {None, client.member_id}


TestConsumerMachine = ConsumerMachine.TestCase
TestConsumerMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_ids_of_topics_are_told_apart() -> None:
    assert topic_id("t") != topic_id("t", 1)
