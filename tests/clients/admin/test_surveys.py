"""A survey costs a few requests to each broker, and a broker that is silent costs only what it alone knows."""

from clients.conftest import Run
from clients.fake_broker import Answer, FakeBroker, FakeCluster, Hangup, serving

from barnabas_clients.admin.log_dirs import describe_log_dirs
from barnabas_clients.admin.surveys import GROUPS_AT_ONCE, reachable_groups, survey_groups, survey_topics
from barnabas_clients.admin.values import GroupListing
from barnabas_clients.backoff import Backoff
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_clients.protocol.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas_clients.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas_clients.protocol.metadata import MetadataRequest
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

FOREVER_S = 15.0
LATEST = -1
REPLICA_BYTES = 100
START, END = 3, 10
TOPIC_ID_FREE = 9
"""The last version of OffsetFetch that names topics."""


def client(*brokers: FakeBroker) -> Cluster:
    return Cluster([f"127.0.0.1:{broker.port}" for broker in brokers], backoff=Backoff(0.0, 0.0))


def knowing(broker: FakeBroker) -> FakeBroker:
    """Let a broker answer for whatever it is asked about: logs from 3 to 10, of 100 bytes each."""

    async def offsets(request: ListOffsetsRequest) -> Answer:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=row.partition_index, offset=END if row.timestamp == LATEST else START
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    async def directories(request: DescribeLogDirsRequest) -> Answer:
        wanted = {"t": [0]} if request.topics is None else {one.topic: list(one.partitions) for one in request.topics}
        topics = [
            DescribeLogDirsTopic(
                name=name,
                partitions=[
                    DescribeLogDirsPartition(partition_index=number, partition_size=REPLICA_BYTES) for number in numbers
                ],
            )
            for name, numbers in wanted.items()
        ]
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/d", topics=topics)])

    async def positions(request: OffsetFetchRequest) -> Answer:
        row = OffsetFetchResponseTopics(
            name="t", partitions=[OffsetFetchResponsePartitions(partition_index=0, committed_offset=4)]
        )
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=one.group_id, topics=[row]) for one in request.groups]
        )

    async def describe(request: DescribeGroupsRequest) -> Answer:
        return DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=one, group_state="Empty") for one in request.groups]
        )

    broker.answers |= {
        ListOffsetsRequest: offsets,
        DescribeLogDirsRequest: directories,
        OffsetFetchRequest: positions,
        DescribeGroupsRequest: describe,
    }
    broker.offered[OffsetFetchRequest.api_key] = (1, TOPIC_ID_FREE)
    return broker


async def hang_up(_: object) -> Answer:
    return Hangup()


def listing(group_id: str, coordinator_id: int) -> GroupListing:
    return GroupListing(group_id, "consumer", "Empty", "classic", coordinator_id)


def test_each_broker_is_asked_once_about_all_its_topics(run: Run) -> None:
    async def main() -> None:
        first, second = knowing(FakeBroker(1)), knowing(FakeBroker(2))
        fake = FakeCluster(first, second)
        names = [f"t{number}" for number in range(30)]
        fake.topics |= {name: [(1, 1), (2, 1)] for name in names}
        fake.topics["other"] = [(1, 1)]
        async with serving(first, second), client(first) as asking:
            await asking.refresh(None, timeout_s=FOREVER_S)
            found = await survey_topics(asking, names, FOREVER_S)
        assert set(found.offsets.values()) == {(START, END)}
        assert len(found.offsets) == 60
        assert found.silent == {}
        for broker in (first, second):
            assert broker.count(ListOffsetsRequest) == 2
            assert broker.count(DescribeLogDirsRequest) <= 1

    run(main())


def test_a_broker_that_hangs_up_costs_what_it_alone_knows(run: Run) -> None:
    async def main() -> None:
        first, second = knowing(FakeBroker(1)), knowing(FakeBroker(2))
        second.answers |= {ListOffsetsRequest: hang_up, DescribeLogDirsRequest: hang_up, OffsetFetchRequest: hang_up}
        fake = FakeCluster(first, second)
        fake.topics["t"] = [(1, 1), (2, 1)]
        async with serving(first, second), client(first) as asking:
            topics = await survey_topics(asking, ["t", "nowhere"], FOREVER_S)
            groups = await survey_groups(asking, [listing("a", 1), listing("b", 2)], FOREVER_S, with_lags=True)
        assert dict(topics.offsets) == {("t", 0): (START, END)}
        assert list(topics.silent) == [2]
        lags = groups.groups["a"].lags
        assert lags is not None
        assert {key: one.lag for key, one in lags.items()} == {("t", 0): END - 4}
        assert groups.groups["b"].lags is None
        assert list(groups.silent) == [2]

    run(main())


