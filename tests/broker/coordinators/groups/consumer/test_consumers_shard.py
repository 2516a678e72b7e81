"""Groups of KIP-848 between log and clients: nothing is told before it is committed, and nothing is lost."""

from typing import Any

import pytest
from broker.coordinators.groups.shard_world import World
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from barnabas_broker.coordinators.groups import coordinator
from barnabas_broker.coordinators.groups.consumer.group import HURRY_MS
from barnabas_broker.coordinators.groups.consumer.messages import Beat, ConsumerAnswer, Refusal
from barnabas_broker.coordinators.groups.consumer.topics import KnownTopic
from barnabas_broker.coordinators.groups.consumer.values import ConsumerKey, Kind, MemberAssignment
from barnabas_broker.coordinators.groups.hosted_consumers import Flight
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.records import CommittedOffset, OffsetKey
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.steps import at_once

from .consumer_desk import pairs, topic_id

NONE = ErrorCode.NONE
BEGINS = {"group.consumer.session.timeout.ms": 10_000, "group.consumer.assignment.interval.ms": 50}
MOVED = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class Member:
    """A member that asks the present shard, one thing at a time; `answers` are all that it was given."""

    def __init__(self, world: World, group_id: str, member_id: str, *names: str, instance: str | None = None) -> None:
        self.world = world
        self.group_id = group_id
        self.member_id = member_id
        self.names = names
        self.instance = instance
        self.epoch = 0
        self.has: set[tuple[bytes, int]] = set()
        self.answers: list[ConsumerAnswer | Refusal] = []
        self.waits = False

    def beat(self) -> None:
        shard = self.world.shard
        if shard is None or self.waits:
            return
        owned: dict[bytes, list[int]] = {}
        for topic, number in self.has:
            owned.setdefault(topic, []).append(number)
        said: dict[str, Any] = {}
        if self.epoch == 0:
            said = {"topic_names": self.names, "rebalance_timeout_ms": 5_000, "instance_id": self.instance}
        self.waits = True
        with self.world.step():
            beat = Beat(self.member_id, self.epoch, client_id="c", client_host="/h", owned=owned, **said)
            shard.consumers.beat(self.group_id, beat, self)

    def leave(self, epoch: int = -1) -> None:
        shard = self.world.shard
        if shard is None or self.waits:
            return
        self.waits = True
        self.epoch, self.has = 0, set()
        with self.world.step():
            shard.consumers.leave(self.group_id, Beat(self.member_id, epoch, instance_id=self.instance), self)

    def on_answer(self, answer: ConsumerAnswer | Refusal) -> None:
        assert self.waits, "answered twice"
        self.waits = False
        self.answers.append(answer)
        if isinstance(answer, Refusal):
            if answer.error not in MOVED:
                self.epoch, self.has = 0, set()
            return
        if answer.epoch < 0:
            return
        self.epoch = answer.epoch
        if answer.assigned is not None:
            self.has = pairs(answer.assigned)
        key = ConsumerKey(self.group_id, Kind.MEMBER_ASSIGNMENT, self.member_id)
        said = [value for entry in self.world.history if (value := self.world.said_in(entry).get(key)) is not None]
        assert any(
            isinstance(one, MemberAssignment) and one.epoch == answer.epoch and self.has <= pairs(one.assigned)
            for one in said
        ), "told before it was committed"


def topics_of(world: World, **counts: int) -> None:
    """Let there be topics; the groups of the broker hear of them at once."""
    known = [KnownTopic(name, topic_id(name), count) for name, count in counts.items()]
    at_once(world.coordinator.topics.known.take_in_steps(known))


def only_topics_of(world: World, **counts: int) -> None:
    """Let there be these topics alone."""
    known = world.coordinator.topics.known
    gone = [one.topic for one in known._by_name.values() if one.topic.name not in counts]
    at_once(known.take_in_steps((), gone))
    topics_of(world, **counts)


