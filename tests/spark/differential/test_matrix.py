"""The same options give the same rows and the same errors as with Spark's own Kafka source."""

import itertools
import json
import os
import random
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from .cases import CASES_OF, Case
from .pages import told_differences
from .sources import Pair
from .topics import MAIN_PARTITIONS, Topics

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

PAGE = Path(__file__).parents[3] / "docs" / "spark" / "from-kafka.md"
DIFFERENCES = told_differences(PAGE, "## What differs")
# `BARNABAS_DIFFERENTIAL=whole scripts/test tests/spark/differential` takes all of them: some minutes.
IS_WHOLE = os.environ.get("BARNABAS_DIFFERENTIAL") == "whole"
WHOLE_S = 3_600
COMBINATIONS = 16
CASES_AT_ONCE = 4


def complaints(pair: Pair, cases: Iterable[Case]) -> str:
    """Return what is wrong with some cases. They are read side by side: most of the time goes into waiting."""
    with ThreadPoolExecutor(CASES_AT_ONCE) as threads:
        return "\n".join(filter(None, threads.map(partial(complaint, pair), cases)))


def complaint(pair: Pair, case: Case) -> str:
    """Return what is wrong with a case; nothing if the two sources agree, or differ as the page says."""
    kafkas, ours = pair.kafka(case.options), pair.ours({**case.options, **case.only_ours})
    if case.difference:
        if (kafkas.kind, ours.kind) != DIFFERENCES.get(case.difference):
            return f"{case.name}: {kafkas.kind} and {ours.kind}, and the page says something else"
    elif case.our_words:
        for text, words in ((kafkas.error, case.kafkas_words), (ours.error, case.our_words)):
            if words not in text:
                return f"{case.name}: {words!r} is not in {text[:600]!r}"
    elif kafkas.error or ours.error:
        return f"{case.name}: {kafkas.error or len(kafkas.rows)} and {ours.error or len(ours.rows)}"
    elif kafkas != ours:
        return f"{case.name}: {len(kafkas.rows)} rows and {len(ours.rows)} rows, which are not the same"
    return ""


@pytest.mark.parametrize("name", CASES_OF)
def test_every_option_does_what_it_does_in_sparks_own_source(pair: Pair, topics: Topics, name: str) -> None:
    assert not complaints(pair, CASES_OF[name](topics))


def combinations(topics: Topics) -> Iterator[Case]:
    """Yield every combination of what to read, from where, to where, and how."""
    main, second, base = topics.main, topics.second, topics.base_ms
    choices: dict[str, tuple[dict[str, str], dict[str, Iterable[int]]]] = {
        "subscribe": ({"subscribe": main}, {main: range(MAIN_PARTITIONS)}),
        "two": ({"subscribe": f"{main},{second}"}, {main: range(MAIN_PARTITIONS), second: range(2)}),
        "assign": ({"assign": json.dumps({main: [0, 2], second: [1]})}, {main: [0, 2], second: [1]}),
        "pattern": (
            {"subscribePattern": f"{topics.prefix}.(second|empty)"},
            {second: range(2), topics.empty: range(2)},
        ),
    }
    hows: tuple[dict[str, str], ...] = (
        {},
        {"includeHeaders": "true"},
        {"minPartitions": "7"},
        {"maxRecordsPerPartition": "33", "minPartitions": "2"},
        {"failOnDataLoss": "false", "includeHeaders": "true", "minPartitions": "4"},
    )
    for (name, (what, there)), start, end, how in itertools.product(choices.items(), range(4), range(4), hows):

        def each(first: int, step: int, there: dict[str, Iterable[int]] = there) -> str:
            return json.dumps(
                {
                    topic: {k: 0 if topic == topics.empty else first + step * k for k in ks}
                    for topic, ks in there.items()
                }
            )

        starts: tuple[dict[str, str], ...] = (
            {},
            {"startingOffsets": each(2, 3)},
            {"startingTimestamp": str(base + 11), "startingOffsetsByTimestampStrategy": "latest"},
            {"startingOffsetsByTimestamp": each(base + 3, 4), "startingOffsetsByTimestampStrategy": "latest"},
        )
        ends: tuple[dict[str, str], ...] = (
            {},
            {"endingOffsets": each(12, 2)},
            {"endingTimestamp": str(base + 30)},
            {"endingOffsetsByTimestamp": each(base + 25, 5)},
        )
        yield Case(f"{name} {start} {end} {how}", what | starts[start] | ends[end] | how)


@pytest.mark.timeout(WHOLE_S if IS_WHOLE else 300)
def test_options_together_give_the_same_rows(pair: Pair, topics: Topics) -> None:
    chosen = list(combinations(topics))
    if not IS_WHOLE:
        chosen = random.Random(27).sample(chosen, COMBINATIONS)
    assert not complaints(pair, chosen)


def test_every_difference_that_the_page_names_has_a_case() -> None:
    names = Topics(0, *(f"t{k}" for k in range(len(Topics._fields) - 1)))
    used = {case.difference for cases in CASES_OF.values() for case in cases(names)}
    assert used - {""} == DIFFERENCES.keys()


def test_every_option_of_sparks_source_has_a_case_and_a_row_in_the_page() -> None:
    page = PAGE.with_name("batch.md").read_text()
    names = Topics(0, *(f"t{k}" for k in range(len(Topics._fields) - 1)))
    used = {option.lower() for cases in CASES_OF.values() for case in cases(names) for option in case.options}
    table = page.partition("## Options of Spark's Kafka source")[2].partition("\n## ")[0]
    options = set(re.findall(r"^\| `([\w.]+)`", table, re.MULTILINE))
    assert len(options) > 15
    assert {option for option in options if option.lower() not in used} == set()
