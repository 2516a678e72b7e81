"""A classic group becomes one of KIP-848 and comes back, on a replica: in one batch, whoever leads in between."""

from typing import Any

import pytest
from broker.coordinators.groups.shard_world import Member as ClassicBefore
from broker.coordinators.groups.shard_world import World
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas_broker.coordinators.groups import consumers
from barnabas_broker.coordinators.groups import shard as shard_of_groups
from barnabas_broker.coordinators.groups.consumer import conversion
from barnabas_broker.coordinators.groups.consumer.embedded import read_assignment, write_assignment
from barnabas_broker.coordinators.groups.consumer.messages import Beat, ConsumerAnswer, Refusal
from barnabas_broker.coordinators.groups.consumer.mixed import ClassicJoin
from barnabas_broker.coordinators.groups.state_machine.messages import Answer, JoinAnswer, JoinRequest, SyncRequest
from barnabas_broker.coordinators.groups.state_machine.records import CommittedOffset, OffsetKey
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import StorageFailedError

from .consumer_desk import subscription
from .test_consumers_shard import BEGINS, Member, topics_of

NONE = ErrorCode.NONE
REJOIN = ErrorCode.REBALANCE_IN_PROGRESS
COUNT = 4


class Classic:
    """A member that speaks the classic protocol, whatever its group is; one request at a time. It is eager."""

    def __init__(self, world: World, name: str, *, instance: str | None = None, group_id: str = "g") -> None:
        self.world = world
        self.name = name
        self.group_id = group_id
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.has: set[int] = set()
        self.assignor = "range"
        self.waits = False
        self.joined = self.synced = False
        self.reads = True
        self.errors: list[ErrorCode] = []
        self.shares: dict[str, bytes] = {}
        self._count = 0

    @property
    def protocols(self) -> tuple[tuple[str, bytes], ...]:
        return ((self.assignor, subscription(("t",), {})),)

    def join(self) -> None:
        shard = self.world.shard
        if shard is None or self.waits:
            return
        self.has = set()
        self.joined = self.synced = False
        self.waits = True
        self._count += 1
        fresh = f"{self.name}-{self._count}"
        consumers = shard.consumers.hosted(self.group_id)
        with self.world.step():
            if consumers is not None and (consumers.group.members or consumers.is_moving):
                join = ClassicJoin(
                    self.member_id or fresh,
                    bool(self.member_id),
                    self.instance,
                    self.name,
                    "/h",
                    10_000,
                    5_000,
                    "consumer",
                    self.protocols,
                )
                shard.consumers.join(self.group_id, join, self, wants_id=False)
                return
            hosted = shard.group(self.group_id)
            if hosted is None and self.member_id:
                self.on_error(ErrorCode.UNKNOWN_MEMBER_ID)
                return
            assert shard.make_way_for_classic(self.group_id)
            hosted = hosted or shard.make_group(self.group_id)
            assert hosted is not None
            request = JoinRequest(
                ticket=self,
                member_id=self.member_id,
                group_instance_id=self.instance,
                client_id=self.name,
                client_host="/h",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=5_000,
                protocol_type="consumer",
                protocols=self.protocols,
                requires_known_member_id=False,
                skips_assignment=True,
                reason="",
            )
            shard.join(hosted, request, lambda: fresh)

    def sync(self) -> None:
        shard = self.world.shard
        if shard is None or self.waits or not self.joined:
            return
        self.waits = True
        with self.world.step():
            if shard.consumers.hosted(self.group_id) is not None:
                who = (self.member_id, self.instance, self.generation)
                shard.consumers.sync(self.group_id, *who, (None, None), Synced(self))
                return
            hosted = shard.group(self.group_id)
            if hosted is None:
                self.on_error(ErrorCode.UNKNOWN_MEMBER_ID)
                return
            request = SyncRequest(
                ticket=self,
                member_id=self.member_id,
                group_instance_id=self.instance,
                generation_id=self.generation,
                protocol_type=None,
                protocol_name=None,
                assignments=self.shares,
            )
            shard.sync(hosted, request)

    def heartbeat(self) -> ErrorCode:
        shard = self.world.shard
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        who = (self.member_id, self.instance, self.generation)
        if shard.consumers.hosted(self.group_id) is not None:
            return shard.consumers.heartbeat(self.group_id, *who)
        hosted = shard.group(self.group_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if hosted is None else shard.heartbeat(hosted, *who)

    def leave(self) -> None:
        shard = self.world.shard
        if shard is None or self.waits:
            return
        with self.world.step():
            if shard.consumers.hosted(self.group_id) is not None:
                shard.consumers.leave_classic(self.group_id, [(self.member_id, self.instance)])
            elif (hosted := shard.group(self.group_id)) is not None:
                shard.leave(hosted, [(self.member_id, self.instance, "")])
        self.member_id, self.generation, self.joined = "", -1, False
        self.has = set()

    def come_by(self) -> None:
        """Do what is to be done next."""
        if self.waits:
            return
        if not self.joined:
            self.join()
            return
        if not self.synced:
            self.sync()
            return
        code = self.heartbeat()
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, REJOIN}:
            self.on_error(code)

    def on_error(self, error: ErrorCode) -> None:
        self.waits = False
        self.joined = False
        self.errors.append(error)
        if error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            self.member_id = ""
        if error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}:
            self.has = set()

    def on_answer(self, answer: Answer | ConsumerAnswer | Refusal) -> None:
        assert self.waits, "answered twice"
        self.waits = False
        if isinstance(answer, Refusal | JoinAnswer) and answer.error is not NONE:
            self.on_error(answer.error)
        elif isinstance(answer, ConsumerAnswer):
            self.member_id, self.generation, self.joined = answer.member_id, answer.epoch, True
            self.shares = {}
        elif isinstance(answer, JoinAnswer):
            self.member_id, self.generation, self.joined = answer.member_id, answer.generation_id, True
            others = [member.member_id for member in answer.members]
            # It shares partitions out in turn.
            self.shares = {
                who: write_assignment(1, {"t": [n for n in range(COUNT) if n % len(others) == place]})
                for place, who in enumerate(others)
            }
        elif not isinstance(answer, Refusal):
            if answer.error is NONE:
                self.hear(answer.assignment)
            else:
                self.on_error(answer.error)

    def hear(self, assignment: bytes) -> None:
        self.synced = True
        if self.reads:
            numbers, _ = read_assignment(assignment)
            self.has = set(numbers.get("t", ()))


