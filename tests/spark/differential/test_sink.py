"""The same DataFrames become the same records, and the same refusals, as with Spark's own Kafka sink."""

from pathlib import Path

import pytest

from .pages import told_differences
from .sink_cases import CASES_OF, SinkCase
from .sinks import Written, write_all
from .sources import Pair

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

PAGE = Path(__file__).parents[3] / "docs" / "spark" / "writing.md"
DIFFERENCES = told_differences(PAGE, "## Where it differs from Spark's Kafka sink")


def complaint(case: SinkCase, kafkas: Written, ours: Written) -> str:
    """Return what is wrong with a case; nothing if the two sinks agree, or differ as the page says."""
    for text, words in ((kafkas.error, case.kafkas_words), (ours.error, case.our_words)):
        if words not in text:
            return f"{case.name}: {words!r} is not in {text[:600]!r}"
    if case.difference:
        if (kafkas.kind, ours.kind) != DIFFERENCES.get(case.difference):
            return f"{case.name}: {kafkas.kind} and {ours.kind}, and the page says something else"
    elif case.our_words:
        return ""
    elif kafkas.error or ours.error:
        return f"{case.name}: {(kafkas.error or 'rows')[:600]} and {(ours.error or 'rows')[:600]}"
    elif kafkas != ours:
        return f"{case.name}: {kafkas.records} and {ours.records}"
    elif sum(map(len, kafkas.records.values())) != case.rows:
        return f"{case.name}: not as many records as rows: {kafkas.records}"
    return ""


@pytest.mark.parametrize("name", CASES_OF)
def test_every_frame_becomes_what_it_becomes_in_sparks_own_sink(pair: Pair, name: str) -> None:
    cases = list(CASES_OF[name]())
    written = write_all(pair, cases)
    if found := [one for case, both in zip(cases, written, strict=True) if (one := complaint(case, *both))]:
        pytest.fail("\n".join(found), pytrace=False)


def test_every_difference_that_the_page_names_has_a_case() -> None:
    used = {case.difference for cases in CASES_OF.values() for case in cases()}
    assert used - {""} == DIFFERENCES.keys()
