"""Apache Kafka's tools for transactions: the load with transactions, `kafka-transactions`, the log's formatter."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from interop import runtimes
from interop.conftest import NewTopicMaker
from interop.console_tools import Tools

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TIMEOUT_S = 60.0
STATE = "__transaction_state"


@pytest.fixture(scope="module")
def tools(bootstrap: str) -> Tools:
    return Tools(runtimes.kafka_jars(), bootstrap)


@pytest.fixture
def open_one(bootstrap: str, new_topic: NewTopicMaker, name: str) -> Iterator[str]:
    """Leave a transaction open, with a record in a topic; yields the topic."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    yield topic


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


def test_the_log_of_transactions_is_printed(tools: Tools, open_one: str, name: str) -> None:
    formatter = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
    words = ("--topic", STATE, "--from-beginning", "--formatter", formatter, "--timeout-ms", 3_000)
    lines = [json.loads(line) for line in tools.run("kafka-console-consumer", *words).splitlines()]
    ours = [line["value"]["data"] for line in lines if line["key"]["data"]["transactionalId"] == name]
    assert ours[-1]["transactionPartitions"] == [{"topic": open_one, "partitionIds": [0]}]
    assert [one["transactionStatus"] for one in ours][-1] == 1  # ongoing
