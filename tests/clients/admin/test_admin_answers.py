"""Administration copes with answers that are lost, partial, or about others. The brokers are scripts."""

import asyncio

import pytest
from clients.conftest import Run
from clients.fake_broker import Answer, FakeBroker, FakeCluster, serving

from barnabas_clients import Admin, ClientClosedError
from barnabas_clients.admin import groups as admin_groups
from barnabas_clients.admin import topics as admin
from barnabas_clients.admin.configs import describe_configs
from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.admin.values import ConfigResource, ConfigSource, NewTopic, OffsetSpec
from barnabas_clients.backoff import Backoff
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_clients.protocol.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from barnabas_clients.protocol.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from barnabas_clients.protocol.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_clients.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas_clients.protocol.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas_clients.protocol.errors import (
    ErrorCode,
    GroupIdNotFoundError,
    InvalidPartitionsError,
    KafkaError,
    TopicAlreadyExistsError,
)
from barnabas_clients.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_clients.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas_clients.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

FOREVER_S = 15.0


def test_an_admin_client_is_open_between_start_and_stop(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        FakeCluster(broker).topics["t"] = [(1, 1)]
        async with serving(broker):
            bootstrap = f"127.0.0.1:{broker.port}"
            asking = Admin(bootstrap)
            with pytest.raises(ClientClosedError, match="is not open yet; use it as `async with`, or start it"):
                await asking.list_topics()
            assert await asking.start() is asking
            with pytest.raises(RuntimeError, match="the admin client was started before; make another one"):
                await asking.start()
            assert [topic.name for topic in await asking.list_topics()] == ["t"]
            await asking.stop()
            await asking.stop()
            with pytest.raises(ClientClosedError, match="the admin client is closed"):
                await asking.list_topics()
            never = Admin(bootstrap)
            await never.stop()
            with pytest.raises(ClientClosedError, match="the admin client is closed; make another one"):
                await never.start()

    run(main())


def client(*brokers: FakeBroker) -> Cluster:
    return Cluster([f"127.0.0.1:{broker.port}" for broker in brokers], backoff=Backoff(0.0, 0.0))


def coordinate(broker: FakeBroker) -> None:
    """Let a broker say that it coordinates every group."""

    async def find(request: FindCoordinatorRequest) -> Answer:
        rows = [
            Coordinator(key=key, node_id=broker.node_id, host="127.0.0.1", port=broker.port)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(node_id=broker.node_id, host="127.0.0.1", port=broker.port, coordinators=rows)

    broker.answers[FindCoordinatorRequest] = find


@pytest.mark.parametrize("first_answer_is_lost", [True, False])
def test_partitions_that_are_there_are_an_error_unless_we_may_have_added_them(
    run: Run, first_answer_is_lost: bool
) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        fake = FakeCluster(broker)
        fake.topics["t"] = [(1, 1)] if first_answer_is_lost else [(1, 1), (1, 1)]

        async def create(_: CreatePartitionsRequest) -> Answer:
            if len(fake.topics["t"]) == 1:
                broker.drop_connections()
            fake.topics["t"] = [(1, 1), (1, 1)]
            row = CreatePartitionsTopicResult(
                name="t", error_code=ErrorCode.INVALID_PARTITIONS, error_message="it has 2"
            )
            return CreatePartitionsResponse(results=[row])

        broker.answers[CreatePartitionsRequest] = create
        async with serving(broker), client(broker) as asking:
            if first_answer_is_lost:
                view = await admin.create_partitions(asking, "t", 2, FOREVER_S)
                assert list(view.partitions) == [0, 1]
            else:
                with pytest.raises(InvalidPartitionsError, match="t: it has 2"):
                    await admin.create_partitions(asking, "t", 2, FOREVER_S)

    run(main())


@pytest.mark.parametrize("first", ["timed out", "refused"])
def test_topic_that_is_there_is_an_error_unless_the_controller_may_have_created_it(run: Run, first: str) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker)
        codes = iter([ErrorCode.REQUEST_TIMED_OUT] if first == "timed out" else [])

        async def create(_: CreateTopicsRequest) -> Answer:
            code = next(codes, ErrorCode.TOPIC_ALREADY_EXISTS)
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])

        broker.answers[CreateTopicsRequest] = create
        async with serving(broker), client(broker) as asking:
            if first == "timed out":
                await admin.create_topics(asking, [NewTopic("t")], FOREVER_S)
            else:
                with pytest.raises(TopicAlreadyExistsError, match="t"):
                    await admin.create_topics(asking, [NewTopic("t")], FOREVER_S)

    run(main())


