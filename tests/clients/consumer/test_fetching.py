"""Fetching goes on through damage, cut logs, other leaders and silence.

The brokers here answer as real ones do when something is wrong.
"""

import asyncio
from unittest import mock

import pytest
from clients.conftest import Run
from clients.fake_broker import Answer, FakeBroker, serving
from clients.fake_log import FakeLog, values_of
from clients.virtual import run_virtually, serving_virtually

from barnabas_clients.consumer.consumer import Consumer
from barnabas_clients.consumer.errors import CorruptRecordsError, LogTruncatedError
from barnabas_clients.consumer.fetcher import Fetcher
from barnabas_clients.errors import ClientClosedError, ClientError, DeadlineExceededError
from barnabas_clients.protocol.errors import ErrorCode, OffsetOutOfRangeError, TopicAuthorizationFailedError
from barnabas_clients.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from barnabas_clients.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_clients.protocol.metadata import MetadataRequest
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.records.builder import NewRecord, build_batch

PARTITION = TopicPartition("t", 0)


def consumer(*brokers: FakeBroker, **settings: object) -> Consumer:
    bootstrap = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
    given = {"topics": ["t"], "auto_offset_reset": "earliest", **settings}
    return Consumer(bootstrap, **given)  # type: ignore[arg-type]  # checked where it is called


async def read(reader: Consumer, count: int) -> list[bytes | None]:
    return [(await anext(reader)).value for _ in range(count)]


def test_damage_is_named_and_can_be_passed(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(2))
        bad = build_batch([NewRecord(None, b"x", 1)] * 3, base_offset=2)
        bad[-1] ^= 1
        log.append_batch(bytes(bad))
        log.append(values_of(2, 5))
        async with serving(broker), consumer(broker) as reader:
            assert await read(reader, 2) == values_of(2)
            with pytest.raises(CorruptRecordsError):
                await anext(reader)
            with pytest.raises(CorruptRecordsError, match="t-0 at offset 2: checksum") as raised:
                await anext(reader)
            await reader.seek(raised.value.partition, raised.value.next_offset)
            assert await read(reader, 2) == values_of(2, 5)

    run(main())


def test_a_header_without_sense_is_fetched_once(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(2))
        bad = build_batch([NewRecord(None, b"x", 1)], base_offset=2)
        bad[8:12] = b"\0\0\0\5"
        log.append_batch(bytes(bad))
        log.append(values_of(1, 3))
        async with serving(broker), consumer(broker, fetch_max_wait_s=0.01) as reader:
            assert await read(reader, 2) == values_of(2)
            for _ in range(5):
                with pytest.raises(CorruptRecordsError, match="t-0 at offset 2: a batch of 17 bytes"):
                    await anext(reader)
                await asyncio.sleep(0)
            assert broker.count(FetchRequest) <= 3
            await reader.seek(PARTITION, 3)
            assert await read(reader, 1) == values_of(1, 3)

    run(main())


def test_damage_in_one_partition_holds_no_other_up(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker, partitions=2)
        bad = build_batch([NewRecord(None, b"x", 1)])
        bad[-1] ^= 1
        log.append_batch(bytes(bad), 0)
        log.append(values_of(3), 1)
        async with serving(broker), consumer(broker) as reader:
            found: list[bytes | None] = []
            failures = 0
            while len(found) < 3:
                try:
                    found.append((await anext(reader)).value)
                except CorruptRecordsError:
                    failures += 1
            assert found == values_of(3)
            reader.pause(PARTITION)
            assert await reader.get_many(timeout_s=0.01) == {}
            assert failures <= 2

    run(main())


def test_what_was_taken_is_returned_before_damage_in_another_partition_is_told(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker, partitions=2)
        log.append(values_of(5), 0)
        bad = build_batch([NewRecord(None, b"x", 1)])
        bad[-1] ^= 1
        log.append_batch(bytes(bad), 1)
        async with serving(broker), consumer(broker, fetch_max_wait_s=0.01) as reader:
            found = await reader.get_many(timeout_s=5)
            assert [record.value for record in found[PARTITION]] == values_of(5)
            with pytest.raises(CorruptRecordsError, match="t-1 at offset 0"):
                await reader.get_many(timeout_s=5)

    run(main())


