"""What a transactional producer asks, in which order and version, and what is left after a failure. Story by story."""

from typing import Any

import pytest

from barnabas_clients.errors import ClientError, ConnectionLostError, DeadlineExceededError, UnsupportedVersionError
from barnabas_clients.producer.transactions.requests import NO_ID, GroupMember, Owner, Request
from barnabas_clients.producer.transactions.situations import TRANSITIONS, Situation
from barnabas_clients.producer.transactions.state_machine import Step, Transactions
from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas_clients.protocol.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, ProducerFencedError, error_for
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_clients.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_raftlog.wire.schema import Message

from .naive_coordinator import answer_with

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(5), TopicPartition("in", 1): OffsetAndMetadata(9, "n", 3)}
FIRST, SECOND = 1, 2
both = pytest.mark.parametrize("level", [FIRST, SECOND])


def where(machine: Transactions) -> Situation:
    """Return its situation; a call may change it, which a type checker does not see."""
    return machine.situation


def why(machine: Transactions) -> KafkaError | ClientError | None:
    return machine.error


def asked(machine: Transactions, *, batches: bool = False) -> Request:
    """Return the request that has to be there now."""
    request = machine.next_request(batches_are_under_way=batches)
    assert request is not None
    return request


def nothing_asked(machine: Transactions, *, batches: bool = False) -> bool:
    return machine.next_request(batches_are_under_way=batches) is None


def answer(machine: Transactions, code: int = 0, *, batches: bool = False) -> tuple[Any, Step]:
    """Answer the next request with one code; return it and what follows. The id of a success is 7, its epoch grows."""
    request = asked(machine, batches=batches)
    response = answer_with(request.message, code)
    if not code and isinstance(response, InitProducerIdResponse):
        response.producer_id, response.producer_epoch = 7, machine.owner.epoch + 1
    if not code and isinstance(response, EndTxnResponse) and machine.is_second:
        response.producer_id, response.producer_epoch = 7, machine.owner.epoch + 1
    return request.message, machine.on_answer(request, response)


def ready(level: int) -> Transactions:
    machine = Transactions("tx", 60_000)
    machine.see_version(level)
    machine.initialise()
    answer(machine)
    assert where(machine) is Situation.READY
    assert machine.owner == Owner("tx", 7, 0)
    return machine


def in_transaction(level: int, *partitions: TopicPartition) -> Transactions:
    """Return a producer in a transaction in which these partitions are."""
    machine = ready(level)
    machine.begin()
    for partition in partitions:
        machine.touch(partition)
    if level == FIRST and partitions:
        answer(machine)
    assert all(machine.may_send(partition) for partition in partitions)
    return machine


def lost() -> ConnectionLostError:
    return ConnectionLostError("b1:9092", "closed by the broker", may_be_done=True)


# Getting an id.


def test_the_first_id_is_asked_for_in_any_version_and_the_next_epoch_only_where_the_id_can_be_named() -> None:
    machine = Transactions("tx", 60_000)
    machine.initialise()
    first = asked(machine)
    assert first == Request(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), range(7))
    assert nothing_asked(machine)
    assert machine.on_answer(first, InitProducerIdResponse(producer_id=7, producer_epoch=3)) is Step.DONE
    assert machine.owner == Owner("tx", 7, 3)
    machine.see_version(SECOND)
    again = asked(machine)
    assert again.versions == range(3, 7)
    assert isinstance(again.message, InitProducerIdRequest)
    assert (again.message.producer_id, again.message.producer_epoch) == (7, 3)


def test_a_refused_producer_may_ask_again() -> None:
    machine = Transactions("tx", 60_000)
    machine.initialise()
    assert answer(machine, ErrorCode.CONCURRENT_TRANSACTIONS)[1] is Step.AGAIN
    assert answer(machine, ErrorCode.NOT_COORDINATOR)[1] is Step.ELSEWHERE
    assert answer(machine, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)[1] is Step.FAILED
    assert where(machine) is Situation.UNINITIALISED
    assert machine.error is not None
    assert str(machine.error) == (
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED: transactional id tx: asking for a producer id"
    )
    machine.initialise()
    assert why(machine) is None
    assert answer(machine)[1] is Step.DONE
    assert where(machine) is Situation.READY


