"""A producer in transactions: all of what was sent in a block is committed, or nothing of it."""

import asyncio
from typing import Any

import pytest
from clients.producer.leaders import Fate

from barnabas_clients import (
    DeadlineExceededError,
    Delivery,
    KafkaError,
    MessageTooLargeError,
    Producer,
    ProducerFencedError,
    TransactionAbortedError,
)
from barnabas_clients.errors import ClientClosedError, ClientError
from barnabas_clients.producer.transaction import ABORT_S, GroupOffsets
from barnabas_clients.producer.transaction_numbers import TransactionIdentity
from barnabas_clients.producer.transactions.requests import GroupMember
from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas_clients.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.txn_offset_commit import TxnOffsetCommitRequest
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_raftlog.records.reader import Record

from .stage import LOST, SERVED, TransactionStage

both = pytest.mark.parametrize("level", [1, 2])


class Group:
    """A consumer of a group, as far as transactions know it."""

    def __init__(self, **offsets: int) -> None:
        self.positions = {TopicPartition("in", int(name[1:])): offset for name, offset in offsets.items()}
        self.stored = 0

    def offsets_to_send(self, offsets: Any = None) -> GroupOffsets:
        given = {at: OffsetAndMetadata(position) for at, position in self.positions.items()}
        return GroupOffsets(GroupMember("g", 3, "m"), given, self._on_stored)

    def _on_stored(self) -> None:
        self.stored += 1


def too_few(_partition: int, _records: list[Record]) -> Fate:
    return Fate(ErrorCode.NOT_ENOUGH_REPLICAS, is_taken=False)


def now() -> float:
    return asyncio.get_running_loop().time()


@both
def test_a_block_is_committed_at_its_end(level: int) -> None:
    stage = TransactionStage(partitions=3, level=level)

    async def work() -> None:
        async with stage.transactional_producer() as producer:
            for number in range(3):
                async with producer.transaction():
                    for partition in range(3):
                        _ = await producer.send("t", b"%d-%d" % (number, partition), partition=partition)
                assert len(stage.committed) == number + 1
            assert isinstance(producer._identity, TransactionIdentity)
            assert producer._identity.is_second is (level == 2)

    stage.run(work())
    assert stage.committed == [{b"%d-%d" % (number, each) for each in range(3)} for number in range(3)]
    assert stage.transactional
    assert all(stage.transactional)
    assert stage.count(InitProducerIdRequest) == 1
    assert stage.count(AddPartitionsToTxnRequest) == (0 if level == 2 else 3)


@both
def test_an_exception_aborts_and_the_producer_goes_on(level: int) -> None:
    stage = TransactionStage(level=level)

    async def work() -> None:
        async with stage.transactional_producer() as producer:

            async def fail() -> None:
                async with producer.transaction():
                    await producer.send_and_wait("t", b"no")
                    raise KeyError

            with pytest.raises(KeyError):
                await fail()
            async with producer.transaction():
                _ = await producer.send("t", b"yes")

    stage.run(work())
    assert (stage.committed, stage.aborted) == ([{b"yes"}], [{b"no"}])


@both
def test_what_was_not_sent_before_an_abort_is_never_sent(level: int) -> None:
    stage = TransactionStage(level=level)

    async def work() -> None:
        async with stage.transactional_producer(linger_s=10) as producer:
            async with producer.transaction() as transaction:
                delivery = await producer.send("t", b"no")
                began = now()
                await transaction.abort()
                assert now() - began < 0.1
                assert not transaction.is_open
                with pytest.raises(RuntimeError, match="no transaction is open"):
                    _ = await producer.send("t", b"late")
            with pytest.raises(TransactionAbortedError, match="was aborted"):
                await delivery

    stage.run(work())
    assert stage.leaders.logs[0].values == []
    assert stage.count(EndTxnRequest) == 0, "there was nothing in it"


