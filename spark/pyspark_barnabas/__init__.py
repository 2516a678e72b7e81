"""PySpark registers a data source by itself only from a module of this name."""

from barnabas_spark.source import BarnabasDataSource as DefaultSource  # noqa: F401 - PySpark looks it up by name
