"""Every public call of a producer refuses a value at once, or is carried out.

The values are of every kind, and none is lost later.

The oracle is the log of the fake broker: it has all records that were taken, byte for byte, and nothing else.
"""

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from clients.odd_values import ODD, Odd, odd_values, refused
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_clients import Producer
from barnabas_clients.errors import ClientClosedError, DeadlineExceededError
from barnabas_clients.producer.delivery import Receipt, RecordsLostError
from barnabas_clients.protocol.errors import MessageTooLargeError, UnknownTopicOrPartitionError
from barnabas_raftlog.records.reader import Record

from .virtual import Stage

SETTINGS: dict[str, list[Any]] = {
    "client_id": ["", "me"],
    "acks": ["all", -1, 0, 1],
    "idempotent": [None, False],
    "compression": ["none", "gzip", "snappy", "lz4", "zstd"],
    "linger_s": [0, 0.001],
    "batch_bytes": [1, 100],
    "request_bytes_max": [65_536, 2**31 - 1],
    "buffer_bytes": [262_144, 2**40],
    "delivery_timeout_s": [1, 2_147_483],
    "request_timeout_s": [0.5, 2_147_483],
    "in_flight_max": [1, 5],
    "partitioner": ["murmur2", "round-robin", lambda *_: 0],
    "timeout_s": [1, 2_147_483],
    "metadata_max_age_s": [1, 2_147_483],
}
"""Values that each setting takes; `timeout_s` and the sizes are bounded by the others."""


def bytes_of(value: Any) -> bytes | None:
    """Return what a record has of a value, said in the simplest way."""
    return None if value is None else memoryview(value).tobytes()


def headers_of(value: Any) -> list[tuple[str, bytes | None]]:
    pairs = value.items() if isinstance(value, Mapping) else value or ()
    return [(name, bytes_of(content)) for name, content in pairs]


