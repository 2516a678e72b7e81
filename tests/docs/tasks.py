"""The ten tasks of a first hour, each by the sections of the pages that do it.

They are done with nothing but what the README and the pages that it links say.
"""

from typing import NamedTuple

__all__ = ["SPARK", "SPARK_START", "TASKS", "Task"]

SPARK = "Read it with Spark"
START = "docs/getting-started.md"
COMMON = "docs/first-hour.md"


class Task(NamedTuple):
    """One section of one page; the brokers of the README run when it begins."""

    name: str
    page: str
    section: str


TASKS = (
    Task("from nothing to a record", "README.md", "Five commands"),
    Task("a service with a group", START, "A service with a consumer group"),
    Task("a killed broker explained", START, "A broker is killed"),
    Task("a topic read in Spark", START, SPARK),
    Task("a stuck consumer found and reset", COMMON, "A consumer is stuck"),
    Task("a poisoned record passed", COMMON, "A record cannot be read"),
    Task("a broker replaced", COMMON, "A broker needs a new disk"),
    Task("settings found and changed", COMMON, "Find a setting, and change it"),
    Task("three machines set up", COMMON, "Three machines"),
    Task("everything removed again", COMMON, "Remove everything"),
)

SPARK_START = Task("a cluster for the pages about Spark", "docs/spark.md", "Start")