def test_the_search_for_the_coordinator_is_refused_like_the_request() -> None:
    machine = Transactions("tx", 60_000)
    machine.initialise()
    request = asked(machine)
    assert machine.on_coordinator_refused(request, ErrorCode.COORDINATOR_NOT_AVAILABLE) is Step.ELSEWHERE
    request = asked(machine)
    step = machine.on_coordinator_refused(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert (step, where(machine)) == (Step.FAILED, Situation.UNINITIALISED)
    other = in_transaction(SECOND, P0)
    other.add_offsets(GroupMember("g"), OFFSETS)
    step = other.on_coordinator_refused(asked(other), ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert (step, where(other)) == (Step.FAILED, Situation.ABORTABLE_ERROR)


# The two protocols.


def test_in_the_first_protocol_partitions_are_added_before_their_batches_leave() -> None:
    machine = in_transaction(FIRST)
    machine.touch(P1)
    machine.touch(P0)
    machine.touch(P0)
    assert not machine.may_send(P0)
    request = asked(machine, batches=True)
    assert request.versions == range(4)
    message = request.message
    assert isinstance(message, AddPartitionsToTxnRequest)
    assert (message.v3_and_below_transactional_id, message.v3_and_below_producer_id) == ("tx", 7)
    assert [(topic.name, topic.partitions) for topic in message.v3_and_below_topics] == [("t", [0, 1])]
    machine.on_answer(request, answer_with(message, 0))
    assert machine.may_send(P0)
    assert machine.may_send(P1)
    machine.touch(P1)
    assert nothing_asked(machine)


def test_in_the_second_protocol_they_leave_at_once() -> None:
    machine = in_transaction(SECOND)
    machine.touch(P0)
    assert machine.may_send(P0)
    assert not machine.may_send(P1)
    assert nothing_asked(machine, batches=True)


@both
def test_a_transaction_is_ended_when_its_batches_are_there(level: int) -> None:
    machine = in_transaction(level, P0)
    machine.commit()
    assert nothing_asked(machine, batches=True)
    request = asked(machine)
    owner = machine.owner
    assert request.versions == (range(5, 6) if level == SECOND else range(5))
    assert request.message == EndTxnRequest(
        transactional_id="tx", producer_id=owner.producer_id, producer_epoch=owner.epoch, committed=True
    )
    machine.on_answer(request, EndTxnResponse(producer_id=9, producer_epoch=0) if level == SECOND else EndTxnResponse())
    assert where(machine) is Situation.READY
    assert machine.owner == (Owner("tx", 9, 0) if level == SECOND else owner)
    assert not machine.may_send(P0)


@both
@pytest.mark.parametrize("is_commit", [False, True])
def test_an_empty_transaction_costs_nothing(level: int, is_commit: bool) -> None:
    machine = in_transaction(level)
    machine.commit() if is_commit else machine.abort()
    assert nothing_asked(machine)
    assert where(machine) is Situation.READY


def test_a_second_protocol_without_a_next_epoch_gets_one() -> None:
    machine = in_transaction(SECOND, P0)
    machine.commit()
    request = asked(machine)
    machine.on_answer(request, EndTxnResponse())
    assert isinstance(answer(machine)[0], InitProducerIdRequest)
    assert where(machine) is Situation.READY


def test_an_upgrade_waits_for_the_end_of_the_transaction_and_raises_the_epoch() -> None:
    machine = in_transaction(FIRST, P0)
    machine.see_version(SECOND)
    assert not machine.is_second
    machine.commit()
    assert isinstance(answer(machine)[0], EndTxnRequest)
    assert where(machine) is Situation.INITIALISING
    assert isinstance(answer(machine)[0], InitProducerIdRequest)
    assert (where(machine), machine.is_second, machine.owner.epoch) == (Situation.READY, True, 1)
    machine.see_version(FIRST)
    assert (where(machine), machine.is_second) == (Situation.READY, False)


# Offsets.


def test_in_the_first_protocol_a_group_is_added_once_before_its_offsets() -> None:
    machine = in_transaction(FIRST)
    under_way = machine.add_offsets(GroupMember("g", 4, "m"), OFFSETS)
    machine.add_offsets(GroupMember("g", 4, "m"), {P0: OffsetAndMetadata(1)})
    machine.commit()
    message, _ = answer(machine)
    assert message == AddOffsetsToTxnRequest(transactional_id="tx", producer_id=7, producer_epoch=0, group_id="g")
    request = asked(machine)
    assert (request.group_id, request.versions) == ("g", range(3, 5))
    machine.on_answer(request, answer_with(request.message, 0))
    assert not under_way.left
    assert isinstance(answer(machine)[0], TxnOffsetCommitRequest)
    assert isinstance(answer(machine)[0], EndTxnRequest)


def test_in_the_second_protocol_offsets_go_alone() -> None:
    machine = in_transaction(SECOND)
    machine.add_offsets(GroupMember("g", 4, "m", "i"), OFFSETS)
    request = asked(machine)
    assert (request.group_id, request.versions) == ("g", range(5, 6))
    message = request.message
    assert isinstance(message, TxnOffsetCommitRequest)
    assert (message.group_id, message.generation_id_or_member_epoch) == ("g", 4)
    assert (message.member_id, message.group_instance_id) == ("m", "i")
    rows = [(row.partition_index, row.committed_offset) for row in message.topics[0].partitions]
    assert rows == [(0, 5), (1, 9)]
    assert message.topics[0].partitions[1].committed_metadata == "n"
    assert message.topics[0].partitions[1].committed_leader_epoch == 3


def test_offsets_without_a_member_go_in_old_versions_too() -> None:
    machine = in_transaction(FIRST)
    machine.add_offsets(GroupMember("g"), OFFSETS)
    answer(machine)
    assert asked(machine).versions == range(5)


def test_only_those_offsets_are_sent_again_that_were_not_taken() -> None:
    machine = in_transaction(SECOND)
    under_way = machine.add_offsets(GroupMember("g"), OFFSETS)
    request = asked(machine)
    rows = [
        TxnOffsetCommitResponsePartition(partition_index=0),
        TxnOffsetCommitResponsePartition(partition_index=1, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ]
    answered = TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="in", partitions=rows)])
    assert machine.on_answer(request, answered) is Step.AGAIN
    assert list(under_way.left) == [TopicPartition("in", 1)]
    message = asked(machine).message
    assert isinstance(message, TxnOffsetCommitRequest)
    assert [row.partition_index for row in message.topics[0].partitions] == [1]


