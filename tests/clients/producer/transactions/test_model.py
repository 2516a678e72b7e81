"""Transactions are whole or not at all, whatever is lost, delayed, refused or given up on the way."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from barnabas_clients.errors import ConnectionLostError, DeadlineExceededError
from barnabas_clients.producer.transactions import state_machine
from barnabas_clients.producer.transactions.requests import GroupMember, Request
from barnabas_clients.producer.transactions.situations import OPEN, Situation
from barnabas_clients.producer.transactions.state_machine import Step, Transactions
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .naive_coordinator import NaiveCoordinator, answer_with, identity_of

REFUSALS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
)
STEPS_MAX = 50
BUSY = OPEN | {Situation.INITIALISING, Situation.ABORTING}


class Sent:
    """A request or a batch on its way, which may be carried out later, or more than once."""

    def __init__(self, what: Any, owner: tuple[int, int], number: int, *, is_second: bool) -> None:
        self.what = what
        self.owner = owner
        self.number = number
        self.is_second = is_second


class ProducerMachine(RuleBasedStateMachine):
    """One producer. `tags` are what the application has put into its transaction, which is `ending` or not."""

    module: Any = state_machine
    """The class under test. Mutants put themselves here."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = NaiveCoordinator()
        self.machine: Transactions = self.module.Transactions("tx", 60_000)
        self.count = 0
        self.number = 0
        """Of the transaction; `committed` are those of which the application knows that they were."""
        self.committed: set[int] = set()
        self.tags: set[Any] | None = None
        self.wants_commit = False
        self.is_doubtful = False
        self.may_be_fenced = False
        self.has_trouble = False
        """Something has gone wrong since the transaction began. What others have sent too late is no excuse."""
        self.batches: list[tuple[TopicPartition, int]] = []
        self.late: list[Sent] = []
        self.held: Sent | None = None

    @initialize(level=st.sampled_from([0, 1, 2, 2]), goes_well=st.booleans())
    def begin_with(self, level: int, goes_well: bool) -> None:
        self.machine.see_version(level)
        self.machine.initialise()
        if goes_well:
            self.ask("answered", 0)

    # The application.

    @precondition(lambda self: self.machine.situation is Situation.UNINITIALISED)
    @rule()
    def initialise(self) -> None:
        self.machine.initialise()

    @precondition(lambda self: self.machine.situation is Situation.READY)
    @rule(numbers=st.lists(st.integers(0, 2), max_size=3))
    def begin(self, numbers: list[int]) -> None:
        assert self.tags is None
        self.machine.begin()
        self.number += 1
        self.has_trouble = False
        self.tags, self.wants_commit, self.is_doubtful = set(), False, False
        for number in numbers:
            self.put(number)

    @precondition(lambda self: self.machine.situation is Situation.IN_TRANSACTION)
    @rule(number=st.integers(0, 2))
    def put(self, number: int) -> None:
        assert self.tags is not None
        partition = TopicPartition("t", number)
        self.count += 1
        self.machine.touch(partition)
        self.batches.append((partition, self.count))
        self.tags.add(self.count)

    @precondition(lambda self: self.machine.situation is Situation.IN_TRANSACTION)
    @rule(group=st.sampled_from(["g", "h"]))
    def put_offsets(self, group: str) -> None:
        assert self.tags is not None
        self.count += 1
        position = OffsetAndMetadata(self.count, group)
        self.machine.add_offsets(GroupMember(group), {TopicPartition("in", self.count): position})
        self.tags.add(("offset", group, self.count))

    @precondition(lambda self: self.machine.situation is Situation.IN_TRANSACTION)
    @rule()
    def commit(self) -> None:
        self.machine.commit()
        self.wants_commit = True

    @precondition(lambda self: self.machine.situation in {Situation.IN_TRANSACTION, Situation.ABORTABLE_ERROR})
    @rule()
    def abort(self) -> None:
        self.machine.abort()
        self.wants_commit = False
        self.batches.clear()

    @precondition(lambda self: self.machine.situation in BUSY and (self.held or self.count % 3 == 0))
    @rule()
    def give_up(self) -> None:
        self.held = None
        self.has_trouble = True
        self.machine.give_up(DeadlineExceededError("given up"))
        self.settle()

    @precondition(lambda self: self.machine.situation is Situation.FATAL_ERROR)
    @rule()
    def be_refused(self) -> None:
        for call in (self.machine.begin, self.machine.commit, self.machine.abort):
            with pytest.raises(KafkaError) as caught:
                call()
            assert (type(caught.value), str(caught.value)) == (type(self.machine.error), str(self.machine.error))
        assert self.machine.next_request(batches_are_under_way=False) is None

    # Its sender.

    @precondition(lambda self: self.batches and self.machine.may_send(self.batches[0][0]))
    @rule(fate=st.sampled_from(["stored"] * 5 + ["lost", "answer lost", "late", "expired"]))
    def send_batch(self, fate: str) -> None:
        partition, tag = self.batches.pop(0)
        self.has_trouble = self.has_trouble or fate != "stored"
        batch = Sent((partition, tag), identity_of(self.machine.owner), self.number, is_second=self.machine.is_second)
        code = self.carry_out(batch) if fate in {"stored", "answer lost"} else 0
        if fate == "late":
            self.late.append(batch)
        if fate != "stored":
            self.machine.on_batch_failed(DeadlineExceededError("no answer", may_be_done=fate != "expired"))
        elif code:
            self.machine.on_batch_failed(error_for(code))
        self.settle()

    @precondition(lambda self: self.machine.situation in BUSY and not self.held)
    @rule(count=st.integers(1, 6))
    def go_on(self, count: int) -> None:
        """Let some time pass in which nothing goes wrong."""
        for _ in range(count):
            while self.batches and self.machine.may_send(self.batches[0][0]):
                self.send_batch("stored")
            self.ask("answered", 0)

    @precondition(lambda self: self.machine.situation in BUSY and not self.held)
    @rule(
        fate=st.sampled_from(
            ["answered"] * 4 + ["refused", "moved", "moved away", "lost", "answer lost", "late", "held"]
        ),
        refusal=st.sampled_from(REFUSALS),
    )
    def ask(self, fate: str, refusal: int) -> None:
        request = self.machine.next_request(batches_are_under_way=bool(self.batches))
        self.settle()
        if request is None:
            return
        self.has_trouble = self.has_trouble or fate in {"moved", "moved away", "lost", "answer lost", "late"}
        is_second = request.versions[-1] >= 5
        sent = Sent(request, identity_of(self.machine.owner), self.number, is_second=is_second)
        if fate == "refused":
            self.machine.on_answer(request, answer_with(request.message, refusal))
        elif fate in {"moved", "moved away"}:
            if fate == "moved":
                self.carry_out(sent)
            code = ErrorCode.NOT_COORDINATOR if refusal % 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert self.machine.on_answer(request, answer_with(request.message, code)) is Step.ELSEWHERE
        elif fate == "answered":
            self.machine.on_answer(request, self.carry_out(sent))
        elif fate == "held":
            self.held = sent
        else:
            if fate == "answer lost":
                self.carry_out(sent)
            elif fate == "late":
                self.late.append(sent)
            lost = ConnectionLostError("b", "gone", may_be_done=True)
            assert self.machine.on_no_answer(request, lost) is Step.ELSEWHERE
        self.settle()

    @precondition(lambda self: self.held)
    @rule()
    def answer_held(self) -> None:
        sent, self.held = self.held, None
        assert sent is not None
        self.machine.on_answer(sent.what, self.carry_out(sent))
        self.settle()

    # The rest of the world.

    @precondition(lambda self: self.late)
    @rule(position=st.integers(0, 3))
    def arrive_late(self, position: int) -> None:
        """In the first protocol nothing protects a transaction from one that was committed before it. That is known."""
        position = min(position, len(self.late) - 1)
        sent = self.late[position]
        if (
            isinstance(sent.what, Request)
            and isinstance(sent.what.message, InitProducerIdRequest)
            and sent.owner[0] < 0
        ):
            return  # It takes the id over, as if it were another producer's.
        is_first = not sent.is_second and not self.machine.is_second
        if is_first and sent.number in self.committed and sent.owner == identity_of(self.machine.owner):
            return
        del self.late[position]
        self.carry_out(sent)

    @precondition(lambda self: self.count % 5 == 0)
    @rule(level=st.sampled_from([0, 2, 2]))
    def see_version(self, level: int) -> None:
        self.machine.see_version(level)

    @precondition(lambda self: self.coordinator.is_open)
    @rule()
    def time_out(self) -> None:
        self.coordinator.time_out()
        self.has_trouble = True
        self.may_be_fenced = self.may_be_fenced or not self.machine.is_second

    @precondition(lambda self: self.count > 10 and not self.may_be_fenced)
    @rule()
    def usurp(self) -> None:
        self.coordinator.usurp()
        self.has_trouble = True
        self.may_be_fenced = True

    def carry_out(self, sent: Sent) -> Any:
        """Let it happen. A commit may only be that of the transaction of which it is wanted, and of all of it."""
        before = len(self.coordinator.ends)
        if isinstance(sent.what, Request):
            result: Any = self.coordinator.serve(sent.what.message, is_second=sent.is_second)
        else:
            partition, tag = sent.what
            result = self.coordinator.write(sent.owner, partition, {tag}, is_second=sent.is_second)
        for is_commit, tags in self.coordinator.ends[before:]:
            if is_commit:
                assert self.wants_commit or self.is_doubtful
                assert set(tags) == self.tags
        return result

    def settle(self) -> None:
        """Compare with the log what the machine says of the transaction."""
        situation, error = self.machine.situation, self.machine.error
        assert self.has_trouble or self.may_be_fenced or situation is not Situation.ABORTABLE_ERROR, error
        if situation is Situation.ABORTABLE_ERROR and self.wants_commit:
            assert error is not None
            self.is_doubtful = error.may_be_done is not False
            self.wants_commit = False
        if situation is Situation.FATAL_ERROR:
            assert self.may_be_fenced, error
            assert error is not None
            assert error.fenced
            assert not error.abortable
        if self.tags is None:
            return
        committed = [tags for is_commit, tags in self.coordinator.ends if is_commit and tags & self.tags]
        if self.wants_commit and situation in {Situation.READY, Situation.INITIALISING}:
            assert [set(tags) for tags in committed] == ([self.tags] if self.tags else [])
            self.committed.add(self.number)
            self.tags = None
        elif situation is Situation.READY:
            assert not committed or self.is_doubtful
            self.tags = None
        if self.tags is None:
            self.wants_commit = self.is_doubtful = False

    def teardown(self) -> None:
        """The producer gets ready again when nothing goes wrong any more, unless it was fenced."""
        if self.held is not None:
            self.answer_held()
        for _ in range(STEPS_MAX):
            if self.machine.situation in {Situation.READY, Situation.FATAL_ERROR}:
                break
            if self.machine.situation is Situation.UNINITIALISED:
                self.initialise()
            elif self.machine.situation in {Situation.IN_TRANSACTION, Situation.ABORTABLE_ERROR}:
                self.abort()
            self.go_on(1)
        assert self.machine.situation in {Situation.READY, Situation.FATAL_ERROR}


TestProducer = pytest.mark.slow(ProducerMachine.TestCase)
TestProducer.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
