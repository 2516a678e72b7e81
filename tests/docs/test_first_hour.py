"""Ten tasks of a first hour, done by the commands of the pages on one cluster, in the order of the pages.

The topic that is read in Spark is in `tests/spark/test_session.py`, because starting Spark takes as long as all others.
"""

from collections.abc import Iterator

import pytest
from docs.tasks import SPARK, TASKS, Task
from documents.reader import Reader

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with Reader() as one:
        yield one


@pytest.mark.parametrize("task", [one for one in TASKS if one.section != SPARK], ids=lambda one: one.name)
def test_the_page_does_the_task(reader: Reader, task: Task) -> None:
    if not reader.has_cluster and task != TASKS[0]:
        reader.read(TASKS[0].page, [TASKS[0].section])
    wrong = reader.read(task.page, [task.section])
    assert not wrong, "\n\n".join(map(str, wrong))
    if task == TASKS[-1]:
        assert not reader.has_cluster
