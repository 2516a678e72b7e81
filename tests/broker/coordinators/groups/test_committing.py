"""OffsetCommit, OffsetFetch and OffsetDelete over a socket, in every version."""

from typing import Any

import pytest

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_clients.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

from .group_client import GroupClient, rebalance, topic_metadata

NONE = ErrorCode.NONE


def commit_request(client: GroupClient, topic: str, offset: int, **fields: Any) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=3, committed_metadata=f"note {offset}"
    )
    topic_id = topic_metadata(client.find(), topic).topic_id
    asked = OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[partition])
    return OffsetCommitRequest(group_id=client.group_id, topics=[asked], **fields)


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits(client: GroupClient, topic: str, version: int) -> None:
    answer = client.ask(commit_request(client, topic, 40 + version), version)
    result = answer.topics[0]
    assert (result.partitions[0].partition_index, result.partitions[0].error_code) == (0, NONE)
    assert bool(result.name) == (version < 10)
    assert client.committed(topic, [0, 1]) == {(topic, 0): 40 + version, (topic, 1): -1}


@pytest.mark.parametrize("retention_time_ms", [(1 << 63) - 1, -(1 << 63)], ids=["for ever", "before all time"])
def test_a_time_to_keep_it_may_be_as_long_as_a_client_can_say(
    client: GroupClient, topic: str, retention_time_ms: int
) -> None:
    answer = client.ask(commit_request(client, topic, 7, retention_time_ms=retention_time_ms), 4)
    assert answer.topics[0].partitions[0].error_code == NONE
    assert client.committed(topic, [0]) == {(topic, 0): 7}


@pytest.mark.parametrize("version", range(1, 8))
def test_every_version_for_one_group_fetches(client: GroupClient, topic: str, version: int) -> None:
    client.commit(topic, {0: 7})
    asked = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])]
    answer = client.ask(OffsetFetchRequest(group_id=client.group_id, topics=asked), version)
    found, missing = answer.topics[0].partitions
    assert (found.committed_offset, found.metadata, found.error_code) == (7, "at 7", NONE)
    assert found.committed_leader_epoch == (5 if version >= 5 else -1)
    assert (missing.committed_offset, missing.committed_leader_epoch, missing.metadata) == (-1, -1, "")
    if version >= 2:
        everything = client.ask(OffsetFetchRequest(group_id=client.group_id, topics=None), version)
        assert [(one.name, len(one.partitions)) for one in everything.topics] == [(topic, 1)]


@pytest.mark.parametrize("version", range(8, 11))
def test_every_version_for_many_groups_fetches(client: GroupClient, topic: str, version: int) -> None:
    client.commit(topic, {0: 7, 2: 9})
    topic_id = topic_metadata(client.find(), topic).topic_id
    asked = OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[2])
    one = OffsetFetchRequestGroup(group_id=client.group_id, topics=[asked])
    everything = OffsetFetchRequestGroup(group_id=client.group_id, topics=None)
    first, second = client.ask(OffsetFetchRequest(groups=[one, everything]), version).groups
    assert [(found.partition_index, found.committed_offset) for found in first.topics[0].partitions] == [(2, 9)]
    assert [found.committed_offset for found in second.topics[0].partitions] == [7, 9]
    assert first.topics[0].topic_id == second.topics[0].topic_id == (topic_id if version >= 10 else bytes(16))


def test_each_partition_is_checked_for_itself(client: GroupClient, topic: str) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="x" * 4097),
        OffsetCommitRequestPartition(partition_index=4, committed_offset=1),
        OffsetCommitRequestPartition(partition_index=-1, committed_offset=1),
        OffsetCommitRequestPartition(partition_index=1, committed_offset=1, committed_metadata="x" * 4096),
        OffsetCommitRequestPartition(partition_index=2, committed_offset=1, committed_metadata=None),
    ]
    topics = [
        OffsetCommitRequestTopic(name=topic, partitions=partitions),
        OffsetCommitRequestTopic(name="no-such-topic", partitions=[OffsetCommitRequestPartition()]),
    ]
    known, unknown = client.ask(OffsetCommitRequest(group_id=client.group_id, topics=topics), 9).topics
    assert [one.error_code for one in known.partitions] == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        NONE,
        NONE,
    ]
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.committed() == {(topic, 1): 1, (topic, 2): 1}


def test_an_unknown_topic_id_is_said_to_be_one(client: GroupClient) -> None:
    stranger = bytes([9] * 16)
    topics = [OffsetCommitRequestTopic(topic_id=stranger, partitions=[OffsetCommitRequestPartition()])]
    answer = client.ask(OffsetCommitRequest(group_id=client.group_id, topics=topics), 10)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    asked = OffsetFetchRequestTopics(topic_id=stranger, partition_indexes=[0])
    groups = [OffsetFetchRequestGroup(group_id=client.group_id, topics=[asked])]
    found = client.ask(OffsetFetchRequest(groups=groups), 10).groups[0].topics[0]
    assert found.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("generation", [0, 3])
