"""The pages about Spark: each example runs, and prints what its page shows, with one session and one cluster for all.

A page that shows something else is renewed by `scripts/documents/examples --write PAGE`.
"""

import re
from collections.abc import Iterator

import pytest
from docs.tasks import SPARK_START
from documents.cells import Cells
from documents.examples import SPARK_PAGES, TUTORIAL
from documents.notebook import Notebook, NotebookProcess
from documents.pages import sections
from documents.reader import Reader, page_text
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with Reader() as one:
        yield one


@pytest.fixture
def cells(spark: SparkSession) -> Iterator[Notebook]:
    yield Cells()
    for query in spark.streams.active:
        query.stop()
    spark.catalog.dropTempView("orders")


@pytest.mark.parametrize("page", SPARK_PAGES)
def test_every_example_runs_and_prints_what_its_page_shows(reader: Reader, cells: Notebook, page: str) -> None:
    if not reader.has_cluster and page != SPARK_START.page:
        reader.read(SPARK_START.page, [SPARK_START.section], notebook=cells)
    wrong = reader.read(page, notebook=cells)
    assert not wrong, "\n\n".join(map(str, wrong))


def test_the_tutorial_needs_nothing_but_what_it_says() -> None:
    with Reader() as reader, NotebookProcess(reader.environment, str(reader.desk)) as notebook:
        wrong = reader.read(TUTORIAL, notebook=notebook)
        assert not wrong, "\n\n".join(map(str, wrong))
        assert not reader.has_cluster


def test_a_topic_belongs_to_one_page() -> None:
    made = re.compile(r"topic create ([\w-]+)|produce ([\w-]+)")
    owners: dict[str, set[str]] = {}
    for page in SPARK_PAGES:
        sources = [one.source for section in sections(page_text(page)) for one in section.examples]
        for names in made.findall("\n".join(sources)):
            owners.setdefault("".join(names), set()).add(page)
    assert not {name for name, pages in owners.items() if len(pages) > 1}
    assert len(owners) > 8
