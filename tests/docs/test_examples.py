"""The pages, read in order by one reader with one cluster: each example runs, and prints what the page shows.

A page that shows something else is renewed by `scripts/documents/examples --write`.
"""

import ast
import re

import pytest
from docs.tasks import TASKS
from documents.examples import PAGES, written
from documents.pages import sections
from documents.reader import Difference, Reader, page_text


@pytest.mark.process
@pytest.mark.slow
def test_every_example_runs_and_prints_what_its_page_shows() -> None:
    # Tasks have tests of their own: `test_first_hour.py`, and `tests/spark/test_session.py` for Spark. But the first
    # of them starts the cluster.
    elsewhere = {(task.page, task.section) for task in TASKS[1:]}
    wrong: list[object] = []
    with Reader() as reader:
        for page in PAGES:
            titles = [section.title for section in sections(page_text(page)) if (page, section.title) not in elsewhere]
            if titles:
                wrong += reader.read(page, titles)
    assert not wrong, "\n\n".join(map(str, wrong))


@pytest.mark.parametrize("page", PAGES)
def test_every_program_names_its_brokers_itself(page: str) -> None:
    programs = [one for section in sections(page_text(page)) for one in section.examples if one.language == "python"]
    for program in programs:
        names = {node.id for node in ast.walk(ast.parse(program.source)) if isinstance(node, ast.Name)}
        assert "BOOTSTRAP" not in names or '\nBOOTSTRAP = "localhost:9092"\n' in program.source


def test_a_topic_belongs_to_one_page() -> None:
    """So that no page finds records that it has not written, or deletes another one's."""
    made = re.compile(r"topic create ([\w-]+)|create_topic\(\"([\w-]+)\"|topics=\[\"([\w-]+)\"|produce ([\w-]+)")
    owners: dict[str, set[str]] = {}
    for page in PAGES:
        sources = [one.source for section in sections(page_text(page)) for one in section.examples]
        for names in made.findall("\n".join(sources)):
            owners.setdefault("".join(names), set()).add(page)
    assert {name for name, pages in owners.items() if len(pages) > 1} <= {"orders"}, "of another cluster"
    assert len(owners) > 10


def test_what_was_printed_takes_the_place_of_what_was_shown() -> None:
    text = "```console\n$ one\nold\n$ two\n```\n"
    (example,) = sections(text)[0].examples
    start = example.body_at.start
    differences = [
        Difference("page", 1, "one", "old\n", "new\n", slice(start + 6, start + 10)),
        Difference("page", 1, "two", "", "2\n", slice(start + 16, start + 16)),
    ]
    assert written(text, differences) == "```console\n$ one\nnew\n$ two\n2\n```\n"
