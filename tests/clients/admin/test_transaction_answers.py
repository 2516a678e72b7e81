"""Looking at transactions, and aborting one, copes with answers that are lost or refused. The brokers are scripts."""

from collections.abc import Sequence

import pytest
from clients.conftest import Run
from clients.fake_broker import Answer, FakeBroker, FakeCluster, Hangup, serving

from barnabas_clients.admin import transactions as admin
from barnabas_clients.admin.values import PartitionProducer, TransactionListing
from barnabas_clients.backoff import Backoff
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import DeadlineExceededError, UnsupportedVersionError
from barnabas_clients.protocol.describe_producers import (
    DescribedProducersPartition,
    DescribedProducersTopic,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
)
from barnabas_clients.protocol.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTopic,
)
from barnabas_clients.protocol.errors import ErrorCode, KafkaError
from barnabas_clients.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_clients.protocol.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas_clients.protocol.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_clients.topic_partition import TopicPartition

FOREVER_S = 15.0
AT = TopicPartition("t", 0)
EVERYTHING = admin.listing_request((), (), None)


def client(*brokers: FakeBroker) -> Cluster:
    return Cluster([f"127.0.0.1:{broker.port}" for broker in brokers], backoff=Backoff(0.0, 0.0))


def lists(broker: FakeBroker, *names: str, first: Sequence[ErrorCode] = ()) -> list[ListTransactionsRequest]:
    """Let a broker list ids, after it has refused to. Return what it is asked."""
    asked: list[ListTransactionsRequest] = []

    async def answer(request: ListTransactionsRequest) -> Answer:
        asked.append(request)
        if len(asked) <= len(first):
            return ListTransactionsResponse(error_code=first[len(asked) - 1])
        rows = [ListedTransaction(transactional_id=name, producer_id=7, transaction_state="Ongoing") for name in names]
        return ListTransactionsResponse(transaction_states=rows)

    broker.answers[ListTransactionsRequest] = answer
    return asked


class Leader:
    """Lets a broker lead partition 0 with one open transaction, which markers end. `codes` are its refusals of them."""

    def __init__(self, broker: FakeBroker, *codes: ErrorCode, start_offset: int = 5) -> None:
        self.codes = list(codes)
        self.start_offset = start_offset
        self.markers: list[WriteTxnMarkersRequest] = []
        self.is_lost = False
        broker.answers[DescribeProducersRequest] = self.describe
        broker.answers[WriteTxnMarkersRequest] = self.write

    async def describe(self, _: DescribeProducersRequest) -> Answer:
        states = [
            ProducerState(producer_id=9, last_sequence=3, last_timestamp_ms=10, coordinator_epoch=-1),
            ProducerState(
                producer_id=7,
                producer_epoch=4,
                last_sequence=2,
                last_timestamp_ms=1_000,
                coordinator_epoch=6,
                current_txn_start_offset=self.start_offset,
            ),
        ]
        row = DescribedProducersPartition(partition_index=0, active_producers=states)
        return DescribeProducersResponse(topics=[DescribedProducersTopic(name="t", partitions=[row])])

    async def write(self, request: WriteTxnMarkersRequest) -> Answer:
        self.markers.append(request)
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if not code:
            self.start_offset = -1
        if self.is_lost:
            self.is_lost = False
            return Hangup()
        rows = [WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)]
        topics = [WritableTxnMarkerTopicResult(name="t", partitions=rows)]
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=topics)])