def test_an_answer_ends_where_its_records_have_many_headers(run: Run) -> None:
    """Those of one partition or of several; the rest comes with the next call."""

    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker, partitions=3)
        records = [NewRecord(None, b"x", 1, [("", None)] * 30_000)] * 3
        for number in range(3):
            log.append_batch(bytes(build_batch(records)), number)
        async with serving(broker), consumer(broker) as reader:
            answers: list[int] = []
            while sum(answers) < 9:
                found = await reader.get_many(timeout_s=5)
                answers.append(sum(len(of_one) for of_one in found.values()))
                assert answers[-1] <= 6
            assert sum(answers) == 9

    run(main())


def test_asking_again_and_again_in_spite_of_damage_lets_the_other_partitions_be_fetched() -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker, partitions=2)
        bad = build_batch([NewRecord(None, b"x", 1)])
        bad[-1] ^= 1
        log.append_batch(bytes(bad), 1)
        async with serving_virtually(broker), consumer(broker) as reader:
            found: list[bytes | None] = []
            for turn in range(1_000):
                try:
                    found += [record.value for record in (await reader.get_many()).get(PARTITION, [])]
                except CorruptRecordsError:
                    if not turn % 100:
                        log.append([b"%d" % turn])
            assert found == [b"%d" % turn for turn in range(0, 1_000, 100)]

    run_virtually(main())


def test_what_was_taken_is_returned_before_damage_behind_it_is_told(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(5))
        bad = build_batch([NewRecord(None, b"x", 1)] * 2, base_offset=5)
        bad[-1] ^= 1
        log.append_batch(bytes(bad))
        log.append(values_of(2, 7))
        async with serving(broker), consumer(broker) as reader:
            found = await reader.get_many()
            assert [record.value for record in found[PARTITION]] == values_of(5)
            with pytest.raises(CorruptRecordsError, match="t-0 at offset 5") as raised:
                await reader.get_many()
            assert await reader.position(PARTITION) == 5
            await reader.seek(PARTITION, raised.value.next_offset)
            assert [record.value for record in (await reader.get_many())[PARTITION]] == values_of(2, 7)

    run(main())


def test_a_consumer_that_is_closed_hands_nothing_out_any_more(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(5))
        async with serving(broker), consumer(broker) as reader:
            assert await read(reader, 2) == values_of(2)
            await reader.close()
            with pytest.raises(ClientClosedError):
                await anext(reader)

    run(main())


