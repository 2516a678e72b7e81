"""A real Spark session streams from a real cluster, and starts again from its checkpoints."""

import itertools
import json
import queue
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from machines import cluster_handle
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

PARTITIONS = 3
TIMEOUT_S = 120


class Sink:
    """Keeps the rows of each batch by its id, as a sink does that is to have each row once."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.calls = queue.Queue[int]()
        self.fails_in = -1

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write first, and fail then: the batch is repeated, though all of it is there."""
        rows = frame.select("partition", "offset").collect()
        found = sorted(row.offset * PARTITIONS + row.partition for row in rows)
        assert self.batches.get(batch_id, found) == found, "a batch that is repeated has the same rows"
        self.batches[batch_id] = found
        self.calls.put(batch_id)
        if batch_id == self.fails_in:
            self.fails_in = -1
            raise RuntimeError("the sink fails, as told")

    @property
    def numbers(self) -> list[int]:
        return sorted(itertools.chain(*self.batches.values()))

    def wait_for(self, count: int) -> None:
        while len(self.numbers) < count:
            self.calls.get(timeout=TIMEOUT_S)


class Case:
    """A topic, a sink, and a checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder
        self.topic = f"stream-{uuid.uuid4().hex[:12]}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.sink = Sink()
        self.written = 0
        self.create()

    def create(self) -> None:
        self.admin.create_topics([NewTopic(self.topic, PARTITIONS, 3)])[self.topic].result(30)

    def write(self, count: int) -> None:
        """Write the next records; partitions take turns."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(self.written, self.written + count):
            producer.produce(self.topic, value=f"value {number}", partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        self.written += count

    def lag(self) -> int:
        """Return how many records lie before the group that is called like the topic."""
        shown = cluster_handle.run("group", "describe", self.topic, "--bootstrap-server", self.bootstrap, "--json")
        (described,) = map(json.loads, shown.splitlines())
        assert isinstance(described["lag"], int)
        return described["lag"]

    def frame(self, **given: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, "startingOffsets": "earliest"}
        return self.spark.readStream.format("barnabas").options(**options | given).load()

    def query(self, given: Mapping[str, str], checkpoint: str = "c") -> DataStreamWriter:
        writer = self.frame(**given).writeStream.foreachBatch(self.sink)
        return writer.option("checkpointLocation", str(self.folder / checkpoint))

    def start(self, **given: str) -> StreamingQuery:
        return self.query(given).start()

    def run(self, checkpoint: str = "c", **given: str) -> list[int]:
        """Read what is there, and return how many rows each batch had."""
        before = set(self.sink.batches)
        query = self.query(given, checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)
        return [len(rows) for batch_id, rows in sorted(self.sink.batches.items()) if batch_id not in before]


@pytest.fixture
def case(spark: SparkSession, cluster: Any, tmp_path: Path) -> Iterator[Case]:
    yield Case(spark, cluster.bootstrap, tmp_path)
    for query in spark.streams.active:
        query.stop()


def test_rows_are_those_of_a_batch_read(case: Case) -> None:
    case.write(60)
    query = case.frame(includeHeaders="true").writeStream.format("memory").queryName("rows")
    running = query.option("checkpointLocation", str(case.folder / "m")).start()
    running.processAllAvailable()
    running.stop()
    given = {"kafka.bootstrap.servers": case.bootstrap, "subscribe": case.topic, "includeHeaders": "true"}
    expected = case.spark.read.format("barnabas").options(**given).load()
    found = case.spark.table("rows")
    assert found.schema == expected.schema
    assert found.orderBy("partition", "offset").collect() == expected.orderBy("partition", "offset").collect()


def test_every_row_comes_once_over_restarts_and_crashes(case: Case) -> None:
    """The first batch fails after it was written, then one in the middle; each run goes on from the checkpoint."""
    case.write(40)
    given = {"maxOffsetsPerTrigger": "15", "consumerGroup": case.topic, "startingOffsets": "earliest"}
    for fails_in in (0, 2):
        case.sink.fails_in = fails_in
        with pytest.raises(StreamingQueryException, match="as told"):
            case.run(**given)
        assert max(case.sink.batches) == fails_in
        case.write(10)
    assert case.run(**given) == [15]
    assert {batch_id: len(rows) for batch_id, rows in case.sink.batches.items()} == {0: 15, 1: 15, 2: 15, 3: 15}
    assert case.sink.numbers == list(range(60))
    assert case.lag() == 0


def test_a_first_batch_that_is_repeated_begins_where_it_began(case: Case) -> None:
    """Though it began at the end of the log, and there are records behind it now."""
    case.write(30)
    given = {"startingOffsets": "latest", "consumerGroup": case.topic}
    query = case.start(**given)
    query.processAllAvailable()  # The first batch is empty, and is done.
    query.stop()
    case.write(6)
    assert case.run(**given) == [6]
    # A new checkpoint decides anew: nothing is behind the end.
    case.sink = Sink()
    case.sink.fails_in = 0
    with pytest.raises(StreamingQueryException, match="as told"):
        case.run("new", **given)
    case.write(9)
    assert case.run("new", **given) == [9]
    assert case.sink.numbers == list(range(36, 45))


def test_a_running_query_tells_its_progress(case: Case) -> None:
    case.write(30)
    query = case.start(consumerGroup=case.topic, maxOffsetsPerTrigger="12")
    case.sink.wait_for(30)
    case.write(3)
    case.sink.wait_for(33)
    query.processAllAvailable()
    (source,) = query.lastProgress["sources"]  # type: ignore[index]
    end, latest = json.loads(source["endOffset"]), json.loads(source["latestOffset"])
    assert end == latest
    assert end[case.topic] == {"0": 11, "1": 11, "2": 11}
    assert case.lag() == 0
    with pytest.raises(StreamingQueryException, match="another query uses the consumer group"):
        case.run("another", consumerGroup=case.topic)
    assert query.isActive


def test_a_topic_created_again_stops_the_query_or_is_read_anew(case: Case) -> None:
    case.write(9)
    assert case.run() == [9]
    case.admin.delete_topics([case.topic])[case.topic].result(30)
    case.create()
    case.write(30)
    with pytest.raises(StreamingQueryException, match="deleted and created again"):
        case.run()
    assert case.run(onTopicRecreated="restart") == [30]


def test_partitions_that_are_added_are_read(case: Case) -> None:
    case.write(9)
    query = case.start(**{"kafka.metadata.max.age.ms": "100"})
    case.sink.wait_for(9)
    case.admin.create_partitions([NewPartitions(case.topic, PARTITIONS + 1)])[case.topic].result(30)
    producer = Producer({"bootstrap.servers": case.bootstrap})
    producer.produce(case.topic, value=b"v", partition=PARTITIONS)
    assert producer.flush(60) == 0
    case.sink.wait_for(10)
    query.stop()
    assert case.sink.numbers == sorted([*range(9), PARTITIONS])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, r"startingOffsets: .*a stream needs consumerGroup"),
        ({"consumerGroup": "g", "endingOffsets": "latest"}, r"endingOffsets: has no meaning in a stream"),
        ({"maxOffsetsPerTriger": "5"}, r"did you mean maxOffsetsPerTrigger"),
    ],
)
def test_mistakes_are_named_when_the_stream_is_loaded(case: Case, given: dict[str, str], words: str) -> None:
    with pytest.raises(AnalysisException, match=words):
        case.frame(**given)