def test_the_list_is_the_sum_of_all_brokers_and_has_each_id_once(run: Run) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        FakeCluster(one, two)
        lists(one, "b", "moved")
        lists(two, "a", "moved", first=[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
        async with serving(one, two), client(one) as asking:
            found = await admin.list_transactions(asking, FOREVER_S, EVERYTHING)
            assert [row.transactional_id for row in found] == ["a", "b", "moved"]
            assert found[0] == TransactionListing("a", 7, "Ongoing", 2)

    run(main())


def test_a_broker_that_says_nothing_costs_its_own_ids_only(run: Run) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        FakeCluster(one, two)
        lists(one, "a", first=[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])

        async def hang_up(_: ListTransactionsRequest) -> Answer:
            return Hangup()

        two.answers[ListTransactionsRequest] = hang_up
        async with serving(one, two), client(one) as asking:
            found = await admin.reachable_transactions(asking, FOREVER_S, EVERYTHING)
            assert [row.transactional_id for row in found.transactions] == ["a"]
            assert list(found.silent) == [2]
            with pytest.raises(DeadlineExceededError):
                await admin.list_transactions(asking, 0.2, EVERYTHING)

    run(main())


WANTED = admin.listing_request(("Ongoing",), (7,), 1.5)


def test_conditions_are_sent(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker)
        asked = lists(broker, "a")
        async with serving(broker), client(broker) as asking:
            await admin.list_transactions(asking, FOREVER_S, WANTED)
        (request,) = asked
        assert (tuple(request.state_filters), tuple(request.producer_id_filters)) == (("Ongoing",), (7,))
        assert request.duration_filter_ms == 1_500

    run(main())


def test_an_older_broker_that_would_leave_a_condition_out_is_not_asked(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker)
        asked = lists(broker, "a")
        broker.offered[ListTransactionsRequest.api_key] = (0, 0)
        async with serving(broker), client(broker) as asking:
            for call in (admin.list_transactions, admin.reachable_transactions):
                with pytest.raises(UnsupportedVersionError):
                    await call(asking, FOREVER_S, WANTED)
            assert [row.transactional_id for row in await admin.list_transactions(asking, FOREVER_S, EVERYTHING)] == [
                "a"
            ]
        assert len(asked) == 1

    run(main())


def test_states_that_a_broker_does_not_know_are_named(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker)

        async def answer(_: ListTransactionsRequest) -> Answer:
            return ListTransactionsResponse(unknown_state_filters=["Confused"])

        broker.answers[ListTransactionsRequest] = answer
        async with serving(broker), client(broker) as asking:
            with pytest.raises(KafkaError, match="broker 1 knows no state Confused"):
                await admin.list_transactions(asking, FOREVER_S, EVERYTHING)

    run(main())


def test_a_description_follows_the_coordinator(run: Run) -> None:
    async def main() -> None:
        old, new = FakeBroker(1), FakeBroker(2)
        FakeCluster(old, new)
        coordinator = old

        async def find(request: FindCoordinatorRequest) -> Answer:
            assert request.key_type == 1
            row = Coordinator(key="x", node_id=coordinator.node_id, host="127.0.0.1", port=coordinator.port)
            return FindCoordinatorResponse(
                node_id=coordinator.node_id, host="127.0.0.1", port=coordinator.port, coordinators=[row]
            )

        async def moved(_: DescribeTransactionsRequest) -> Answer:
            nonlocal coordinator
            coordinator = new
            row = DescribedTransaction(transactional_id="x", error_code=ErrorCode.NOT_COORDINATOR)
            return DescribeTransactionsResponse(transaction_states=[row])

        async def known(_: DescribeTransactionsRequest) -> Answer:
            row = DescribedTransaction(
                transactional_id="x",
                transaction_state="Ongoing",
                transaction_timeout_ms=1_500,
                transaction_start_time_ms=-1,
                producer_id=7,
                producer_epoch=4,
                topics=[DescribeTransactionsTopic(topic="t", partitions=[0])],
            )
            return DescribeTransactionsResponse(transaction_states=[row])

        old.answers |= {FindCoordinatorRequest: find, DescribeTransactionsRequest: moved}
        new.answers |= {FindCoordinatorRequest: find, DescribeTransactionsRequest: known}
        async with serving(old, new), client(old) as asking:
            found = (await admin.describe_transactions(asking, ["x"], FOREVER_S))["x"]
            assert (found.coordinator_id, found.timeout_s, found.started_at_ms) == (2, 1.5, None)
            assert found.partitions == {AT}

    run(main())


def test_producers_come_from_the_leader_in_order(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1)]
        Leader(broker)
        async with serving(broker), client(broker) as asking:
            assert await admin.describe_producers(asking, [AT], FOREVER_S) == {
                AT: [PartitionProducer(7, 4, 2, 1_000, 6, 5), PartitionProducer(9, 0, 3, 10, -1, None)]
            }

    run(main())


@pytest.mark.parametrize("first_answer_is_lost", [False, True])
def test_an_abort_names_the_producer_of_that_offset_and_is_asked_for_once(run: Run, first_answer_is_lost: bool) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1)]
        leader = Leader(broker)
        leader.is_lost = first_answer_is_lost
        async with serving(broker), client(broker) as asking:
            assert (await admin.abort_transaction(asking, AT, 5, FOREVER_S)).producer_id == 7
        ((marker,),) = (request.markers for request in leader.markers)
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 4, 6)
        assert (marker.transaction_result, marker.topics[0].name) == (False, "t")

    run(main())


@pytest.mark.parametrize(
    ("code", "is_repeated"),
    [(ErrorCode.NOT_ENOUGH_REPLICAS, True), (ErrorCode.TRANSACTION_COORDINATOR_FENCED, False)],
)
def test_a_refused_abort_is_repeated_only_if_that_may_help(run: Run, code: ErrorCode, is_repeated: bool) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1)]
        leader = Leader(broker, code)
        async with serving(broker), client(broker) as asking:
            if is_repeated:
                await admin.abort_transaction(asking, AT, 5, FOREVER_S)
            else:
                with pytest.raises(KafkaError, match=code.name):
                    await admin.abort_transaction(asking, AT, 5, FOREVER_S)
        assert len(leader.markers) == 1 + is_repeated

    run(main())


def test_what_is_not_open_is_not_aborted(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1)]
        leader = Leader(broker)
        async with serving(broker), client(broker) as asking:
            with pytest.raises(KafkaError, match=r"INVALID_TXN_STATE: no open transaction of t-0 begins at 6"):
                await admin.abort_transaction(asking, AT, 6, FOREVER_S)
        assert leader.markers == []

    run(main())
