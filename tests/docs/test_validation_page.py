"""The page about validation shows the list of bad batches. `UPDATE_PAGES=1 pytest` of this file writes it anew."""

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from broker.bad_batches import BadBatch, bad_batches, bombs

from barnabas_clients.protocol.error_codes import ErrorCode

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"
BEGIN, END = "<!-- the list begins -->\n", "<!-- the list ends -->\n"
CODECS = ("plain", "gzip", "snappy", "lz4", "zstd")
FORMS = {CODECS: "each", CODECS[1:]: "compressed"}


def answered(code: ErrorCode | None) -> str:
    if code is None:
        return "(not asked)"
    return "taken" if code is ErrorCode.NONE else code.name


def rows(batches: Iterable[BadBatch]) -> Iterator[str]:
    """Yield a line of the table for the forms of a batch that are answered alike."""
    in_order = list(batches)
    place = {bad.what: number for number, bad in reversed(list(enumerate(in_order)))}

    def key(bad: BadBatch) -> tuple[int, str, str, str, str]:
        return place[bad.what], bad.what, answered(bad.kafka), answered(bad.ours), bad.reason

    for (_, what, kafka, ours, reason), alike in groupby(sorted(in_order, key=key), key):
        found = {bad.codec for bad in alike}
        codecs = tuple(codec for codec in CODECS if codec in found)
        answers = f"{kafka} | {ours} | {reason}" if reason else ours
        yield f"| {what} | {FORMS.get(codecs, ', '.join(codecs))} | {answers} |\n"


def tables() -> str:
    batches = (*bad_batches(), *bombs(with_frames=False))
    others = "".join(rows(bad for bad in batches if bad.reason))
    alike = "".join(rows(bad for bad in batches if not bad.reason))
    return (
        "### Answered otherwise than by Kafka\n\n"
        f"| what is wrong | form | Kafka | Barnabas | because |\n|---|---|---|---|---|\n{others}\n"
        f"### Answered as by Kafka\n\n| what is wrong | form | answer |\n|---|---|---|\n{alike}"
    )


def test_the_page_shows_the_list() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    shown, _, after = rest.partition(END)
    if os.environ.get("UPDATE_PAGES"):
        PAGE.write_text(f"{before}{BEGIN}\n{tables()}\n{END}{after}")
    else:
        assert shown.strip() == tables().strip()