def test_a_group_that_does_not_exist_has_no_offsets_and_no_generation(
    client: GroupClient, topic: str, generation: int
) -> None:
    assert client.committed(topic, [0]) == {(topic, 0): -1}
    assert client.committed() == {}
    old = {"generation_id_or_member_epoch": generation, "member_id": "nobody"}
    assert client.commit(topic, {0: 1}, version=8, **old) == [ErrorCode.ILLEGAL_GENERATION]
    assert client.commit(topic, {0: 1}, version=9, **old) == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_only_members_of_this_generation_commit(brokers: RunningCluster, client: GroupClient, topic: str) -> None:
    rebalance(client)
    assert client.commit(topic, {0: 5}) == [NONE]
    generation = client.generation_id
    assert client.commit(topic, {0: 4}, generation_id_or_member_epoch=generation - 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert client.commit(topic, {0: 4}, member_id="nobody") == [ErrorCode.UNKNOWN_MEMBER_ID]
    outsider = GroupClient(brokers.bootstrap, client.group_id)
    assert outsider.commit(topic, {0: 4}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert client.committed(topic, [0]) == {(topic, 0): 5}
    outsider.lose()


def test_a_commit_of_many_partitions_takes_several_batches(client: GroupClient, name: str) -> None:
    big = f"{name}-big"
    client.find().create(big, 100, 1)
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata="x" * 2_000)
        for index in range(100)
    ]
    topics = [OffsetCommitRequestTopic(name=big, partitions=partitions)]
    answer = client.ask(OffsetCommitRequest(group_id=client.group_id, topics=topics), 9)
    assert {one.error_code for one in answer.topics[0].partitions} == {NONE}
    assert client.committed() == {(big, index): index for index in range(100)}


@pytest.mark.parametrize("group_id", ["", "ä" * 100, "x" * 32_767])
def test_ids_of_every_kind_are_groups(brokers: RunningCluster, topic: str, group_id: str) -> None:
    client = GroupClient(brokers.bootstrap, group_id)
    assert client.commit(topic, {3: 8}) == [NONE]
    assert client.committed(topic, [3]) == {(topic, 3): 8}
    client.lose()


class TestOffsetDelete:
    @staticmethod
    def ask(client: GroupClient, topics: dict[str, list[int]]) -> tuple[int, list[int]]:
        asked = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in topics.items()
        ]
        answer = client.ask(OffsetDeleteRequest(group_id=client.group_id, topics=asked), 0)
        return answer.error_code, [one.error_code for found in answer.topics for one in found.partitions]

    def test_what_nobody_uses_is_deleted(self, client: GroupClient, topic: str) -> None:
        client.commit(topic, {0: 5, 1: 6})
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        asked = {topic: [0, 2, 99], "no-such-topic": [0]}
        assert self.ask(client, asked) == (NONE, [NONE, NONE, unknown, unknown])
        assert client.committed() == {(topic, 1): 6}

    def test_what_members_subscribe_to_stays(self, client: GroupClient, topic: str, name: str) -> None:
        other = f"{name}-other"
        client.find().create(other, 1, 1)
        rebalance(client)
        client.commit(topic, {0: 5})
        client.commit(other, {0: 6})
        assert self.ask(client, {topic: [0], other: [0]}) == (NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE])
        assert client.committed() == {(topic, 0): 5}

    def test_a_group_that_does_not_exist_is_said_not_to(self, client: GroupClient, topic: str) -> None:
        assert self.ask(client, {topic: [0]}) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


MANY = 20_000


def rows(*indexes: int) -> list[OffsetCommitRequestPartition]:
    return [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=index + 1, committed_leader_epoch=-1, committed_metadata=""
        )
        for index in indexes
    ]


def test_a_commit_of_thousands_is_answered_for_each_in_its_order(
    client: GroupClient, topic: str, brokers: RunningCluster
) -> None:
    client.commit(topic, {0: 1})
    turns = brokers.cluster.nodes[client.coordinator_id].listener.turns
    before = turns.slices
    unknown = range(4, MANY)
    asked = [
        OffsetCommitRequestTopic(name=topic, partitions=rows(0, *unknown, 1)),
        OffsetCommitRequestTopic(name="unknown", partitions=rows(0)),
        OffsetCommitRequestTopic(name=topic, partitions=rows(2)),
    ]
    answer = client.ask(OffsetCommitRequest(group_id=client.group_id, topics=asked), 8)
    codes = [one.error_code for found in answer.topics for one in found.partitions]
    refused = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes == [NONE, *refused * len(unknown), NONE, *refused, NONE]
    assert [one.partition_index for one in answer.topics[0].partitions] == [0, *unknown, 1]
    assert turns.slices > before
    assert client.committed(topic, [0, 1, 2, 3]) == {(topic, 0): 1, (topic, 1): 2, (topic, 2): 3, (topic, 3): -1}


def test_a_commit_of_thousands_in_a_generation_that_is_over_is_refused_for_each(
    client: GroupClient, topic: str
) -> None:
    rebalance(client)
    asked = [OffsetCommitRequestTopic(name=topic, partitions=rows(*range(MANY)))]
    said: dict[str, Any] = {
        "group_id": client.group_id,
        "member_id": client.member_id,
        "generation_id_or_member_epoch": 7,
    }
    answer = client.ask(OffsetCommitRequest(topics=asked, **said), 8)
    assert [one.error_code for one in answer.topics[0].partitions] == [ErrorCode.ILLEGAL_GENERATION] * MANY


def test_a_deletion_of_thousands_is_answered_for_each_in_its_order(client: GroupClient, topic: str) -> None:
    client.commit(topic, {0: 1, 1: 2, 3: 3})
    indexes = (0, *range(4, MANY), 3)
    asked = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
    ]
    (found,) = client.ask(OffsetDeleteRequest(group_id=client.group_id, topics=asked), 0).topics
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (MANY - 4)
    assert [one.error_code for one in found.partitions] == [NONE, *unknown, NONE]
    assert client.committed() == {(topic, 1): 2}
