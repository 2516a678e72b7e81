"""Reads tables of other formats with their own readers on Spark, and writes what it found as Parquet files.

It runs in an environment of its own, with another PySpark and nothing of this project: `jvm_readers.py` starts it. The
first argument is JSON: `jars`, `tables`, and `day`, from which on rows are counted alone, so that readers leave files
out. The last line of the answer is JSON as well: the numbers of files, versions and rows of each table.
"""

import json
import sys
from typing import Any

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")


def session(said: dict[str, Any]) -> Any:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - of this process' own environment

    extensions = (
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "io.delta.sql.DeltaSparkSessionExtension",
    )
    settings = {
        "spark.driver.extraClassPath": ":".join(said["jars"]),
        "spark.sql.extensions": ",".join(extensions),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read_iceberg(spark: Any, table: dict[str, Any]) -> tuple[Any, dict[str, int]]:
    """Read a table through its catalog, and once more by the file of its metadata."""
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{table['root']}/catalog.db",
        ".warehouse": table["root"],
    }.items():
        spark.conf.set(f"spark.sql.catalog.barnabas{name}", value)
    name = f"barnabas.{table['name']}"
    rows = spark.table(name)
    by_metadata = spark.read.format("iceberg").load(table["metadata"])
    return rows, {
        "files": spark.table(f"{name}.files").count(),
        "versions": spark.table(f"{name}.snapshots").count(),
        "by_metadata": by_metadata.count(),
    }


def read_delta(spark: Any, table: dict[str, Any]) -> tuple[Any, dict[str, int]]:
    rows = spark.read.format("delta").load(table["root"])
    history = spark.sql(f"DESCRIBE HISTORY delta.`{table['root']}`")
    files = rows.select("_metadata.file_path").distinct().count()
    return rows, {"files": files, "versions": history.count()}


def main() -> None:
    said = json.loads(sys.argv[1])
    spark = session(said)
    answer = {}
    for table in said["tables"]:
        # Each table has its own catalog of the same name, and a session opens one of a name.
        rows, counts = {"iceberg": read_iceberg, "delta": read_delta}[table["kind"]](spark.newSession(), table)
        rows.select(*COLUMNS).coalesce(1).write.parquet(table["out"])
        counts["day"] = rows.where(f"timestamp >= '{said['day']}'").count()
        answer[table["title"]] = counts
    print(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main()
