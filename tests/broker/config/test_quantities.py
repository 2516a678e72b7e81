"""Durations and sizes as people write them."""

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.config.quantities import (
    BYTE_UNITS,
    TIME_UNITS_MS,
    parse_bytes,
    parse_duration_ms,
    shown_bytes,
    shown_duration_ms,
)

numbers = st.integers(0, 10**12)
decimals = st.builds(lambda whole, places: (f"{whole}.{places}", Fraction(f"{whole}.{places}")), numbers, numbers)


@given(st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=50)
def test_a_plain_number_is_itself(number: int) -> None:
    assert parse_duration_ms(str(number)) == parse_bytes(f" {number} ") == number


@given(st.lists(st.tuples(numbers, st.sampled_from(sorted(TIME_UNITS_MS))), min_size=1, max_size=4))
@settings(max_examples=50)
def test_parts_of_a_duration_add_up(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{number}{unit}" for number, unit in parts)
    assert parse_duration_ms(text) == sum(number * TIME_UNITS_MS[unit] for number, unit in parts)
    assert parse_duration_ms(text.upper()) == parse_duration_ms(text)


@given(numbers, st.sampled_from(sorted(BYTE_UNITS)), st.sampled_from(["", " "]))
@settings(max_examples=50)
def test_a_size_is_exact(number: int, unit: str, space: str) -> None:
    assert parse_bytes(f"{number}{space}{unit}".strip()) == number * BYTE_UNITS[unit]


@given(decimals, st.sampled_from(sorted(BYTE_UNITS)), st.sampled_from(sorted(TIME_UNITS_MS)))
@settings(max_examples=50)
def test_a_part_of_a_unit_is_rounded_to_the_nearest(decimal: tuple[str, Fraction], size: str, time: str) -> None:
    text, value = decimal
    assert abs(parse_bytes(text + size) - value * BYTE_UNITS[size]) <= Fraction(1, 2)
    assert abs(parse_duration_ms(text + time) - value * TIME_UNITS_MS[time]) <= Fraction(1, 2)


@given(st.text(alphabet="0123456789.-+ ewdhmsigkbt٣²", max_size=12))
@settings(max_examples=100)
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_duration_ms, parse_bytes):
        with contextlib.suppress(ValueError):
            assert isinstance(parse(text), int)


@pytest.mark.parametrize("text", ["", "d", "1d2", "7 d", "1.d", ".5d", "1e3s", "-1d", "٣d", "9" * 400 + "d", "1y"])
def test_what_is_no_duration_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write 7d, 1h30m, 500ms, or a number of milliseconds"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "GiB", "1GB", "1 x", "1..5k", "-1k", "0x10", "9" * 400, "9" * 400 + "k"])
def test_what_is_no_size_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write 10GiB, 512KiB, or a number of bytes"):
        parse_bytes(text)


@given(st.integers(0, 2**62))
@settings(max_examples=50)
def test_a_shown_size_is_short_and_nearly_right(count: int) -> None:
    shown = shown_bytes(count)
    assert len(shown.partition(" ")[0]) <= 4
    assert abs(parse_bytes(shown) - count) <= max(count * 6 // 100, 0)


@given(st.one_of(st.integers(0, 2**63 - 1), st.sampled_from(sorted(TIME_UNITS_MS.values()))))
@settings(max_examples=50)
def test_a_shown_duration_is_exact(duration_ms: int) -> None:
    assert parse_duration_ms(shown_duration_ms(duration_ms)) == duration_ms


def test_durations_are_shown_as_people_write_them() -> None:
    known = {0: "0ms", 1: "1ms", 500: "500ms", 60_500: "1m500ms", 5_400_000: "1h30m", 604_800_000: "7d"}
    assert {duration_ms: shown_duration_ms(duration_ms) for duration_ms in known} == known
