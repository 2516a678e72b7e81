"""Configurations as people write them become the values that brokers take."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.cli.commands.administration.config_values import config_value, config_values, unknown_config
from barnabas_broker.cli.wording import counted, in_words, missing
from barnabas_broker.config.quantities import BYTE_UNITS, TIME_UNITS_MS
from barnabas_clients.protocol.errors import ErrorCode, error_for

DURATIONS = ("retention.ms", "segment.ms", "log.retention.ms")
SIZES = ("segment.bytes", "retention.bytes", "max.message.bytes")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("retention.ms=7d", "604800000"),
        ("retention.ms=-1", "-1"),
        ("retention.ms=1h30m", "5400000"),
        ("segment.bytes=1GiB", "1073741824"),
        ("cleanup.policy=compact,delete", "compact,delete"),
        ("cleanup.policy=", ""),
        ("min.cleanable.dirty.ratio=0.5", "0.5"),
        ("a=b=c", "b=c"),
    ],
)
def test_a_value_is_read_by_what_its_name_counts(word: str, value: str) -> None:
    assert list(config_values([word]).values()) == [value]


@given(st.sampled_from(DURATIONS), st.integers(0, 10**6), st.sampled_from(sorted(TIME_UNITS_MS)))
def test_a_duration_is_a_number_of_milliseconds(name: str, number: int, unit: str) -> None:
    assert config_value(name, f"{number}{unit}") == str(number * TIME_UNITS_MS[unit])


@given(st.sampled_from(SIZES), st.integers(0, 10**6), st.sampled_from(sorted(BYTE_UNITS)))
def test_a_size_is_a_number_of_bytes(name: str, number: int, unit: str) -> None:
    assert config_value(name, f"{number}{unit}") == str(number * BYTE_UNITS[unit])


@given(st.sampled_from([*DURATIONS, *SIZES]), st.integers(-1, 2**63 - 1))
def test_a_plain_number_stays_what_it_was(name: str, number: int) -> None:
    assert config_value(name, str(number)) == str(number)


@given(st.text(), st.text())
def test_other_values_are_left_as_they_are(name: str, value: str) -> None:
    if not name.endswith((".ms", ".bytes")):
        assert config_value(name, value) == value


@given(st.lists(st.text()))
def test_any_words_are_configurations_or_refused_in_words(words: list[str]) -> None:
    found = {}
    with contextlib.suppress(ValueError):
        found = config_values(words)
    assert found.keys() in ({word.partition("=")[0] for word in words}, set())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["foo"], "'foo' is not a configuration; write NAME=VALUE, as in retention.ms=7d"),
        (["=1"], "'=1' is not a configuration"),
        (["retention.ms=soon"], "retention.ms: 'soon' is not a duration"),
        (["segment.bytes=1GB"], "segment.bytes: '1GB' is not a size"),
        (["a=1", "a=2"], "a is given twice, as 1 and as 2"),
    ],
)
def test_what_is_none_is_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}"):
        config_values(words)


def test_the_same_twice_in_different_words_is_no_conflict() -> None:
    assert config_values(["retention.ms=1d", "retention.ms=24h"]) == {"retention.ms": "86400000"}


def test_a_wrong_name_is_told_with_the_one_that_was_meant() -> None:
    known = ["retention.ms", "segment.ms"]
    said = "there is no topic configuration 'retention.sm' (did you mean 'retention.ms'?) [INVALID_CONFIG]"
    assert unknown_config("topic", "retention.sm", known) == said
    assert unknown_config("topic", "x", known).endswith("'x'; there are retention.ms, segment.ms [INVALID_CONFIG]")
    assert unknown_config("broker", "x", list(map(str, range(100, 200)))) == (
        "there is no broker configuration 'x' [INVALID_CONFIG]"
    )


def test_refusals_are_words_with_the_code_behind_them() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    said = "there is no topic 'ordres' (did you mean 'orders'?); there is no topic 'x' [UNKNOWN_TOPIC_OR_PARTITION]"
    assert missing("topic", ["ordres", "x"], ["orders"], unknown) == said
    assert in_words(error_for(unknown, "t")) == "there is no topic or partition 't' [UNKNOWN_TOPIC_OR_PARTITION]"
    assert in_words(error_for(ErrorCode.INVALID_CONFIG, "t: must be 1")) == "t: must be 1 [INVALID_CONFIG]"
    assert in_words(error_for(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER"


@pytest.mark.parametrize(("count", "said"), [(0, "0 records"), (1, "1 record"), (1_200, "1,200 records")])
def test_a_count_agrees_with_its_noun(count: int, said: str) -> None:
    assert counted(count, "record") == said
