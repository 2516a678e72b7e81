"""Requests ask the right brokers for the right partitions, and answers find their partitions."""

from types import MappingProxyType

import pytest

from barnabas_clients.assignors.built_in import RANGE
from barnabas_clients.cluster.topic_view import BrokerAddress, PartitionView, TopicView
from barnabas_clients.cluster.view import ClusterView
from barnabas_clients.consumer.decoder import FetchedRecords
from barnabas_clients.consumer.fetch_plan import FetchSettings, fetch_request, fetchable, hinted_address, shares
from barnabas_clients.consumer.partition_queue import PartitionQueue
from barnabas_clients.consumer.settings import ConsumerSettings, assignors_of
from barnabas_clients.consumer.subscription import Subscription
from barnabas_clients.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas_clients.protocol.leader_hints import NodeEndpoint
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.records.builder import NewRecord, build_batch

ID_A, ID_B = b"a" * 16, b"b" * 16
FETCH = FetchSettings(partition_bytes=1_000)


def view(**topics: tuple[bytes, int]) -> ClusterView:
    """Return a view of topics: id, and number of partitions, all led by broker 1 in epoch 7."""
    made = {
        name: TopicView(
            name,
            topic_id,
            name.startswith("__"),
            MappingProxyType(
                {
                    number: PartitionView(
                        partition=number,
                        leader_id=1,
                        leader_epoch=7,
                        replicas=(1,),
                        in_sync_replicas=(1,),
                        offline_replicas=(),
                        error_code=0,
                    )
                    for number in range(count)
                }
            ),
        )
        for name, (topic_id, count) in topics.items()
    }
    brokers = {1: BrokerAddress(1, "h", 9)}
    return ClusterView(brokers=MappingProxyType(brokers), topics=MappingProxyType(made))


def queue(topic: str, number: int, offset: int = 0) -> PartitionQueue:
    made = PartitionQueue(TopicPartition(topic, number), FETCH.partition_bytes)
    made.begin_at(offset, 3)
    return made


def test_a_request_says_where_to_go_on_and_who_is_thought_to_lead() -> None:
    request = fetch_request([queue("a", 1, 5), queue("b", 0, 6)], view(a=(ID_A, 2), b=(ID_B, 1)), FETCH, 5_000, 0.0)
    assert [(topic.topic, topic.topic_id) for topic in request.topics] == [("a", ID_A), ("b", ID_B)]
    row = request.topics[0].partitions[0]
    assert (row.partition, row.fetch_offset, row.current_leader_epoch, row.last_fetched_epoch) == (1, 5, 7, 3)
    assert (request.max_bytes, request.max_wait_ms, row.partition_max_bytes) == (5_000, 500, 1_000)


def test_whoever_was_served_last_is_named_last() -> None:
    queues = [queue("a", number) for number in range(3)]
    queues[0].served = 9
    request = fetch_request(queues, view(a=(ID_A, 3)), FETCH, 5_000, 0.0)
    assert [row.partition for row in request.topics[0].partitions] == [1, 2, 0]


def test_answers_are_paired_by_name_or_by_id() -> None:
    queues = [queue("a", 0), queue("b", 0)]
    request = fetch_request(queues, view(a=(ID_A, 1), b=(ID_B, 1)), FETCH, 5_000, 0.0)
    by_id = FetchableTopicResponse(topic_id=ID_B, partitions=[PartitionData(partition_index=0, high_watermark=8)])
    by_name = FetchableTopicResponse(topic="a", partitions=[PartitionData(partition_index=0, high_watermark=9)])
    for rows in ([by_id, by_name], [by_name, by_id]):
        found = shares(FetchResponse(responses=rows), request, queues)
        assert [share.row and share.row.high_watermark for share in found] == [9, 8]
    (left_out, _) = shares(FetchResponse(responses=[by_id]), request, queues)
    assert left_out.row is None


def test_only_what_is_wanted_is_fetched() -> None:
    unplaced = PartitionQueue(TopicPartition("a", 0), 1_000)
    assert not fetchable(unplaced, FETCH)
    ready = queue("a", 0)
    assert fetchable(ready, FETCH)
    ready.is_paused = True
    assert not fetchable(ready, FETCH)


def test_a_full_share_that_waits_is_enough() -> None:
    full = queue("a", 0)
    small, large = (
        build_batch([NewRecord(None, b"x" * size, 1)], base_offset=at) for at, size in ((0, 10), (1, 2_000))
    )
    full.add(FetchedRecords(full.partition, memoryview(bytes(small)), 0), 1_000)
    assert fetchable(full, FETCH)
    full.add(FetchedRecords(full.partition, memoryview(bytes(large)), 1), 1_000)
    assert not fetchable(full, FETCH)


def test_a_hint_is_an_address_only_if_the_answer_has_it() -> None:
    nodes = [NodeEndpoint(node_id=2, host="h2", port=92)]
    assert hinted_address(2, nodes) == BrokerAddress(2, "h2", 92)
    assert hinted_address(3, nodes) is None


def test_a_pattern_matches_whole_names_and_nothing_internal() -> None:
    known = view(a=(ID_A, 2), ab=(ID_B, 1), __a=(ID_B, 1))
    assert Subscription.to_topics((), "a|_.*").topics_in(known) == {"a"}
    assert Subscription.to_topics(("a", "gone"), None).topics_in(known) == {"a", "gone"}
    assert len(Subscription.to_topics(("a", "gone"), None).partitions_in(known)) == 2


@pytest.mark.parametrize(("topics", "pattern"), [((), None), (("a",), "b"), ((), "(")])
def test_an_impossible_subscription_is_refused(topics: tuple[str, ...], pattern: str | None) -> None:
    with pytest.raises(ValueError, match=r"."):
        Subscription.to_topics(topics, pattern)


GOOD = ConsumerSettings(
    group_id="g",
    group_instance_id=None,
    group_protocol="classic",
    group_remote_assignor=None,
    auto_offset_reset="latest",
    auto_commit=True,
    auto_commit_interval_s=5,
    assignors=(RANGE,),
    session_timeout_s=45,
    heartbeat_interval_s=3,
    max_poll_interval_s=300,
    metadata_max_age_s=300,
    request_timeout_s=30,
    outage_timeout_s=None,
    timeout_s=30,
    fetch=FETCH,
)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"auto_offset_reset": "first"}, "auto_offset_reset"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"heartbeat_interval_s": 45}, "heartbeat_interval_s"),
        ({"group_id": None, "group_instance_id": "i"}, "group_instance_id"),
        ({"assignors": ()}, "assignors"),
        ({"fetch": FETCH._replace(buffer_bytes=0)}, "buffer_bytes"),
        ({"fetch": FETCH._replace(max_wait_s=-1)}, "fetch_max_wait_s"),
    ],
)
def test_an_impossible_setting_is_refused_by_name(changed: dict[str, object], named: str) -> None:
    GOOD.check()
    with pytest.raises(ValueError, match=named):
        GOOD._replace(**changed).check()  # type: ignore[arg-type]  # impossible on purpose


def test_assignors_go_by_name_or_are_given() -> None:
    assert [assignor.name for assignor in assignors_of(["sticky", RANGE])] == ["sticky", "range"]
    with pytest.raises(ValueError, match="there is no assignor 'best'"):
        assignors_of(["best"])