@both
@pytest.mark.parametrize("is_commit", [False, True])
def test_a_transaction_of_offsets_alone_is_ended_too(level: int, is_commit: bool) -> None:
    machine = in_transaction(level)
    machine.add_offsets(GroupMember("g"), OFFSETS)
    if level == FIRST:
        answer(machine)
    answer(machine)
    machine.commit() if is_commit else machine.abort()
    message, _ = answer(machine)
    assert isinstance(message, EndTxnRequest)
    assert message.committed is is_commit


def test_no_offsets_are_none() -> None:
    machine = in_transaction(SECOND)
    assert not machine.add_offsets(GroupMember("g"), {}).left
    machine.commit()
    assert nothing_asked(machine)


@both
def test_a_lost_membership_costs_the_transaction_and_not_the_producer(level: int) -> None:
    machine = in_transaction(level, P0)
    under_way = machine.add_offsets(GroupMember("g", 4, "m"), OFFSETS)
    if level == FIRST:
        answer(machine)
    assert answer(machine, ErrorCode.ILLEGAL_GENERATION)[1] is Step.FAILED
    assert under_way.left
    assert machine.error is not None
    assert (machine.error.abortable, machine.error.fenced, machine.error.may_be_done) == (True, False, False)
    with pytest.raises(KafkaError):
        machine.commit()
    machine.abort()
    message, _ = answer(machine)
    assert isinstance(message, EndTxnRequest)
    assert not message.committed
    assert (where(machine), why(machine)) == (Situation.READY, None)


# Failures.


