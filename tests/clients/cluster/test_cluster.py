"""A client follows leaders, shares work, and gives up in time."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from clients.conftest import Run
from clients.fake_broker import Answer, FakeBroker, FakeCluster, serving
from clients.leader_requests import request_leader

from barnabas_clients.admin import topics as admin
from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.admin.values import OffsetSpec
from barnabas_clients.backoff import Backoff
from barnabas_clients.cluster import cluster as connections
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.cluster.connection import Connection
from barnabas_clients.errors import ClientClosedError, DeadlineExceededError
from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from barnabas_clients.protocol.errors import KafkaError, NotLeaderOrFollowerError, TopicAlreadyExistsError, error_for
from barnabas_clients.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas_clients.protocol.metadata import MetadataRequest

FOREVER_S = 15.0
AT_ONCE = Backoff(0.0, 0.0)


def client(*brokers: FakeBroker, backoff: Backoff = AT_ONCE) -> Cluster:
    return Cluster([f"127.0.0.1:{broker.port}" for broker in brokers], backoff=backoff)


def offsets(error_code: int = 0, offset: int = 0, partitions: int = 1) -> ListOffsetsResponse:
    rows = [
        ListOffsetsPartitionResponse(partition_index=index, error_code=error_code, offset=offset)
        for index in range(partitions)
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])


def refuse(response: ListOffsetsResponse) -> None:
    code = response.topics[0].partitions[0].error_code
    if code:
        raise error_for(code, "t-0")


def test_a_request_follows_the_leader(run: Run) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        cluster = FakeCluster(one, two)
        cluster.topics["t"] = [(1, 1)]

        async def moved(_: ListOffsetsRequest) -> Answer:
            cluster.topics["t"] = [(2, 2)]
            return offsets(error_code=6)

        async def here(_: ListOffsetsRequest) -> Answer:
            return offsets(offset=42)

        one.answers[ListOffsetsRequest] = moved
        two.answers[ListOffsetsRequest] = here
        async with serving(one, two), client(one) as asking:
            answer = await request_leader(asking, "t", 0, ListOffsetsRequest(), FOREVER_S, refuse)
            assert answer.topics[0].partitions[0].offset == 42
            assert asking.view.topics["t"].partitions[0].leader_epoch == 2

    run(main())


def test_a_leader_hint_is_followed_without_asking_for_metadata(run: Run) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        FakeCluster(one, two).topics["t"] = [(1, 1)]

        async def elsewhere(_: ListOffsetsRequest) -> Answer:
            return offsets(error_code=6)

        async def here(_: ListOffsetsRequest) -> Answer:
            return offsets(offset=42)

        one.answers[ListOffsetsRequest] = elsewhere
        two.answers[ListOffsetsRequest] = here
        async with serving(one, two), client(one) as asking:
            await asking.leader("t", 0, FOREVER_S)
            before = one.count(MetadataRequest) + two.count(MetadataRequest)

            def check(response: ListOffsetsResponse) -> None:
                if response.topics[0].partitions[0].error_code:
                    asking.learn_leader("t", 0, 2, 2)
                    raise NotLeaderOrFollowerError("t-0")

            await request_leader(asking, "t", 0, ListOffsetsRequest(), FOREVER_S, check)
            assert one.count(MetadataRequest) + two.count(MetadataRequest) == before

    run(main())


def test_a_dead_bootstrap_server_does_not_matter(run: Run) -> None:
    async def main() -> None:
        dead, alive = FakeBroker(1), FakeBroker(2)
        FakeCluster(alive).topics["t"] = [(2, 1)]
        async with serving(dead):
            pass
        async with serving(alive), client(dead, alive) as asking:
            assert (await asking.leader("t", 0, FOREVER_S)).node_id == 2

    run(main())


def test_a_connection_that_breaks_is_opened_again(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1)]

        async def answer(_: ListOffsetsRequest) -> Answer:
            if broker.count(ListOffsetsRequest) == 1:
                broker.drop_connections()
            return offsets(offset=7)

        broker.answers[ListOffsetsRequest] = answer
        async with serving(broker), client(broker) as asking:
            await request_leader(asking, "t", 0, ListOffsetsRequest(), FOREVER_S, refuse)
            assert broker.count(ListOffsetsRequest) == 2

    run(main())


def test_an_error_that_no_retry_mends_is_raised_at_once(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1)]

        async def forbid(_: ListOffsetsRequest) -> Answer:
            return offsets(error_code=29)

        broker.answers[ListOffsetsRequest] = forbid
        async with serving(broker), client(broker) as asking:
            with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                await request_leader(asking, "t", 0, ListOffsetsRequest(), FOREVER_S, refuse)
            assert broker.count(ListOffsetsRequest) == 1

    run(main())


def test_the_deadline_ends_the_attempts_and_names_the_last_failure(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(-1, 3)]
        async with serving(broker), client(broker, backoff=Backoff(0.005, 0.005)) as asking:
            with pytest.raises(DeadlineExceededError, match=r"t-0: timed out after 0\.05 s; last: t-0 has no leader"):
                await asking.leader("t", 0, 0.05)

    run(main())


def test_many_callers_share_one_connection_and_one_refresh(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1)]
        async with serving(broker), client(broker) as asking:
            metadata = broker.count(MetadataRequest)
            await asyncio.gather(*(asking.leader("t", 0, FOREVER_S) for _ in range(20)))
            assert broker.count(ApiVersionsRequest) == 1
            assert broker.count(MetadataRequest) == metadata + 1

    run(main())


def test_a_broker_that_hangs_and_leaves_the_metadata_is_not_waited_for(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SUSPICION_S", 0.01)

    async def main() -> None:
        hung, well = FakeBroker(1), FakeBroker(2)
        FakeCluster(hung, well).topics["t"] = [(1, 1)]

        async def hang(_: ListOffsetsRequest) -> Answer:
            # The peers of a suspended broker conclude this a little later.
            FakeCluster(well).topics["t"] = [(2, 2)]
            await asyncio.Event().wait()
            raise AssertionError

        async def answer(_: ListOffsetsRequest) -> Answer:
            return offsets(offset=5)

        hung.answers[ListOffsetsRequest] = hang
        well.answers[ListOffsetsRequest] = answer
        async with serving(hung, well), client(hung) as asking:
            found = await request_leader(asking, "t", 0, ListOffsetsRequest(), FOREVER_S, refuse)
            assert found.topics[0].partitions[0].offset == 5

    run(main())


def test_a_connection_made_during_a_refresh_is_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lost it would never close it, nor use it."""

    async def main() -> None:
        answering, leaving, lost = FakeBroker(1), FakeBroker(2), FakeBroker(3)
        cluster = FakeCluster(answering, leaving, lost)
        async with serving(answering, leaving, lost), client(answering) as asking:
            useless = await asking.connect(2, FOREVER_S)
            broken = await asking.connect(3, FOREVER_S)
            lost.drop_connections()
            await broken.wait_closed()
            cluster.brokers = (answering, lost)
            closing, goes_on = asyncio.Event(), asyncio.Event()
            close = Connection.close

            async def slowly(connection: Connection) -> None:
                if connection is useless:
                    closing.set()
                    await goes_on.wait()
                await close(connection)

            monkeypatch.setattr(Connection, "close", slowly)
            refresh = asyncio.ensure_future(asking.refresh(timeout_s=FOREVER_S))
            await closing.wait()
            renewed = await asking.connect(3, FOREVER_S)
            goes_on.set()
            await refresh
            assert await asking.connect(3, FOREVER_S) is renewed
        assert not renewed.is_open

    run(main())