def settle(world: World, *members: Member) -> None:
    """Let all of them come by until nothing changes any more."""
    now: list[Any] = []
    for _ in range(40):
        for member in members:
            member.beat()
        for _ in range(2):
            world.commit()
            world.breathe(3)
            world.advance(30)
        before, now = now, [(member.epoch, frozenset(member.has), member.waits) for member in members]
        if before == now and not any(member.waits for member in members):
            break
    assert all(member.epoch == members[0].epoch > 0 for member in members), [member.answers[-1] for member in members]


def interval_of(member: Member) -> int:
    answer = member.answers[-1]
    assert isinstance(answer, ConsumerAnswer)
    return answer.interval_ms


def groups_of(shard: GroupShard) -> set[str]:
    return set(shard.consumers.groups)


class TestAnswers:
    def test_they_wait_for_the_log(self) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=2)
            world.lead()
            one = Member(world, "g", "a", "t")
            one.beat()
            world.breathe(3)
            assert one.waits
            world.commit()
            assert (one.epoch, len(one.has)) == (1, 2)

    def test_what_is_not_committed_is_told_to_nobody_who_asks_again(self) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=2)
            world.lead()
            one = Member(world, "g", "a", "t")
            one.beat()
            world.breathe(3)
            again = Member(world, "g", "a", "t")
            again.beat()
            world.breathe(3)
            assert again.waits
            world.commit()
            assert (one.waits, again.waits) == (False, False)

    def test_a_coordinator_that_is_deposed_says_so_and_the_next_one_knows_what_is_committed(self) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=2)
            world.lead()
            one, two = Member(world, "g", "a", "t"), Member(world, "g", "b", "t")
            settle(world, one)
            two.beat()
            world.breathe(3)
            world.lose()
            world.breathe(3)
            assert isinstance(two.answers[-1], Refusal)
            assert two.answers[-1].error is ErrorCode.NOT_COORDINATOR
            shard = world.lead()
            group = shard.consumers.groups["g"].group
            assert (set(group.members), group.epoch_number, len(group.owners[topic_id("t")])) == ({"a"}, 1, 2)
            settle(world, one, two)
            assert len(one.has) == len(two.has) == 1

    def test_what_the_log_refuses_is_taken_back(self, monkeypatch: Any) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=2)
            shard = world.lead()
            one, two = Member(world, "g", "a", "t"), Member(world, "g", "b", "t")

            def refuse(*_: Any, **__: Any) -> None:
                raise StorageFailedError("full")

            with monkeypatch.context() as patch:
                patch.setattr(world.raft, "propose", refuse)
                one.beat()
                world.breathe(3)
            assert isinstance(one.answers[-1], Refusal)
            assert one.answers[-1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert not groups_of(shard)
            settle(world, one)
            with monkeypatch.context() as patch:
                patch.setattr(world.raft, "propose", refuse)
                two.beat()
                assert two.waits
                one.leave()
                world.breathe(3)
                assert isinstance(two.answers[-1], Refusal)
                assert two.answers[-1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
                world.advance(500)
            assert set(shard.consumers.groups["g"].group.members) == {"a"}
            settle(world, one, two)
            assert len(one.has) == len(two.has) == 1

    def test_a_group_whose_members_start_together_is_one_batch(self) -> None:
        with World({**BEGINS, "group.initial.rebalance.delay.ms": 100}) as world:
            topics_of(world, t=2)
            world.lead()
            before = len(world.all_entries())
            one, two = Member(world, "g", "a", "t"), Member(world, "g", "b", "t")
            one.beat()
            two.beat()
            world.breathe(3)
            assert len(world.all_entries()) == before
            world.advance(100)
            world.breathe(5)
            assert len(world.all_entries()) == before + 1
            world.commit()
            assert (one.epoch, two.epoch, len(one.has), len(two.has)) == (2, 2, 1, 1)

    def test_a_stranger_that_is_refused_takes_nothing_back_of_who_waits(self) -> None:
        with World({**BEGINS, "group.initial.rebalance.delay.ms": 100}) as world:
            topics_of(world, t=2)
            shard = world.lead()
            one, stranger = Member(world, "g", "a", "t"), Member(world, "g", "b", "t")
            one.beat()
            stranger.epoch = 7
            stranger.beat()
            assert isinstance(stranger.answers[-1], Refusal)
            assert set(shard.consumers.groups["g"].group.members) == {"a"}
            settle(world, one)
            assert len(one.has) == 2

    def test_who_leaves_before_the_first_target_leaves_an_empty_group(self) -> None:
        with World({**BEGINS, "group.initial.rebalance.delay.ms": 100}) as world:
            topics_of(world, t=2)
            shard = world.lead()
            one = Member(world, "g", "a", "t")
            one.beat()
            one.waits = False  # It has given up.
            one.leave()
            world.commit()
            saved = shard.consumers.saved("g")
            assert saved is not None
            assert (saved.state, saved.members) == ("Empty", {})

    def test_while_nobody_is_waited_for_heartbeats_are_those_of_groups_that_have_settled(self) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=4)
            world.lead()
            one, two = Member(world, "g", "a", "t"), Member(world, "g", "b", "t")
            settle(world, one)
            one.beat()
            assert interval_of(one) == HURRY_MS
            world.coordinator._consumers.settled_pace._free_ms = world.now_ms + 60_000  # So many come.
            one.beat()
            assert interval_of(one) == 5_000
            two.beat()
            world.advance(60)
            world.breathe(5)
            world.commit()
            assert (two.epoch, two.has) == (2, set())  # It waits for the other one.
            assert interval_of(two) == HURRY_MS

    def test_thousands_that_wait_for_one_record_are_told_some_at_a_time(self) -> None:
        told: list[ErrorCode] = []
        flight = Flight([told.append] * 50)
        counts = []
        for _ in flight.land_in_steps(NONE):
            counts.append(len(told))
            flight.land(NONE)  # Nobody is told twice.
        assert (counts, told) == ([20, 40], [NONE] * 50)

    def test_who_waits_for_a_target_when_the_coordinator_goes_is_told_some_at_a_time(self) -> None:
        with World(BEGINS) as world:
            world.lead()
            world.coordinator.topics.is_known = False
            members = [Member(world, "g", f"m{number}", "t") for number in range(30)]
            for member in members:
                member.beat()
            world.commit()
            assert all(member.waits for member in members)
            shard = world.shard
            assert shard is not None
            steps = shard.consumers.end_in_steps(ErrorCode.NOT_COORDINATOR)
            left = [sum(member.waits for member in members) for _ in steps]
            assert left == [10]
            assert not any(member.waits for member in members)

    def test_a_target_is_appended_though_nobody_waits_for_it_and_who_is_refused_takes_nothing_back(self) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=2)
            shard = world.lead()
            one, two, stranger = (Member(world, "g", name, "t") for name in ("a", "b", "c"))
            settle(world, one, two)
            two.leave()
            world.commit()
            world.advance(60)
            world.breathe(5)
            group = shard.consumers.groups["g"].group
            assert group.target_number == group.epoch_number
            stranger.epoch = 7
            stranger.beat()
            assert group.target_number == group.epoch_number
            world.commit()
            saved = shard.consumers.saved("g")
            assert saved is not None
            assert saved.target_number == group.epoch_number


