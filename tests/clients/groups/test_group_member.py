"""One member, answer by answer, makes the steps of `TRANSITIONS` and no others.

It keeps and loses its identity and its partitions as the module says.
"""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_clients.assignors.assignor import Assignor, RebalanceProtocol
from barnabas_clients.assignors.built_in import COOPERATIVE_STICKY, RANGE, STICKY
from barnabas_clients.assignors.subscription import decode_subscription, encode_assignment
from barnabas_clients.groups.member import TRANSITIONS, GroupMember, GroupSettings, Situation, Verdict
from barnabas_clients.protocol.errors import ErrorCode, error_for
from barnabas_clients.protocol.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas_clients.protocol.sync_group import SyncGroupResponse
from barnabas_clients.topic_partition import TopicPartition

TOPICS = frozenset({"t"})
HELD = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})
NONE = frozenset[TopicPartition]()


def member(*assignors: Assignor, instance: str | None = None) -> GroupMember:
    return GroupMember(GroupSettings("g", instance, assignors=assignors or (RANGE,)))


def joined(generation_id: int = 1, name: str = "range", member_id: str = "m", leader: str = "m") -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation_id, protocol_type="consumer", protocol_name=name, leader=leader, member_id=member_id
    )


def settle(subject: GroupMember, generation_id: int = 1, held: frozenset[TopicPartition] = HELD) -> None:
    subject.begin_join()
    name = subject.settings.assignors[0].name
    assert subject.on_join(joined(generation_id, name)) is Verdict.DONE
    assert subject.on_sync(SyncGroupResponse(assignment=encode_assignment(held))) is Verdict.DONE


def test_a_member_joins_with_the_id_that_it_is_given() -> None:
    subject = member()
    subject.begin_join()
    required = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m-1")
    assert subject.on_join(required) is Verdict.AGAIN
    subject.begin_join()
    assert subject.join_request(TOPICS, NONE, "").member_id == "m-1"
    assert not subject.has_lost


def test_a_join_carries_what_each_assignor_must_know() -> None:
    subject = member(COOPERATIVE_STICKY, STICKY)
    settle(subject, 4)
    subject.request_rejoin("why not")
    request = subject.join_request(TOPICS, HELD, subject.begin_join())
    assert (request.session_timeout_ms, request.rebalance_timeout_ms, request.reason) == (45_000, 300_000, "why not")
    cooperative, sticky = (decode_subscription(row.metadata) for row in request.protocols)
    assert (cooperative.owned, cooperative.generation_id, cooperative.user_data) == (HELD, 4, b"\0\0\0\4")
    assert sticky.user_data == STICKY.user_data(HELD, 4)


def test_sticky_remembers_also_what_was_lost() -> None:
    subject = member(STICKY)
    settle(subject, 4)
    subject.on_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID, subject.identity)
    subject.begin_join()
    (row,) = subject.join_request(TOPICS, NONE, "").protocols
    subscription = decode_subscription(row.metadata)
    assert subscription.generation_id == -1
    assert subscription.user_data == STICKY.user_data(HELD, 4)


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m")]
)
def test_a_membership_that_ended_has_lost_its_partitions(code: ErrorCode, member_id: str) -> None:
    subject = member()
    settle(subject)
    subject.on_heartbeat(code, subject.identity)
    assert (subject.is_out, subject.has_lost, subject.member_id, subject.generation_id) == (True, True, member_id, -1)
    subject.lost_is_told()
    assert not subject.has_lost


def test_who_was_in_no_generation_has_nothing_to_lose() -> None:
    subject = member()
    subject.begin_join()
    assert subject.on_join(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)) is Verdict.AGAIN
    assert not subject.has_lost


def test_an_answer_to_an_earlier_identity_says_nothing() -> None:
    subject = member()
    settle(subject)
    earlier = subject.identity
    subject.request_rejoin("")
    settle(subject, 2)
    subject.on_heartbeat(ErrorCode.ILLEGAL_GENERATION, earlier)
    assert subject.generation_id == 2
    subject.begin_join()
    subject.on_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID, subject.identity)
    assert subject.situation is Situation.JOINING


def test_a_rebalance_is_joined_again_and_so_is_a_sync_that_meets_one() -> None:
    subject = member()
    settle(subject)
    subject.on_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS, subject.identity)
    assert subject.begin_join() == "the coordinator has begun a rebalance"
    subject.on_join(joined(2))
    assert subject.on_sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)) is Verdict.AGAIN
    assert (subject.generation_id, subject.has_lost) == (2, False)