def test_a_leader_that_has_moved_is_asked_in_its_new_place(run: Run) -> None:
    async def main() -> None:
        first, second = knowing(FakeBroker(1)), knowing(FakeBroker(2))
        fake = FakeCluster(first, second)
        fake.topics["t"] = [(1, 1)]

        async def refuse(request: ListOffsetsRequest) -> Answer:
            fake.topics["t"] = [(2, 2)]
            row = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])

        first.answers[ListOffsetsRequest] = refuse
        async with serving(first, second), client(first) as asking:
            found = await survey_topics(asking, ["t"], FOREVER_S)
        assert dict(found.offsets) == {("t", 0): (START, END)}
        assert not found.silent

    run(main())


def test_a_lag_is_unknown_while_an_end_is(run: Run) -> None:
    async def main() -> None:
        first, second = knowing(FakeBroker(1)), knowing(FakeBroker(2))
        second.answers[ListOffsetsRequest] = hang_up
        FakeCluster(first, second).topics["t"] = [(2, 1)]
        async with serving(first, second), client(first) as asking:
            found = await survey_groups(asking, [listing("a", 1)], FOREVER_S, with_lags=True)
        assert found.groups["a"].lags is None
        assert found.groups["a"].description is not None

    run(main())


def test_many_groups_share_requests_and_positions_are_asked_for_only_if_wanted(run: Run) -> None:
    async def main() -> None:
        broker = knowing(FakeBroker(1))
        FakeCluster(broker).topics["t"] = [(1, 1)]
        many = [listing(f"g{number}", 1) for number in range(GROUPS_AT_ONCE + 1)]
        async with serving(broker), client(broker) as asking:
            without = await survey_groups(asking, many, FOREVER_S, with_lags=False)
            assert broker.count(OffsetFetchRequest) == 0
            assert broker.count(ListOffsetsRequest) == 0
            found = await survey_groups(asking, many, FOREVER_S, with_lags=True)
        assert {one.lags is None for one in without.groups.values()} == {True}
        assert {one.lags is None for one in found.groups.values()} == {False}
        assert broker.count(OffsetFetchRequest) == 2
        assert broker.count(DescribeGroupsRequest) == 4
        assert broker.count(ListOffsetsRequest) == 1
        assert broker.count(MetadataRequest) <= 3

    run(main())


def test_groups_are_listed_without_the_broker_that_is_down_and_with_the_one_that_is_loading(run: Run) -> None:
    async def main() -> None:
        first, second, third = FakeBroker(1), FakeBroker(2), FakeBroker(3)
        FakeCluster(first, second, third)
        codes = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])

        async def answer(request: ListGroupsRequest) -> Answer:
            if code := next(codes, 0):
                return ListGroupsResponse(error_code=code)
            rows = [ListedGroup(group_id=name, group_state=request.states_filter[0]) for name in ("b", "a")]
            return ListGroupsResponse(groups=rows)

        first.answers[ListGroupsRequest] = answer
        second.answers[ListGroupsRequest] = hang_up
        third.answers[ListGroupsRequest] = hang_up
        async with serving(first, second, third), client(first) as asking:
            found = await reachable_groups(asking, FOREVER_S, states=["Empty"])
        assert [(row.group_id, row.state, row.coordinator_id) for row in found.groups] == [
            ("a", "Empty", 1),
            ("b", "Empty", 1),
        ]
        assert list(found.silent) == [2, 3]
        assert second.count(ListGroupsRequest) == 1

    run(main())


def test_log_directories_are_told_by_broker_and_asked_for_again_after_a_lost_answer(run: Run) -> None:
    async def main() -> None:
        first, second = knowing(FakeBroker(1)), knowing(FakeBroker(2))
        FakeCluster(first, second).topics["t"] = [(1, 1)]
        second.interrupts.add(DescribeLogDirsRequest)
        async with serving(first, second), client(first) as asking:
            found = await describe_log_dirs(asking, FOREVER_S, None, None)
        assert sorted(found) == [1, 2]
        (directory,) = found[2]
        assert directory.path == "/d"
        assert directory.error is None
        assert {key: one.size_bytes for key, one in directory.replicas.items()} == {("t", 0): REPLICA_BYTES}

    run(main())
