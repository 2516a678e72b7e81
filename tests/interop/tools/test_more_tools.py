"""More of Apache Kafka's console tools: loads, verifiable clients, groups, offsets, records, the cluster, its logs."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from interop import runtimes
from interop.conftest import NewTopicMaker
from interop.console_tools import Tools
from interop.test_confluent import Sender
from interop.workload import Sample

from barnabas_broker.coordinators.groups.state_machine.location import partition_for

pytestmark = [pytest.mark.interop, pytest.mark.slow]

COUNT = 40
OFFSETS = "__consumer_offsets"
CLASSIC_GROUPS = "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter"
COMMITS = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"


@pytest.fixture(scope="module")
def tools(bootstrap: str) -> Tools:
    return Tools(runtimes.kafka_jars(), bootstrap)


@pytest.fixture(scope="module")
def topic(bootstrap: str, new_topic: NewTopicMaker) -> str:
    """A topic of one partition with records."""
    name = new_topic()
    Sender(bootstrap, linger_ms=0).send([(name, 0)], *[Sample(b"k", b"v")] * COUNT)
    return name


@pytest.fixture
def group(admin: AdminClient, topic: str, name: str) -> str:
    """A group without members that has committed offset 7."""
    at = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0, 7)])
    admin.alter_consumer_group_offsets([at])[name].result(20)
    return name


def events(printed: str) -> Iterator[dict[str, Any]]:
    """Yield what a verifiable client says, an object a line."""
    return map(json.loads, printed.splitlines())


def test_verifiable_clients_acknowledge_and_read_all(tools: Tools, new_topic: NewTopicMaker, name: str) -> None:
    topic = new_topic(2)
    words: tuple[object, ...] = ("--topic", topic, "--max-messages", COUNT)
    sent = list(events(tools.run_alone("kafka-verifiable-producer", *words)))
    assert [event["name"] for event in sent[:: COUNT + 1]] == ["startup_complete", "shutdown_complete"]
    assert sum(event["name"] == "producer_send_success" for event in sent) == COUNT
    assert (sent[-1]["name"], sent[-1]["sent"], sent[-1]["acked"]) == ("tool_data", COUNT, COUNT)
    words += ("--group-id", name, "--reset-policy", "earliest", "--verbose")
    read = list(events(tools.run("kafka-verifiable-consumer", *words)))
    assert sum(event["count"] for event in read if event["name"] == "records_consumed") == COUNT
    assert {event["value"] for event in read if event["name"] == "record_data"} == {str(k) for k in range(COUNT)}
    assigned = next(event["partitions"] for event in read if event["name"] == "partitions_assigned")
    assert sorted((one["topic"], one["partition"]) for one in assigned) == [(topic, 0), (topic, 1)]
    committed = [event for event in read if event["name"] == "offsets_committed"]
    assert all(event["success"] for event in committed)
    assert sum(one["offset"] for one in committed[-1]["offsets"]) == COUNT


def test_loads_count_what_they_read_and_wait_for(tools: Tools, topic: str, name: str) -> None:
    words = ("--topic", topic, "--group", name, "--num-records", COUNT)
    rows = [line.split(", ") for line in tools.run("kafka-consumer-perf-test", *words).splitlines()]
    head, row = rows[-2:]
    assert row[head.index("data.consumed.in.nMsg")] == str(COUNT)
    done = tools.run(
        "kafka-e2e-latency", "--topic", topic, "--num-records", 10, "--producer-acks", "all", "--record-size", 20
    )
    assert "Avg latency: " in done
    assert "Percentiles: 50th = " in done


def test_groups_of_all_types_are_listed_and_their_offsets_moved_and_deleted(
    tools: Tools, topic: str, group: str
) -> None:
    listed = [line.split() for line in tools.run("kafka-groups", "--list").splitlines()]
    assert [group, "Classic"] in [row[:2] for row in listed]
    assert group not in tools.run("kafka-groups", "--list", "--share")

    def groups(*arguments: object) -> str:
        return tools.run("kafka-consumer-groups", *arguments, "--group", group)

    place = ("--topic", f"{topic}:0")
    assert [group, topic, "0", "5"] in _rows(groups("--reset-offsets", *place, "--shift-by", -2, "--dry-run"))
    assert groups("--reset-offsets", *place, "--to-offset", 9, "--export", "--dry-run").split() == [f"{topic},0,9"]
    assert [group, topic, "0", "7"] in [row[:4] for row in _rows(groups("--describe", "--offsets"))]
    assert group not in groups("--describe", "--members"), "nobody is in it"
    assert [topic, "0", "Successful"] in _rows(groups("--delete-offsets", *place))
    assert topic not in groups("--describe", "--offsets")


def _rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


def test_records_are_deleted_and_offsets_show_it(
    tools: Tools, bootstrap: str, new_topic: NewTopicMaker, tmp_path: Path
) -> None:
    topic = new_topic()
    Sender(bootstrap, linger_ms=0).send([(topic, 0)], *[Sample(None, b"v")] * 5)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}))
    assert "low_watermark: 3" in tools.run("kafka-delete-records", "--offset-json-file", plan)
    for when, offset in (("earliest", 3), ("latest", 5), ("max-timestamp", 4), ("-4", 3)):
        assert tools.run("kafka-get-offsets", "--topic", topic, "--time", when).split()[0].startswith(f"{topic}:0:"), (
            when
        )
        if when != "max-timestamp":
            assert tools.run("kafka-get-offsets", "--topic", topic, "--time", when).split() == [f"{topic}:0:{offset}"]


def test_the_cluster_and_what_it_speaks_are_shown(tools: Tools, replicas: int) -> None:
    assert "Cluster ID: " in tools.run("kafka-cluster", "cluster-id")
    ends = tools.run("kafka-cluster", "list-endpoints").splitlines()
    assert len(ends) == 1 + replicas
    spoken = tools.run("kafka-broker-api-versions")
    assert spoken.count("Produce(0): 0 to 13 [usable: 13]") == replicas
    for state in ("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions"):
        assert tools.run("kafka-topics", "--describe", f"--{state}") == ""


def test_access_lists_are_refused_as_without_security(tools: Tools) -> None:
    with pytest.raises(AssertionError, match="SecurityDisabledException"):
        tools.run("kafka-acls", "--list")


def test_quotas_are_not_here(tools: Tools) -> None:
    if os.environ.get("BARNABAS_INTEROP_BOOTSTRAP"):
        pytest.skip("others have them")
    with pytest.raises(AssertionError, match="UnsupportedVersionException"):
        tools.run("kafka-configs", "--describe", "--entity-type", "users")


def test_the_log_of_groups_is_printed(tools: Tools, admin: AdminClient, topic: str, group: str) -> None:
    partition = partition_for(group, len(admin.list_topics(OFFSETS, timeout=20).topics[OFFSETS].partitions))
    at = TopicPartition(OFFSETS, partition)
    start, end = (
        admin.list_offsets({at: spec})[at].result(20).offset for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    place = ("--topic", OFFSETS, "--partition", partition, "--offset", "earliest", "--max-messages", end - start)
    decoder = json.JSONDecoder()
    printed = tools.run("kafka-console-consumer", *place, "--formatter", COMMITS, "--timeout-ms", 3_000)
    found = []
    while printed := printed.lstrip():
        one, length = decoder.raw_decode(printed)
        found.append(one)
        printed = printed[length:]
    (ours,) = [one for one in found if one["key"]["data"]["group"] == group]
    assert ours["key"] == {"type": 1, "data": {"group": group, "topic": topic, "partition": 0}}
    assert ours["value"]["data"]["offset"] == 7
