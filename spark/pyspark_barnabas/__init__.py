"""Registers the data source: PySpark looks into modules whose name begins with `pyspark_`."""

from barnabas_spark.source import BarnabasDataSource as DefaultSource  # noqa: F401 - PySpark looks it up by name
