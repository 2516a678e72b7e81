"""A producer sends, waits, asks and gives up on time. The clock belongs to the test."""

import asyncio
import logging
from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from barnabas_clients.errors import DeadlineExceededError
from barnabas_clients.producer.delivery import RecordsLostError
from barnabas_clients.producer.sender import REST_S
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.metadata import MetadataRequest
from barnabas_clients.protocol.produce import ProduceRequest
from barnabas_raftlog.records.reader import Record

from .leaders import Ending, Fate
from .virtual import Stage


class Requests:
    """Every produce request of a stage: when it came, in seconds, and which partitions it was about."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.seen = list[tuple[float, list[int], int]]()
        stage.leaders.ending = self.note

    def note(self, request: ProduceRequest) -> Ending:
        parts = [part for topic in request.topic_data for part in topic.partition_data]
        size = sum(part.records.nbytes for part in parts if isinstance(part.records, memoryview))
        self.seen.append((self.stage.world.now_us / 1e6, [part.index for part in parts], size))
        return Ending.ANSWERED


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_leader_that_stands_still_is_left_when_another_leads() -> None:
    stage = Stage(1, 2)

    async def main() -> None:
        async with stage.producer() as producer:
            await producer.send_and_wait("t", b"before")
            stage.stall(1, 600)
            began_s = now_s()
            stage.after(3, lambda: stage.leaders.move(0, 2))
            # Long before `request_timeout_s`, which is 30 s.
            assert (await producer.send_and_wait("t", b"after")).offset == 1
            assert now_s() - began_s < 6

    stage.run(main())
    assert stage.leaders.logs[0].values == [b"before", b"after"]


def test_a_partition_that_has_another_leader_does_not_wait_behind_the_former_one() -> None:
    stage = Stage(1, 2, partitions=2)

    async def main() -> None:
        async with stage.producer(in_flight_max=1) as producer:
            await producer.send_and_wait("t", b"before", partition=1)
            stage.stall(1, 20)
            stuck = await producer.send("t", b"stuck", partition=0)
            await asyncio.sleep(0.1)
            began_s = now_s()
            behind = await producer.send("t", b"behind", partition=1)
            stage.after(3, lambda: stage.leaders.move(1, 2))
            assert (await behind).offset == 1
            assert now_s() - began_s < 6
            assert not stuck.done()
            assert (await stuck).offset == 0

    stage.run(main())


def test_a_former_leader_that_names_its_successor_is_asked_no_more() -> None:
    stage = Stage(1, 2)
    stage.leaders.gives_hints = True

    async def main() -> None:
        async with stage.producer(in_flight_max=1, batch_bytes=100) as producer:
            await producer.send_and_wait("t", b"before")
            stage.leaders.move(0, 2)
            asked = stage.brokers[0].count(ProduceRequest)
            deliveries = [await producer.send("t", bytes([name]) * 90) for name in b"abcd"]
            assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3, 4]
            assert stage.brokers[0].count(ProduceRequest) == asked + 1

    stage.run(main())


def test_a_leader_that_stands_still_alone_is_asked_anew_when_the_request_is_over() -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(request_timeout_s=5) as producer:
            await producer.send_and_wait("t", b"before")
            stage.stall(1, 7)
            began_s = now_s()
            assert (await producer.send_and_wait("t", b"after")).offset == 1
            assert 7 <= now_s() - began_s < 9
            assert producer.metrics().retries == 1

    stage.run(main())


def test_after_a_long_rest_the_first_batch_goes_alone() -> None:
    """The leader may have forgotten the producer, and takes any first number then (KIP-360)."""
    stage = Stage(1, takes_any_first=True)
    seen = list[bytes | None]()

    def refuse_first(_: int, records: list[Record]) -> Fate:
        seen.append(records[0].value)
        return Fate(ErrorCode.NOT_ENOUGH_REPLICAS, is_taken=False) if len(seen) == 1 else Fate()

    async def main() -> None:
        async with stage.producer(batch_bytes=100) as producer:
            await producer.send_and_wait("t", b"before")
            await asyncio.sleep(REST_S + 1)
            stage.leaders.logs[0].table.forget_producers()
            stage.leaders.fate = refuse_first
            deliveries = [await producer.send("t", bytes([name]) * 90) for name in b"abc"]
            assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3]

    stage.run(main(), within_s=REST_S + 60)
    assert [value[:1] for value in stage.leaders.logs[0].values if value] == [b"b", b"a", b"b", b"c"]


def test_a_batch_lingers_and_is_not_kept_any_longer() -> None:
    stage = Stage(1)
    requests = Requests(stage)

    async def main() -> None:
        async with stage.producer(linger_s=0.5) as producer:
            await producer.partitions("t")
            began_s = now_s()
            first = await producer.send("t", b"a")
            await asyncio.sleep(0.4)
            second = await producer.send("t", b"b")
            await first
            assert 0.5 <= now_s() - began_s < 0.6
            assert second.done()
            # The next one has a time of its own.
            await (await producer.send("t", b"c"))
            assert 1.0 <= now_s() - began_s < 1.2

    stage.run(main())
    assert len(requests.seen) == 2


def test_a_full_batch_does_not_linger_and_neither_does_a_flush() -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(linger_s=100, batch_bytes=200) as producer:
            began_s = now_s()
            deliveries = [await producer.send("t", bytes(90)) for _ in range(3)]
            await deliveries[0]
            assert not deliveries[2].done()
            await producer.flush()
            assert deliveries[2].done()
            assert now_s() - began_s < 1

    stage.run(main())


def test_attempts_have_pauses_that_grow_to_a_second_and_then_no_more() -> None:
    stage = Stage(1)
    requests = Requests(stage)
    stage.leaders.fate = lambda _partition, _records: Fate(ErrorCode.NOT_ENOUGH_REPLICAS, is_taken=False)

    async def main() -> None:
        async with stage.producer(delivery_timeout_s=20) as producer:
            began_s = now_s()
            with pytest.raises(DeadlineExceededError, match="within 20 s; last: NOT_ENOUGH_REPLICAS"):
                await (await producer.send("t", b"a"))
            assert 20 <= now_s() - began_s < 20.1

    stage.run(main())
    times = [at_s for at_s, _, _ in requests.seen]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] < 0.03
    assert all(pause < 1.01 for pause in pauses)
    assert min(pauses[8:]) > 0.49


def test_the_first_attempt_after_a_refusal_comes_within_20_ms_and_a_round_trip() -> None:
    stage = Stage(1)
    requests = Requests(stage)
    refused = set[bytes | None]()

    def refuse_once(_: int, records: list[Record]) -> Fate:
        value = records[0].value
        fate = Fate() if value in refused else Fate(ErrorCode.NOT_ENOUGH_REPLICAS, is_taken=False)
        refused.add(value)
        return fate

    async def main() -> None:
        async with stage.producer() as producer:
            stage.leaders.fate = refuse_once
            for number in range(9):
                await producer.send_and_wait("t", b"%d" % number)

    stage.run(main())
    times = [at_s for at_s, _, _ in requests.seen]
    assert len(times) == 18
    assert median(again - first for first, again in zip(times[::2], times[1::2], strict=True)) < 0.02


def test_a_deadline_is_kept_also_after_one_at_which_everything_had_been_delivered() -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(delivery_timeout_s=5) as producer:
            await producer.send_and_wait("t", b"before")
            await asyncio.sleep(10)
            stage.leaders.fate = lambda _partition, _records: Fate(ErrorCode.NOT_ENOUGH_REPLICAS, is_taken=False)
            began_s = now_s()
            with pytest.raises(DeadlineExceededError, match="within 5 s"):
                await (await producer.send("t", b"after"))
            assert 5 <= now_s() - began_s < 5.1

    stage.run(main())


def test_memory_of_a_batch_that_is_late_on_the_wire_is_free_when_its_answer_has_come() -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(delivery_timeout_s=5) as producer:
            await producer.send_and_wait("t", b"before")
            stage.stall(1, 10)
            delivery = await producer.send("t", bytes(1_000))
            with pytest.raises(DeadlineExceededError):
                await delivery
            assert producer.metrics().buffered_bytes >= 1_000, "the connection may still be sending it"
            await asyncio.sleep(6)
            assert producer.metrics().buffered_bytes == 0

    stage.run(main())


def test_the_halves_of_a_batch_have_its_deadline_and_not_that_of_those_behind_them() -> None:
    stage = Stage(1)

    def refuse(_: int, records: list[Record]) -> Fate:
        code = ErrorCode.MESSAGE_TOO_LARGE if len(records) > 1 else ErrorCode.NOT_ENOUGH_REPLICAS
        return Fate(code, is_taken=False)

    async def main() -> None:
        async with stage.producer(delivery_timeout_s=20, linger_s=0.1) as producer:
            await producer.send_and_wait("t", b"before")
            stage.leaders.fate = refuse
            stage.stall(1, 6)
            began_s = now_s()
            halves = [await producer.send("t", b"a"), await producer.send("t", b"b")]
            await asyncio.sleep(5)
            # It is there before the other batch is found too large.
            behind = await producer.send("t", b"c")
            for delivery in halves:
                with pytest.raises(DeadlineExceededError, match="within 20 s"):
                    await delivery
            assert 20 <= now_s() - began_s < 20.2
            assert not behind.done()
            with pytest.raises(DeadlineExceededError):
                await behind
            assert 25 <= now_s() - began_s < 25.2

    stage.run(main())


def test_a_delivery_that_works_makes_the_next_pause_short_again() -> None:
    stage = Stage(1)
    requests = Requests(stage)

    async def main() -> None:
        async with stage.producer() as producer:
            for _ in range(3):
                stage.leaders.fate = lambda _partition, _records: Fate(ErrorCode.NOT_ENOUGH_REPLICAS, is_taken=False)
                delivery = await producer.send("t", b"a")
                await asyncio.sleep(5)
                stage.leaders.fate = lambda _partition, _records: Fate()
                await delivery

    stage.run(main())
    times = [at_s for at_s, _, _ in requests.seen]
    assert sum(later - earlier < 0.03 for earlier, later in pairwise(times)) >= 3


def test_partitions_share_requests_which_have_a_size_and_a_number() -> None:
    stage = Stage(1, partitions=8)
    requests = Requests(stage)
    most = 0

    async def main() -> None:
        nonlocal most
        settings: dict[str, Any] = {"batch_bytes": 1_000, "request_bytes_max": 4_000, "in_flight_max": 2}
        async with stage.producer(**settings) as producer:
            for number in range(8):
                await producer.send_and_wait("t", b"warm", partition=number)
            requests.seen.clear()
            stage.stall(1, 0.5)
            for _ in range(10):
                for number in range(8):
                    _ = await producer.send("t", bytes(700), partition=number)
                    most = max(most, producer.metrics().requests_in_flight)
            await producer.flush()

    stage.run(main())
    assert most == 2
    assert all(size <= 4_000 for _, _, size in requests.seen)
    assert max(len(partitions) for _, partitions, _ in requests.seen) >= 3
    assert all(len(set(partitions)) == len(partitions) for _, partitions, _ in requests.seen)
    # Each has its turn: none is done before all have begun.
    firsts = [next(n for n, (_, parts, _) in enumerate(requests.seen) if number in parts) for number in range(8)]
    assert max(firsts) < len(requests.seen) / 2
    assert [len(log.values) for log in stage.leaders.logs] == [11] * 8


def test_several_batches_of_a_partition_are_on_their_way_at_once() -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(batch_bytes=100) as producer:
            await producer.send_and_wait("t", b"warm")
            stage.stall(1, 1)
            began_s = now_s()
            for _ in range(7):
                _ = await producer.send("t", bytes(90))
            await asyncio.sleep(0.1)
            assert producer.metrics().requests_in_flight == 5
            await producer.flush()
            assert now_s() - began_s < 1.1

    stage.run(main())


def test_what_waited_for_the_first_answer_leaves_together() -> None:
    stage = Stage(1)
    requests = Requests(stage)

    def stand_still(request: ProduceRequest) -> Ending:
        if len(requests.seen) == 1:
            stage.stall(1, 1)
        return requests.note(request)

    stage.leaders.ending = stand_still

    async def main() -> None:
        async with stage.producer(batch_bytes=100) as producer:
            await producer.partitions("t")
            for _ in range(7):
                _ = await producer.send("t", bytes(90))
            await asyncio.sleep(0.5)
            # The second stands still with its broker, and those behind it are on their way, too.
            assert (len(requests.seen), producer.metrics().requests_in_flight) == (2, 5)
            await producer.flush()

    stage.run(main())
    assert len(requests.seen) == 7


def test_what_waited_for_a_connection_leaves_together() -> None:
    stage = Stage(1)
    requests = Requests(stage)

    async def main() -> None:
        async with stage.producer(batch_bytes=100, linger_s=100) as producer:
            _ = await producer.send("t", b"warm")
            await producer.flush()
            stage.refuse(1)
            deliveries = [await producer.send("t", bytes(90)) for _ in range(6)]
            await asyncio.sleep(1)
            stage.leaders.ending = stand_still
            stage.mend(1)
            await asyncio.sleep(1.5)
            # The broker answers the first and stands still. The next four need no answer, no timer, no further record.
            assert [delivery.done() for delivery in deliveries] == [True] + 5 * [False]
            assert producer.metrics().requests_in_flight == 4
            await producer.flush()

    def stand_still(request: ProduceRequest) -> Ending:
        stage.stall(1, 5)
        stage.leaders.ending = requests.note
        return requests.note(request)

    stage.run(main())
    assert len(requests.seen) == 7


def test_a_connection_that_takes_no_more_is_given_no_more() -> None:
    """Beside the kernel's buffers a request or two wait in the transport, whatever `in_flight_max` says."""
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(batch_bytes=200_000) as producer:
            await producer.send_and_wait("t", b"warm")
            stage.stall(1, 1)
            for _ in range(8):
                _ = await producer.send("t", bytes(190_000))
            await asyncio.sleep(0.1)
            assert 2 <= producer.metrics().requests_in_flight <= 3
            await producer.flush()

    stage.run(main())
    assert len(stage.leaders.logs[0].values) == 9


