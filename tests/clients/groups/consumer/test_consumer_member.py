"""One member of a group of KIP-848, answer by answer: what it says, what it owns, and when it has lost it."""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_clients.groups.consumer_member import Beat, ConsumerGroupSettings, ConsumerMember, Wishes
from barnabas_clients.groups.member import Situation
from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.topic_partition import TopicPartition

ID, OTHER_ID = b"t" * 16, b"o" * 16
NAMES = {ID: "t", OTHER_ID: "t"}
WISHES = Wishes(frozenset({"t", "s"}))
SETTINGS = ConsumerGroupSettings("g", None, 300.0, "range", "eu-1a")


def member(settings: ConsumerGroupSettings = SETTINGS) -> ConsumerMember:
    subject = ConsumerMember(settings, "m")
    subject.begin_join()
    return subject


def answer(
    epoch: int, assigned: Mapping[bytes, list[int]] | None = None, code: int = 0
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        member_id="m",
        member_epoch=epoch,
        heartbeat_interval_ms=700,
        assignment=None
        if assigned is None
        else ConsumerGroupHeartbeatAssignment(
            topic_partitions=[
                ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in assigned.items()
            ]
        ),
    )


def hear(subject: ConsumerMember, response: ConsumerGroupHeartbeatResponse, wishes: Wishes = WISHES) -> Beat:
    beat = subject.heartbeat(wishes)
    subject.on_answer(response, beat)
    return beat


def follow(subject: ConsumerMember) -> tuple[list[int], list[int]]:
    """Give up and take over what there is; return the numbers of both."""
    return follow_with(subject, NAMES.get)


def follow_with(subject: ConsumerMember, name_of: Callable[[bytes], str | None]) -> tuple[list[int], list[int]]:
    changes = subject.changes(name_of)
    subject.given_up(changes)
    subject.taken(changes)
    return sorted(row.partition for row in changes.revoked), sorted(row.partition for row in changes.added)


def settled(settings: ConsumerGroupSettings = SETTINGS) -> ConsumerMember:
    subject = member(settings)
    hear(subject, answer(3, {ID: [0, 1]}))
    assert follow(subject) == ([], [0, 1])
    hear(subject, answer(3))
    return subject


def test_g1_whoever_joins_says_everything_and_has_nothing() -> None:
    request = member().heartbeat(WISHES).request
    assert (request.member_id, request.member_epoch, request.rebalance_timeout_ms) == ("m", 0, 300_000)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["s", "t"], None)
    assert (request.server_assignor, request.rack_id, request.topic_partitions) == ("range", "eu-1a", [])


def test_g1_who_joins_by_a_pattern_names_no_topics() -> None:
    request = member().heartbeat(Wishes(pattern="t.*")).request
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "t.*")


def test_g7_what_was_heard_is_not_said_again() -> None:
    subject = settled()
    assert not subject.has_news(WISHES)
    request = subject.heartbeat(WISHES).request
    assert (request.member_epoch, request.rebalance_timeout_ms) == (3, -1)
    assert (request.subscribed_topic_names, request.topic_partitions, request.server_assignor) == (None, None, None)


def test_g7_after_a_failure_everything_is_said_once_more() -> None:
    subject = settled()
    subject.on_silence()
    assert subject.has_news(WISHES)
    request = subject.heartbeat(WISHES).request
    assert (request.member_epoch, request.rebalance_timeout_ms, request.server_assignor) == (3, 300_000, "range")
    assert request.subscribed_topic_names == ["s", "t"]
    assert request.topic_partitions is not None
    assert [(row.topic_id, row.partitions) for row in request.topic_partitions] == [(ID, [0, 1])]


def test_g7_a_heartbeat_that_failed_has_said_nothing() -> None:
    subject = settled()
    other = Wishes(frozenset({"t"}))
    hear(subject, answer(3, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), other)
    assert subject.heartbeat(other).request.subscribed_topic_names == ["t"]
    assert subject.situation is Situation.IN


