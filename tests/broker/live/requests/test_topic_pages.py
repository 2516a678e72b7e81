"""DescribeTopicPartitions: partitions of topics, a page at a time, over a real socket."""

import uuid
from typing import Any

import pytest

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.describe_topic_partitions import (
    DescribedTopic,
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire_client import Wire

Page = list[tuple[str, list[int]]]


@pytest.fixture(scope="module")
def names(one_broker: RunningCluster) -> list[str]:
    """Topics of 3, 1 and 4 partitions, in the order of their names."""
    wire = Wire("127.0.0.1", one_broker.cluster.nodes[1].port)
    begin = f"pages-{uuid.uuid4().hex[:8]}"
    made = [f"{begin}-{letter}" for letter in "abc"]
    for name, count in zip(made, (3, 1, 4), strict=True):
        wire.create(name, partitions=count)
    wire.close()
    return made


def ask(wire: Wire, names: list[str], limit: int = 2_000, cursor: tuple[str, int] | None = None) -> Any:
    at = None if cursor is None else DescribeTopicPartitionsCursor(topic_name=cursor[0], partition_index=cursor[1])
    topics = [TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=at)
    return wire.ask(request, 0)


def page(topics: list[DescribedTopic]) -> Page:
    return [(topic.name or "", [row.partition_index for row in topic.partitions]) for topic in topics]


def test_topics_and_partitions_come_in_order_and_each_topic_once(wire: Wire, names: list[str]) -> None:
    response = ask(wire, [names[2], names[0], names[2]])
    assert page(response.topics) == [(names[0], [0, 1, 2]), (names[2], [0, 1, 2, 3])]
    assert response.next_cursor is None


def test_a_partition_is_shown_as_metadata_shows_it(wire: Wire, names: list[str]) -> None:
    topic = ask(wire, names[:1]).topics[0]
    known = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=names[0])]), 12).topics[0]
    assert (topic.topic_id, topic.is_internal, topic.error_code) == (known.topic_id, False, ErrorCode.NONE)
    for shown, row in zip(topic.partitions, known.partitions, strict=True):
        for field in ("error_code", "partition_index", "leader_id", "leader_epoch"):
            assert getattr(shown, field) == getattr(row, field)
        for field in ("replica_nodes", "isr_nodes", "offline_replicas"):
            assert tuple(getattr(shown, field)) == tuple(getattr(row, field))
        assert (tuple(shown.eligible_leader_replicas), tuple(shown.last_known_elr)) == ((), ())


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 8, 2_000])
def test_pages_together_have_everything_once(wire: Wire, names: list[str], limit: int) -> None:
    found: dict[str, list[int]] = {}
    cursor: tuple[str, int] | None = None
    for _ in range(9):
        response = ask(wire, names, limit, cursor)
        pages = page(response.topics)
        assert 0 < sum(len(numbers) for _, numbers in pages) <= limit
        for name, numbers in pages:
            found.setdefault(name, []).extend(numbers)
        if response.next_cursor is None:
            break
        cursor = response.next_cursor.topic_name, response.next_cursor.partition_index
    assert found == {names[0]: [0, 1, 2], names[1]: [0], names[2]: [0, 1, 2, 3]}


def test_a_full_page_names_the_beginning_of_the_next_topic(wire: Wire, names: list[str]) -> None:
    response = ask(wire, names, 3)
    assert page(response.topics) == [(names[0], [0, 1, 2])]
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == (names[1], 0)
    assert ask(wire, names[:1], 3).next_cursor is None


def test_without_a_limit_above_nought_there_is_one_partition(wire: Wire, names: list[str]) -> None:
    for limit in (0, -5):
        assert page(ask(wire, names, limit).topics) == [(names[0], [0])]


def test_all_topics_are_those_that_are_there_from_the_cursor_on(wire: Wire, names: list[str]) -> None:
    found = page(ask(wire, [], cursor=(names[1], 0)).topics)
    listed = [name for name, _ in found]
    assert listed[:2] == names[1:]
    assert listed == sorted(listed)
    assert (names[2], [2, 3]) in page(ask(wire, [], cursor=(names[2], 2)).topics)
    gone = page(ask(wire, [], cursor=(f"{names[0]}0", 7)).topics)
    assert gone[0] == (names[1], [0]), "the cursor's topic is gone: the next one begins at its beginning"


def test_what_is_not_there_is_said_of_what_is_named(wire: Wire, names: list[str]) -> None:
    response = ask(wire, [names[1], "no topic!", f"{names[0]}-not"])
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {
        f"{names[0]}-not": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        names[1]: ErrorCode.NONE,
        "no topic!": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize("cursor", [("elsewhere", 0), ("", -1)])
def test_a_cursor_that_cannot_be_is_refused(wire: Wire, names: list[str], cursor: tuple[str, int]) -> None:
    response = ask(wire, names, cursor=(cursor[0] or names[0], cursor[1]))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        (name, ErrorCode.INVALID_REQUEST) for name in names
    ]
    assert response.next_cursor is None


def test_a_page_begins_behind_the_last_partition_with_nothing(wire: Wire, names: list[str]) -> None:
    response = ask(wire, names[:2], cursor=(names[0], 9))
    assert page(response.topics) == [(names[0], []), (names[1], [0])]
