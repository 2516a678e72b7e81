"""TxnOffsetCommit over a socket, with a coordinator of transactions that says what a test wants it to say."""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

import pytest
from broker.coordinators.groups.consumer.live.consumer_client import ConsumerClient, settle
from broker.coordinators.groups.group_client import GroupClient, rebalance, topic_metadata

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.coordinators.runtime import homes
from barnabas_broker.server.handlers import group_routing, txn_offset_commit
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_clients.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas_raftlog.records.markers import EndMarker

from .test_pending import fetch, shard_of

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
IDS_SINCE = 6
UNLIMITED_S = 1_000  # longer than a test may take


class Transactions:
    """A coordinator of transactions: it says `code` of every partition, or `error` of everything.

    It answers when `may_answer` is set. `asked` has what was asked, and `came` is set when something is.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, bool, str]] = []
        self.code = self.error = NONE
        self.came = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, _: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        (one,) = request.transactions
        (topic,) = one.topics
        (index,) = topic.partitions
        about = (one.transactional_id, one.producer_id, one.producer_epoch, one.verify_only, f"{topic.name}-{index}")
        self.asked.append(about)
        self.came.set()
        await self.may_answer.wait()
        if self.error:
            return AddPartitionsToTxnResponse(error_code=self.error)
        result = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=self.code)
        results = [AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=[result])]
        answer = AddPartitionsToTxnResult(transactional_id=one.transactional_id, topic_results=results)
        return AddPartitionsToTxnResponse(results_by_transaction=[answer])


@pytest.fixture
def transactions(brokers: RunningCluster, client: GroupClient, topic: str) -> Iterator[Transactions]:
    client.commit_surely(topic, {0: 10})
    transactions = Transactions()

    async def serve(cluster: Cluster) -> None:
        for node in cluster.nodes.values():
            questions: Any = node.broker.questions
            questions._find, questions._ask = (lambda _: 1), transactions.ask

    brokers.run(serve)
    yield transactions

    async def release(_: Cluster) -> None:
        transactions.may_answer.set()

    brokers.run(release)


def producer_of(group_id: str) -> int:
    """Return the id of the producer that stages offsets of a group: groups share partitions."""
    return crc32(group_id.encode())


def staging_request(
    client: GroupClient, topic: str, offsets: Mapping[int, int], **fields: Any
) -> TxnOffsetCommitRequest:
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="n")
        for index, offset in offsets.items()
    ]
    said: dict[str, Any] = {
        "transactional_id": "x",
        "group_id": client.group_id,
        "producer_id": producer_of(client.group_id),
        "topics": [TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
    }
    return TxnOffsetCommitRequest(**said | fields)


def stage(
    client: GroupClient, topic: str, offsets: Mapping[int, int], *, version: int = 5, **fields: Any
) -> list[ErrorCode]:
    by_id = version >= IDS_SINCE
    request = staging_request(client, topic, offsets, **fields)
    if by_id:
        request.topics[0].topic_id = topic_metadata(client.find(), topic).topic_id
    answer = client.ask(request, version)
    assert [(one.name, one.topic_id) for one in answer.topics] == [
        ("" if by_id else topic, request.topics[0].topic_id if by_id else bytes(16))
    ]
    assert [one.partition_index for one in answer.topics[0].partitions] == list(offsets)
    return [ErrorCode(one.error_code) for one in answer.topics[0].partitions]


def end(brokers: RunningCluster, group_id: str, *, is_commit: bool = True, epoch: int = 0, bumps: bool = False) -> None:
    """Have the transaction of the group's producer ended in its partition."""

    async def write(cluster: Cluster) -> None:
        shard = await shard_of(cluster, group_id)
        shard.staging.end(EndMarker(producer_of(group_id), epoch, is_commit, 1), None, bumps_epoch=bumps)
        assert await shard.runtime.wait_committed()

    brokers.run(write)


@pytest.mark.parametrize("version", range(7))
def test_every_version_stages_what_counts_when_the_transaction_commits(
    brokers: RunningCluster, client: GroupClient, topic: str, transactions: Transactions, version: int
) -> None:
    """From version 5 on the partition is added to the transaction (KIP-890); before, it is only asked for."""
    assert stage(client, topic, {0: 20, 1: 21}, version=version) == [NONE, NONE]
    ((transactional_id, producer_id, epoch, verify_only, place),) = transactions.asked
    assert (transactional_id, producer_id, epoch, verify_only) == ("x", producer_of(client.group_id), 0, version < 5)
    assert place.startswith(f"{OFFSETS_TOPIC}-")
    assert fetch(client, topic, 0, 1) == {0: (-1, UNSTABLE), 1: (-1, UNSTABLE)}
    end(brokers, client.group_id)
    assert fetch(client, topic, 0, 1) == {0: (20, NONE), 1: (21, NONE)}