class TestGroups:
    def test_a_newcomer_finds_no_room_and_those_who_are_there_stay(self) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=2)
            world.lead()
            one, two = Member(world, "g", "a", "t"), Member(world, "g", "b", "t")
            settle(world, one)
            world.coordinator.room.limit_bytes = world.coordinator.room.held_bytes
            two.beat()
            assert isinstance(two.answers[-1], Refusal)
            assert two.answers[-1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
            one.beat()
            assert isinstance(one.answers[-1], ConsumerAnswer)

    def test_a_group_that_finds_no_room_leaves_no_pattern_behind(self, monkeypatch: Any) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=2)
            shard = world.lead()
            beat = Beat("a", 0, topic_names=(), topic_pattern="t.*", rebalance_timeout_ms=5_000, owned={})
            room = world.coordinator.room
            limit_bytes, room.limit_bytes = room.limit_bytes, 0
            for _ in range(2):
                one = Member(world, "g", "a")
                one.waits = True
                with world.step():
                    shard.consumers.beat("g", beat, one)
                world.breathe(3)
                world.advance(300)  # It is written with its target.
                world.breathe(5)
                assert isinstance(one.answers[-1], Refusal)
                assert not world.coordinator.topics._held
                assert not groups_of(shard)
                # Then the log refuses it.
                room.limit_bytes = limit_bytes

                def refuse(*_: Any, **__: Any) -> None:
                    raise StorageFailedError("full")

                monkeypatch.setattr(world.raft, "propose", refuse)

    def test_who_is_silent_is_thrown_out_and_a_stall_proves_nothing(self) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=2)
            shard = world.lead()
            one = Member(world, "g", "a", "t")
            settle(world, one)
            world.stall(60_000)
            world.breathe(3)
            world.recover()
            world.breathe(5)
            assert set(shard.consumers.groups["g"].group.members) == {"a"}
            world.advance(10_001)
            world.commit()
            assert not shard.consumers.groups["g"].group.members

    def test_a_log_that_is_written_again_says_the_same(self) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=2)
            shard = world.lead()
            members = [Member(world, f"g{number}", "a", "t") for number in range(3)]
            for member in members:
                settle(world, member)
            with world.step():
                shard.runtime.is_rewriting = True
                world.coordinator.runtime.rewrite(shard.runtime)
            for _ in range(30):
                world.breathe(2)
                world.commit()
            assert world.log.first_index > 1
            world.lose()
            again = world.lead()
            assert groups_of(again) == {"g0", "g1", "g2"}
            for member in members:
                settle(world, member)

    def test_unused_offsets_and_groups_go(self) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=2)
            shard = world.lead()
            one = Member(world, "g", "a", "t")
            settle(world, one)
            for topic in ("t", "u"):
                key = OffsetKey("g", topic, 0)
                with world.step():
                    shard.write_offsets([(key, CommittedOffset(1, commit_timestamp_ms=world.wall_ms()))], None)
            world.commit()
            for _ in range(8):
                world.advance(9_000)
                one.beat()
                world.commit()
            look_round(world)
            assert list(shard.offsets.of_group("g")) == [("t", 0)]
            one.leave()
            world.commit()
            look_round(world)
            assert not groups_of(shard)
            assert not world.truth()