def test_new_partitions_are_noticed_in_time_and_topics_are_asked_for_again() -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(metadata_max_age_s=60) as producer:
            assert await producer.partitions("t") == 1
            stage.leaders.topics["t"].append((1, 1))
            asked = stage.brokers[0].count(MetadataRequest)
            await asyncio.sleep(59)
            assert await producer.partitions("t") == 1
            await asyncio.sleep(2)
            assert await producer.partitions("t") == 2
            await asyncio.sleep(120)
            assert stage.brokers[0].count(MetadataRequest) == asked + 3

    stage.run(main())


def test_a_partition_without_a_leader_waits_for_one() -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer() as producer:
            await producer.send_and_wait("t", b"before")
            stage.leaders.topics["t"][0] = (-1, 2)
            stage.reset(1)
            delivery = await producer.send("t", b"after")
            await asyncio.sleep(10)
            assert not delivery.done()
            stage.leaders.topics["t"][0] = (1, 3)
            began_s = now_s()
            assert (await delivery).offset == 1
            assert now_s() - began_s < 2

    stage.run(main())


def test_an_id_is_asked_for_until_there_is_one_and_only_by_who_needs_it() -> None:
    for idempotent in (True, False):
        stage = Stage(1)

        async def main(stage: Stage = stage, idempotent: bool = idempotent) -> None:
            stage.brokers[0].interrupts.add(InitProducerIdRequest)
            async with stage.producer(idempotent=idempotent) as producer:
                assert (await producer.send_and_wait("t", b"a")).offset == 0
                assert (await producer.send_and_wait("t", b"b")).offset == 1

        stage.run(main())
        assert stage.leaders.producer_ids == idempotent