def test_g8_the_same_topics_are_said_in_the_same_order() -> None:
    names = [f"t{number}" for number in range(50)]
    assert member().heartbeat(Wishes(frozenset(names))).request.subscribed_topic_names == sorted(names)


def test_a_pattern_is_taken_back_by_an_empty_one() -> None:
    subject = member()
    hear(subject, answer(1, {}), Wishes(pattern="t.*"))
    request = hear(subject, answer(2), WISHES).request
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["s", "t"], "")
    request = subject.heartbeat(Wishes(pattern="x")).request
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "x")


def test_what_is_given_up_is_said_at_once_and_what_is_kept_stays() -> None:
    subject = settled()
    hear(subject, answer(3, {ID: [1]}))
    assert follow(subject) == ([0], [])
    assert subject.has_news(WISHES)
    (row,) = subject.heartbeat(WISHES).request.topic_partitions or []
    assert row.partitions == [1]
    subject.on_answer(answer(4, {ID: [1, 5]}), subject.heartbeat(WISHES))
    assert follow(subject) == ([], [5])
    assert follow(subject) == ([], [])
    assert subject.is_reconciled


def test_no_assignment_in_an_answer_is_no_change() -> None:
    subject = settled()
    hear(subject, answer(4))
    assert (subject.epoch, follow(subject), subject.is_reconciled) == (4, ([], []), True)


def test_an_empty_assignment_takes_everything() -> None:
    subject = settled()
    hear(subject, answer(4, {}))
    assert follow(subject) == ([0, 1], [])


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    subject = settled()
    hear(subject, answer(4, {OTHER_ID: [0]}))
    changes = subject.changes(NAMES.get)
    assert changes.revoked == {TopicPartition("t", 0), TopicPartition("t", 1)}
    subject.given_up(changes)
    changes = subject.changes(NAMES.get)
    assert changes.added == {TopicPartition("t", 0)}
    assert changes.coming.keys() == {OTHER_ID}


def test_both_topics_of_one_name_are_never_owned_together() -> None:
    """The old one may still be among what is assigned. Its partitions go first, all of them."""
    subject = settled()
    hear(subject, answer(4, {OTHER_ID: [0, 1], ID: [0, 1, 2]}))
    changes = subject.changes(NAMES.get)
    assert (list(changes.going), list(changes.coming)) == ([ID], [OTHER_ID])
    subject.given_up(changes)
    assert subject.owned == frozenset()
    assert follow_with(subject, {OTHER_ID: "t"}.get) == ([], [0, 1])
    assert subject.held.keys() == {OTHER_ID}


@given(st.lists(st.dictionaries(st.sampled_from([b"a", b"b", b"c"]), st.frozensets(st.integers(0, 5)), max_size=3)))
def test_what_is_owned_becomes_what_is_assigned_and_nothing_else_moves(
    answers: list[dict[bytes, frozenset[int]]],
) -> None:
    subject = member()
    owned = frozenset[TopicPartition]()
    for epoch, assigned in enumerate(answers, 1):
        hear(subject, answer(epoch, {topic_id: list(numbers) for topic_id, numbers in assigned.items()}))
        wanted = frozenset(TopicPartition(str(key), number) for key, numbers in assigned.items() for number in numbers)
        changes = subject.changes(str)
        assert (changes.revoked, changes.added) == (owned - wanted, wanted - owned)
        assert not changes.nameless
        subject.given_up(changes)
        assert subject.owned == owned & wanted
        subject.taken(changes)
        owned = subject.owned
        assert owned == wanted
        again = subject.changes(str)
        assert (again.going, again.coming, subject.is_reconciled) == ({}, {}, True)
        rows = subject.heartbeat(WISHES).request.topic_partitions
        if rows is not None:
            said = {TopicPartition(str(row.topic_id), number) for row in rows for number in row.partitions}
            assert said == owned