class Synced:
    def __init__(self, member: Classic) -> None:
        self.member = member

    def on_answer(self, answer: bytes | ErrorCode) -> None:
        self.member.waits = False
        if isinstance(answer, ErrorCode):
            self.member.on_error(answer)
        else:
            self.member.hear(answer)


def has(member: Classic | Member) -> set[int]:
    return member.has if isinstance(member, Classic) else {number for _, number in member.has}


def settle(world: World, *members: Classic | Member, rounds: int = 60) -> None:
    """Let all come by until each partition has one of them, nobody waits, and nothing changes for a while."""
    quiet = 0
    for _ in range(rounds):
        before = [(sorted(has(member)), len(errors_of(member))) for member in members]
        for member in members:
            if isinstance(member, Classic):
                member.come_by()
            else:
                member.beat()
        for _ in range(2):
            world.commit()
            world.breathe(3)
            world.advance(30)
        had = [number for member in members for number in has(member)]
        now = [(sorted(has(member)), len(errors_of(member))) for member in members]
        is_shared = sorted(had) == list(range(COUNT)) and not any(member.waits for member in members)
        quiet = quiet + 1 if is_shared and before == now else 0
        if quiet == 3:
            return
    raise AssertionError([(has(member), member.waits) for member in members])


def errors_of(member: Classic | Member) -> list[ErrorCode]:
    return member.errors if isinstance(member, Classic) else []


