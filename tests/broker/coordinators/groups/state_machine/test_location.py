"""A group is in the partition in which every tool of Kafka's looks for it."""

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.coordinators.groups.state_machine import location
from barnabas_broker.coordinators.groups.state_machine.location import java_hash, offsets_topic, partition_for


# From Java: String.hashCode of each.
@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("hello", 99162322), ("ä", 228), ("😀", 1772899), ("polygenelubricants", -(2**31))],
)
def test_the_hash_is_javas(text: str, value: int) -> None:
    assert java_hash(text) == value


@settings(max_examples=60)
@given(st.text(min_size=0, max_size=20).map(lambda text: text * 50))
def test_the_hash_of_a_long_name_is_javas_definition(text: str) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[position : position + 2], "big")) % (1 << 32)
    assert java_hash(text) % (1 << 32) == value


def test_to_find_a_group_of_a_long_name_takes_few_steps() -> None:
    """A line a character were 16 ms."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        # Not what the collector finalizes meanwhile.
        lines += event == "line" and frame.f_code.co_filename == location.__file__
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert 0 <= partition_for("g" * 32_767, 50) < 50
    finally:
        sys.settrace(before)
    assert 0 < lines < 500


def test_the_one_value_without_a_counterpart_is_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@pytest.mark.parametrize(
    ("group_id", "count", "partition"),
    [("ownb-5b097a-g", 4, 1), ("interop-7c72e88508f8", 4, 1), ("test", 50, 48)],
)
def test_groups_are_where_kafka_has_them(group_id: str, count: int, partition: int) -> None:
    """As seen on Apache Kafka 4.3."""
    assert partition_for(group_id, count) == partition


@settings(max_examples=40)
@given(st.text(), st.integers(1, 1_000))
def test_every_group_has_a_partition(group_id: str, count: int) -> None:
    assert 0 <= partition_for(group_id, count) < count


@pytest.mark.parametrize(("nodes", "setting", "factor"), [(1, 0, 1), (2, 0, 2), (5, 0, 3), (5, 5, 5), (3, 1, 1)])
def test_the_topic_is_replicated_over_the_nodes_that_there_should_be(nodes: int, setting: int, factor: int) -> None:
    values: dict[str, str | int | bool] = {f"cluster.nodes.{node}": f"h:{node}" for node in range(1, nodes + 1)}
    values |= {"node.id": 1, "cluster.id": "c", "log.dir": "d", "offsets.topic.replication.factor": setting}
    wanted = offsets_topic(BrokerConfig.from_settings(values))
    assert (wanted.partition_count, wanted.replication_factor) == (16, factor)
    assert wanted.configs["flush.mode"] == "fsync"