def test_a_refusal_for_good_is_raised_and_the_position_stays(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(3))

        def refuse(_: FetchRequest, response: FetchResponse) -> None:
            response.responses[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

        log.twist = refuse
        async with serving(broker), consumer(broker) as reader:
            with pytest.raises(TopicAuthorizationFailedError, match="t-0 at 0"):
                await anext(reader)
            log.twist = None
            await reader.seek(PARTITION, 1)
            assert await read(reader, 2) == values_of(2, 1)

    run(main())


def test_a_hint_leads_to_the_new_leader_without_metadata(run: Run) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        log = FakeLog(one, two)
        log.append(values_of(1))
        async with serving(one, two), consumer(one, two) as reader:
            assert await read(reader, 1) == values_of(1)
            asked = len([request for request, _ in one.seen + two.seen if type(request).__name__ == "MetadataRequest"])

            def hint(_: FetchRequest, response: FetchResponse) -> None:
                row = response.responses[0].partitions[0]
                if row.error_code:
                    row.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
                    response.node_endpoints = [NodeEndpoint(node_id=2, host="127.0.0.1", port=two.port)]

            log.twist = hint
            log.topics["t"] = [(2, 5)]
            log.append(values_of(1, 1))
            assert await read(reader, 1) == values_of(1, 1)
            assert two.count(FetchRequest) > 0
            now = len([request for request, _ in one.seen + two.seen if type(request).__name__ == "MetadataRequest"])
            assert now == asked

    run(main())


def test_a_replica_that_lacks_an_offset_sends_the_reader_back_to_the_leader(run: Run) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(0)  # 0 is an id like any other
        log = FakeLog(one, two)
        log.append(values_of(1))

        def from_the_rack(request: FetchRequest, response: FetchResponse) -> None:
            row = response.responses[0].partitions[0]
            if row.error_code:
                row.error_code = ErrorCode.OFFSET_NOT_AVAILABLE  # instead of "not the leader"
            elif request.rack_id:
                row.preferred_read_replica = 0
                row.records = None

        log.twist = from_the_rack
        async with serving(one, two), consumer(one, two, client_rack="r", fetch_max_wait_s=0.01) as reader:
            assert await read(reader, 1) == values_of(1)
            assert two.count(FetchRequest) == 1

    run(main())


def test_a_silent_leader_is_left_when_another_is_named(run: Run) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        log = FakeLog(one, two)
        log.append(values_of(1))
        async with serving(one, two), consumer(one, two, fetch_max_wait_s=0.01) as reader:
            assert await read(reader, 1) == values_of(1)
            log.silent.add(1)
            log.topics["t"] = [(2, 5)]
            log.append(values_of(1, 1))
            assert await read(reader, 1) == values_of(1, 1)

    run(main())


def test_a_silent_leader_is_left_also_when_its_successor_is_named_late() -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        log = FakeLog(one, two)
        log.append(values_of(1))
        async with serving_virtually(one, two), consumer(one, two, fetch_max_wait_s=0.01) as reader:
            assert await read(reader, 1) == values_of(1)
            log.silent.add(1)
            log.append(values_of(1, 1))
            await asyncio.sleep(5)
            log.topics["t"] = [(2, 5)]
            async with asyncio.timeout(2):
                assert await read(reader, 1) == values_of(1, 1)

    run_virtually(main())


def test_asking_ends_when_nothing_can_be_read_for_too_long(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.silent.add(1)
        async with serving(broker), consumer(broker, fetch_max_wait_s=0.01, timeout_s=1.0) as reader:
            with pytest.raises(
                DeadlineExceededError, match=r"nothing could be read for 1 s: t-0: broker 1 at .* does not"
            ):
                await anext(reader)
            with pytest.raises(DeadlineExceededError):
                await anext(reader.batches())
            assert await reader.get_many(timeout_s=0.01) == {}

    run(main())


def test_asking_ends_when_the_coordinator_cannot_be_found(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        FakeLog(broker)

        async def nobody(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            rows = [
                Coordinator(key=key, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE) for key in request.coordinator_keys
            ]
            return FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, coordinators=rows)

        broker.answers[FindCoordinatorRequest] = nobody
        async with serving(broker), consumer(broker, group_id="g", timeout_s=0.3) as reader:
            with pytest.raises(DeadlineExceededError, match="group g: no coordinator can be found"):
                await anext(reader)

    run(main())


def test_a_log_that_was_cut_is_followed_or_reported(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(10))

        def cut(request: FetchRequest, response: FetchResponse) -> None:
            asked, row = request.topics[0].partitions[0], response.responses[0].partitions[0]
            if asked.last_fetched_epoch == 1 and asked.fetch_offset > 4:
                row.diverging_epoch = EpochEndOffset(epoch=0, end_offset=4)
                row.records = b""

        async with serving(broker), consumer(broker) as reader, consumer(broker, auto_offset_reset="none") as strict:
            await strict.unsubscribe()
            await strict.assign([PARTITION])
            await strict.seek(PARTITION, 0)
            assert await read(reader, 10) == await read(strict, 10) == values_of(10)
            log.twist = cut
            log.append(values_of(1, 10))
            assert await read(reader, 1) == [b"4"]
            with pytest.raises(LogTruncatedError, match="t-0: the log was cut at 4, the position was 10"):
                await anext(strict)

    run(main())


def test_an_offset_that_is_gone_is_told_or_followed_as_the_policy_says() -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(5))
        async with serving_virtually(broker), consumer(broker) as reader:
            await reader.position(PARTITION)
            await reader.seek(PARTITION, 100)
            assert await read(reader, 5) == values_of(5)
        async with serving_virtually(broker), consumer(broker, topics=(), auto_offset_reset="none") as strict:
            await strict.assign([PARTITION])
            await strict.seek(PARTITION, 100)
            for _ in range(2):
                with pytest.raises(OffsetOutOfRangeError, match="t-0 at 100"):
                    await anext(strict)
            await strict.seek(PARTITION, 3)
            assert await read(strict, 2) == values_of(2, 3)

    run_virtually(main())


def test_an_offset_ahead_of_the_position_that_is_refused_is_asked_for_again() -> None:
    """Waiting records are read first. By then the log may have got there, or the policy decides."""

    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(5))

        def refuse(request: FetchRequest, response: FetchResponse) -> None:
            if request.topics[0].partitions[0].fetch_offset == 5:
                response.responses[0].partitions[0].error_code = ErrorCode.OFFSET_OUT_OF_RANGE

        log.twist = refuse
        async with serving_virtually(broker), consumer(broker) as reader:
            assert await read(reader, 1) == values_of(1)
            await asyncio.sleep(1)
            log.twist = None
            log.append(values_of(1, 5))
            assert await read(reader, 5) == values_of(5, 1)

    run_virtually(main())


def test_what_was_fetched_ahead_of_a_cut_is_fetched_anew() -> None:
    """The log is cut behind the position: nothing that was handed out is lost, but what waits is not in the log."""

    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(5))
        log.append(values_of(5, 5))

        def cut(request: FetchRequest, response: FetchResponse) -> None:
            if request.topics[0].partitions[0].fetch_offset == 10:
                row = response.responses[0].partitions[0]
                row.diverging_epoch = EpochEndOffset(epoch=1, end_offset=5)
                row.records = b""
                row.error_code = 0

        async with serving_virtually(broker), consumer(broker, fetch_max_wait_s=0.01) as reader:
            assert list(await reader.get_many(2)) == [PARTITION]
            log.twist = cut
            log.batches[0].pop()
            log.append([b"another 5"])
            await asyncio.sleep(1)
            assert await read(reader, 4) == [*values_of(3, 2), b"another 5"]

    run_virtually(main())