@both
def test_a_failed_batch_ends_in_an_abort_and_a_new_epoch(level: int) -> None:
    machine = in_transaction(level, P0)
    machine.commit()
    error = DeadlineExceededError("not delivered", may_be_done=True)
    machine.on_batch_failed(error)
    machine.on_batch_failed(error_for(ErrorCode.MESSAGE_TOO_LARGE))
    assert where(machine) is Situation.ABORTABLE_ERROR
    assert machine.error is error
    assert error.abortable
    assert nothing_asked(machine)
    assert machine.may_send(P0)
    with pytest.raises(DeadlineExceededError):
        machine.touch(P1)
    machine.abort()
    assert nothing_asked(machine, batches=True)
    answer(machine)
    if level == FIRST:
        assert where(machine) is Situation.INITIALISING
        answer(machine)
    assert (where(machine), machine.owner.epoch) == (Situation.READY, 1)


def test_a_timed_out_transaction_of_the_first_protocol_asks_for_the_next_epoch_at_once() -> None:
    """The coordinator would call the producer fenced if it were asked to end what it has aborted (KIP-588)."""
    machine = in_transaction(FIRST, P0)
    machine.on_batch_failed(error_for(ErrorCode.INVALID_PRODUCER_EPOCH))
    machine.abort()
    assert isinstance(answer(machine)[0], InitProducerIdRequest)
    assert where(machine) is Situation.READY


def test_a_timed_out_transaction_of_the_second_protocol_is_aborted_once_more() -> None:
    """T2: the repeated abort is answered with the next epoch."""
    machine = in_transaction(SECOND, P0)
    machine.on_batch_failed(error_for(ErrorCode.INVALID_PRODUCER_EPOCH))
    machine.abort()
    assert isinstance(answer(machine)[0], EndTxnRequest)
    assert (where(machine), machine.owner.epoch) == (Situation.READY, 1)


@both
@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_does_nothing_more(level: int, code: ErrorCode) -> None:
    machine = in_transaction(level, P0)
    machine.commit()
    assert answer(machine, code)[1] is Step.FAILED
    assert where(machine) is Situation.FATAL_ERROR
    for call in (machine.begin, machine.commit, machine.abort, lambda: machine.touch(P0)):
        with pytest.raises(ProducerFencedError) as caught:
            call()
        assert caught.value.fenced
        assert not caught.value.abortable
    assert not machine.may_send(P0)
    assert nothing_asked(machine)
    machine.on_batch_failed(DeadlineExceededError("late"))
    machine.give_up(DeadlineExceededError("late"))
    assert where(machine) is Situation.FATAL_ERROR


def test_a_forgotten_producer_asks_for_a_new_id_without_ending_anything() -> None:
    machine = in_transaction(FIRST, P0)
    machine.touch(P1)
    assert answer(machine, ErrorCode.INVALID_PRODUCER_ID_MAPPING)[1] is Step.FAILED
    machine.abort()
    assert isinstance(answer(machine)[0], InitProducerIdRequest)
    assert where(machine) is Situation.READY


def test_a_broker_without_the_version_is_fatal() -> None:
    machine = in_transaction(SECOND, P0)
    machine.commit()
    assert machine.on_no_answer(asked(machine), UnsupportedVersionError("EndTxn")) is Step.FAILED
    assert where(machine) is Situation.FATAL_ERROR
    other = in_transaction(SECOND, P0)
    other.on_batch_failed(UnsupportedVersionError("Produce"))
    assert where(other) is Situation.FATAL_ERROR


def test_the_first_addition_waits_only_a_moment_for_the_transaction_before() -> None:
    machine = in_transaction(FIRST)
    machine.touch(P0)
    assert answer(machine, ErrorCode.CONCURRENT_TRANSACTIONS)[1] is Step.SOON
    answer(machine)
    machine.touch(P1)
    assert answer(machine, ErrorCode.CONCURRENT_TRANSACTIONS)[1] is Step.AGAIN