@pytest.mark.parametrize("first_answer_is_lost", [True, False])
def test_a_group_that_is_gone_is_an_error_unless_we_may_have_deleted_it(run: Run, first_answer_is_lost: bool) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker)
        coordinate(broker)
        lost = iter([first_answer_is_lost])

        async def delete(_: DeleteGroupsRequest) -> Answer:
            if next(lost, False):
                broker.drop_connections()
            row = DeletableGroupResult(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
            return DeleteGroupsResponse(results=[row])

        broker.answers[DeleteGroupsRequest] = delete
        async with serving(broker), client(broker) as asking:
            if first_answer_is_lost:
                await admin_groups.delete_groups(asking, ["g"], FOREVER_S)
            else:
                with pytest.raises(GroupIdNotFoundError, match="g"):
                    await admin_groups.delete_groups(asking, ["g"], FOREVER_S)

    run(main())


def test_what_a_coordinator_says_about_a_group_that_it_does_not_delete_is_told(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker)
        coordinate(broker)

        async def delete(_: DeleteGroupsRequest) -> Answer:
            row = DeletableGroupResult(
                group_id="g", error_code=ErrorCode.GROUP_DELETION_FAILED, error_message="its plugin is away"
            )
            return DeleteGroupsResponse(results=[row])

        broker.answers[DeleteGroupsRequest] = delete
        async with serving(broker), client(broker) as asking:
            with pytest.raises(KafkaError, match="GROUP_DELETION_FAILED: g: its plugin is away"):
                await admin_groups.delete_groups(asking, ["g"], FOREVER_S)

    run(main())


def test_only_what_was_not_answered_is_asked_again(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1), (1, 1)]
        asked: list[list[int]] = []

        async def answer(request: ListOffsetsRequest) -> Answer:
            partitions = [row.partition_index for row in request.topics[0].partitions]
            asked.append(partitions)
            rows = [
                ListOffsetsPartitionResponse(
                    partition_index=index,
                    error_code=ErrorCode.OFFSET_NOT_AVAILABLE if index and len(asked) == 1 else 0,
                    offset=10 + index,
                )
                for index in partitions
            ]
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])

        broker.answers[ListOffsetsRequest] = answer
        async with serving(broker), client(broker) as asking:
            wanted = {("t", 0): OffsetSpec.LATEST, ("t", 1): OffsetSpec.LATEST}
            found = await list_offsets(asking, wanted, FOREVER_S)
            assert {key: listed.offset for key, listed in found.items()} == {("t", 0): 10, ("t", 1): 11}
        assert asked == [[0, 1], [1]]

    run(main())


def test_an_answer_that_leaves_a_partition_out_is_an_error(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1)]

        async def answer(_: ListOffsetsRequest) -> Answer:
            return ListOffsetsResponse()

        broker.answers[ListOffsetsRequest] = answer
        async with serving(broker), client(broker) as asking:
            with pytest.raises(KafkaError, match="listing offsets: a broker left partitions out"):
                await list_offsets(asking, {("t", 0): OffsetSpec.LATEST}, FOREVER_S)

    run(main())