def kind_of(world: World) -> str:
    shard = world.shard
    assert shard is not None
    return "consumer" if "g" in shard.consumers.groups else "classic" if "g" in shard.groups else "none"


@pytest.fixture
def world() -> Any:
    with World(BEGINS) as world:
        topics_of(world, t=COUNT)
        world.lead()
        yield world


def test_a_group_goes_over_and_comes_back_and_offsets_stay(world: World) -> None:
    old = [Classic(world, name) for name in "ab"]
    settle(world, *old)
    shard = world.shard
    assert shard is not None
    key = OffsetKey("g", "t", 1)
    with world.step():
        shard.write_offsets([(key, CommittedOffset(7, commit_timestamp_ms=world.wall_ms()))], None)
    new = Member(world, "g", "n", "t")
    settle(world, *old, new)
    assert kind_of(world) == "consumer"
    assert all(set(member.errors) == {REJOIN} for member in old), [member.errors for member in old]
    assert new.epoch == old[0].generation
    new.leave()
    settle(world, *old)
    assert kind_of(world) == "classic"
    assert shard.groups["g"].group.state is GroupState.STABLE
    assert all(set(member.errors) == {REJOIN} for member in old), "nobody was taken for somebody else"
    found = shard.offsets.get(key)
    assert found is not None
    assert found.offset == 7


def test_one_by_one_all_change_their_protocol_and_back(world: World) -> None:
    members: list[Classic | Member] = [Classic(world, name) for name in "abc"]
    settle(world, *members)
    for place in range(3):
        out = members[place]
        assert isinstance(out, Classic)
        out.leave()
        members[place] = Member(world, "g", f"n{place}", "t")
        settle(world, *members)
    assert kind_of(world) == "consumer"
    for place in range(3):
        gone = members[place]
        assert isinstance(gone, Member)
        gone.leave()
        members[place] = Classic(world, f"c{place}")
        settle(world, *members)
    assert kind_of(world) == "classic"


def test_who_died_just_before_the_group_went_over_does_not_stay(world: World) -> None:
    one, dead = Classic(world, "a"), Classic(world, "b")
    settle(world, one, dead)
    new = Member(world, "g", "n", "t")
    for _ in range(12):
        one.come_by()
        new.beat()
        world.commit()
        world.breathe(3)
        world.advance(1_000)
    settle(world, one, new)


def test_g11_who_was_thrown_out_and_finds_a_classic_group_joins_again(world: World) -> None:
    old, new = Classic(world, "a"), Member(world, "g", "n", "t")
    settle(world, old, new)
    for _ in range(12):
        old.come_by()
        world.commit()
        world.breathe(3)
        world.advance(1_000)
    assert kind_of(world) == "classic"
    new.beat()
    refusal = new.answers[-1]
    assert isinstance(refusal, Refusal)
    assert refusal.error is ErrorCode.UNKNOWN_MEMBER_ID
    settle(world, old, new)
    assert kind_of(world) == "consumer"


def test_an_instance_whose_successor_speaks_the_classic_protocol_hears_of_it(world: World) -> None:
    old, new = Classic(world, "a", instance="i"), Member(world, "g", "n", "t", instance="i")
    settle(world, new)
    settle(world, old)
    assert kind_of(world) == "classic"
    shard = world.shard
    assert shard is not None
    new.waits = True
    with world.step():
        shard.consumers.beat("g", Beat("n", new.epoch, instance_id="i", client_id="c", client_host="/h"), new)
    refusal = new.answers[-1]
    assert isinstance(refusal, Refusal)
    assert refusal.error is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_that_is_taken_over_while_it_waits_is_nobody_then(world: World) -> None:
    one, two = Classic(world, "a"), Classic(world, "b", instance="i")
    settle(world, one)
    new = Member(world, "g", "n", "t", instance="i")
    new.beat()
    assert new.waits
    two.join()
    world.commit()
    world.breathe(3)
    refusal = new.answers[-1]
    assert isinstance(refusal, Refusal)
    assert refusal.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert kind_of(world) == "classic"
    settle(world, one, two)


