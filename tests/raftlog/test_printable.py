"""Text of strangers becomes one line, and stays readable if it was harmless."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_raftlog.printable import CHARACTERS_MAX, printable

EVERY_CHARACTER = [chr(code) for code in range(0x110000)]
CONTROLS = {"Cc", "Cs", "Zl", "Zp"}
DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS_OF_DIRECTION = {"\u061c", "\u200e", "\u200f"}
ANY_TEXT = st.text(st.characters(exclude_categories=()))


def is_harmful(character: str) -> bool:
    return (
        unicodedata.category(character) in CONTROLS
        or unicodedata.bidirectional(character) in DIRECTIONS
        or character in MARKS_OF_DIRECTION
    )


@pytest.mark.slow
def test_no_harmful_character_comes_through_and_every_visible_one_does() -> None:
    for character in EVERY_CHARACTER:
        shown = printable(character)
        if is_harmful(character):
            assert shown.startswith("\\"), hex(ord(character))
            assert shown.isascii()
        elif unicodedata.category(character) not in {"Cf", "Cn", "Co"}:
            assert shown == character, hex(ord(character))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders-7", "orders-7"),
        ("", ""),
        ("заказы 注文\u3000\u05e9\u05dc", "заказы 注文\u3000\u05e9\u05dc"),
        ("x\n2026-11-25 CRITICAL\x1b[2J", r"x\n2026-11-25 CRITICAL\x1b[2J"),
        ("\r\t\x00\x7f", r"\r\t\x00\x7f"),
        ("\x85\x9b31m\u2028", r"\u0085\u009b31m\u2028"),
        ("invoice\u202efdp.exe", r"invoice\u202efdp.exe"),
        ("\ud800\U000e0041", r"\ud800\U000e0041"),
        ("👩\u200d🔬", "👩\u200d🔬"),
    ],
)
def test_what_it_looks_like(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(ANY_TEXT, st.integers(32, 60))
def test_it_is_bounded_and_may_be_given_again(text: str, characters_max: int) -> None:
    for limit in (characters_max, None):
        shown = printable(text, limit)
        assert not any(map(is_harmful, shown))
        assert printable(shown, limit) == shown
        assert limit is None or len(shown) <= limit


def test_what_is_cut_says_how_long_it_was() -> None:
    shown = printable("\n" * 1_000_000)
    assert len(shown) == CHARACTERS_MAX
    assert shown.endswith("... (1000000 characters)")
    assert printable("x" * CHARACTERS_MAX) == "x" * CHARACTERS_MAX