class Expected:
    """The records that must be in the log of partition 0 at the end."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []

    def add(self, delivery: Receipt, key: Any, value: Any, headers: Any) -> None:
        self.records.append((delivery.timestamp_ms, bytes_of(key), bytes_of(value), headers_of(headers)))

    def check(self, records: list[Record]) -> None:
        found = [(each.timestamp, each.key, each.value, list(each.headers)) for each in records]
        assert found == self.records


MAY_REFUSE = (MessageTooLargeError, UnknownTopicOrPartitionError)


async def try_send(producer: Producer, expected: Expected, name: str, odd: Odd) -> None:
    """Send with one odd argument, and remember the record if it was taken."""
    given: dict[str, Any] = {"topic": "t", "value": b"value", "partition": 0, "key": b"key", "headers": ()}
    # Views that are made twice are read twice: once by the producer, once by the oracle.
    looked_at = {**given, name: odd.make()}
    with refused(*MAY_REFUSE, *([DeadlineExceededError] if name in {"topic", "timeout_s"} else [])) as refusals:
        delivery = await producer.send(**{**given, name: odd.make()})
    if not refusals:
        receipt = await delivery
        expected.add(receipt, looked_at["key"], looked_at["value"], looked_at["headers"])


@pytest.mark.parametrize("name", ["topic", "value", "key", "partition", "timestamp_ms", "headers", "timeout_s"])
def test_what_send_takes_is_delivered_and_the_rest_is_refused_at_the_call(name: str) -> None:
    stage = Stage(1)
    expected = Expected()

    async def main() -> None:
        async with stage.producer(timeout_s=1) as producer:
            for odd in ODD:
                await try_send(producer, expected, name, odd)
            await producer.flush()
            assert producer.metrics().buffered_batches == 0

    stage.run(main())
    expected.check(stage.leaders.logs[0].records)
    assert stage.leaders.logs[0].records


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(["value", "key", "partition", "timestamp_ms", "headers"]), odd_values())))
@example([("timestamp_ms", Odd("now", lambda: 1_795_553_570_392.4)), ("value", Odd("x", lambda: b"x"))])
def test_no_odd_record_harms_another(sends: list[tuple[str, Odd]]) -> None:
    """The records of one batch: nobody awaits a delivery before all were sent."""
    stage = Stage(1)
    expected = Expected()

    async def main() -> None:
        async with stage.producer(linger_s=1) as producer:
            taken = []
            for name, odd in sends:
                given: dict[str, Any] = {"value": b"value", "partition": 0, "key": b"key", "headers": ()}
                looked_at = {**given, name: odd.make()}
                with refused(*MAY_REFUSE) as refusals:
                    delivery = await producer.send("t", **{**given, name: odd.make()})
                if not refusals:
                    taken.append((delivery, looked_at))
            for delivery, looked_at in taken:
                expected.add(await delivery, looked_at["key"], looked_at["value"], looked_at["headers"])

    stage.run(main())
    expected.check(stage.leaders.logs[0].records)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_refused_at_once_or_works(name: str) -> None:
    for odd in ODD:
        stage = Stage(1)
        with refused() as refusals:
            producer = stage.producer(**({"timeout_s": 1_000} | {name: odd.make()}))
        if not refusals:
            stage.run(send_one(producer, name), within_s=4_000_000)


async def send_one(producer: Producer, setting: str) -> None:
    too_short = [DeadlineExceededError] if setting in {"timeout_s", "delivery_timeout_s", "request_timeout_s"} else []
    failing = [ZeroDivisionError, TypeError, *MAY_REFUSE] if setting == "partitioner" else []
    with suppress(*too_short, *failing):
        async with producer:
            await producer.send_and_wait("t", b"value")


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in SETTINGS.items() for value in values])
def test_a_sensible_setting_is_taken(name: str, value: Any) -> None:
    stage = Stage(1)
    producer = stage.producer(**{name: value})

    async def main() -> None:
        async with producer:
            await producer.send_and_wait("t", b"value", key=b"key")

    stage.run(main())
    assert stage.leaders.logs[0].values == [b"value"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acks": 2}, r"acks is int 2; it must be one of 'all', 0, 1, -1"),
        ({"acks": 1, "idempotent": True}, "idempotence needs acks='all', not 1"),
        ({"in_flight_max": 6}, "in_flight_max is at most 5 when idempotent"),
        ({"in_flight_max": 0}, "in_flight_max is int 0; it must be from 1"),
        ({"linger_s": -1}, "linger_s is int -1; it must be from 0"),
        ({"linger_s": math.nan}, "linger_s is float nan"),
        ({"linger_s": 3, "delivery_timeout_s": 2}, "delivery_timeout_s must be longer than linger_s"),
        ({"request_timeout_s": 0}, "must be positive"),
        ({"batch_bytes": 2_000_000}, "batch_bytes must be from 1 to request_bytes_max"),
        ({"buffer_bytes": 100_000}, "buffer_bytes must hold four batches"),
        ({"compression": "brotli"}, "compression is str 'brotli'; it must be one of 'none', 'gzip'"),
        ({"partitioner": "random"}, "partitioner is str 'random'; it must be one of 'murmur2', 'round-robin'"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Producer("localhost", **settings)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_bootstrap_servers_are_addresses(odd: Odd) -> None:
    with refused() as refusals:
        Producer(odd.make())
    taken = {"'localhost:9092'", "'t'", "'text'", "'1'", "'1.5'", "'True'", "'all'", "'none'"}
    hosts = {
        "('a',)",
        "['a']",
        "frozenset({'a'})",
        "set",
        "an iterator",
        "a str that lies about its length",
        r"'\xfcn\xef'",
    }
    assert bool(refusals) is (odd.name not in taken | hosts), refusals


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_other_calls_refuse_odd_values_or_work(odd: Odd) -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(timeout_s=1) as producer:
            delivery = await producer.send("t", b"value")
            for call in (producer.flush, producer.close):
                with refused(DeadlineExceededError, RecordsLostError):
                    await call(odd.make())
            with refused():
                # A callback that fails is its owner's, and the loop's to report.
                delivery.add_done_callback(odd.make())
            with refused(DeadlineExceededError, ClientClosedError):
                await producer.partitions(odd.make())

    with refused(ZeroDivisionError):
        stage.run(main())


async def misuse(producer: Producer) -> None:
    for call in (lambda: producer.send("t", b"x"), lambda: producer.partitions("t"), producer.flush):
        with pytest.raises(ClientClosedError, match="not open"):
            await call()
    with pytest.raises(ClientClosedError, match="not open"):
        producer.metrics()
    async with producer:
        with pytest.raises(RuntimeError, match="the producer was started before; make another one"):
            await producer.__aenter__()
        assert (await producer.send_and_wait("t", b"works")).offset == 0
    for call in (lambda: producer.send("t", b"x"), lambda: producer.partitions("t")):
        with pytest.raises(ClientClosedError, match="closed"):
            await call()
    with pytest.raises(ClientClosedError, match="closed; make another"):
        await producer.__aenter__()
    assert producer.metrics().records_delivered == 1
    await producer.close()


def test_what_is_not_open_says_so() -> None:
    stage = Stage(1)
    stage.run(misuse(stage.producer()))
    assert stage.leaders.logs[0].values == [b"works"]


def test_a_producer_is_started_and_stopped_without_a_block() -> None:
    stage = Stage(1)

    async def main() -> None:
        producer = stage.producer()
        assert await producer.start() is producer
        with pytest.raises(RuntimeError, match="the producer was started before; make another one"):
            await producer.start()
        _ = await producer.send("t", b"flushed by stop")
        await producer.stop()
        await producer.stop()
        with pytest.raises(ClientClosedError, match="the producer is closed"):
            _ = await producer.send("t", b"late")
        await stage.producer().stop()

    stage.run(main())
    assert stage.leaders.logs[0].values == [b"flushed by stop"]


@pytest.mark.parametrize("topic", [["t"], {"t"}, {}])
def test_a_topic_that_cannot_even_be_looked_up_is_refused_with_words(topic: Any) -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer() as producer:
            with pytest.raises(TypeError, match=r"topic is \w+ of \d; it must be a str"):
                _ = await producer.send(topic, b"x")

    stage.run(main())


def test_a_delivery_that_failed_for_lack_of_brokers_says_why() -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(delivery_timeout_s=5) as producer:
            await producer.send_and_wait("t", b"before")
            stage.refuse(1)
            delivery = await producer.send("t", b"lost")
            with pytest.raises(DeadlineExceededError) as caught:
                await delivery
            assert str(caught.value) == (
                "a batch for t-0 was not acknowledged within 5 s; last: connection to b1:9092: connection refused"
            )
            assert caught.value.reason == str(caught.value)
            assert caught.value.hint
            assert caught.value.may_be_done is False
        stage.network.down.clear()

    stage.run(main())


def test_a_bytearray_that_grows_and_a_view_that_goes_while_send_waits_harm_nobody() -> None:
    stage = Stage(1)

    async def main() -> None:
        async with stage.producer(buffer_bytes=4_500, batch_bytes=1_000) as producer:
            await producer.send_and_wait("t", b"first")
            stage.stall(1, 5)
            for _ in range(4):
                _ = await producer.send("t", bytes(800), timeout_s=0.2)
            growing = bytearray(200)
            gone = memoryview(bytes(200))
            sends = [asyncio.create_task(producer.send("t", value)) for value in (growing, gone)]
            await asyncio.sleep(0.1)
            assert producer.metrics().sends_waiting == 2
            growing.extend(bytes(2_000))
            gone.release()
            # A value that has grown has to wait for more room.
            assert [(await (await send)).offset for send in sends] == [6, 5]
            assert (producer.metrics().buffered_bytes, producer.metrics().buffered_batches) == (0, 0)

    stage.run(main())
    assert stage.leaders.logs[0].values == [b"first", *[bytes(800)] * 4, bytes(200), bytes(2_200)]