@pytest.mark.parametrize(
    "response",
    [
        joined(name="nonesuch"),
        JoinGroupResponse(generation_id=1, protocol_type="connect", protocol_name="range", member_id="m", leader="m"),
        JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID),
        JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_what_no_retry_mends_fails(response: JoinGroupResponse) -> None:
    subject = member()
    subject.begin_join()
    assert subject.on_join(response) is Verdict.FAILED
    assert subject.failure is not None
    assert subject.is_out


def test_nonsense_from_the_leader_fails_and_nonsense_from_a_member_does_not() -> None:
    subject = member()
    subject.begin_join()
    subject.on_join(joined())
    rows = [
        JoinGroupResponseMember(member_id="m", metadata=subject.settings.assignors[0].name.encode()),
        JoinGroupResponseMember(member_id="n", metadata=bytes.fromhex("00000000000100017400000000")),
    ]
    assert subject.wanted_topics(rows) == TOPICS
    assert subject.assignments(rows, {"t": 2}) == {"m": encode_assignment(()), "n": encode_assignment(HELD)}
    assert subject.on_sync(SyncGroupResponse(assignment=b"\0")) is Verdict.FAILED


def test_eager_members_give_up_everything_and_cooperative_ones_what_they_must() -> None:
    other = frozenset({TopicPartition("u", 0)})
    eager, cooperative = member(RANGE, COOPERATIVE_STICKY), member(COOPERATIVE_STICKY)
    assert eager.rebalance_protocol is RebalanceProtocol.EAGER
    assert eager.given_up_before(HELD | other, TOPICS) == HELD | other
    assert cooperative.given_up_before(HELD | other, TOPICS) == other
    assert cooperative.changes(HELD, other) == (HELD, other, True)
    assert cooperative.changes(NONE, HELD) == (NONE, HELD, False)
    assert eager.changes(NONE, HELD) == (NONE, HELD, False)


def test_only_a_dynamic_member_says_goodbye() -> None:
    subject = member()
    assert subject.leave_request("") is None
    settle(subject)
    request = subject.leave_request("x" * 300)
    assert request is not None
    assert [len(row.reason or "") for row in request.members] == [255]
    static = member(instance="i")
    settle(static)
    assert static.leave_request("") is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (GroupSettings(""), "needs an id"),
        (GroupSettings("g", assignors=()), "one at least"),
        (GroupSettings("g", assignors=(RANGE, RANGE)), "none twice"),
        (GroupSettings("g", heartbeat_interval_s=45.0), "below the session timeout"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: GroupSettings, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        GroupMember(settings)


def test_every_transition_of_the_table_can_be_taken() -> None:
    def step(subject: GroupMember, name: str) -> None:
        if name == "begin":
            subject.begin_join()
        elif name == "join":
            subject.on_join(joined())
        elif name == "sync":
            subject.on_sync(SyncGroupResponse())
        else:
            subject.leave()

    taken = set()
    for path in itertools.product(("begin", "join", "sync", "leave"), repeat=4):
        subject = member()
        for name in path:
            before = subject.situation
            step(subject, name)
            if subject.situation is not before:
                taken.add((before, subject.situation))
    assert taken == {(before, after) for before, later in TRANSITIONS.items() for after in later}


class AnyLife(RuleBasedStateMachine):
    """Any answers in any order: the machine keeps its promises."""

    codes = st.sampled_from([0, *(int(code) for code in ErrorCode if code is not ErrorCode.NONE)])

    def __init__(self) -> None:
        super().__init__()
        self.subject = member(COOPERATIVE_STICKY)
        self.generation_id = 0
        self.before = self.subject.situation

    @precondition(lambda self: self.subject.failure is None)
    @rule()
    def begin(self) -> None:
        self.subject.begin_join()

    @rule(code=codes, name=st.sampled_from(["cooperative-sticky", "range"]))
    def answer_join(self, code: int, name: str) -> None:
        self.generation_id += 1
        answer = joined(self.generation_id, name) if not code else JoinGroupResponse(error_code=code, member_id="m")
        self.subject.on_join(answer)

    @rule(code=codes, data=st.sampled_from([encode_assignment(HELD), b"", b"\0"]))
    def answer_sync(self, code: int, data: bytes) -> None:
        self.subject.on_sync(SyncGroupResponse(error_code=code, assignment=data))

    @rule(code=codes)
    def answer_heartbeat(self, code: int) -> None:
        self.subject.on_heartbeat(code, self.subject.identity)

    @rule(has_lost=st.booleans())
    def leave(self, has_lost: bool) -> None:
        self.subject.leave(lost_because="a test" if has_lost else "")

    @rule()
    def fail(self) -> None:
        self.subject.fail(error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED))

    @rule()
    def told(self) -> None:
        self.subject.lost_is_told()

    @invariant()
    def promises_hold(self) -> None:
        subject = self.subject
        if subject.situation is not self.before:
            assert subject.situation in TRANSITIONS[self.before]
            self.before = subject.situation
        assert (subject.generation_id < 0) or not subject.is_out
        assert subject.generation_id >= 0 or subject.situation in (Situation.OUT, Situation.JOINING)
        assert subject.generation_id < 0 or subject.member_id
        assert subject.is_out or subject.failure is None


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