def test_leaving_a_shared_refresh_does_not_disturb_the_others(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        entered = asyncio.Event()
        release = asyncio.Event()
        fake = FakeCluster(broker)
        fake.topics["t"] = [(1, 1)]
        async with serving(broker), client(broker) as asking:

            async def held(request: MetadataRequest) -> Answer:
                entered.set()
                await release.wait()
                return await fake.metadata(request)

            broker.answers[MetadataRequest] = held
            leaving = asyncio.create_task(asking.leader("t", 0, FOREVER_S))
            staying = asyncio.create_task(asking.leader("t", 0, FOREVER_S))
            await entered.wait()
            leaving.cancel()
            await asyncio.wait({leaving})
            release.set()
            assert (await staying).node_id == 1
            assert leaving.cancelled()

    run(main())


def test_closing_ends_calls_under_way(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        entered = asyncio.Event()
        FakeCluster(broker).topics["t"] = [(1, 1)]

        async def never(_: ListOffsetsRequest) -> Answer:
            entered.set()
            await asyncio.Event().wait()
            raise AssertionError

        broker.answers[ListOffsetsRequest] = never
        async with serving(broker):
            asking = await client(broker).__aenter__()
            call = asyncio.create_task(request_leader(asking, "t", 0, ListOffsetsRequest(), FOREVER_S))
            await entered.wait()
            await asking.close()
            with pytest.raises(ClientClosedError):
                await call
            with pytest.raises(ClientClosedError):
                await asking.refresh(timeout_s=FOREVER_S)

    run(main())


def test_entering_a_cluster_that_is_not_there_fails_in_time(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        async with serving(broker):
            pass
        asking = Cluster(f"127.0.0.1:{broker.port}", request_timeout_s=0.05, backoff=Backoff(0.005, 0.005))
        with pytest.raises(DeadlineExceededError, match=f"127.0.0.1:{broker.port}"):
            await asking.__aenter__()

    run(main())


def test_offsets_are_asked_of_every_leader_and_again_where_refused(run: Run) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        FakeCluster(one, two).topics["t"] = [(1, 1), (2, 1)]
        codes: Iterator[int] = iter([78, 0])  # OFFSET_NOT_AVAILABLE, then fine

        async def steady(request: ListOffsetsRequest) -> Answer:
            return _answer(request, 0, 10)

        async def late(request: ListOffsetsRequest) -> Answer:
            return _answer(request, next(codes), 20)

        one.answers[ListOffsetsRequest] = steady
        two.answers[ListOffsetsRequest] = late
        async with serving(one, two), client(one) as asking:
            wanted = {("t", 0): OffsetSpec.LATEST, ("t", 1): OffsetSpec.EARLIEST}
            found = await list_offsets(asking, wanted, FOREVER_S)
            assert {key: listed.offset for key, listed in found.items()} == {("t", 0): 10, ("t", 1): 20}
            # Answered partitions are not asked for again.
            assert one.count(ListOffsetsRequest) == 1

    def _answer(request: ListOffsetsRequest, code: int, offset: int) -> ListOffsetsResponse:
        rows = [
            ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=code, offset=offset)
            for row in request.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])

    run(main())


@pytest.mark.parametrize("first_answer_is_lost", [True, False])
def test_a_topic_that_exists_is_an_error_unless_we_may_have_made_it(run: Run, first_answer_is_lost: bool) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        fake = FakeCluster(broker)

        async def create(_: CreateTopicsRequest) -> Answer:
            if first_answer_is_lost and "t" not in fake.topics:
                broker.drop_connections()
            fake.topics["t"] = [(1, 1)]
            return CreateTopicsResponse(
                topics=[CreatableTopicResult(name="t", error_code=36, error_message="is there")]
            )

        broker.answers[CreateTopicsRequest] = create
        async with serving(broker), client(broker) as asking:
            if first_answer_is_lost:
                view = await admin.create_topic(asking, "t", timeout_s=FOREVER_S)
                assert list(view.partitions) == [0]
            else:
                with pytest.raises(TopicAlreadyExistsError, match="t: is there"):
                    await admin.create_topic(asking, "t", timeout_s=FOREVER_S)

    run(main())


def test_a_new_topic_is_returned_when_every_partition_is_led(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        fake = FakeCluster(broker)
        leaders = itertools.chain([-1, -1], itertools.repeat(1))

        async def metadata(request: MetadataRequest) -> Answer:
            if "t" in fake.topics:
                fake.topics["t"] = [(1, 1), (next(leaders), 1)]
            return await fake.metadata(request)

        async def create(_: CreateTopicsRequest) -> Answer:
            fake.topics["t"] = []
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="t")])

        broker.answers[CreateTopicsRequest] = create
        broker.answers[MetadataRequest] = metadata
        async with serving(broker), client(broker) as asking:
            view = await admin.create_topic(asking, "t", 2, timeout_s=FOREVER_S)
            assert [partition.leader_id for partition in view.partitions.values()] == [1, 1]
            assert [topic.name for topic in await admin.list_topics(asking, FOREVER_S)] == ["t"]

    run(main())


def test_an_unknown_topic_cannot_be_described(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker)
        async with serving(broker), client(broker) as asking:
            with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION: nowhere"):
                await admin.describe_topics(asking, ["nowhere"], FOREVER_S)

    run(main())


def test_a_request_that_waits_holds_back_only_its_own_lane(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1)]
        released = asyncio.Event()

        async def poll(_: ListOffsetsRequest) -> Answer:
            await released.wait()
            return offsets()

        broker.answers[ListOffsetsRequest] = poll
        async with serving(broker), client(broker) as cluster:
            waiting = asyncio.create_task(cluster.ask_broker(1, ListOffsetsRequest(), FOREVER_S, "fetch"))
            while not any(isinstance(request, ListOffsetsRequest) for request, _ in broker.seen):
                await cluster.refresh(("t",), timeout_s=FOREVER_S)
            await cluster.refresh(("t",), timeout_s=FOREVER_S)
            assert not waiting.done()
            assert len(broker.connections) == 2
            released.set()
            await waiting

    run(main())
