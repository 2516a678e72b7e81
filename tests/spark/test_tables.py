"""Topics are tables of a catalog and views of SQL: created, queried, dropped."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

RECORDS = 20


class Catalog:
    """The session's own catalog, a topic, and a name for a table, which is dropped afterwards."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.topic = f"tables-{self.name}"
        self._spark = spark
        self._bootstrap = bootstrap
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        for number in range(RECORDS):
            producer.produce(self.topic, key=f"k{number}", value=f'{{"id":{number},"it\'s":"a \\\\ b"}}', partition=0)
        assert producer.flush(30) == 0

    def sql(self, query: str, given: str = "") -> list[tuple[Any, ...]]:
        """Run a query in which TABLE_NAME and GIVEN stand for something."""
        text = query.replace("TABLE_NAME", self.name).replace("GIVEN", given)
        return [tuple(row) for row in self._spark.sql(text).collect()]

    def options(self, **more: str) -> str:
        given = {"kafka.bootstrap.servers": self._bootstrap, "subscribe": self.topic, **more}
        return "OPTIONS (" + ", ".join(f"'{name}' \"{value}\"" for name, value in given.items()) + ")"


@pytest.fixture
def catalog(spark: SparkSession, cluster: Any) -> Iterator[Catalog]:
    one = Catalog(spark, cluster.bootstrap)
    yield one
    one.sql("DROP TABLE IF EXISTS TABLE_NAME")


def test_a_table_is_created_queried_and_dropped(catalog: Catalog) -> None:
    catalog.sql(
        f"CREATE TABLE TABLE_NAME USING barnabas {catalog.options(startingTimestamp='5', includeHeaders='true')}"
    )
    assert catalog.sql("SELECT count(*), max(offset), count(headers) FROM TABLE_NAME") == [(RECORDS, RECORDS - 1, 0)]
    assert [row[:2] for row in catalog.sql("DESCRIBE TABLE_NAME")][:3] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
    ]
    catalog.sql("DROP TABLE TABLE_NAME")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        catalog.sql("SELECT * FROM TABLE_NAME")


def test_a_table_has_the_columns_that_its_options_choose(catalog: Catalog) -> None:
    options = catalog.options(columns="value,offset", valueFormat="json", valueSchema="id long, `it's` string")
    catalog.sql(f"CREATE TABLE TABLE_NAME USING barnabas {options}")
    found = catalog.sql("SELECT offset, value.id, value.`it's` FROM TABLE_NAME WHERE value.id > 17 ORDER BY 1")
    assert found == [(18, 18, "a \\ b"), (19, 19, "a \\ b")]


def test_a_query_may_change_the_options_of_a_table(catalog: Catalog) -> None:
    catalog.sql(f"CREATE TABLE TABLE_NAME USING barnabas {catalog.options()}")
    ending = f'{{"{catalog.topic}":{{"0":7}}}}'
    assert catalog.sql("SELECT count(*) FROM TABLE_NAME WITH ('endingOffsets' = 'GIVEN')", ending) == [(7,)]
    assert catalog.sql("SELECT count(*) FROM TABLE_NAME") == [(RECORDS,)]


def test_a_table_whose_columns_are_written_by_hand_gets_its_options_from_each_query(catalog: Catalog) -> None:
    """Spark hands a Python source neither its options nor anything else to know them by."""
    catalog.sql(f"CREATE TABLE TABLE_NAME (offset BIGINT, value BINARY) USING barnabas {catalog.options()}")
    with pytest.raises(AnalysisException, match="choose columns with the option columns"):
        catalog.sql("SELECT * FROM TABLE_NAME")
    given = catalog.options().removeprefix("OPTIONS ").replace("' \"", "' = \"")
    assert catalog.sql("SELECT count(*), max(offset) FROM TABLE_NAME WITH GIVEN", given) == [(RECORDS, RECORDS - 1)]
    catalog.sql("DROP TABLE TABLE_NAME")


def test_a_wrong_option_is_refused_when_the_table_is_created(catalog: Catalog) -> None:
    with pytest.raises(AnalysisException, match="option startingofsets: is not known; did you mean startingOffsets"):
        catalog.sql(f"CREATE TABLE TABLE_NAME USING barnabas {catalog.options(startingOfsets='earliest')}")


def test_a_stream_reads_a_table(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    catalog.sql(f"CREATE TABLE TABLE_NAME USING barnabas {catalog.options(startingOffsets='earliest')}")
    sink = f"{catalog.name}_rows"
    query = (
        spark.readStream.table(catalog.name)
        .select("offset")
        .writeStream.format("memory")
        .queryName(sink)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert sorted(row.offset for row in spark.table(sink).collect()) == list(range(RECORDS))


def test_rows_are_inserted_where_the_statement_says_and_not_where_another_table_reads(catalog: Catalog) -> None:
    catalog.sql(f"CREATE TABLE TABLE_NAME USING barnabas {catalog.options()}")
    for rows in ("(key, value) VALUES (X'61', X'62')", "SELECT * FROM TABLE_NAME"):
        with pytest.raises(AnalysisException, match=r"is required\. Spark does not hand over"):
            catalog.sql(f"INSERT INTO TABLE_NAME {rows}")
    given = catalog.options().removeprefix("OPTIONS ").replace("' \"", "' = \"").replace("subscribe", "topic")
    catalog.sql("INSERT INTO TABLE_NAME WITH GIVEN (key, value) VALUES (X'61', X'62')", given)
    assert catalog.sql("SELECT key, value FROM TABLE_NAME WHERE offset >= GIVEN", str(RECORDS)) == [(b"a", b"b")]


def test_a_view_has_columns_of_json(catalog: Catalog) -> None:
    options = catalog.options(columns="value", valueFormat="json", valueSchema="id long")
    catalog.sql(f"CREATE TEMPORARY VIEW TABLE_NAME USING barnabas {options}")
    assert catalog.sql("SELECT sum(value.id) FROM TABLE_NAME") == [(sum(range(RECORDS)),)]
    catalog.sql("DROP VIEW TABLE_NAME")