@pytest.mark.parametrize("commits", [False, True])
def test_whoever_leads_next_finds_the_one_group_or_the_other(world: World, commits: bool) -> None:
    old = [Classic(world, name) for name in "ab"]
    settle(world, *old)
    new = Member(world, "g", "n", "t")
    new.beat()
    if commits:
        world.commit()
    world.lose()
    world.breathe(3)
    world.lead()
    assert kind_of(world) == ("consumer" if commits else "classic")
    settle(world, *old, new)
    new.leave()
    if commits:
        world.commit()
    world.lose()
    world.breathe(3)
    shard = world.lead()
    assert kind_of(world) == ("classic" if commits else "consumer")
    if commits:
        assert {who for who, _ in shard.groups["g"].group.members.items()} == {one.member_id for one in old}
        settle(world, *old)
    else:
        assert "n" in shard.consumers.groups["g"].group.members


def test_a_group_whose_conversion_is_not_committed_is_not_unknown(world: World) -> None:
    one, new = Classic(world, "a"), Member(world, "g", "n", "t")
    settle(world, one)
    shard = world.shard
    assert shard is not None
    assert not shard.is_going_over("g")
    new.beat()
    world.breathe(3)
    assert (kind_of(world), shard.is_going_over("g")) == ("consumer", True)
    world.commit()
    assert not shard.is_going_over("g")


def test_who_waits_in_a_rebalance_is_asked_to_join_the_new_group(world: World) -> None:
    one, two = Classic(world, "a"), Classic(world, "b")
    settle(world, one)
    two.join()
    shard = world.shard
    assert shard is not None
    world.advance(3_000)
    assert shard.groups["g"].group.state is GroupState.PREPARING_REBALANCE
    assert two.waits
    new = Member(world, "g", "n", "t")
    new.beat()
    assert (two.waits, two.errors) == (False, [REJOIN])
    assert one.heartbeat() in {NONE, REJOIN}, "it is a member of the generation that there was"
    settle(world, one, two, new)


def test_a_generation_that_has_no_assignments_yet_goes_over_with_those_before(world: World) -> None:
    one, two = Classic(world, "a"), Classic(world, "b")
    settle(world, one)
    two.join()
    world.advance(3_000)
    one.join()
    shard = world.shard
    assert shard is not None
    assert shard.groups["g"].group.state is GroupState.COMPLETING_REBALANCE
    generation = shard.groups["g"].group.generation_id
    new = Member(world, "g", "n", "t")
    new.beat()
    group = shard.consumers.groups["g"].group
    assert group.epoch_number > generation
    assigned = {number for one in group.assignments.values() for numbers in one.assigned.values() for number in numbers}
    assert assigned == set(range(COUNT))
    settle(world, one, two, new)


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [("upgrade", True, False), ("downgrade", False, True), ("disabled", False, False), ("bidirectional", True, True)],
)
def test_the_policy_says_which_ways_there_are(policy: str, upgrades: bool, downgrades: bool) -> None:
    with World(BEGINS | {"group.consumer.migration.policy": policy}) as world:
        topics_of(world, t=COUNT)
        world.lead()
        one = Classic(world, "a")
        settle(world, one)
        new = Member(world, "g", "n", "t")
        new.beat()
        if not upgrades:
            (refusal,) = new.answers
            assert isinstance(refusal, Refusal)
            assert (refusal.error, "online upgrade is disabled" in refusal.text) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
            assert kind_of(world) == "classic"
            return
        settle(world, one, new)
        new.leave()
        settle(world, one)
        assert kind_of(world) == ("classic" if downgrades else "consumer")