@pytest.mark.parametrize(
    ("message", "situation"),
    [(AddPartitionsToTxnResponse(), Situation.ABORTABLE_ERROR), (AddOffsetsToTxnResponse(), Situation.IN_TRANSACTION)],
)
def test_a_partition_that_the_answer_leaves_out_was_not_added(message: Message, situation: Situation) -> None:
    """Or a broken coordinator would be asked again for ever."""
    machine = in_transaction(FIRST)
    if situation is Situation.ABORTABLE_ERROR:
        machine.touch(P0)
    else:
        machine.add_offsets(GroupMember("g"), OFFSETS)
    machine.on_answer(asked(machine), message)
    assert where(machine) is situation
    if situation is Situation.IN_TRANSACTION:
        machine.on_answer(asked(machine), TxnOffsetCommitResponse())
        assert where(machine) is Situation.FATAL_ERROR


@both
def test_a_failure_that_comes_after_the_end_costs_nothing(level: int) -> None:
    machine = in_transaction(level, P0)
    machine.abort()
    answer(machine)
    machine.on_batch_failed(error_for(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert (where(machine), why(machine)) == (Situation.READY, None)
    machine.begin()
    machine.touch(P0)
    if level == FIRST:
        answer(machine)
    machine.abort()
    assert isinstance(answer(machine)[0], EndTxnRequest)
    assert where(machine) is Situation.READY


def test_a_partition_that_was_not_asked_about_is_not_added() -> None:
    machine = in_transaction(FIRST)
    machine.touch(P0)
    request = asked(machine)
    machine.touch(P1)
    both_of_them = AddPartitionsToTxnRequest(v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=(0, 1))])
    machine.on_answer(request, answer_with(both_of_them, 0))
    assert machine.may_send(P0)
    assert not machine.may_send(P1)


# Doubt.


@both
def test_a_lost_answer_is_asked_for_again(level: int) -> None:
    machine = in_transaction(level, P0)
    machine.commit()
    first = asked(machine)
    assert machine.on_no_answer(first, lost()) is Step.ELSEWHERE
    assert asked(machine) == first
    assert machine.on_answer(first, EndTxnResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)) is Step.DONE
    assert where(machine) is Situation.COMMITTING


@both
def test_t13_a_commit_that_was_given_up_is_followed_by_the_next_epoch_and_no_end(level: int) -> None:
    machine = in_transaction(level, P0)
    machine.commit()
    request = asked(machine)
    error = DeadlineExceededError("committing")
    machine.give_up(error)
    assert machine.on_answer(request, EndTxnResponse()) is Step.DONE
    assert where(machine) is Situation.ABORTABLE_ERROR
    assert (error.may_be_done, error.abortable) == (True, True)
    machine.abort()
    message, _ = answer(machine)
    assert isinstance(message, InitProducerIdRequest)
    assert (message.producer_id, message.producer_epoch) == (7, 0)
    assert where(machine) is Situation.READY


@both
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_commit_whose_coordinator_moved_meanwhile_may_have_happened(level: int, code: ErrorCode) -> None:
    """It was written, and leadership lost before anybody knew whether that stays: the next coordinator may find it."""
    machine = in_transaction(level, P0)
    machine.commit()
    assert answer(machine, code)[1] is Step.ELSEWHERE
    error = DeadlineExceededError("committing")
    machine.give_up(error)
    assert (error.may_be_done, error.abortable) == (True, True)
    machine.abort()
    assert isinstance(answer(machine)[0], InitProducerIdRequest)


@both
def test_a_coordinator_that_is_looked_for_in_vain_was_asked_nothing(level: int) -> None:
    machine = in_transaction(level, P0)
    machine.commit()
    assert machine.on_coordinator_refused(asked(machine), ErrorCode.COORDINATOR_NOT_AVAILABLE) is Step.AGAIN
    error = DeadlineExceededError("committing")
    machine.give_up(error)
    assert error.may_be_done is False


@both
def test_a_commit_that_never_left_has_not_happened(level: int) -> None:
    machine = in_transaction(level, P0)
    machine.commit()
    assert nothing_asked(machine, batches=True)
    error = DeadlineExceededError("committing")
    machine.give_up(error)
    assert (error.may_be_done, error.abortable) == (False, True)
    machine.abort()
    assert isinstance(answer(machine)[0], EndTxnRequest)