def test_a_transaction_is_asked_about_once(
    brokers: RunningCluster, client: GroupClient, topic: str, transactions: Transactions
) -> None:
    """T10: what another transaction of the same producer was told says nothing about the next one."""
    assert stage(client, topic, {0: 20}) == [NONE]
    assert stage(client, topic, {0: 21}) == [NONE]
    assert len(transactions.asked) == 1
    end(brokers, client.group_id, epoch=1, bumps=True)
    transactions.code = ErrorCode.TRANSACTION_ABORTABLE
    assert stage(client, topic, {0: 22}, producer_epoch=1) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert [one[2] for one in transactions.asked] == [0, 1]
    assert fetch(client, topic, 0) == {0: (21, NONE)}


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 3, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_TXN_STATE, 5, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, LOADING),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_COORDINATOR, 5, LOADING),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 5, LOADING),
        (ErrorCode.NETWORK_EXCEPTION, 5, LOADING),
        (ErrorCode.REQUEST_TIMED_OUT, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
@pytest.mark.parametrize("is_of_all", [False, True])
def test_t11_what_the_coordinator_refuses_is_said_as_the_client_understands_it(
    client: GroupClient,
    topic: str,
    transactions: Transactions,
    code: ErrorCode,
    version: int,
    told: ErrorCode,
    is_of_all: bool,
) -> None:
    transactions.code, transactions.error = (NONE, code) if is_of_all else (code, NONE)
    assert stage(client, topic, {0: 20, 1: 21}, version=version) == [told, told]
    assert fetch(client, topic, 0, 1) == {0: (10, NONE), 1: (-1, NONE)}


def test_a_coordinator_that_does_not_answer_is_not_waited_for_for_ever(
    client: GroupClient, topic: str, transactions: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_routing, "APPEND_S", 0.01)
    transactions.may_answer.clear()
    assert stage(client, topic, {0: 20}) == [LOADING]


class TestWhileTheCoordinatorIsAsked:
    def begin(
        self, brokers: RunningCluster, client: GroupClient, topic: str, transactions: Transactions, **fields: Any
    ) -> TxnOffsetCommitRequest:
        """Send what the coordinator is asked about; return when it is."""
        transactions.may_answer.clear()
        request = staging_request(client, topic, {0: 20}, **fields)
        # What is sent behind it must not wait for an acknowledgement.
        client.find().socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.find().send(request, 5)

        async def asked(_: Cluster) -> None:
            async with asyncio.timeout(10):
                await transactions.came.wait()

        brokers.run(asked)
        return request

    def let_answer(self, brokers: RunningCluster, transactions: Transactions) -> None:
        async def answer(_: Cluster) -> None:
            transactions.may_answer.set()

        brokers.run(answer)

    @pytest.mark.parametrize("bumps", [False, True])
    def test_t1_a_transaction_that_ends_meanwhile_takes_nothing_in(
        self, brokers: RunningCluster, client: GroupClient, topic: str, transactions: Transactions, bumps: bool
    ) -> None:
        """What comes late must not open a transaction that nobody ends, nor be part of the next one."""
        request = self.begin(brokers, client, topic, transactions)
        end(brokers, client.group_id, is_commit=False, epoch=int(bumps), bumps=bumps)
        self.let_answer(brokers, transactions)
        code = client.find().receive(request, 5).topics[0].partitions[0].error_code
        assert code == (ErrorCode.INVALID_PRODUCER_EPOCH if bumps else ErrorCode.INVALID_TXN_STATE)
        assert fetch(client, topic, 0) == {0: (10, NONE)}

    def test_a_client_that_has_gone_stages_nothing(
        self, brokers: RunningCluster, client: GroupClient, topic: str, transactions: Transactions
    ) -> None:
        self.begin(brokers, client, topic, transactions)
        client.lose()
        assert client.committed(topic, [0]) == {(topic, 0): 10}, "the same broker has seen what came before"
        self.let_answer(brokers, transactions)
        assert fetch(client, topic, 0) == {0: (10, NONE)}
        assert stage(client, topic, {1: 21}) == [NONE]
        assert fetch(client, topic, 0, 1) == {0: (10, NONE), 1: (-1, UNSTABLE)}

    def test_what_comes_behind_it_on_the_connection_is_newer(
        self, brokers: RunningCluster, client: GroupClient, topic: str, transactions: Transactions
    ) -> None:
        first = self.begin(brokers, client, topic, transactions)
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=30)
        second = OffsetCommitRequest(
            group_id=client.group_id, topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])]
        )
        client.find().send(second, 9)
        other = GroupClient(brokers.bootstrap, client.group_id)
        assert other.committed(topic, [0]) == {(topic, 0): 10}, "the broker has seen what came before this"
        other.lose()
        self.let_answer(brokers, transactions)
        assert client.find().receive(first, 5).topics[0].partitions[0].error_code == NONE
        assert client.find().receive(second, 9).topics[0].partitions[0].error_code == NONE
        end(brokers, client.group_id)
        assert fetch(client, topic, 0) == {0: (30, NONE)}


