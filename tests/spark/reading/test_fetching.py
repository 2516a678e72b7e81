"""A range is fetched once, whatever the leaders and the log do meanwhile.

The cluster here is a list of batches behind the four methods that a fetcher uses. It keeps the requests.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_clients.admin.values import OffsetSpec
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.cluster.topic_view import BrokerAddress
from barnabas_clients.cluster.view import ClusterView
from barnabas_clients.errors import ConnectionLostError, DeadlineExceededError, UnknownLeaderError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from barnabas_clients.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas_raftlog.records.builder import NewRecord, build_batch, write_header
from barnabas_raftlog.records.header import TRANSACTIONAL, parse_header
from barnabas_raftlog.records.reader import read_records
from barnabas_spark.options.reads import parse_read_options
from barnabas_spark.planning.plan import DataLossError, Split
from barnabas_spark.reading import fetching
from barnabas_spark.reading.fetching import Fetched, RangeFetcher

NEARBY = 5  # the broker in the rack "near"
OLD_ID, NEW_ID = bytes([1] * 16), bytes([2] * 16)


def log(*sizes: int, gaps: Collection[int] = ()) -> list[bytearray]:
    """Return batches of so many records each; after the batches numbered in `gaps` ten offsets are missing."""
    batches = []
    offset = 0
    for number, size in enumerate(sizes):
        batches.append(build_batch([NewRecord(None, b"x" * 100, 1)] * size, base_offset=offset))
        offset += size + (10 if number in gaps else 0)
    return batches


class ScriptedCluster:
    """Answers fetches from `batches`, but first with the errors in `errors`, one each."""

    def __init__(self, batches: list[bytearray], errors: list[PartitionData] | None = None) -> None:
        self.batches = batches
        self.errors = errors or []
        self.asked: list[FetchRequest] = []
        self.topic_id = OLD_ID
        self.log_start_offset = 0
        self.learned: list[tuple[Any, ...]] = []
        self.retries = 0
        self.asked_of: list[int] = []
        self.nearby: BaseException | PartitionData | None = None
        self.on_retry: Callable[[], None] = lambda: None

    @property
    def view(self) -> ClusterView:
        partition = SimpleNamespace(leader_epoch=4)
        topic: Any = SimpleNamespace(topic_id=self.topic_id, partitions={0: partition})
        return ClusterView(topics={"t": topic})

    @property
    def high_watermark(self) -> int:
        return parse_header(self.batches[-1]).end_offset if self.batches else 0

    async def find_leader(self, _topic: str, _partition: int, _deadline: float) -> BrokerAddress:
        return BrokerAddress(1, "a", 1)

    async def refresh(self, _topics: Collection[str], *, timeout_s: float) -> None: ...

    def learn_leader(self, *hint: object) -> None:
        self.learned.append(hint)

    async def retry(
        self, _what: str, _timeout_s: float, attempt: Callable[[float], Awaitable[Any]], _topics: Collection[str] = ()
    ) -> Any:
        while True:
            try:
                return await attempt(0.0)  # a deadline that has passed: nothing waits
            except KafkaError as error:
                if not error.retriable:
                    raise
                self.retries += 1
                self.on_retry()

    async def ask_broker(self, node_id: int, request: Any, _timeout_s: float) -> Any:
        if isinstance(request, ListOffsetsRequest):
            earliest = request.topics[0].partitions[0].timestamp == OffsetSpec.EARLIEST
            row = ListOffsetsPartitionResponse(
                partition_index=0, offset=self.log_start_offset if earliest else self.high_watermark
            )
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])
        self.asked.append(request)
        self.asked_of.append(node_id)
        wanted = request.topics[0].partitions[0]
        nearby = self.nearby if node_id == NEARBY else None
        if isinstance(nearby, BaseException):
            raise nearby
        if nearby is not None:
            return FetchResponse(responses=[FetchableTopicResponse(partitions=[nearby])])
        if node_id != NEARBY and request.rack_id == "near":
            redirect = PartitionData(preferred_read_replica=NEARBY)
            return FetchResponse(responses=[FetchableTopicResponse(partitions=[redirect])])
        answer = self.errors.pop(0) if self.errors else self._read(wanted.fetch_offset, wanted.partition_max_bytes)
        return FetchResponse(
            responses=[FetchableTopicResponse(partitions=[answer])],
            node_endpoints=[NodeEndpoint(node_id=7, host="b", port=2)],
        )

    def _read(self, position: int, bytes_max: int) -> PartitionData:
        if not self.log_start_offset <= position <= self.high_watermark:
            return PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        answer = bytearray()
        for batch in self.batches:
            if parse_header(batch).end_offset > position:
                if answer and len(answer) + len(batch) > bytes_max:
                    answer += batch[: bytes_max - len(answer)]  # as Kafka does: cut off where the limit is
                    break
                answer += batch
        return PartitionData(records=memoryview(answer))


def fetcher(cluster: ScriptedCluster, end_offset: int, **given: str) -> RangeFetcher:
    options = parse_read_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"} | given)
    split = Split(topic="t", topic_id=OLD_ID, partition=0, leader_epoch=3, start_offset=0, end_offset=end_offset)
    return RangeFetcher(cast("Cluster", cluster), split, options)


async def read_all(one: RangeFetcher, end_offset: int, position: int = 0) -> list[Fetched]:
    answers = []
    while position < end_offset:
        answers.append(await one.fetch(position))
        assert answers[-1].next_offset > position
        position = answers[-1].next_offset
    return answers


def positions(cluster: ScriptedCluster) -> list[int]:
    return [request.topics[0].partitions[0].fetch_offset for request in cluster.asked]


async def test_a_range_is_fetched_once_from_end_to_end() -> None:
    cluster = ScriptedCluster(log(*[50] * 40))
    answers = await read_all(fetcher(cluster, 2000, **{"kafka.max.partition.fetch.bytes": "30000"}), 2000)
    assert positions(cluster) == [0, *(answer.next_offset for answer in answers[:-1])]
    seen = [
        record.offset
        for start, answer in zip(positions(cluster), answers, strict=True)
        for record in read_records(answer.records, start)
    ]
    assert seen == list(range(2000))


async def test_little_is_asked_for_beyond_the_end() -> None:
    cluster = ScriptedCluster(log(*[500] * 60))
    await read_all(fetcher(cluster, 12_000), 12_000)
    sizes = [request.max_bytes for request in cluster.asked]
    assert sizes[0] == 1 << 20
    record_bytes = len(cluster.batches[0]) / 500
    left = 12_000 - positions(cluster)[1]
    assert left * record_bytes < sizes[1] < left * record_bytes * 1.2


async def test_a_range_ends_by_position_where_its_last_records_are_gone() -> None:
    cluster = ScriptedCluster(log(5, 5, gaps=[0]))
    assert [one.next_offset for one in await read_all(fetcher(cluster, 12), 12)] == [20]
    assert [one.next_offset for one in await read_all(fetcher(cluster, 12), 12, position=7)] == [20]


async def test_a_leader_that_moved_is_followed_by_its_hint() -> None:
    moved = PartitionData(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(leader_id=7, leader_epoch=9)
    )
    cluster = ScriptedCluster(log(5), [moved, PartitionData(error_code=ErrorCode.FENCED_LEADER_EPOCH)])
    await read_all(fetcher(cluster, 5), 5)
    assert cluster.retries == 2
    assert cluster.learned == [("t", 0, 7, 9, BrokerAddress(7, "b", 2))]
    assert positions(cluster) == [0, 0, 0]
    assert {request.topics[0].partitions[0].current_leader_epoch for request in cluster.asked} == {4}


async def test_an_answer_without_progress_ends_at_the_deadline() -> None:
    cluster = ScriptedCluster([])
    with pytest.raises(DeadlineExceededError, match="t-0 has nothing at 0"):
        await fetcher(cluster, 5).fetch(0)


async def test_a_refusal_for_good_is_passed_on() -> None:
    cluster = ScriptedCluster([], [PartitionData(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(type(error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ""))):
        await fetcher(cluster, 5).fetch(0)


async def test_records_deleted_meanwhile_fail_the_task_or_are_skipped() -> None:
    cluster = ScriptedCluster(log(5, 5))
    cluster.log_start_offset = 5
    with pytest.raises(DataLossError, match="offsets 0 to 5 are gone"):
        await fetcher(cluster, 10).fetch(0)
    lenient = fetcher(cluster, 10, failOnDataLoss="false")
    assert [one.next_offset for one in await read_all(lenient, 10)] == [5, 10]


async def test_a_log_that_ends_before_its_promise_is_data_loss() -> None:
    cluster = ScriptedCluster(log(5))
    with pytest.raises(DataLossError, match="offset 7 was promised, and now the log ends at 5"):
        await fetcher(cluster, 10).fetch(7)
    assert (await fetcher(cluster, 10, failOnDataLoss="false").fetch(7)).next_offset == 10


async def test_a_false_alarm_about_the_range_is_asked_again() -> None:
    cluster = ScriptedCluster(log(5), [PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)])
    assert (await fetcher(cluster, 5).fetch(0)).next_offset == 5
    assert cluster.retries == 1


async def test_a_topic_created_again_is_never_taken_for_the_old_one() -> None:
    cluster = ScriptedCluster(log(5))
    cluster.topic_id = NEW_ID
    with pytest.raises(DataLossError, match="created again"):
        await fetcher(cluster, 5).fetch(0)
    skipped = await fetcher(cluster, 5, failOnDataLoss="false").fetch(0)
    assert (bytes(skipped.records), skipped.next_offset) == (b"", 5)
    assert cluster.asked == []


async def test_metadata_that_is_older_than_the_plan_is_asked_for_again() -> None:
    cluster = ScriptedCluster(log(5))
    cluster.topic_id = NEW_ID

    def heard() -> None:
        cluster.topic_id = OLD_ID

    cluster.on_retry = heard
    assert (await fetcher(cluster, 5).fetch(0)).next_offset == 5


# Racks.


@pytest.fixture
def nobody_avoided() -> Iterator[None]:
    fetching._avoided.clear()
    yield
    fetching._avoided.clear()


@pytest.mark.usefixtures("nobody_avoided")
async def test_the_rest_of_a_range_is_fetched_in_the_rack() -> None:
    cluster = ScriptedCluster(log(*[50] * 40))
    given = {"kafka.max.partition.fetch.bytes": "30000", "kafka.client.rack": "near"}
    answers = await read_all(fetcher(cluster, 2000, **given), 2000)
    assert cluster.asked_of == [1, *[NEARBY] * len(answers)]
    assert len(answers) > 3


async def test_without_a_rack_the_leader_is_asked() -> None:
    cluster = ScriptedCluster(log(*[50] * 40))
    await read_all(fetcher(cluster, 2000), 2000)
    assert set(cluster.asked_of) == {1}
    assert {request.rack_id for request in cluster.asked} == {""}


@pytest.mark.usefixtures("nobody_avoided")
@pytest.mark.parametrize(
    "nearby",
    [
        ConnectionLostError("b:1", "reset"),
        DeadlineExceededError("no answer"),
        UnknownLeaderError("broker 5 is not in the metadata"),
        PartitionData(error_code=ErrorCode.OFFSET_NOT_AVAILABLE),
        PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
        PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        PartitionData(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        PartitionData(),
    ],
    ids=["lost", "silent", "unknown", "behind", "out of range", "no replica", "not allowed", "empty"],
)
async def test_a_replica_that_fails_or_has_nothing_is_left_for_the_leader(
    nearby: BaseException | PartitionData,
) -> None:
    cluster = ScriptedCluster(log(*[50] * 40))
    cluster.nearby = nearby
    given = {"kafka.max.partition.fetch.bytes": "30000", "kafka.client.rack": "near"}
    answers = await read_all(fetcher(cluster, 2000, **given), 2000)
    assert cluster.asked_of == [1, NEARBY, *[1] * len(answers)]
    assert (positions(cluster)[:3], cluster.retries) == ([0, 0, 0], 0)
    # The next range of the process does not wait for it again.
    cluster.asked_of.clear()
    answers = await read_all(fetcher(cluster, 2000, **given), 2000)
    assert cluster.asked_of == [1] * (1 + len(answers))


async def test_committed_records_are_asked_for_and_aborted_ones_are_left_out() -> None:
    """All of an answer may have been aborted: the range goes on behind it, and its size is still known."""
    aborted = build_batch([NewRecord(None, b"x" * 100, 1)] * 2)
    fields = {"attributes": TRANSACTIONAL, "record_count": 2, "base_timestamp": 1, "max_timestamp": 1}
    write_header(aborted, **fields, producer_id=7, producer_epoch=0, base_sequence=0)
    answer = PartitionData(
        records=memoryview(bytes(aborted)), aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=0)]
    )
    cluster = ScriptedCluster([aborted, *log(2, 2)[1:]], [answer])
    found = await read_all(fetcher(cluster, 4, **{"kafka.isolation.level": "read_committed"}), 4)
    assert [(len(one.records) > 0, one.next_offset) for one in found] == [(False, 2), (True, 4)]
    assert {request.isolation_level for request in cluster.asked} == {1}
    sizes = [request.topics[0].partitions[0].partition_max_bytes for request in cluster.asked]
    assert sizes[1] == fetching.LAST_FETCH_BYTES_MIN


async def test_everything_is_asked_for_unless_that_is_said() -> None:
    cluster = ScriptedCluster(log(2))
    await read_all(fetcher(cluster, 2), 2)
    assert cluster.asked[0].isolation_level == 0