def test_without_acks_a_flush_says_that_the_broker_has_read_everything() -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(acks=0) as producer:
            stage.stall(1, 3)
            began_s = now_s()
            receipts = [await (await producer.send("t", b"%d" % number)) for number in range(3)]
            assert {receipt.offset for receipt in receipts} == {-1}
            await producer.flush()
            assert now_s() - began_s >= 3
            assert stage.leaders.logs[0].values == [b"0", b"1", b"2"]

    stage.run(main())


def test_failures_that_nobody_awaits_are_logged_once_until_a_delivery_works(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(1, partitions=2)
    caplog.set_level(logging.WARNING, logger="barnabas_clients.producer")

    def refuse(_: int, records: list[Record]) -> Fate:
        return Fate(ErrorCode.INVALID_RECORD, is_taken=False) if records[0].value == b"bad" else Fate()

    stage.leaders.fate = refuse

    async def main() -> None:
        async with stage.producer() as producer:
            for value in (b"bad", b"bad", b"good", b"bad"):
                _ = await producer.send("t", value, partition=0)
                await asyncio.sleep(1)
            with pytest.raises(RecordsLostError, match="3 records were not delivered; the first: INVALID_RECORD"):
                await producer.flush()
            metrics = producer.metrics()
            assert (metrics.records_delivered, metrics.records_failed, metrics.retries) == (1, 3, 0)
            assert (metrics.batches, metrics.requests) == (4, 4)
            assert metrics.bytes_sent == sum(size for _, _, size in requests.seen)

    requests = Requests(stage)
    stage.run(main())
    assert sum("were not delivered" in record.getMessage() for record in caplog.records) == 2


def test_failures_of_many_partitions_share_a_line(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(1, partitions=40)
    caplog.set_level(logging.WARNING, logger="barnabas_clients.producer")

    async def main() -> None:
        async with stage.producer(delivery_timeout_s=5) as producer:
            await producer.send_and_wait("t", b"before")
            stage.refuse(1)
            for number in range(40):
                _ = await producer.send("t", b"lost", partition=number)
            await asyncio.sleep(10)
            with pytest.raises(RecordsLostError, match="40 records were not delivered"):
                await producer.flush()
        stage.network.down.clear()

    stage.run(main())
    (told,) = [row.getMessage() for row in caplog.records if "were not delivered" in row.getMessage()]
    assert told == (
        "records for t-0, t-1, t-2, t-3, t-4 and 35 more were not delivered: "
        "a batch for t-0 was not acknowledged within 5 s; last: connection to b1:9092: connection refused"
    )
