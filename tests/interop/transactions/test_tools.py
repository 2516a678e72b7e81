"""Apache Kafka's tools for transactions: the load with transactions, `kafka-transactions`, the log's formatter."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from interop import runtimes
from interop.conftest import NewTopicMaker
from interop.console_tools import Tools

from barnabas_broker.coordinators.groups.state_machine.location import partition_for

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TIMEOUT_S = 60.0
STATE = "__transaction_state"
EMPTY, ONGOING = "Empty", "Ongoing"  # as the formatter names states since Kafka 4.4


@pytest.fixture(scope="module")
def tools(bootstrap: str) -> Tools:
    return Tools(runtimes.kafka_jars(), bootstrap)


@pytest.fixture
def open_one(bootstrap: str, new_topic: NewTopicMaker, name: str) -> Iterator[str]:
    """A topic with a record of a transaction that is open until the test is done."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    yield topic
    producer.abort_transaction(TIMEOUT_S)


def test_the_load_of_records_in_transactions(tools: Tools, new_topic: NewTopicMaker, name: str) -> None:
    topic = new_topic()
    words = ("--topic", topic, "--num-records", 2_000, "--record-size", 100, "--throughput", -1)
    more = ("--transactional-id", name, "--transaction-duration-ms", 20)
    assert "2000 records sent" in tools.run("kafka-producer-perf-test", *words, *more)
    read = ("--topic", topic, "--from-beginning", "--max-messages", 2_000, "--isolation-level", "read_committed")
    assert len(tools.run("kafka-console-consumer", *read).splitlines()) == 2_000


def test_a_transaction_is_listed_described_and_aborted(tools: Tools, open_one: str, name: str) -> None:
    def rows(command: str, *arguments: object) -> list[dict[str, str]]:
        head, *lines = tools.run("kafka-transactions", command, *arguments).splitlines()
        names = head.split("\t")
        return [
            {key.strip(): word.strip() for key, word in zip(names, line.split("\t"), strict=True)} for line in lines
        ]

    (listed,) = [row for row in rows("list") if row["TransactionalId"] == name]
    assert listed["TransactionState"] == "Ongoing"
    (described,) = rows("describe", "--transactional-id", name)
    assert (described["ProducerId"], described["TransactionState"]) == (listed["ProducerId"], "Ongoing")
    assert described["TopicPartitions"] == f"{open_one}-0"
    place = ("--topic", open_one, "--partition", 0)
    (producer,) = rows("describe-producers", *place)
    assert (producer["ProducerId"], producer["CurrentTransactionStartOffset"]) == (listed["ProducerId"], "0")
    assert rows("find-hanging", *place) == []
    tools.run("kafka-transactions", "abort", *place, "--start-offset", 0)
    (producer,) = rows("describe-producers", *place)
    assert producer["CurrentTransactionStartOffset"] == "None"


def test_the_log_of_transactions_is_printed(tools: Tools, admin: AdminClient, open_one: str, name: str) -> None:
    partition = partition_for(name, len(admin.list_topics(STATE, timeout=20).topics[STATE].partitions))
    at = TopicPartition(STATE, partition)
    start, end = (
        admin.list_offsets({at: spec})[at].result(20).offset for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    formatter = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
    place = ("--topic", STATE, "--partition", partition, "--offset", "earliest", "--max-messages", end - start)
    found = list(objects(tools.run("kafka-console-consumer", *place, "--formatter", formatter)))
    ours = [one["value"]["data"] for one in found if one["key"]["data"]["transactionalId"] == name]
    assert [one["transactionStatus"] for one in ours] == [EMPTY, ONGOING]
    assert ours[-1]["transactionPartitions"] == [{"topic": open_one, "partitionIds": [0]}]
    assert ours[-1]["transactionTimeoutMs"] == TIMEOUT_S * 1000


def objects(text: str) -> Iterator[Any]:
    """Yield the objects that the formatter prints one behind the other, without a space."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        found, end = decoder.raw_decode(text)
        yield found
        text = text[end:]