class TestWhoMay:
    """T18: member, instance and generation are looked at only if any of them is given."""

    def test_t18_a_member_of_the_present_generation_may_and_another_may_not(
        self, client: GroupClient, topic: str, transactions: Transactions
    ) -> None:
        rebalance(client)
        member: dict[str, Any] = {
            "member_id": client.member_id,
            "generation_id_or_member_epoch": client.generation_id,
        }
        assert stage(client, topic, {0: 20}, version=3, **member) == [NONE]
        late = member | {"generation_id_or_member_epoch": client.generation_id - 1}
        assert stage(client, topic, {0: 21}, version=3, **late) == [ErrorCode.ILLEGAL_GENERATION]
        stranger = member | {"member_id": "nobody"}
        assert stage(client, topic, {0: 21}, **stranger) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert stage(client, topic, {0: 21}, **member, group_instance_id="i") == [ErrorCode.UNKNOWN_MEMBER_ID]

    def test_t18_whoever_names_nothing_may_though_the_group_has_members(
        self, client: GroupClient, topic: str, transactions: Transactions
    ) -> None:
        rebalance(client)
        assert stage(client, topic, {0: 20}, version=2) == [NONE]
        assert stage(client, topic, {1: 20}, version=5) == [NONE]

    def test_t18_a_group_that_does_not_exist_is_made_unless_a_generation_is_named(
        self, brokers: RunningCluster, topic: str, transactions: Transactions
    ) -> None:
        other = GroupClient(brokers.bootstrap, f"{topic}-other")
        generation: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": 1}
        assert stage(other, topic, {0: 20}, **generation) == [ErrorCode.ILLEGAL_GENERATION]
        assert stage(other, topic, {0: 20}, version=6, **generation) == [ErrorCode.GROUP_ID_NOT_FOUND]
        assert stage(other, topic, {0: 20}) == [NONE]
        other.lose()

    def test_nobody_stages_without_a_group_or_a_producer(
        self, client: GroupClient, topic: str, transactions: Transactions
    ) -> None:
        assert stage(client, topic, {0: 20}, group_id="") == [ErrorCode.INVALID_GROUP_ID]
        assert stage(client, topic, {0: 20}, producer_id=-1) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        assert transactions.asked == []

    def test_t17_a_producer_that_was_replaced_is_told_so(
        self, brokers: RunningCluster, client: GroupClient, topic: str, transactions: Transactions
    ) -> None:
        assert stage(client, topic, {0: 20}, producer_epoch=3) == [NONE]
        assert stage(client, topic, {1: 21}, producer_epoch=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        end(brokers, client.group_id, epoch=3)
        assert fetch(client, topic, 0, 1) == {0: (20, NONE), 1: (-1, NONE)}


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_a_member_of_a_group_of_kip_848_stages_what_it_has(
    brokers: RunningCluster, topic: str, transactions: Transactions, version: int
) -> None:
    """Who says nothing of a member may, too; no version up to 5 knows that an epoch is stale."""
    stale = ErrorCode.STALE_MEMBER_EPOCH if version >= IDS_SINCE else ErrorCode.ILLEGAL_GENERATION
    assert transactions.code is NONE
    group_id = f"{topic}-848"
    one, two = (ConsumerClient(brokers.bootstrap, group_id, topic, member_id=name) for name in "ab")
    one.beat_surely()
    settle(one, two, partitions=4)
    for member_id, epoch, codes in (
        ("a", one.epoch, [NONE, NONE]),
        ("a", 1, [stale] * 2),
        ("a", one.epoch + 1, [stale] * 2),
        ("x", one.epoch, [ErrorCode.UNKNOWN_MEMBER_ID] * 2),
        ("", -1, [NONE, NONE]),
    ):
        who = {"member_id": member_id, "generation_id_or_member_epoch": epoch}
        assert stage(one, topic, {one.numbers[0]: 7, two.numbers[0]: 8}, version=version, **who) == codes
    end(brokers, group_id)
    assert one.committed() == {(topic, one.numbers[0]): 7, (topic, two.numbers[0]): 8}
    for member in (one, two):
        member.lose()


def test_each_partition_is_checked_for_itself(client: GroupClient, topic: str, transactions: Transactions) -> None:
    def row(index: int, note: str | None = "") -> TxnOffsetCommitRequestPartition:
        return TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata=note)

    topics = [
        TxnOffsetCommitRequestTopic(name=topic, partitions=[row(0, "x" * 4097), row(4), row(-1), row(1, None)]),
        TxnOffsetCommitRequestTopic(name="no-such-topic", partitions=[row(0)]),
    ]
    known, unknown = client.ask(staging_request(client, topic, {}, topics=topics), 5).topics
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [one.error_code for one in known.partitions] == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        missing,
        missing,
        NONE,
    ]
    assert [one.error_code for one in unknown.partitions] == [missing]
    assert fetch(client, topic, 0, 1) == {0: (10, NONE), 1: (-1, UNSTABLE)}


