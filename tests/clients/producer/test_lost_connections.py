"""A connection may be lost in any way, at any moment: outcomes are true."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from barnabas_clients.errors import ClientError, DeadlineExceededError
from barnabas_clients.producer.delivery import Delivery, Receipt, RecordsLostError
from barnabas_clients.producer.sequences import SEQUENCE_MODULUS
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.protocol.produce import ProduceRequest
from barnabas_raftlog.records.reader import Record

from .leaders import Ending, Fate, Sent, check
from .virtual import Stage


def once(stage: Stage, ending: Ending) -> None:
    """Let the next request of any batch end so, and every one after it well."""

    def end(_: ProduceRequest) -> Ending:
        stage.leaders.ending = lambda _: Ending.ANSWERED
        return ending

    stage.leaders.ending = end


def refused(stage: Stage) -> None:
    stage.leaders.fate = lambda _partition, _records: Fate(ErrorCode.NOT_ENOUGH_REPLICAS, is_taken=False)


def empty(stage: Stage) -> None:
    """Let the next answer say nothing about the batch, and every one after it that there are too few replicas."""
    once(stage, Ending.EMPTY)

    def refuse(_partition: int, _records: list[Record]) -> Fate:
        refused(stage)
        return Fate()

    stage.leaders.fate = refuse


def moved(stage: Stage, *, with_hints: bool, is_taken: bool) -> None:
    """Let the leader append the next batch or not, and then be another."""
    stage.leaders.gives_hints = with_hints

    def take(partition: int, _: list[Record]) -> Fate:
        stage.leaders.fate = lambda _partition, _records: Fate()
        stage.leaders.move(partition, 2)
        return Fate(ErrorCode.NOT_LEADER_OR_FOLLOWER, is_taken)

    stage.leaders.fate = take


def stalled_and_reset(stage: Stage) -> None:
    stage.stall(1, 5)
    stage.after(1, lambda: stage.reset(1))


def gone(stage: Stage, ending: Ending) -> None:
    """Let the next request end so, and nobody be there after it."""

    def end(_: ProduceRequest) -> Ending:
        stage.refuse(1)
        return ending

    stage.leaders.ending = end


def for_a_while(stage: Stage, fault: Callable[[int], None]) -> None:
    fault(1)
    stage.after(5, lambda: stage.mend(1))


WAYS: dict[str, Callable[[Stage], None]] = {
    "before the request is sent": lambda stage: stage.reset(1),
    "half sent": lambda stage: stage.brokers[0].interrupts.add(ProduceRequest),
    "before the append": lambda stage: once(stage, Ending.UNREAD),
    "after the append and before the answer": lambda stage: once(stage, Ending.UNANSWERED),
    "in the middle of the answer": lambda stage: once(stage, Ending.HALF_ANSWERED),
    "an answer without a word about the batch": lambda stage: once(stage, Ending.EMPTY),
    "a moment after the request": lambda stage: stage.after(0.0003, lambda: stage.reset(1)),
    "refused for a while": lambda stage: for_a_while(stage, stage.refuse),
    "cut off for a while": lambda stage: for_a_while(stage, stage.cut),
    "no answer, for longer than a request may take": lambda stage: stage.stall(1, 45),
    "no answer, then a reset": stalled_and_reset,
    "the leader moved before the append": lambda stage: moved(stage, with_hints=False, is_taken=False),
    "the leader moved before the append, and says where": lambda stage: moved(stage, with_hints=True, is_taken=False),
    "the leader moved after the append": lambda stage: moved(stage, with_hints=False, is_taken=True),
    "the leader moved after the append, and says where": lambda stage: moved(stage, with_hints=True, is_taken=True),
}


async def told(partition: int, values: list[bytes], deliveries: list[Delivery]) -> list[Sent]:
    outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
    found = []
    for value, outcome in zip(values, outcomes, strict=True):
        assert isinstance(outcome, Receipt | ClientError | KafkaError), outcome
        found.append(Sent(partition, value, outcome))
    return found


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("warm", [True, False], ids=["later", "at first"])
@pytest.mark.parametrize("way", WAYS)
def test_a_lost_connection_loses_nothing(way: str, warm: bool, idempotent: bool) -> None:
    stage = Stage(1, 2)
    sent: list[Sent] = []

    async def main() -> None:
        async with stage.producer(idempotent=idempotent, batch_bytes=100) as producer:
            if warm:
                sent.append(Sent(0, b"warm", await producer.send_and_wait("t", b"warm")))
            else:
                await producer.partitions("t")
            WAYS[way](stage)
            for names in (b"abc", b"def"):
                values = [bytes([name]) * 90 for name in names]
                deliveries = [await producer.send("t", value) for value in values]
                sent.extend(await told(0, values, deliveries))
            assert producer.metrics().buffered_bytes == 0

    stage.run(main())
    assert [each.told for each in sent if not isinstance(each.told, Receipt)] == []
    assert check(stage.leaders.logs, sent, is_idempotent=idempotent) == []
    values = stage.leaders.logs[0].values
    assert idempotent is False or values == [each.value for each in sent]
    assert set(values) == {each.value for each in sent}


@pytest.mark.parametrize("way", WAYS)
def test_numbers_begin_anew_behind_the_last_one(way: str) -> None:
    """A record's number has 31 bits. A batch may have some of the last and some of the first."""
    stage = Stage(1, 2)
    log = stage.leaders.logs[0]
    sent: list[Sent] = []

    async def main() -> None:
        async with stage.producer(batch_bytes=200, linger_s=0.01) as producer:
            sent.append(Sent(0, b"warm", await producer.send_and_wait("t", b"warm")))
            log.table.log[0] = log.table.log[0]._replace(base_sequence=SEQUENCE_MODULUS - 3)
            producer._topics["t"].queues[0].sequences.next_sequence = SEQUENCE_MODULUS - 2
            WAYS[way](stage)
            values = [bytes([name]) * 30 for name in b"abcdefgh"]
            sent.extend(await told(0, values, [await producer.send("t", value) for value in values]))
            assert producer.metrics().epochs == 0

    stage.run(main())
    assert [each.told for each in sent if not isinstance(each.told, Receipt)] == []
    assert check(stage.leaders.logs, sent) == []
    numbers = [(copy.base_sequence, copy.size) for copy in log.table.log]
    assert numbers[0] == (SEQUENCE_MODULUS - 3, 1)
    assert any(SEQUENCE_MODULUS - size < first for first, size in numbers[1:])
    assert sum(numbers[-1]) == 6
    assert [each.value for each in sent] == log.values