def test_nothing_is_sent_outside_of_a_transaction() -> None:
    stage = TransactionStage()

    async def work() -> None:
        async with stage.transactional_producer() as producer:
            with pytest.raises(RuntimeError, match="no transaction is open"):
                _ = await producer.send("t", b"v")
            async with producer.transaction() as transaction:
                with pytest.raises(RuntimeError, match="a transaction is open"):
                    await producer.transaction().begin()
                with pytest.raises(RuntimeError, match="has begun before"):
                    await transaction.begin()
            for call in (transaction.commit, transaction.abort):
                with pytest.raises(RuntimeError, match="is over"):
                    await call()
            assert await producer.partitions("t") == 1
        async with stage.producer() as plain:
            with pytest.raises(RuntimeError, match="transactional_id"):
                plain.transaction()
        with pytest.raises(ClientClosedError):
            producer.transaction()

    stage.run(work())
    assert stage.coordinator.ends == []


@both
def test_a_refused_batch_costs_the_transaction_and_not_the_producer(level: int) -> None:
    """T20: a failed batch is never a reason to go on in a new epoch as if nothing had been in the old one."""
    stage = TransactionStage(level=level, partitions=2)

    def fate(partition: int, records: list[Record]) -> Fate:
        return Fate(ErrorCode.MESSAGE_TOO_LARGE, is_taken=False) if records[0].value == b"large" else Fate()

    stage.leaders.fate = fate
    deliveries: list[Delivery] = []

    async def work() -> None:
        async with stage.transactional_producer() as producer:

            async def fail() -> None:
                async with producer.transaction():
                    _ = await producer.send("t", b"small", partition=1)
                    deliveries.append(await producer.send("t", b"large", partition=0))

            with pytest.raises(MessageTooLargeError) as caught:
                await fail()
            assert (caught.value.abortable, caught.value.fenced, caught.value.may_be_done) == (True, False, False)
            with pytest.raises(MessageTooLargeError):
                await deliveries[0]
            async with producer.transaction():
                for partition in range(2):
                    _ = await producer.send("t", b"%d" % partition, partition=partition)

    stage.run(work())
    assert stage.committed == [{b"0", b"1"}]
    assert stage.aborted == [{b"small"}]


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
@both
def test_a_gap_is_never_numbered_anew(level: int, code: ErrorCode) -> None:
    """T20: a leader that has lost the producer's state gets nothing more of this transaction."""
    stage = TransactionStage(level=level)

    async def work() -> None:
        async with stage.transactional_producer() as producer:

            async def fail() -> None:
                async with producer.transaction():
                    await producer.send_and_wait("t", b"first")
                    stage.leaders.fate = lambda _partition, _records: Fate(code, is_taken=False)
                    _ = await producer.send("t", b"second")
                    await producer.send_and_wait("t", b"third")

            with pytest.raises(KafkaError) as caught:
                await fail()
            assert (caught.value.code, caught.value.abortable) == (code, True)
            stage.leaders.fate = lambda _partition, _records: Fate()
            async with producer.transaction():
                _ = await producer.send("t", b"again")

    stage.run(work())
    assert stage.committed == [{b"again"}]
    assert stage.leaders.logs[0].values == [b"first", b"again"]


def test_batches_wait_while_the_transaction_before_is_completed() -> None:
    """T9: CONCURRENT_TRANSACTIONS is no failure, and order is kept."""
    stage = TransactionStage()
    left = 5

    def fate(_partition: int, records: list[Record]) -> Fate:
        """Refuse the first batch; those behind it see a gap."""
        nonlocal left
        left -= (records[0].value or b"")[:1] == b"0"
        return Fate() if left < 0 else Fate(ErrorCode.CONCURRENT_TRANSACTIONS, is_taken=False)

    async def work() -> None:
        nonlocal left
        async with stage.transactional_producer(batch_bytes=100) as producer:
            for _ in range(2):
                left = 5
                stage.leaders.fate = fate
                async with producer.transaction():
                    for number in range(8):
                        _ = await producer.send("t", b"%d" % number * 40)

    stage.run(work())
    assert stage.count(InitProducerIdRequest) == 1
    assert [value and value[:1] for value in stage.leaders.logs[0].values] == [b"%d" % each for each in range(8)] * 2
    assert len(stage.committed) == 2


