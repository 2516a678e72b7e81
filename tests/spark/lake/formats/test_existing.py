"""Tables that another writer has made and filled: the archive takes those that fit, and leaves the others untouched."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from pyiceberg.catalog import load_catalog
from spark.lake.formats import contents
from spark.lake.formats.archives import ARCHIVES, SCHEMA, Archive, key_of, range_of, rows_of, write_rows

from barnabas_spark.lake import committing
from barnabas_spark.lake.ranges import Purpose
from barnabas_spark.lake.table import TableError

THEIRS = SCHEMA.append(pa.field("price", pa.float64()))


@pytest.fixture(params=sorted(ARCHIVES))
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    return ARCHIVES[request.param](tmp_path)


def made_by_another(archive: Archive, schema: pa.Schema, rows: pa.Table | None = None) -> None:
    """Create a table in the archive's place as another program does, and append rows."""
    if type(archive) is ARCHIVES["delta"]:
        DeltaTable.create(str(archive.root), Schema.from_arrow(schema))
    else:
        catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{archive.root}/catalog.db")
        catalog.create_namespace("lake")
        catalog.create_table("lake.orders", schema, location=str(archive.root))
        catalog.close()
    if rows is not None:
        append(archive, rows)


def append(archive: Archive, rows: pa.Table) -> None:
    if type(archive) is ARCHIVES["delta"]:
        write_deltalake(str(archive.root), rows, mode="append")
        return
    catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{archive.root}/catalog.db")
    catalog.load_table("lake.orders").append(rows)
    catalog.close()


def their_rows(archive: Archive, schema: pa.Schema = THEIRS) -> pa.Table:
    write_rows(archive.root / "theirs.parquet", -1, 0, 4)
    rows = pq.read_table(archive.root / "theirs.parquet")
    return rows.append_column(schema.field("price"), pa.array([0.5] * 4, pa.float64()))


def versions(archive: Archive) -> int:
    if type(archive) is ARCHIVES["delta"]:
        return len(DeltaTable(str(archive.root)).history())
    catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{archive.root}/catalog.db")
    found = len(catalog.load_table("lake.orders").snapshots())
    catalog.close()
    return found


def prices(archive: Archive) -> Any:
    with duckdb.connect() as connection:
        return connection.execute(
            "select count(*), count(price) from read_parquet(?, union_by_name = true)", [archive.live()]
        ).fetchone()


def test_a_table_with_more_columns_and_rows_is_taken_and_its_rows_stay(archive: Archive) -> None:
    made_by_another(archive, THEIRS, their_rows(archive))
    archive.add((0, 0, 5))
    append(archive, their_rows(archive))
    archive.add((0, 5, 8))
    assert archive.rows() == rows_of((0, 0, 8))
    assert archive.spans(0) == [(0, 8)]
    assert prices(archive) == (16, 8)


def test_a_table_without_our_columns_is_refused_and_left_as_it_is(archive: Archive) -> None:
    other = pa.schema([("day", pa.date32()), ("price", pa.float64())])
    made_by_another(archive, other, pa.table({"day": [None], "price": [1.5]}, schema=other))
    before = (versions(archive), archive.live())
    with pytest.raises(TableError, match="has no column 'partition'; add it, or archive to another"):
        archive.add((0, 0, 5))
    assert (versions(archive), archive.live()) == before


def test_a_table_whose_column_has_another_type_is_refused_and_left_as_it_is(archive: Archive) -> None:
    other = SCHEMA.set(SCHEMA.get_field_index("key"), pa.field("key", pa.string()))
    made_by_another(archive, other)
    before = versions(archive)
    with pytest.raises(TableError, match=r"the column 'key' of .* is (large_)?string, and not binary"):
        archive.add((0, 0, 5))
    assert versions(archive) == before


def test_an_iceberg_table_with_a_column_that_must_not_be_null_and_that_we_lack_is_refused(tmp_path: Path) -> None:
    archive = ARCHIVES["iceberg"](tmp_path)
    made_by_another(archive, SCHEMA.append(pa.field("price", pa.float64(), nullable=False)))
    before = versions(archive)
    with pytest.raises(TableError, match="price"):
        archive.add((0, 0, 5))
    assert versions(archive) == before


def test_a_writer_that_commits_between_looking_and_committing_costs_one_round(archive: Archive) -> None:
    made_by_another(archive, THEIRS)
    table, load, times = archive.open(), archive.open().load, []

    def looked() -> Any:
        state = load()
        times.append(state.version)
        if len(times) < 4:
            append(archive, their_rows(archive))
        return state

    table.load = looked  # type: ignore[method-assign]
    files = [archive.write(0, 0, 5)]
    rounds = committing.commit_ranges(table, files, [range_of(0, 0, 5)], Purpose.ARCHIVE, wait=lambda _: None)
    assert rounds == len(times) == 4
    assert archive.rows() == rows_of((0, 0, 5))
    assert len(archive.open().load().spans[key_of(0)]) == 1


def test_a_writer_that_deletes_rows_of_ours_is_no_archiver_and_the_ranges_stay(archive: Archive) -> None:
    archive.add((0, 0, 5), (1, 0, 3))
    if type(archive) is ARCHIVES["delta"]:
        DeltaTable(str(archive.root)).delete('"partition" = 1')
    else:
        catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{archive.root}/catalog.db")
        catalog.load_table("lake.orders").delete("partition = 1")
        catalog.close()
    archive.add((0, 5, 8), (1, 3, 4))
    assert archive.rows() == rows_of((0, 0, 8), (1, 3, 4))
    assert (archive.spans(0), archive.spans(1)) == ([(0, 8)], [(0, 4)])


@pytest.mark.parametrize("rule", ["must not be null", "the constraint 'priced'"])
def test_a_delta_table_with_a_rule_that_nobody_would_check_is_refused(tmp_path: Path, rule: str) -> None:
    archive = ARCHIVES["delta"](tmp_path)
    must = pa.field("price", pa.float64(), nullable=rule != "must not be null")
    made_by_another(archive, SCHEMA.append(must))
    if must.nullable:
        DeltaTable(str(tmp_path)).alter.add_constraint({"priced": "price > 0"})
    with pytest.raises(TableError, match=rule):
        archive.add((0, 0, 5))
    assert not contents.delta_files(tmp_path)


def test_a_delta_table_that_maps_its_columns_is_refused(tmp_path: Path) -> None:
    archive = ARCHIVES["delta"](tmp_path)
    made_by_another(archive, THEIRS)
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    said = log.read_text()
    mapped = said.replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}')
    assert mapped != said
    log.write_text(mapped)
    with pytest.raises(TableError, match="maps its columns to other names"):
        archive.add((0, 0, 5))
    assert not contents.delta_files(tmp_path)