def test_a_refusal_after_an_unanswered_commit_leaves_it_open_whether_it_happened() -> None:
    machine = in_transaction(SECOND, P0)
    machine.commit()
    machine.on_no_answer(asked(machine), lost())
    assert answer(machine, ErrorCode.INVALID_TXN_STATE)[1] is Step.FAILED
    assert machine.error is not None
    assert (machine.error.may_be_done, machine.error.abortable) == (True, True)
    machine.abort()
    assert isinstance(answer(machine)[0], InitProducerIdRequest)


@both
def test_a_refusal_of_the_only_attempt_says_that_nothing_was_committed(level: int) -> None:
    machine = in_transaction(level, P0)
    machine.commit()
    answer(machine, ErrorCode.TRANSACTION_ABORTABLE)
    assert machine.error is not None
    assert machine.error.may_be_done is False
    machine.abort()
    assert isinstance(answer(machine)[0], EndTxnRequest)


@both
def test_an_abort_that_is_refused_asks_for_the_next_epoch(level: int) -> None:
    machine = in_transaction(level, P0)
    machine.abort()
    assert answer(machine, ErrorCode.INVALID_TXN_STATE)[1] is Step.AGAIN
    assert isinstance(answer(machine)[0], InitProducerIdRequest)
    assert where(machine) is Situation.READY


def test_an_addition_that_may_have_happened_is_not_left_behind() -> None:
    """The first protocol refuses to end what has not begun, and what has begun must not be joined by the next one."""
    machine = in_transaction(FIRST)
    machine.touch(P0)
    machine.on_no_answer(asked(machine), lost())
    machine.abort()
    assert isinstance(answer(machine)[0], InitProducerIdRequest)
    assert where(machine) is Situation.READY


def test_after_an_abort_nothing_that_is_late_gets_into_the_next_transaction() -> None:
    """The first protocol keeps its epoch, so one is asked for where an answer was missing. The second has another."""
    for level in (FIRST, SECOND):
        machine = in_transaction(level, P0)
        machine.add_offsets(GroupMember("g"), OFFSETS)
        machine.on_no_answer(asked(machine), lost())
        answer(machine)
        machine.abort()
        assert isinstance(answer(machine)[0], EndTxnRequest)
        if level == FIRST:
            assert isinstance(answer(machine)[0], InitProducerIdRequest)
        assert (where(machine), machine.owner.epoch) == (Situation.READY, 1)


def test_an_id_that_was_given_up_is_asked_for_again() -> None:
    machine = Transactions("tx", 60_000)
    machine.initialise()
    request = asked(machine)
    machine.give_up(DeadlineExceededError("starting"))
    machine.on_answer(request, InitProducerIdResponse(producer_id=7))
    assert (where(machine), machine.owner.producer_id) == (Situation.UNINITIALISED, NO_ID)
    machine.initialise()
    answer(machine)
    assert where(machine) is Situation.READY


# Calls at the wrong time.


def test_calls_at_the_wrong_time_say_what_is_in_the_way() -> None:
    machine = Transactions("tx", 60_000)
    with pytest.raises(RuntimeError, match="has no producer id yet"):
        machine.begin()
    machine = ready(SECOND)
    with pytest.raises(RuntimeError, match="no transaction is open; begin one first"):
        machine.commit()
    machine.begin()
    with pytest.raises(RuntimeError, match="a transaction is open; commit or abort it first"):
        machine.begin()
    machine.touch(P0)
    machine.commit()
    with pytest.raises(RuntimeError, match="is being committed"):
        machine.add_offsets(GroupMember("g"), OFFSETS)


def test_every_way_between_situations_is_drawn() -> None:
    """FATAL_ERROR is left out of the picture: it follows each, and nothing follows it."""
    assert TRANSITIONS.keys() == set(Situation)
    assert not TRANSITIONS[Situation.FATAL_ERROR]
    assert all(Situation.FATAL_ERROR in targets for situation, targets in TRANSITIONS.items() if targets)
    assert isinstance(lost(), ClientError)