@both
@pytest.mark.parametrize(
    ("api", "trouble"),
    [
        (api, trouble)
        for api in (InitProducerIdRequest, EndTxnRequest, TxnOffsetCommitRequest, FindCoordinatorRequest)
        for trouble in (LOST, SERVED, ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS)
        if api is not FindCoordinatorRequest or trouble in {LOST, ErrorCode.NOT_COORDINATOR}
    ],
)
def test_requests_are_repeated_until_they_are_answered(level: int, api: Any, trouble: Any) -> None:
    stage = TransactionStage(level=level)
    group = Group(p0=7)
    stage.answer(api, trouble, trouble)

    async def work() -> None:
        async with stage.transactional_producer() as producer, producer.transaction() as transaction:
            _ = await producer.send("t", b"v")
            await transaction.send_offsets(group)

    stage.run(work())
    assert stage.committed == [{b"v", ("offset", "", 7)}]
    assert group.stored == 1
    assert stage.count(AddOffsetsToTxnRequest) == (0 if level == 2 else 1)


@both
def test_refused_offsets_cost_the_transaction(level: int) -> None:
    stage = TransactionStage(level=level)
    group = Group(p0=7)
    stage.answer(TxnOffsetCommitRequest, ErrorCode.ILLEGAL_GENERATION)

    async def work() -> None:
        async with stage.transactional_producer() as producer:

            async def fail() -> None:
                async with producer.transaction() as transaction:
                    await producer.send_and_wait("t", b"no")
                    await transaction.send_offsets(group)

            with pytest.raises(KafkaError, match="ILLEGAL_GENERATION") as caught:
                await fail()
            assert caught.value.abortable
            async with producer.transaction() as transaction:
                await transaction.send_offsets(group)

    stage.run(work())
    assert stage.committed == [{("offset", "", 7)}]
    assert group.stored == 1


@both
def test_a_fenced_producer_is_told_so_and_sends_no_more(level: int) -> None:
    stage = TransactionStage(level=level)

    async def work() -> None:
        async with stage.transactional_producer() as old:

            async def fail() -> None:
                async with old.transaction():
                    await old.send_and_wait("t", b"no")
                    async with stage.transactional_producer() as new, new.transaction():
                        _ = await new.send("t", b"new")

            with pytest.raises(ProducerFencedError) as caught:
                await fail()
            assert (caught.value.fenced, caught.value.abortable, caught.value.retriable) == (True, False, False)
            with pytest.raises(ProducerFencedError):
                await old.transaction().begin()

    stage.run(work())
    assert stage.committed == [{b"new"}]


def test_a_producer_begins_as_the_owner_that_the_end_of_a_transaction_has_told() -> None:
    """Nobody is asked for an id."""
    stage = TransactionStage()

    async def work() -> None:
        async with stage.transactional_producer() as before, before.transaction():
            _ = await before.send("t", b"1")
        after = stage.transactional_producer()
        after.begin_as(*stage.coordinator.identity)
        async with after:
            for value in (b"2", b"3"):
                async with after.transaction():
                    _ = await after.send("t", value)

    stage.run(work())
    assert stage.committed == [{b"1"}, {b"2"}, {b"3"}]
    assert stage.count(InitProducerIdRequest) == 1


def test_who_begins_as_an_owner_that_has_gone_ends_nothing_of_the_present_one() -> None:
    stage = TransactionStage()

    async def work() -> None:
        async with stage.transactional_producer() as present:
            gone = stage.transactional_producer()
            gone.begin_as(*stage.coordinator.identity)
            async with present.transaction():
                _ = await present.send("t", b"1")
            await present.transaction().begin()
            await present.send_and_wait("t", b"2")
            async with gone:
                await gone.transaction().begin()
                with pytest.raises(KafkaError):
                    await gone.send_and_wait("t", b"no")
            await present.send_and_wait("t", b"3")
            assert await present.prepare() is not None
            with pytest.raises(RuntimeError, match="before it is started"):
                present.begin_as(1, 2)

    stage.run(work())
    assert stage.coordinator.is_open
    assert stage.coordinator.written >= {b"2", b"3"}
    assert b"no" not in stage.coordinator.written