def test_a_topic_without_a_name_holds_no_other_one_up() -> None:
    subject = member()
    hear(subject, answer(1, {ID: [0], b"x" * 16: [0]}))
    changes = subject.changes(NAMES.get)
    assert (list(changes.added), changes.nameless) == ([TopicPartition("t", 0)], frozenset({b"x" * 16}))
    subject.taken(changes)
    assert not subject.changes(NAMES.get).added
    assert not subject.is_reconciled


def test_a_topic_that_is_gone_from_the_metadata_keeps_its_name_here() -> None:
    subject = settled()
    hear(subject, answer(4, {ID: [0]}))
    changes = subject.changes(lambda _: None)
    assert changes.revoked == {TopicPartition("t", 1)}
    assert not changes.nameless


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_g11_who_is_fenced_has_lost_its_partitions_and_joins_again(code: ErrorCode) -> None:
    subject = settled()
    hear(subject, answer(0, code=code))
    assert (subject.is_out, subject.has_lost, subject.failure, subject.owned) == (True, True, None, frozenset())
    assert subject.identity.generation_id == -1
    subject.lost_is_told()
    subject.begin_join()
    request = subject.heartbeat(WISHES).request
    assert (request.member_id, request.member_epoch, request.topic_partitions) == ("m", 0, [])


def test_who_has_no_epoch_has_nothing_to_lose() -> None:
    subject = member()
    hear(subject, answer(0, code=ErrorCode.UNKNOWN_MEMBER_ID))
    assert (subject.is_out, subject.has_lost) == (True, False)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
def test_g11_no_retry_helps_against_some_errors(code: ErrorCode) -> None:
    subject = settled()
    hear(subject, answer(0, code=code))
    assert subject.failure is not None
    assert (subject.failure.code, subject.is_out, subject.has_lost) == (code, True, True)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_g11_a_coordinator_that_moves_ends_nothing(code: ErrorCode) -> None:
    subject = settled()
    hear(subject, answer(0, code=code))
    assert (subject.situation, subject.epoch, subject.failure) == (Situation.IN, 3, None)
    assert set(subject.owned) == {TopicPartition("t", 0), TopicPartition("t", 1)}


def test_an_answer_to_an_earlier_membership_says_nothing() -> None:
    subject = settled()
    late = subject.heartbeat(WISHES)
    subject.leave()
    subject.begin_join()
    assert not subject.on_answer(answer(7, {ID: [4]}), late)
    assert not subject.on_answer(answer(0, code=ErrorCode.GROUP_MAX_SIZE_REACHED), late)
    assert (subject.situation, subject.epoch, subject.failure) == (Situation.JOINING, 0, None)


def test_the_coordinator_says_how_often() -> None:
    subject = settled()
    assert subject.interval_s == 0.7
    silent = answer(3)
    silent.heartbeat_interval_ms = 0
    hear(subject, silent)
    assert subject.interval_s > 0


def test_g4_a_static_member_says_that_it_comes_back() -> None:
    subject = settled(SETTINGS._replace(group_instance_id="i"))
    request = subject.leave_request("closed")
    assert request is not None
    assert (request.member_epoch, request.instance_id, request.member_id) == (-2, "i", "m")


def test_g2_who_has_asked_to_join_leaves_by_its_own_id_also_unheard() -> None:
    subject = ConsumerMember(SETTINGS, "m")
    assert subject.leave_request("closed") is None
    subject.begin_join()
    assert subject.leave_request("closed") is None
    subject.heartbeat(WISHES)
    request = subject.leave_request("closed")
    assert request is not None
    assert (request.member_id, request.member_epoch, request.instance_id) == ("m", -1, None)
    subject.leave()
    assert subject.leave_request("closed") is None


def test_g9_offsets_are_stored_in_the_epoch_of_the_last_answer() -> None:
    subject = settled()
    hear(subject, answer(8))
    assert tuple(subject.identity) == (8, "m", None)