def test_a_broker_is_asked_about_itself_and_any_about_topics(run: Run) -> None:
    async def main() -> None:
        first, second = FakeBroker(1), FakeBroker(2)
        fake = FakeCluster(first, second)
        fake.topics["t"] = [(1, 1)]
        asked: list[tuple[int, str]] = []

        def answering(node_id: int) -> None:
            async def answer(request: DescribeConfigsRequest) -> Answer:
                asked.extend((node_id, resource.resource_name) for resource in request.resources)
                config = DescribeConfigsResourceResult(name="b", value=str(node_id), config_source=77)
                return DescribeConfigsResponse(
                    results=[
                        DescribeConfigsResult(
                            resource_type=resource.resource_type,
                            resource_name=resource.resource_name,
                            configs=[config, DescribeConfigsResourceResult(name="a", config_source=5)],
                        )
                        for resource in request.resources
                    ]
                )

            fake.brokers[node_id - 1].answers[DescribeConfigsRequest] = answer

        answering(1)
        answering(2)
        async with serving(first, second), client(first, second) as asking:
            others = [ConfigResource.topic("t"), ConfigResource.all_brokers(), ConfigResource.group("g")]
            resources = [ConfigResource.broker(2), *others, ConfigResource.broker(1)]
            found = await describe_configs(asking, resources, FOREVER_S)
        assert list(found) == resources
        assert list(found[resources[0]]) == ["a", "b"]
        assert found[resources[0]]["b"].value == "2"
        # A source that a newer broker may know, and we do not.
        assert found[resources[0]]["b"].source is ConfigSource.UNKNOWN
        assert {(1, "1"), (2, "2")} <= set(asked)

    run(main())


def test_groups_of_all_brokers_are_listed_once_every_one_can_say(run: Run) -> None:
    async def main() -> None:
        first, second = FakeBroker(1), FakeBroker(2)
        FakeCluster(first, second)
        loading = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])

        async def answer_first(_: ListGroupsRequest) -> Answer:
            rows = [ListedGroup(group_id=name, group_state="Stable") for name in ("c", "a")]
            return ListGroupsResponse(groups=rows)

        async def answer_second(_: ListGroupsRequest) -> Answer:
            code = next(loading, 0)
            return ListGroupsResponse(error_code=code, groups=[] if code else [ListedGroup(group_id="b")])

        first.answers[ListGroupsRequest] = answer_first
        second.answers[ListGroupsRequest] = answer_second
        async with serving(first, second), client(first, second) as asking:
            found = await admin_groups.list_groups(asking, FOREVER_S)
        assert [(row.group_id, row.state, row.coordinator_id) for row in found] == [
            ("a", "Stable", 1),
            ("b", "", 2),
            ("c", "Stable", 1),
        ]
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling(), "the attempt that failed is over"

    run(main())


def test_an_old_brokers_dead_group_is_not_there(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker)
        coordinate(broker)
        broker.offered[DescribeGroupsRequest.api_key] = (0, 5)
        del broker.offered[ConsumerGroupDescribeRequest.api_key]

        async def describe(_: DescribeGroupsRequest) -> Answer:
            return DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", group_state="Dead")])

        broker.answers[DescribeGroupsRequest] = describe
        async with serving(broker), client(broker) as asking:
            with pytest.raises(GroupIdNotFoundError, match="g"):
                await admin_groups.describe_groups(asking, ["g"], FOREVER_S)

    run(main())


def test_a_member_that_writes_something_else_hides_nobody(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker)
        coordinate(broker)

        async def describe(_: DescribeGroupsRequest) -> Answer:
            assignments = (b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff", b"?", b"")
            members = [
                DescribedGroupMember(member_id=f"m{number}", member_assignment=data)
                for number, data in enumerate(assignments)
            ]
            row = DescribedGroup(group_id="g", group_state="Stable", protocol_type="consumer", members=members)
            return DescribeGroupsResponse(groups=[row])

        broker.answers[DescribeGroupsRequest] = describe
        async with serving(broker), client(broker) as asking:
            group = (await admin_groups.describe_groups(asking, ["g"], FOREVER_S))["g"]
        assert [member.assignment for member in group.members] == [frozenset(), None, frozenset()]

    run(main())