def test_records_fail_as_fenced_with_their_producer() -> None:
    stage = TransactionStage(partitions=2)
    stage.leaders.fate = lambda _partition, _records: Fate(ErrorCode.PRODUCER_FENCED, is_taken=False)

    async def work() -> None:
        async with stage.transactional_producer(linger_s=10) as old:
            await old.transaction().begin()
            delivery = await old.send("t", b"more", partition=1)
            with pytest.raises(ProducerFencedError):
                await old.send_and_wait("t", b"no", partition=0)
            with pytest.raises(TransactionAbortedError, match="PRODUCER_FENCED") as caught:
                await delivery
            assert (caught.value.fenced, caught.value.abortable) == (True, False)

    stage.run(work())
    assert stage.count(InitProducerIdRequest) == 1


@both
def test_a_cancelled_block_is_aborted(level: int) -> None:
    stage = TransactionStage(level=level)

    async def one(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send_and_wait("t", b"no")
            await asyncio.Event().wait()

    async def work() -> None:
        async with stage.transactional_producer() as producer:
            task = asyncio.create_task(one(producer))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert stage.aborted == [{b"no"}]
            async with producer.transaction():
                _ = await producer.send("t", b"yes")

    stage.run(work())
    assert stage.committed == [{b"yes"}]


@both
@pytest.mark.parametrize("api", [EndTxnRequest, None])
def test_a_cancelled_commit_is_whole_or_nothing(level: int, api: Any) -> None:
    """Cancelled while its request is out, or while its batches are."""
    stage = TransactionStage(level=level)

    async def one(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send_and_wait("t", b"maybe")
            _ = await producer.send("t", b"more")
            stage.stall(1, 2)

    async def work() -> None:
        async with stage.transactional_producer() as producer:
            task = asyncio.create_task(one(producer))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                _ = await producer.send("t", b"next")

    stage.run(work())
    assert stage.committed[-1] == {b"next"}
    assert stage.committed[:-1] in ([], [{b"maybe", b"more"}])


@both
def test_nothing_hangs_when_all_brokers_have_gone(level: int) -> None:
    """A block that is cancelled, or failed, ends within a stated time, and so do a commit and the end of a producer."""
    stage = TransactionStage(level=level, brokers=2, partitions=2)
    stage.leaders.move(1, 2)

    async def cancelled(producer: Producer) -> None:
        async with producer.transaction():
            for partition in range(2):
                await producer.send_and_wait("t", b"no", partition=partition)
            stage.cut(1)
            stage.cut(2)
            _ = await producer.send("t", b"no", partition=0)
            await asyncio.Event().wait()

    async def work() -> None:
        producer = stage.transactional_producer(timeout_s=20)
        await producer.start()
        task = asyncio.create_task(cancelled(producer))
        await asyncio.sleep(5)
        began = now()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert now() - began < ABORT_S + 0.1
        began = now()
        with pytest.raises(ClientError):
            await producer.transaction(timeout_s=3).begin()
        assert now() - began < 3.1
        began = now()
        await producer.stop(timeout_s=4)
        assert now() - began < 5

    stage.run(work())
    assert stage.committed == []


@both
def test_a_commit_that_nobody_answers_says_that_it_may_be_done(level: int) -> None:
    stage = TransactionStage(level=level)

    async def work() -> None:
        async with stage.transactional_producer() as producer:

            async def fail() -> None:
                async with producer.transaction(timeout_s=3):
                    await producer.send_and_wait("t", b"v")
                    stage.answer(EndTxnRequest, *[SERVED] * 50)

            with pytest.raises(DeadlineExceededError) as caught:
                await fail()
            assert caught.value.may_be_done
            assert caught.value.abortable
            stage.trouble.clear()
            async with producer.transaction():
                _ = await producer.send("t", b"next")

    stage.run(work())
    assert stage.committed == [{b"v"}, {b"next"}]


@both
def test_a_commit_that_cannot_be_asked_for_is_not_done(level: int) -> None:
    """The batches are not acknowledged: nobody was asked to commit, and what there is is aborted."""
    stage = TransactionStage(level=level)

    async def work() -> None:
        async with stage.transactional_producer() as producer:

            async def fail() -> None:
                async with producer.transaction(timeout_s=3):
                    await producer.send_and_wait("t", b"v")
                    stage.leaders.fate = too_few
                    _ = await producer.send("t", b"w")

            with pytest.raises(DeadlineExceededError) as caught:
                await fail()
            assert (caught.value.may_be_done, caught.value.abortable) == (False, True)
            assert stage.aborted == [{b"v"}], "the block has seen to it before it ended"
            stage.leaders.fate = lambda _partition, _records: Fate()
            async with producer.transaction():
                _ = await producer.send("t", b"next")

    stage.run(work())
    assert (stage.committed, stage.aborted) == ([{b"next"}], [{b"v"}])


@both
def test_a_commit_whose_coordinator_has_moved_and_is_not_found_may_be_done(level: int) -> None:
    """It may have written the commit down before it moved."""
    stage = TransactionStage(level=level)

    async def work() -> None:
        async with stage.transactional_producer() as producer:

            async def fail() -> None:
                async with producer.transaction(timeout_s=3):
                    await producer.send_and_wait("t", b"v")
                    stage.answer(EndTxnRequest, ErrorCode.NOT_COORDINATOR)
                    stage.answer(FindCoordinatorRequest, *[LOST] * 50)

            with pytest.raises(DeadlineExceededError) as caught:
                await fail()
            assert (caught.value.may_be_done, caught.value.abortable) == (True, True)
            stage.trouble.clear()
            async with producer.transaction():
                _ = await producer.send("t", b"next")

    stage.run(work())
    assert (stage.committed, stage.aborted) == ([{b"next"}], [{b"v"}])


@both
def test_the_coordinator_is_followed_where_it_goes(level: int) -> None:
    stage = TransactionStage(level=level, brokers=2)

    async def work() -> None:
        async with stage.transactional_producer() as producer:
            async with producer.transaction():
                await producer.send_and_wait("t", b"v")
                stage.coordinator_node = 2
            stage.coordinator_node = 1
            async with producer.transaction() as transaction:
                await transaction.send_offsets(Group(p0=7))
                stage.coordinator_node = 2

    stage.run(work())
    assert stage.committed == [{b"v"}, {("offset", "", 7)}]


@both
def test_an_abort_does_not_wait_for_a_leader_that_is_silent(level: int) -> None:
    """Half of its time is for batches on the wire. The coordinator has the other half."""
    stage = TransactionStage(level=level, brokers=2, partitions=2)
    stage.leaders.move(1, 2)

    async def work() -> None:
        async with stage.transactional_producer() as producer:

            async def fail() -> None:
                async with producer.transaction():
                    for partition in range(2):
                        await producer.send_and_wait("t", b"%d" % partition, partition=partition)
                    stage.cut(2)
                    _ = await producer.send("t", b"2", partition=1)
                    await asyncio.sleep(0.1)
                    raise KeyError

            with pytest.raises(KeyError):
                await fail()
            assert stage.aborted == [{b"0", b"1"}]
            stage.mend(2)
            async with producer.transaction():
                _ = await producer.send("t", b"next", partition=1)

    stage.run(work())
    assert stage.committed == [{b"next"}]


@both
def test_an_abort_does_not_wait_for_the_pauses_of_a_commit(level: int) -> None:
    stage = TransactionStage(level=level)

    async def one(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send_and_wait("t", b"v")
            stage.answer(EndTxnRequest, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 50)

    async def work() -> None:
        async with stage.transactional_producer() as producer:
            task = asyncio.create_task(one(producer))
            await asyncio.sleep(9.5)
            # It asks once a second by now.
            stage.trouble.clear()
            began = now()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert now() - began < 0.1

    stage.run(work())
    assert stage.aborted == [{b"v"}]


def test_a_queue_that_waits_for_a_connection_puts_nothing_into_the_next_transaction() -> None:
    stage = TransactionStage(brokers=2, partitions=2)
    stage.leaders.move(1, 2)

    async def work() -> None:
        async with stage.transactional_producer() as producer:
            await producer.partitions("t")
            stage.stall(2, 2)
            async with producer.transaction() as transaction:
                _ = await producer.send("t", b"no", partition=1)
                await asyncio.sleep(0.1)
                await transaction.abort()
            async with producer.transaction():
                await asyncio.sleep(5)

    stage.run(work())
    assert stage.count(EndTxnRequest) == 0, "nothing was sent in either"


@pytest.mark.parametrize("waits_for", ["metadata", "room"])
def test_a_record_that_waits_does_not_get_into_the_next_transaction(waits_for: str) -> None:
    stage = TransactionStage()

    async def work() -> None:
        async with stage.transactional_producer(batch_bytes=1_000, buffer_bytes=4_000) as producer:
            transaction = producer.transaction()
            await transaction.begin()
            if waits_for == "room":
                stage.leaders.fate = too_few
                _ = await producer.send("t", bytes(2_500))
            late: asyncio.Task[Delivery] = asyncio.create_task(
                producer.send("u" if waits_for == "metadata" else "t", bytes(2_500))
            )
            await asyncio.sleep(0.5)
            assert not late.done()
            stage.leaders.fate = lambda _partition, _records: Fate()
            await transaction.abort()
            async with producer.transaction():
                stage.leaders.topics["u"] = [(1, 1)]
                with pytest.raises(RuntimeError, match=r"was ended before|is being aborted"):
                    _ = await late

    stage.run(work())
    assert stage.committed == []


@both
def test_a_batch_that_expires_costs_the_transaction(level: int) -> None:
    stage = TransactionStage(level=level)

    async def work() -> None:
        async with stage.transactional_producer(delivery_timeout_s=2) as producer:

            async def fail() -> None:
                async with producer.transaction():
                    await producer.send_and_wait("t", b"v")
                    stage.leaders.fate = too_few
                    _ = await producer.send("t", b"w")

            with pytest.raises(DeadlineExceededError, match="not acknowledged within 2 s"):
                await fail()
            stage.leaders.fate = lambda _partition, _records: Fate()
            async with producer.transaction():
                _ = await producer.send("t", b"next")

    stage.run(work())
    assert stage.committed == [{b"next"}]


@both
def test_closing_aborts_what_is_open(level: int) -> None:
    stage = TransactionStage(level=level)

    async def work() -> None:
        producer = await stage.transactional_producer().start()
        await producer.transaction().begin()
        await producer.send_and_wait("t", b"no")
        await producer.stop()

    stage.run(work())
    assert stage.aborted == [{b"no"}]


def test_closing_lets_a_commit_come_to_its_end() -> None:
    stage = TransactionStage()

    async def one(producer: Producer) -> None:
        async with producer.transaction():
            _ = await producer.send("t", b"v")

    async def work() -> None:
        producer = await stage.transactional_producer().start()
        await producer.partitions("t")
        task = asyncio.create_task(one(producer))
        await asyncio.sleep(0)
        stage.stall(1, 1)
        await producer.stop()
        await task

    stage.run(work())
    assert stage.committed == [{b"v"}]


def test_a_producer_that_may_not_have_its_id_does_not_start() -> None:
    stage = TransactionStage()
    stage.answer(InitProducerIdRequest, *[ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2)

    async def work() -> None:
        async def fail() -> None:
            async with stage.transactional_producer():
                raise AssertionError

        with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await fail()
        stage.cut(1)
        began = now()
        with pytest.raises(DeadlineExceededError):
            await stage.transactional_producer(timeout_s=3).start()
        assert now() - began < 4

    stage.run(work())


def test_an_upgrade_of_the_cluster_is_followed_between_transactions() -> None:
    stage = TransactionStage(level=1)

    async def work() -> None:
        async with stage.transactional_producer() as producer:
            async with producer.transaction():
                _ = await producer.send("t", b"first")
                await producer.flush()
                stage.level = 2
                stage.reset(1)
                stage.level = 1
                _ = await producer.send("t", b"more")
            stage.level = 2
            stage.reset(1)
            async with producer.transaction():
                _ = await producer.send("t", b"second")
            async with producer.transaction():
                _ = await producer.send("t", b"third")

    stage.run(work())
    assert stage.committed == [{b"first", b"more"}, {b"second"}, {b"third"}]


def test_settings_are_checked() -> None:
    for wrong in ({"acks": 1}, {"idempotent": False}, {"transactional_id": ""}, {"transaction_timeout_s": 0}):
        with pytest.raises(ValueError, match=r"transactions|transactional_id|must be positive"):
            Producer("b:1", **({"transactional_id": "tx"} | wrong))