class TestImagesThatAreBehind:
    """A broker that begins to lead may have heard of less than those that led before, whose groups it has."""

    @pytest.mark.parametrize("behind", [{"t": 2}, {"t": 2, "u": 1}])
    def test_nothing_is_taken_away_for_a_topic_of_which_the_broker_has_not_heard_yet(
        self, monkeypatch: pytest.MonkeyPatch, behind: dict[str, int]
    ) -> None:
        monkeypatch.setattr(coordinator, "ASK_AGAIN_S", 0)
        with World(BEGINS) as world:
            topics_of(world, t=2, u=2)
            world.lead()
            one, two = Member(world, "g", "a", "t", "u"), Member(world, "g", "b", "t", "u")
            settle(world, one)
            world.lose()
            only_topics_of(world, **behind)
            for world.controller_version in (None, 5):  # It is cut off; it has heard how far it would have to be.
                world.lead()
                come_by(world, one)
                assert (one.epoch, len(one.has)) == (1, 4)
                world.lose()
            world.lead()
            # Nor does it give anything out.
            two.beat()
            come_by(world, one)
            assert (one.epoch, len(one.has), two.waits) == (1, 4, True)
            only_topics_of(world, t=2, u=2)
            world.coordinator.topics.seen_version = 5
            settle(world, one, two)
            assert (one.epoch, len(one.has), len(two.has)) == (2, 2, 2)

    def test_a_topic_that_is_gone_is_given_up_when_the_image_is_new_enough(self) -> None:
        with World(BEGINS) as world:
            topics_of(world, t=2, u=2)
            world.lead()
            one = Member(world, "g", "a", "t", "u")
            settle(world, one)
            world.lose()
            only_topics_of(world, t=2)
            world.coordinator.topics.seen_version = world.controller_version = 7
            world.lead()
            settle(world, one)
            assert one.has == {(topic_id("t"), 0), (topic_id("t"), 1)}


