"""Runs the examples of the documents in the order in which a newcomer meets them, and can renew what they show."""

import argparse
import sys
from collections.abc import Sequence

from documents.comparison import agree
from documents.reader import ROOT, Difference, Reader, page_text

__all__ = ["PAGES", "written"]

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


def written(text: str, differences: Sequence[Difference]) -> str:
    """Return a page's text with what was printed in place of what it showed."""
    for found in sorted(differences, key=lambda one: one.at.start, reverse=True):
        text = text[: found.at.start] + found.printed + text[found.at.stop :]
    return text


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/documents/examples", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put what was printed into the pages")
    parser.add_argument(
        "--exactly", action="store_true", help="see a difference also where only numbers and ids differ"
    )
    parser.add_argument("pages", nargs="*", default=PAGES, metavar="PAGE", help="after README.md, which is always read")
    options = parser.parse_args()
    wrong = 0
    with Reader() as reader:
        for page in dict.fromkeys((PAGES[0], *options.pages)):
            found = reader.read(page, exactly=options.exactly)
            print(f"{page}: {len(found)} differences", flush=True)
            # Those with lines left out are for a human: nobody can say which lines were meant.
            found = [one for one in found if "...\n" not in one.shown or not agree(one.shown, one.printed)]
            to_write = [one for one in found if options.write and "...\n" not in one.shown]
            (ROOT / page).write_text(written(page_text(page), to_write))
            for one in found:
                print(f"{'written' if one in to_write else 'wrong'}: {one}", flush=True)
            wrong += len(found) - len(to_write)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