def test_records_of_aborted_transactions_are_left_out(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(1))
        for number, producer_id in ((1, 7), (2, 8)):
            record = NewRecord(None, b"%d" % number, 1)
            batch = build_batch([record], base_offset=number, producer_id=producer_id, is_transactional=True)
            log.append_batch(bytes(batch))

        def abort(request: FetchRequest, response: FetchResponse) -> None:
            if request.isolation_level:
                row = response.responses[0].partitions[0]
                row.aborted_transactions = [AbortedTransaction(producer_id=7, first_offset=1)]

        log.twist = abort
        async with serving(broker), consumer(broker, read_committed=True) as reader, consumer(broker) as other:
            assert await read(reader, 2) == [b"0", b"2"]
            assert await read(other, 3) == [b"0", b"1", b"2"]

    run(main())


def test_memory_stays_within_its_bound(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker, partitions=8)
        for partition in range(8):
            for _ in range(20):
                log.append([b"x" * 1_000] * 10, partition)
        async with (
            serving(broker),
            consumer(broker, buffer_bytes=100_000, partition_fetch_bytes=30_000, fetch_max_wait_s=0.01) as reader,
        ):
            count = most = 0
            while count < 1_600:
                count += sum(map(len, (await reader.get_many(max_records=7, timeout_s=5)).values()))
                most = max(most, reader.metrics().buffered_bytes)
            # The bytes around the records in an answer come on top.
            assert most <= 100_000 + 2_000
            assert max(request.max_bytes for request, _ in broker.seen if isinstance(request, FetchRequest)) <= 100_000

    run(main())


def test_a_partition_that_fills_every_answer_takes_turns_with_the_others() -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker, partitions=2)
        for partition in (0, 1):
            for _ in range(10):
                log.append([b"x" * 10_000], partition)
        async with serving_virtually(broker), consumer(broker, fetch_max_bytes=10_000) as reader:
            assert {(await anext(reader)).partition for _ in range(6)} == {0, 1}

    run_virtually(main())


def test_a_paused_partition_gives_its_room_to_the_others(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker, partitions=2)
        for partition in (0, 1):
            for number in range(10):
                log.append([b"%d" % number + b"x" * 10_000], partition)
        async with serving(broker), consumer(broker, buffer_bytes=25_000, fetch_max_wait_s=0.01) as reader:
            first = await anext(reader)
            other = 1 - first.partition
            reader.pause(TopicPartition("t", first.partition))
            found = [await anext(reader) for _ in range(10)]
            assert {record.partition for record in found} == {other}
            reader.resume(TopicPartition("t", first.partition))
            assert [(await anext(reader)).offset for _ in range(9)] == list(range(1, 10))

    run(main())