def test_with_the_policy_disabled_no_classic_member_joins_a_group_of_the_others() -> None:
    with World(BEGINS | {"group.consumer.migration.policy": "disabled"}) as world:
        topics_of(world, t=COUNT)
        world.lead()
        new, old = Member(world, "g", "n", "t"), Classic(world, "a")
        settle(world, new)
        old.join()
        assert old.errors == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        (write_assignment(1, {"t": (0,)})[:-4] + b"\0\0\0\1x", "an unsupported custom assignor is in use"),
        (b"nonsense", "the embedded consumer protocol is malformed"),
    ],
)
def test_what_cannot_be_taken_along_keeps_a_group_as_it_is(world: World, assignment: bytes, why: str) -> None:
    one = Classic(world, "a")
    one.join()
    one.shares = {one.member_id: assignment}
    one.reads = False
    one.sync()
    world.commit()
    new = Member(world, "g", "n", "t")
    new.beat()
    (refusal,) = new.answers
    assert isinstance(refusal, Refusal)
    assert (refusal.error, why in refusal.text) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
    assert kind_of(world) == "classic"
    assert one.heartbeat() is NONE


def test_what_librdkafka_tells_its_members_of_themselves_is_left_behind(world: World) -> None:
    one = Classic(world, "a")
    one.assignor = "cooperative-sticky"
    one.join()
    one.shares = {one.member_id: write_assignment(1, {"t": (0,)})[:-4] + b"\0\0\0\1x"}
    one.sync()
    world.commit()
    new = Member(world, "g", "n", "t")
    new.beat()
    settle(world, one, new)
    assert kind_of(world) == "consumer"
    assert sorted([*one.has, *(number for _, number in new.has)]) == list(range(COUNT))


def test_a_group_that_is_too_large_to_be_written_at_once_stays_what_it_is(world: World, monkeypatch: Any) -> None:
    one = Classic(world, "a")
    settle(world, one)
    said = len(one.protocols[0][1])
    new = Member(world, "g", "n", "t")
    for limit, module, most in (
        ("CONVERTED_BYTES_MAX", conversion, said - 1),
        ("CONVERTED_MAX", shard_of_groups, 0),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, most)
            new.beat()
        refusal = new.answers[-1]
        assert isinstance(refusal, Refusal)
        assert refusal.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert kind_of(world) == "classic"
    settle(world, one, new)


def test_a_group_of_something_else_stays_what_it_is(world: World) -> None:
    other = ClassicBefore(world, "g", "m")
    other.enter()
    world.commit()
    new = Member(world, "g", "n", "t")
    new.beat()
    (refusal,) = new.answers
    assert isinstance(refusal, Refusal)
    assert "malformed" in refusal.text, "what it says is nothing that a consumer says"
    assert not other.errors


def test_two_who_were_given_one_partition_do_not_both_have_it(world: World) -> None:
    one, two = Classic(world, "a"), Classic(world, "b")
    settle(world, one, two)
    for member in (one, two):
        member.joined = False
    one.join()
    two.join()
    for member in (one, two):
        member.shares = dict.fromkeys(member.shares, write_assignment(1, {"t": (0, 1, 2, 3, 4, -1)}))
        member.sync()
    world.commit()
    assert one.has == two.has == {0, 1, 2, 3, 4, -1}
    new = Member(world, "g", "n", "t")
    settle(world, new, one, two)


def test_a_join_that_is_refused_changes_nothing(world: World, monkeypatch: Any) -> None:
    one = Classic(world, "a")
    settle(world, one)
    before = world.truth()

    def refuse(*_: Any, **__: Any) -> None:
        raise StorageFailedError("full")

    new = Member(world, "g", "n", "t")
    with monkeypatch.context() as patch:
        patch.setattr(world.raft, "propose", refuse)
        new.beat()
        world.breathe(3)
    world.coordinator.room.limit_bytes = world.coordinator.room.held_bytes
    new.beat()
    assert [isinstance(answer, Refusal) for answer in new.answers] == [True, True]
    assert (kind_of(world), world.truth()) == ("classic", before)
    assert one.heartbeat() is NONE
    world.coordinator.room.limit_bytes = 64 << 20
    settle(world, one, new)


