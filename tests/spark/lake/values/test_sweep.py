"""A fault at any call leaves the table and its rejects as one. `sweep.py` does all of it by command."""

from pathlib import Path
from typing import Any

import pytest
from spark.lake.faults import How, Strike
from spark.lake.produced import Topic
from spark.lake.values.sweep import FIRST, SECOND, job_of, judged, new_values, run_once, sweep

from barnabas_spark.lake.archive import ROUND_BYTES
from barnabas_spark.lake.compaction import commit_compaction, groups_of, rewrite_group
from barnabas_spark.lake.formats.choosing import FORMATS, open_table
from barnabas_spark.lake.table import TableError
from barnabas_spark.lake.values.evolution import SchemaChangeError
from barnabas_spark.lake.values.texts import from_json_schema
from barnabas_spark.lake.writing import FileSettings

pytestmark = [pytest.mark.process, pytest.mark.slow]

# One strike in so many calls in each test run, from another first call in each way.
EVERY = {"parquet": 13, "delta": 23, "iceberg": 37}


@pytest.fixture(scope="module")
def topic(cluster: Any) -> Topic:
    return new_values(cluster.bootstrap)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_fault_leaves_each_record_decoded_or_rejected_once(kind: str, topic: Topic) -> None:
    for number, how in enumerate(How):
        calls, wrong = sweep(topic, kind, how, EVERY[kind], 1 + number * EVERY[kind] // 4)
        assert not wrong
        assert calls > EVERY[kind]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_schema_grows_and_files_are_rewritten_with_the_columns_of_now(
    kind: str, topic: Topic, tmp_path: Path
) -> None:
    job = job_of(topic, tmp_path, kind)
    run_once(job, from_json_schema({"properties": {"id": {"type": "integer"}}}), Strike(0, How.FAILS_BEFORE))
    run_once(job, SECOND, Strike(0, How.FAILS_BEFORE))
    run_once(job, FIRST, Strike(0, How.FAILS_BEFORE))  # An older schema later changes nothing.
    with pytest.raises(SchemaChangeError, match="'id' is bigint there, and string now"):
        run_once(job, from_json_schema({"properties": {"id": {"type": "string"}}}), Strike(0, How.FAILS_BEFORE))
    table = open_table(kind, job.location, None)
    layout = table.layout_of()
    assert layout.values == (("id", "id"), ("more", "more"))
    settings = FileSettings(folder="data/", schema=layout.schema, values=layout.values)
    groups = groups_of(table.data_files(table.load()), ROUND_BYTES)
    before = len(table.files(table.load()))
    done = commit_compaction(table, [rewrite_group(one, job.location, settings) for one in groups])
    assert len(table.files(table.load())) == before - done.files_before + done.files_after < before
    assert not judged(job)
    replaced = {one.path for group in groups for one in group.files}
    assert replaced <= table.referenced(0) > set(table.files(table.load()))


WIDER = {"type": "struct", "fields": [{"name": "id", "type": "integer", "nullable": True, "metadata": {}}]}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_type_becomes_wider_where_the_format_can(kind: str, topic: Topic, tmp_path: Path) -> None:
    job = job_of(topic, tmp_path, kind)
    run_once(job, WIDER, Strike(0, How.FAILS_BEFORE))
    if kind == "delta":
        with pytest.raises(TableError, match="deltalake cannot make one wider"):
            run_once(job, FIRST, Strike(0, How.FAILS_BEFORE))
    else:
        run_once(job, FIRST, Strike(0, How.FAILS_BEFORE))
        assert str(open_table(kind, job.location, None).layout_of().schema.field("id").type) == "int64"
    assert not judged(job)
