"""Kafka's formatter of the transaction log passes over what records say besides for topics in page-cache mode."""

import json

import pytest
from confluent_kafka import Producer
from interop import runtimes
from interop.console_tools import Tools

from barnabas_broker.coordinators.groups.state_machine.location import partition_for
from barnabas_broker.testing import RunningCluster

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TIMEOUT_S = 60.0
STATE = "__transaction_state"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"  # as the formatter names states since Kafka 4.4
FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
SETTINGS: dict[str, str | int | bool] = {"flush.mode": "page-cache"}


def test_records_with_outcomes_are_printed() -> None:
    jars = runtimes.kafka_jars()
    with RunningCluster(1, settings=SETTINGS) as brokers:
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": "x", "log_level": 0})
        producer.init_transactions(TIMEOUT_S)
        for is_commit in (True, False, True):
            producer.begin_transaction()
            producer.produce("t", b"value", partition=0)
            assert producer.flush(TIMEOUT_S) == 0
            if is_commit:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
        node = brokers.cluster.nodes[1]
        partitions = node.partitions.topics[STATE].partitions
        index = partition_for("x", len(partitions))
        (saved,) = [
            hosted.transaction.saved
            for shard in node.broker.transactions.active_shards()
            for hosted in shard.ids.values()
        ]
        assert saved is not None
        assert saved.outcomes
        place = ("--topic", STATE, "--partition", index, "--offset", "earliest", "--timeout-ms", 5_000)
        printed = Tools(jars, brokers.bootstrap).run("kafka-console-consumer", *place, "--formatter", FORMATTER)
    states = [
        json.loads(one)["value"]["data"]["transactionStatus"] for one in printed.replace("}{", "}\n{").split("\n")
    ]
    ends = [state for state in states if state in {COMPLETE_COMMIT, COMPLETE_ABORT}]
    assert ends[:2] == [COMPLETE_COMMIT, COMPLETE_ABORT]