def come_by(world: World, member: Member) -> None:
    """Let a member say often that it is there."""
    for _ in range(10):
        member.beat()
        world.commit()
        world.breathe(3)
        world.advance(60)


def look_round(world: World) -> None:
    with world.step():
        world.coordinator.host.spawn(world.coordinator.expiry.round())
    world.breathe(5)
    world.commit()


class ConsumersMachine(RuleBasedStateMachine):
    """Members of two groups, a log that commits when it will, and leaders that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(BEGINS)
        topics_of(self.world, t=3, u=2)
        self.world.lead()
        self.made = 0
        self.members = [self.make(number) for number in range(5)]

    def teardown(self) -> None:
        self.world.__exit__(None)

    def make(self, number: int) -> Member:
        self.made += 1
        names = ("t", "u") if number % 2 else ("t",)
        instance = "i" if number == 0 else None
        return Member(self.world, f"g{number % 2}", f"m{number}-{self.made}", *names, instance=instance)

    def replace_if_lost(self, number: int) -> None:
        """A client that heard what ends it begins anew, as another member."""
        member = self.members[number]
        last = member.answers[-1] if member.answers else None
        if isinstance(last, Refusal) and last.error in {
            ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND,
        }:  # fmt: skip
            self.members[number] = self.make(number)

    @rule(number=st.integers(0, 4))
    def someone_is_heard(self, number: int) -> None:
        self.replace_if_lost(number)
        self.members[number].beat()

    @rule(number=st.integers(0, 4), comes_back=st.booleans())
    def someone_leaves(self, number: int, comes_back: bool) -> None:
        member = self.members[number]
        member.leave(-2 if comes_back and member.instance else -1)

    @rule(count=st.integers(1, 4))
    def entries_commit(self, count: int) -> None:
        self.world.commit(count)

    @rule(turns=st.integers(1, 3))
    def tasks_go_on(self, turns: int) -> None:
        self.world.breathe(turns)

    @rule(length_ms=st.sampled_from([10, 100, 6_000]))
    def time_passes(self, length_ms: int) -> None:
        self.world.advance(length_ms)

    @precondition(lambda self: self.world.raft.leads)
    @rule(kept=st.integers(0, 3))
    def another_one_leads(self, kept: int) -> None:
        self.world.lose(kept=kept)
        self.world.breathe(3)

    @precondition(lambda self: not self.world.raft.leads)
    @rule()
    def this_one_leads_again(self) -> None:
        self.world.lead()

    @precondition(lambda self: self.world.shard is not None)
    @rule()
    def the_log_is_written_again(self) -> None:
        shard = self.world.shard
        assert shard is not None
        if not shard.runtime.is_rewriting:
            shard.runtime.is_rewriting = True
            with self.world.step():
                self.world.coordinator.runtime.rewrite(shard.runtime)

    @rule()
    def all_is_well(self) -> None:
        self.world.check()

    @rule()
    def they_are_left_alone(self) -> None:
        """Everybody comes by until nothing changes: each group's partitions have one owner each."""
        world = self.world
        if not world.raft.leads:
            world.lead()
        world.commit()
        world.breathe(5)
        self.members = [self.make(number) for number in range(5)]
        world.advance(10_100)
        world.commit()
        for group, count in (("g0", 3), ("g1", 5)):
            members = [member for member in self.members if member.group_id == group]
            settle(world, *members)
            had = [pair for member in members for pair in member.has]
            assert len(had) == len(set(had)) == count


TestConsumersMachine = ConsumersMachine.TestCase
TestConsumersMachine.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