GONE: dict[str, tuple[Callable[[Stage], None], list[bool]]] = {
    "before the request is sent": (lambda stage: stage.refuse(1), [False, False]),
    "the request was refused": (refused, [False, False]),
    "the requests were not answered": (lambda stage: stage.stall(1, 90), [True, True]),
    "before the append": (lambda stage: gone(stage, Ending.UNREAD), [True, False]),
    "an answer without a word": (empty, [True, False]),
    "after the append": (lambda stage: gone(stage, Ending.UNANSWERED), [True, False]),
}
"""How a broker goes for good, and whether the first record after that may be written, and the one after an instant."""


@pytest.mark.parametrize("close_early", [False, True], ids=["until the deadline", "closed before it"])
@pytest.mark.parametrize("way", GONE)
def test_what_can_not_be_delivered_says_whether_it_may_be_written(way: str, close_early: bool) -> None:
    stage = Stage(1)
    go, may_be_done = GONE[way]
    sent: list[Sent] = []

    async def main() -> None:
        producer = stage.producer(delivery_timeout_s=8, linger_s=0.001)
        async with producer:
            await producer.send_and_wait("t", b"warm")
            go(stage)
            first = await producer.send("t", b"a")
            await asyncio.sleep(0.1)
            second = await producer.send("t", b"b")
            if close_early:
                with contextlib.suppress(RecordsLostError):
                    await producer.close(timeout_s=1)
            sent.extend(await told(0, [b"a", b"b"], [first, second]))
            assert producer.metrics().buffered_batches == 0

    stage.run(main())
    if not close_early:
        assert all("None" not in str(each.told) for each in sent)
        assert way != "before the request is sent" or all(
            "last: connection to b1:9092" in str(each.told) for each in sent
        )
    assert [each.told.may_be_done for each in sent if not isinstance(each.told, Receipt)] == may_be_done
    assert check(stage.leaders.logs, [Sent(0, b"warm", Receipt("t", 0, 0, 0)), *sent]) == []


@pytest.mark.parametrize(("ending", "offset"), [(Ending.UNANSWERED, 2), (Ending.UNREAD, 1)])
def test_the_number_of_a_record_that_may_be_written_is_not_given_to_another(ending: Ending, offset: int) -> None:
    """X fails by its deadline, and nobody knows whether it is in the log. Y is, behind it or in its place."""
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(delivery_timeout_s=3) as producer:
            await producer.send_and_wait("t", b"warm")
            gone(stage, ending)
            lost = await producer.send("t", b"X")
            with pytest.raises(DeadlineExceededError) as caught:
                await lost
            assert caught.value.may_be_done
            stage.leaders.ending = lambda _: Ending.ANSWERED
            stage.mend(1)
            assert (await producer.send_and_wait("t", b"Y")).offset == offset

    stage.run(main())
    assert stage.leaders.logs[0].values[offset] == b"Y"


def test_parts_of_a_divided_batch_say_each_for_itself_whether_they_may_be_written() -> None:
    stage = Stage(1)
    sent: list[Sent] = []

    def take_two(_: int, records: list[Record]) -> Fate:
        if len(records) > 2:
            return Fate(ErrorCode.MESSAGE_TOO_LARGE, is_taken=False)
        gone(stage, Ending.UNANSWERED)
        stage.refuse(1)
        return Fate()

    async def main() -> None:
        async with stage.producer(delivery_timeout_s=8, linger_s=0.1) as producer:
            await producer.partitions("t")
            stage.leaders.fate = take_two
            values = [b"a", b"b", b"c", b"d"]
            loop = asyncio.get_running_loop()
            began_s = asyncio.get_running_loop().time()
            deliveries = [await producer.send("t", value) for value in values]
            await asyncio.sleep(3)
            # One that is opened later does not put off the end of those before it.
            later = await producer.send("t", b"e")
            sent.extend(await told(0, values, deliveries))
            assert loop.time() - began_s < 8.1
            assert not later.done()
            sent.extend(await told(0, [b"e"], [later]))
            assert (producer.metrics().buffered_bytes, producer.metrics().records_failed) == (0, 5)

    stage.run(main())
    may_be_done = [each.told.may_be_done for each in sent if not isinstance(each.told, Receipt)]
    assert may_be_done == [True, True, False, False, False]
    assert stage.leaders.logs[0].values == [b"a", b"b"]