def test_an_unknown_topic_id_is_said_to_be_one(client: GroupClient, topic: str, transactions: Transactions) -> None:
    """A topic that was made anew has another id: what was read of the old one is not stored for it."""
    row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    for topic_id in (bytes(16), b"no topic's id..."):
        topics = [TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=[row])]
        (answer,) = client.ask(staging_request(client, topic, {}, topics=topics), IDS_SINCE).topics
        assert answer.topic_id == topic_id
        assert [one.error_code for one in answer.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert fetch(client, topic, 0) == {0: (10, NONE)}


def test_thousands_are_staged_in_pieces_and_end_together(
    brokers: RunningCluster,
    client: GroupClient,
    name: str,
    topic: str,
    transactions: Transactions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # While three brokers of one process begin hundreds of groups, no answer comes: no limit here is part of the claim.
    monkeypatch.setattr(homes, "CONFIRM_S", UNLIMITED_S)
    monkeypatch.setattr(group_routing, "APPEND_S", UNLIMITED_S)
    client.find().socket.settimeout(UNLIMITED_S)
    big = f"{name}-big"
    client.find().create(big, 400, 1)
    turns = brokers.cluster.nodes[client.coordinator_id].listener.turns
    before = turns.slices
    codes = stage(client, big, {index: index for index in range(20_000)})
    assert codes == [NONE] * 400 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 19_600
    assert turns.slices > before
    assert len(transactions.asked) == 1
    end(brokers, client.group_id)
    found = client.committed()
    assert {place: offset for place, offset in found.items() if place[0] == big} == {
        (big, index): index for index in range(400)
    }


def test_pieces_behind_the_end_of_the_transaction_are_refused(
    brokers: RunningCluster,
    client: GroupClient,
    name: str,
    topic: str,
    transactions: Transactions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transaction is ended by another instance, or for its age, while a request is worked off."""
    big = f"{name}-big"
    client.find().create(big, 400, 1)
    write = txn_offset_commit._Staging.write

    def write_and_end(self: Any, shard: GroupShard, places: Any, done: Any) -> None:
        write(self, shard, places, done)
        shard.staging.end(EndMarker(producer_of(self.group_id), 0, False, 1), None, bumps_epoch=False)

    monkeypatch.setattr(txn_offset_commit._Staging, "write", write_and_end)
    codes = stage(client, big, {index: index for index in range(400)})
    assert codes == [NONE] * 300 + [ErrorCode.INVALID_TXN_STATE] * 100
    assert client.committed() == {(topic, 0): 10}


def test_a_member_that_is_thrown_out_is_told_so_for_the_rest(
    client: GroupClient, name: str, topic: str, transactions: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = f"{name}-big"
    client.find().create(big, 400, 1)
    answers = [NONE, ErrorCode.ILLEGAL_GENERATION]
    monkeypatch.setattr(txn_offset_commit._Staging, "may", lambda *_: answers.pop(0))
    codes = stage(client, big, {index: index for index in range(400)})
    assert codes == [NONE] * 300 + [ErrorCode.ILLEGAL_GENERATION] * 100