def test_a_log_that_takes_no_way_back_keeps_the_group_going(world: World, monkeypatch: Any) -> None:
    one, new = Classic(world, "a"), Member(world, "g", "n", "t")
    settle(world, one, new)

    def refuse(*_: Any, **__: Any) -> None:
        raise StorageFailedError("full")

    with monkeypatch.context() as patch:
        patch.setattr(world.raft, "propose", refuse)
        new.leave()
        world.breathe(3)
    assert kind_of(world) == "consumer"
    refusal = new.answers[-1]
    assert isinstance(refusal, Refusal)
    world.advance(20_000)
    world.commit()
    again = Classic(world, "b")
    settle(world, again)


def test_a_static_member_that_changes_its_protocol_takes_the_group_along(world: World) -> None:
    one, two = Classic(world, "a", instance="i"), Classic(world, "b")
    settle(world, one, two)
    had = one.has
    new = Member(world, "g", "n", "t", instance="i")
    new.beat()
    world.commit()
    assert (has(new), kind_of(world)) == (had, "consumer")
    settle(world, new, two)
    had, errors = has(new), len(two.errors)
    back = Classic(world, "c", instance="i")
    for _ in range(3):
        back.come_by()
        world.commit()
        world.breathe(3)
    assert (back.has, kind_of(world)) == (had, "classic")
    assert two.heartbeat() is NONE, "and nobody had to join again"
    assert len(two.errors) == errors


class TestStandingStill:
    """A large group is converted in slices; here every group is large."""

    @pytest.fixture(autouse=True)
    def _slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(conversion, "STEP", 1)
        monkeypatch.setattr(consumers, "RECORDS_STEP", 1)

    def test_on_the_way_there_nothing_changes_the_group_and_offsets_go_on(self, world: World) -> None:
        one, two = Classic(world, "a"), Classic(world, "b")
        settle(world, one, two)
        new, other = Member(world, "g", "n", "t"), Member(world, "g", "o", "t")
        new.beat()
        shard = world.shard
        assert shard is not None
        hosted = shard.groups["g"]
        assert (new.waits, hosted.is_moving, kind_of(world)) == (True, True, "classic")
        other.beat()
        refusal = other.answers[-1]
        assert isinstance(refusal, Refusal)
        assert refusal.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert one.heartbeat() is NONE
        assert shard.check_commit(hosted, one.member_id, None, one.generation) is NONE
        assert shard.leave(hosted, [(two.member_id, None, "")]) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        one.errors, two.errors = [], []
        one.sync()
        two.join()
        assert (one.errors, two.errors) == ([REJOIN], [REJOIN])
        settle(world, one, two, new, other)
        assert kind_of(world) == "consumer"

    def test_on_the_way_back_nothing_changes_the_group_and_offsets_go_on(self, world: World) -> None:
        one, two, new = Classic(world, "a"), Classic(world, "b"), Member(world, "g", "n", "t")
        settle(world, one, two, new)
        new.leave()
        shard = world.shard
        assert shard is not None
        hosted = shard.consumers.groups["g"]
        assert (new.waits, hosted.is_moving) == (True, True)
        other = Member(world, "g", "o", "t")
        other.beat()
        refusal = other.answers[-1]
        assert isinstance(refusal, Refusal)
        assert refusal.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert one.heartbeat() is NONE
        assert hosted.group.commit_refusal(one.member_id, None, one.generation, version=2) is NONE
        leaving = [(two.member_id, None)]
        assert shard.consumers.leave_classic("g", leaving) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        one.errors, two.errors = [], []
        one.sync()
        two.join()
        assert (one.errors, two.errors) == ([REJOIN], [REJOIN])
        settle(world, one, two)
        assert (kind_of(world), new.waits) == ("classic", False)

    @pytest.mark.parametrize("turns", range(1, 12, 2))
    def test_a_coordinator_that_goes_meanwhile_leaves_the_group_as_it_was(self, world: World, turns: int) -> None:
        one, two, new = Classic(world, "a"), Classic(world, "b"), Member(world, "g", "n", "t")
        settle(world, one, two)
        new.beat()
        world.breathe(turns)
        world.lose()
        world.breathe(5)
        assert not new.waits
        for member in (one, two):
            member.waits = False
        world.lead()
        settle(world, one, two, new)
        new.leave()
        world.breathe(turns)
        world.lose()
        world.breathe(5)
        assert not new.waits
        for member in (one, two):
            member.waits = False
        world.lead()
        if kind_of(world) == "consumer":
            settle(world, one, two, Member(world, "g", "n", "t"))
        else:
            settle(world, one, two)

    def test_what_is_refused_in_the_end_leaves_the_group_as_it_was(self, world: World, monkeypatch: Any) -> None:
        one, two, new = Classic(world, "a"), Classic(world, "b"), Member(world, "g", "n", "t")
        settle(world, one, two)
        two.joined = False
        two.join()
        new.beat()

        def refuse(*_: Any, **__: Any) -> None:
            raise StorageFailedError("full")

        with monkeypatch.context() as patch:
            patch.setattr(world.raft, "propose", refuse)
            world.breathe(40)
        assert isinstance(new.answers[-1], Refusal)
        assert kind_of(world) == "classic"
        settle(world, one, two)


