"""Runs the examples of the documents in the order in which a newcomer meets them, and can renew what they show."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from documents.comparison import agree
from documents.notebook import Notebook, NotebookProcess
from documents.reader import ROOT, Difference, Reader, page_text

__all__ = ["PAGES", "SPARK_PAGES", "TUTORIAL", "written"]

PAGES = (
    "README.md",
    "docs/getting-started.md",
    "docs/producer.md",
    "docs/consumer.md",
    "docs/admin.md",
    "docs/testing-your-code.md",
    "docs/client-errors.md",
    "docs/cli.md",
    "docs/groups.md",
    "docs/retention.md",
    "docs/moving.md",
    "docs/operations/configure.md",
    "docs/operations/run.md",
    "docs/operations/trouble.md",
    "docs/operations/watch.md",
    "docs/operations.md",
    "docs/first-hour.md",
)
"""In this order, on one cluster, which the first page starts and the last one removes."""

SPARK_PAGES = (
    "docs/spark.md",
    "docs/spark/from-kafka.md",
    "docs/spark/batch.md",
    "docs/spark/splits.md",
    "docs/spark/snapshots.md",
    "docs/spark/streaming.md",
    "docs/spark/writing.md",
    "docs/spark/lake.md",
    "docs/spark/notebook.md",
)
"""In this order, on another cluster, which the first page starts, with one Spark session."""

TUTORIAL = "docs/spark/tutorial.md"
"""On a cluster and with a session of its own."""


def written(text: str, differences: Sequence[Difference]) -> str:
    """Return a page's text with what was printed in place of what it showed."""
    for found in sorted(differences, key=lambda one: one.at.start, reverse=True):
        text = text[: found.at.start] + found.printed + text[found.at.stop :]
    return text


def _chosen(pages: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the pages to read, those on one cluster together: with each, the page that starts the cluster."""
    groups = [PAGES, SPARK_PAGES, (TUTORIAL,)]
    strangers = tuple(page for page in pages if not any(page in group for group in groups))
    found = [tuple(page for page in group if page in pages or page == group[0]) for group in groups]
    wanted = [group for group in found if set(group) & set(pages)]
    return [*wanted, (PAGES[0], *strangers)] if strangers else wanted


def _renew(reader: Reader, page: str, notebook: Notebook | None, options: argparse.Namespace) -> int:
    """Read a page, write what is to be written, and return the number of differences that are left."""
    found = reader.read(page, exactly=options.exactly, notebook=notebook)
    print(f"{page}: {len(found)} differences", flush=True)
    # Those with lines left out are for a human: nobody can say which lines were meant.
    found = [one for one in found if "...\n" not in one.shown or not agree(one.shown, one.printed)]
    to_write = [
        one for one in found if options.write and "...\n" not in one.shown and "Traceback (most" not in one.printed
    ]
    (ROOT / page).write_text(written(page_text(page), to_write))
    for one in found:
        print(f"{'written' if one in to_write else 'wrong'}: {one}", flush=True)
    return len(found) - len(to_write)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/documents/examples", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put what was printed into the pages")
    parser.add_argument(
        "--exactly", action="store_true", help="see a difference also where only numbers and ids differ"
    )
    parser.add_argument(
        "pages",
        nargs="*",
        default=(*PAGES, *SPARK_PAGES, TUTORIAL),
        metavar="PAGE",
        help="after the one that starts brokers",
    )
    options = parser.parse_args()
    wrong = 0
    for pages in _chosen(options.pages):
        with Reader() as reader, ExitStack() as stack:
            notebook = None
            if pages[0] != PAGES[0]:
                runs_jobs = pages[0] != TUTORIAL
                notebook = stack.enter_context(
                    NotebookProcess(reader.environment, str(reader.desk), runs_jobs=runs_jobs)
                )
            for page in pages:
                wrong += _renew(reader, page, notebook, options)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
