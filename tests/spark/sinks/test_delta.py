"""Every micro-batch of a stream is in a Delta table once, whatever dies between its commit and the checkpoint's."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.errors import StreamingQueryException
from spark.lake.formats import contents
from spark.lake.produced import Topic, expected_rows, file_rows, new_topic, produce

from barnabas_spark.lake.table import TableError
from barnabas_spark.sinks import delta
from barnabas_spark.sinks.delta import DeltaSink, DeltaSinkError, WrittenFile, check_batch

ROWS = 60
SCHEMA = pa.schema([("n", pa.int64())])


class Batch:
    """A micro-batch of a query, as much of it as the sink asks; files are written here."""

    def __init__(self, root: Path, numbers: list[int], query: str = "q-1") -> None:
        self.root, self.numbers, self.query = root, numbers, query
        self.sparkSession = self.sparkContext = self
        self.written: Callable[[], None] = lambda: None

    def getLocalProperty(self, _name: str) -> str:  # noqa: N802 - Spark's
        return self.query

    def mapInArrow(self, run: Any, _columns: str) -> Any:  # noqa: N802 - Spark's
        batches = [pa.RecordBatch.from_pydict({"n": [one]}, schema=SCHEMA) for one in self.numbers]
        self.files = [WrittenFile(**row) for batch in run(iter(batches)) for row in batch.to_pylist()]
        self.written()
        return self

    def collect(self) -> list[WrittenFile]:
        return self.files


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(delta, "_arrow_schema", lambda _rows: SCHEMA)
    return tmp_path / "table"


def numbers(root: Path) -> list[int]:
    with duckdb.connect() as connection:
        found = connection.execute("select n from read_parquet(?) order by n", [contents.delta_files(root)])
        return [number for (number,) in found.fetchall()]


def test_a_batch_that_comes_again_is_there_once(root: Path) -> None:
    for batch_id, found in [(0, [1, 2]), (0, [1, 2]), (1, []), (1, []), (2, [3])]:
        DeltaSink(str(root))(Batch(root, found), batch_id)
    assert numbers(root) == [1, 2, 3]
    assert DeltaTable(str(root)).transaction_version("q-1") == 2


def test_a_new_checkpoint_is_another_query_and_none_of_its_batches_is_left_out(root: Path) -> None:
    DeltaSink(str(root))(Batch(root, [1]), 0)
    DeltaSink(str(root))(Batch(root, [2], "q-2"), 0)
    assert numbers(root) == [1, 2]


def test_of_two_drivers_with_one_batch_the_second_is_refused(root: Path) -> None:
    DeltaSink(str(root))(Batch(root, [1]), 0)
    late = Batch(root, [2])
    late.written = lambda: DeltaSink(str(root))(Batch(root, [2]), 1)
    with pytest.raises(CommitFailedError):
        DeltaSink(str(root))(late, 1)
    DeltaSink(str(root))(Batch(root, [2]), 1)
    assert numbers(root) == [1, 2]


def test_another_writer_between_looking_and_committing_costs_nothing(root: Path) -> None:
    batch = Batch(root, [1])
    batch.written = lambda: write_deltalake(str(root), pa.table({"n": [9]}, schema=SCHEMA), mode="append")
    DeltaSink(str(root))(batch, 0)
    assert numbers(root) == [1, 9]


def test_batches_outlive_the_log_and_every_expiry(root: Path) -> None:
    DeltaSink(str(root))(Batch(root, [1]), 0)
    table = DeltaTable(str(root))
    table.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 0 seconds"})
    DeltaTable(str(root)).create_checkpoint()
    for commit in sorted((root / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    DeltaSink(str(root))(Batch(root, [1]), 0)
    assert numbers(root) == [1]


@pytest.mark.parametrize(("stored", "batch_id"), [(None, 4), (2, 4), (5, 4)])
def test_a_table_that_is_at_another_batch_is_refused(stored: int | None, batch_id: int) -> None:
    with pytest.raises(DeltaSinkError, match=f"of this query, which is at batch {batch_id}: the table was put back"):
        check_batch("/lake/t", stored, batch_id)


def test_a_bucket_is_never_written_without_a_condition(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "probe", lambda *_: None)
    sink = DeltaSink("s3://bucket/table", store_options={"aws_conditional_put": "disabled"})
    with pytest.raises(TableError, match="aws_conditional_put must be 'etag'"):
        sink(Batch(root, [1]), 0)


def test_a_table_that_is_not_there_any_more_is_not_begun_afresh(root: Path) -> None:
    DeltaSink(str(root))(Batch(root, [1]), 0)
    root.rename(root.with_name("away"))
    with pytest.raises(DeltaSinkError, match="has no batch of this query, which is at batch 1"):
        DeltaSink(str(root))(Batch(root, [2]), 1)


def test_tables_that_do_not_fit_are_refused_and_left_as_they_are(root: Path, tmp_path: Path) -> None:
    for name, table, by, complaint in [
        ("lacks", pa.table({"m": [1]}), None, "has no column 'n'; add it"),
        ("other", pa.table({"n": ["x"]}), None, "'n' .* is string, and not long"),
        ("split", pa.table({"n": [1], "day": ["a"]}), ["day"], "is partitioned by"),
    ]:
        write_deltalake(str(tmp_path / name), table, partition_by=by)
        with pytest.raises(DeltaSinkError, match=complaint):
            DeltaSink(str(tmp_path / name))(Batch(root, [1]), 0)
        assert DeltaTable(str(tmp_path / name)).version() == 0


def test_a_table_with_other_columns_and_rows_takes_batches_beside_them(root: Path) -> None:
    theirs = CommitProperties(app_transactions=[Transaction("theirs", 3)])
    there = pa.table({"n": pa.array([7], pa.int64()), "more": ["x"]})
    write_deltalake(str(root), there, commit_properties=theirs)
    DeltaSink(str(root))(Batch(root, [1]), 0)
    assert numbers(root) == [1, 7]


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (pa.field("more", pa.int64(), nullable=False), "'more', which must not be null, and which the files lack"),
        (pa.field("more", pa.int64(), metadata={"delta.generationExpression": "n + 1"}), "'more', which is generated"),
        (None, r"the constraint 'small' \(n < 9\), which nobody checks"),
    ],
    ids=["not null", "generated", "constraint"],
)
def test_a_table_with_a_rule_that_nobody_would_check_is_refused(root: Path, field: Any, complaint: str) -> None:
    table = DeltaTable.create(str(root), Schema.from_arrow(SCHEMA if field is None else SCHEMA.append(field)))
    if field is None:
        table.alter.add_constraint({"small": "n < 9"})
    with pytest.raises(DeltaSinkError, match=complaint):
        DeltaSink(str(root))(Batch(root, [1]), 0)
    assert not contents.delta_files(root)


class _DriverDiedError(Exception):
    """The query ends here, and its checkpoint does not say that the batch is done."""


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.slow
def test_a_driver_that_dies_between_the_commit_and_the_checkpoint_leaves_every_row_once(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    topic, root = new_topic(cluster.bootstrap), tmp_path / "table"
    produce(topic, range(ROWS))
    # Dead behind the first commit; then that batch comes again, and the driver is dead before the second commit.
    runs = ((0, True), (1, False), (None, False))
    came = [run_until(spark, topic, root, tmp_path / "checkpoint", *how) for how in runs]
    assert came == [[0], [0, 1], [1]]
    files = [Path(one).name for one in contents.delta_files(root)]
    assert file_rows(root, files) == expected_rows(topic, range(ROWS))
    commits = sorted((root / "_delta_log").glob("*.json"))
    said = [json.loads(line) for one in commits for line in one.read_text().splitlines()]
    assert [one["txn"]["version"] for one in said if "txn" in one] == [0, 1]


def run_until(spark: Any, topic: Topic, root: Path, checkpoint: Path, dies_at: int | None, is_after: bool) -> list[int]:
    """Run the query until a batch at which its driver dies; return the batches that came."""
    sink, batches, died = DeltaSink(str(root)), list[int](), threading.Event()

    def land(rows: Any, batch_id: int) -> None:
        batches.append(batch_id)
        if batch_id != dies_at or is_after:
            sink(rows, batch_id)
        if batch_id == dies_at:
            died.set()
            raise _DriverDiedError

    stream = spark.readStream.format("barnabas").options(
        **{"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "includeHeaders": "true"},
        startingOffsets="earliest",
        maxOffsetsPerTrigger="30",
    )
    landing = stream.load().writeStream.foreachBatch(land).option("checkpointLocation", str(checkpoint))
    query = landing.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(100)
    except StreamingQueryException:
        if not died.is_set():
            raise
    assert died.is_set() == (dies_at is not None)
    return batches