class MigrationMachine(RuleBasedStateMachine):
    """Members of both protocols come, go and are silent, leaders change: no partition is used by two at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.context = World(BEGINS)
        self.world = self.context.__enter__()
        topics_of(self.world, t=COUNT)
        self.world.lead()
        self.old = [Classic(self.world, name) for name in "abc"]
        self.new = [Member(self.world, "g", name, "t") for name in "xyz"]

    @rule(place=st.integers(0, 2))
    def classic_comes_by(self, place: int) -> None:
        self.old[place].come_by()

    @rule(place=st.integers(0, 2))
    def other_comes_by(self, place: int) -> None:
        self.new[place].beat()

    @rule(place=st.integers(0, 2))
    def classic_leaves(self, place: int) -> None:
        self.old[place].leave()

    @rule(place=st.integers(0, 2))
    def other_leaves(self, place: int) -> None:
        if self.new[place].epoch:
            self.new[place].leave()

    @rule(old=st.integers(0, 3), new=st.integers(0, 2))
    def some_work(self, old: int, new: int) -> None:
        """Members of both protocols come by for a while."""
        for _ in range(6):
            for member in self.old[:old]:
                member.come_by()
            for other in self.new[:new]:
                other.beat()
            self.one_owner()
            self.time()
            self.one_owner()

    @rule()
    def time(self) -> None:
        self.world.commit()
        self.world.breathe(3)
        self.world.advance(60)

    @rule()
    def leader(self) -> None:
        self.world.lose()
        self.world.breathe(3)
        for member in self.old:
            member.waits = False
        self.world.lead()

    @invariant()
    def one_owner(self) -> None:
        members: list[Classic | Member] = [*self.old, *self.new]
        used = [number for member in members for number in has(member)]
        assert len(used) == len(set(used)), "two have one partition"

    def teardown(self) -> None:
        try:
            self.end_well()
        finally:
            self.context.__exit__(None, None, None)

    def end_well(self) -> None:
        """All of the one protocol leave, all of the other come anew: it is a classic group, and shares everything."""
        world = self.world
        if world.shard is None:
            world.lead()
        for _ in range(3):
            self.time()
        for member in self.new:
            member.beat()
            world.commit()
            world.breathe(3)
        for member in self.new:
            if member.epoch:
                member.leave()
            world.commit()
            world.breathe(3)
        for _ in range(3):
            world.advance(6_000)
            world.commit()
            world.breathe(3)
        waiting = [member.waits for member in self.old] + [member.waits for member in self.new]
        assert not any(waiting), "somebody was never answered"
        for classic in self.old:
            classic.waits = classic.joined = False
            classic.member_id = ""
        settle(world, *self.old)
        assert kind_of(world) == "classic"


MigrationMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
TestMigration = MigrationMachine.TestCase