def test_a_fault_of_the_client_itself_is_told_to_whoever_reads() -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(1))
        async with serving_virtually(broker), consumer(broker) as reader:
            with (
                mock.patch.object(Fetcher, "_take_answer", side_effect=AssertionError("ours")),
                pytest.raises(ClientError, match="a fault of this client: AssertionError") as raised,
            ):
                await anext(reader)
            assert isinstance(raised.value.__cause__, AssertionError)

    run_virtually(main())


def test_opening_ends_at_its_deadline_whatever_part_of_it_is_slow() -> None:
    async def main() -> None:
        broker = FakeBroker()
        FakeLog(broker)
        answer = broker.answers[MetadataRequest]

        async def slow(request: MetadataRequest) -> Answer:
            # In time for the first attempt to connect, and for no other one.
            await asyncio.sleep(1.4 if broker.count(MetadataRequest) == 1 else 60)
            return await answer(request)

        broker.answers[MetadataRequest] = slow
        async with serving_virtually(broker):
            began_s = asyncio.get_running_loop().time()
            with pytest.raises(DeadlineExceededError):
                await consumer(broker, timeout_s=4).__aenter__()
            assert asyncio.get_running_loop().time() - began_s < 4.2

    run_virtually(main())


def test_the_room_of_a_paused_partition_goes_to_many_requests_and_not_to_the_first() -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker, partitions=2)
        for _ in range(10):
            log.append([b"x" * 10_000])
        settings = {"buffer_bytes": 50_000, "partition_fetch_bytes": 40_000, "fetch_max_wait_s": 0.01}
        async with serving_virtually(broker), consumer(broker, **settings) as reader:
            await anext(reader)
            await asyncio.sleep(1)
            assert reader.metrics().buffered_bytes > 25_000
            reader.pause(PARTITION)
            for _ in range(10):
                log.append([b"x" * 10_000], 1)
            assert [(await anext(reader)).partition for _ in range(10)] == [1] * 10
        # Two lanes to one broker: half of the buffer each.
        assert max(request.max_bytes for request, _ in broker.seen if isinstance(request, FetchRequest)) <= 25_000

    run_virtually(main())


def test_what_a_waiting_request_may_bring_has_its_room_kept() -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker, partitions=2)
        for _ in range(10):
            log.append([b"x" * 9_000])
        settings = {"topics": (), "buffer_bytes": 40_000, "partition_fetch_bytes": 40_000, "fetch_max_wait_s": 60}
        async with serving_virtually(broker), consumer(broker, **settings) as reader:
            await reader.assign([TopicPartition("t", 1)])
            await asyncio.sleep(1)
            assert broker.count(FetchRequest) == 1  # It waits, for there is nothing in that partition.
            await reader.assign([PARTITION, TopicPartition("t", 1)])
            await asyncio.sleep(1)
            assert 0 < reader.metrics().buffered_bytes <= 20_000

    run_virtually(main())


def test_one_task_at_a_time_asks(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        FakeLog(broker)
        async with serving(broker):
            reader = consumer(broker)
            with pytest.raises(ClientClosedError, match="not open yet"):
                await anext(reader)
            async with reader:
                with pytest.raises(RuntimeError, match="started before"):
                    await reader.__aenter__()
                waiting = asyncio.ensure_future(anext(reader))
                await asyncio.sleep(0)
                with pytest.raises(RuntimeError, match="another task"):
                    await reader.get_many()
                await reader.close()
                with pytest.raises(ClientClosedError):
                    await waiting
            with pytest.raises(ClientClosedError, match="is closed"):
                await anext(reader)
            await reader.close()

    run(main())


def test_what_a_broker_that_is_not_one_says_is_no_end(run: Run) -> None:
    """An answer to the whole request that is an error is tried again."""

    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker)
        log.append(values_of(1))
        turns = iter((ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE))

        def stumble(_: FetchRequest, response: FetchResponse) -> None:
            response.error_code = next(turns, ErrorCode.NONE)

        log.twist = stumble
        async with serving(broker), consumer(broker) as reader:
            assert await read(reader, 1) == values_of(1)
            with pytest.raises(ValueError, match="group_id"):
                await reader.commit()

    run(main())
