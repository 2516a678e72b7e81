"""What librdkafka and the Java client write with every codec and level is taken by validation, and read again."""

import random
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from interop.console_tools import Tools

from . import runtimes
from .conftest import NewTopicMaker

pytestmark = [pytest.mark.interop, pytest.mark.slow]

RECORDS = 400
LIBRDKAFKA = {"gzip": range(10), "snappy": range(1), "lz4": range(13), "zstd": range(1, 13)}
JAVA = (("gzip", 9), ("snappy", None), ("lz4", 17), ("zstd", -131072), ("zstd", 22))


def values_of(seed: int) -> list[bytes]:
    """Return values that compress in part, of 0 to 2,000 letters."""
    chance = random.Random(seed)
    return [
        b"".join(chance.choice((b"order", b"paid", b"%d" % chance.randrange(10**9))) for _ in range(count))
        for count in (chance.randrange(400) for _ in range(RECORDS))
    ]


def read_all(bootstrap: str, topic: str, count: int) -> Iterator[bytes | None]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        while count:
            found = consumer.consume(count, 30)
            assert found, f"{count} records are missing"
            for message in found:
                assert message.error() is None, message.error()
                yield message.value()
            count -= len(found)
    finally:
        consumer.close()


def test_every_level_of_librdkafka(bootstrap: str, new_topic: NewTopicMaker) -> None:
    topic = new_topic(record_validation="framing")
    sent = []
    failures = []

    def note(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            failures.append(str(error))

    for number, (codec, level) in enumerate((codec, level) for codec, levels in LIBRDKAFKA.items() for level in levels):
        settings = {"compression.type": codec, "compression.level": level, "linger.ms": 1000, "on_delivery": note}
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
        values = values_of(number)
        for value in values:
            producer.produce(topic, value, key=codec.encode())
        assert producer.flush(30) == 0
        assert failures == [], (codec, level)
        sent += values
    assert list(read_all(bootstrap, topic, len(sent))) == sent


def test_the_furthest_levels_of_java(bootstrap: str, new_topic: NewTopicMaker) -> None:
    topic = new_topic(record_validation="framing")
    tools = Tools(runtimes.kafka_jars(), bootstrap)
    sent = []
    for number, (codec, level) in enumerate(JAVA):
        values = [value or b"empty" for value in values_of(number)]
        levels = () if level is None else ("--command-property", f"compression.{codec}.level={level}")
        words = ("--topic", topic, "--compression-codec", codec, "--timeout", 1000, *levels)
        tools.run("kafka-console-producer", *words, given=b"\n".join([*values, b""]).decode())
        sent += values
    assert list(read_all(bootstrap, topic, len(sent))) == sent
