"""Expressions of clients match what Python's `re` says, in a time that nobody can make long."""

import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.coordinators.patterns import CHARACTERS_MAX, HELD_MAX, NODES_MAX, WORK, Pattern, PatternError
from barnabas_raftlog.steps import at_once

Two = tuple[str, str]
"""An expression for us and for `re`, which write some things differently."""


DOLLAR = "\0"
"""Stands for what `$` means with these flags: to `re` it is also before a newline at the end."""


def same(*texts: str) -> list[Two]:
    return [(text, text) for text in texts]


ATOMS = [
    *same(
        "a",
        "b",
        "_",
        "1",
        " ",
        ".",
        "[ab]",
        "[^a]",
        "[a-c1]",
        "[^a-c]",
        r"\d",
        r"\D",
        r"\w",
        r"\W",
        r"\.",
        r"\b",
    ),
    *same("^", r"\A", r"\n", r"\x61", r"[\d_]", r"[^\w]", "(?:)", "", "-", r"[\]a]", "[]a]", "[a-]"),
    *((r"\B", r"(?!\b)"), (r"\z", r"\Z"), ("$", DOLLAR), ("[[:alpha:]]", "[a-zA-Z]"), ("[[:^digit:]]", r"[^0-9]")),
    *(
        (r"\s", r"[\t\n\f\r ]"),
        (r"\S", r"[^\t\n\f\r ]"),
        (r"\Qa.\E", r"a\."),
        (r"\x{62}", "b"),
        (r"\101", "A"),
        ("{", r"\{"),
    ),
]
TIMES = ("", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{1,}", "{0,2}", "{1,2}?")


def grouped(expression: Two) -> Two:
    return f"(?:{expression[0]})", f"(?:{expression[1]})"


def extended(inner: st.SearchStrategy[Two]) -> st.SearchStrategy[Two]:
    rows = st.lists(inner, max_size=4).map(lambda some: ("".join(a for a, _ in some), "".join(b for _, b in some)))
    ways = st.lists(inner, min_size=1, max_size=3).map(
        lambda some: grouped(("|".join(a for a, _ in some), "|".join(b for _, b in some)))
    )
    times = st.tuples(inner, st.sampled_from(TIMES)).map(
        lambda both: (grouped(both[0])[0] + both[1], grouped(both[0])[1] + both[1])
    )
    return rows | ways | times


EXPRESSIONS = st.recursive(st.sampled_from(ATOMS), extended, max_leaves=8)
NAMES = st.text("abcABC1_ .-{\n", max_size=8)


def matches(expression: str, name: str) -> bool:
    return at_once(Pattern.compile(expression).matching(name))


@settings(max_examples=3_000)
@given(EXPRESSIONS, st.lists(NAMES, min_size=1, max_size=5), st.sampled_from(["", "i", "m", "s", "is"]))
def test_it_matches_what_re_matches(expression: Two, names: list[str], flags: str) -> None:
    ours, theirs = expression
    wanted = re.ASCII
    for flag in flags:
        wanted |= {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}[flag]
    theirs = theirs.replace(DOLLAR, "$" if "m" in flags else r"\Z")
    pattern = Pattern.compile(f"(?{flags})(?:{ours})" if flags else ours)
    for name in names:
        found = at_once(pattern.matching(name))
        assert found == (re.fullmatch(theirs, name, wanted) is not None), (ours, name)


@pytest.mark.parametrize(
    ("expression", "name", "is_match"),
    [
        ("orders-.*", "orders-1", True),
        ("orders", "orders-1", False),
        ("(?i)ORDERS-[a-c]+", "orders-aB", True),
        ("(?i:a)b", "Ab", True),
        ("(?i:a)b", "AB", False),
        ("a(?i)b|c", "aB", True),
        ("(a(?i)b)c", "aBC", False),
        ("(?P<name>x)(?<other>y)", "xy", True),
        ("(?s).", "\n", True),
        (".", "\n", False),
        ("(?m)^b$", "a\nb", False),
        ("(?m)a\n^b$", "a\nb", True),
        ("(?i)[^a]", "A", False),
        ("ä+[é-ü]", "ääö", True),
        ("x{1000}", "x" * 1_000, True),
        ("x{1000}", "x" * 999, False),
        ("a{,2}", "a{,2}", True),
        ("a{b}", "a{b}", True),
        ("[a-b-c]", "-", True),
        (r"[\-\]]", "]", True),
        (r"[[a]", "[", True),
        (r"\Q.*", ".*", True),
        (r"\Qab\E*", "abbb", True),
        ("(?i)ß", "ß", True),
        (r"\ü", "ü", True),
        (r"\pL+", "aÄß", True),
        (r"\pL", "1", False),
        (r"\p{Lu}\p{Nd}", "Ä1", True),
        (r"\p{Lu}", "ä", False),
        (r"\PL\p{^L}\P{^L}", "1.a", True),
        (r"(?i)\p{Lu}", "ä", True),
        (r"(?i)\P{Lu}", "ä", False),
        (r"[\pL\d-]+", "ä-7", True),
        (r"[^\pL\PN]", "1", True),
        (r"[^\pL\pN]", "-", True),
        (r"\pC", "\x07", True),
        (r"\pC", "\u0378", False),
        ("a(?i)*B", "aab", True),
        ("", "", True),
        ("", "a", False),
        ("(|a)+", "aa", True),
        ("(a*)*", "", True),
    ],
)
def test_it_matches_whole_names(expression: str, name: str, is_match: bool) -> None:
    assert matches(expression, name) == is_match


@pytest.mark.parametrize(
    "expression",
    [
        *("(", ")", "a)", "(a", "[", "[a", "*", "+a", "a**", "a*+", "a{2}{3}", "{2}", "|*", "(*)", "a{1001}", "a{2,1}"),
        *("\\", r"\1", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?#a)", "(?", "(?x)", "(?P<a", "(?P<>a)"),
        *(
            "[b-a]",
            "[[:none:]]",
            r"\q",
            r"\C",
            r"\x",
            r"\xg1",
            r"\x{}",
            r"\x{110000}",
            "(?--i)",
            r"[\b]",
            "(?i)*a",
        ),
        *(r"\p", r"\p{", r"\p{L", r"\p{}", r"\pX", r"\p{Greek}", r"[\pX]", r"[\p"),
        *("(?:" * 101 + ")" * 101, "a" * (CHARACTERS_MAX + 1), "(?:a{50}){50}", "a{99999}", "((a{100}){100}){100}"),
    ],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(PatternError):
        Pattern.compile(expression)


@given(st.text("ab()[]{}?*+|\\^$.:-,12PQExpi<>=!", max_size=30))
@settings(max_examples=3_000)
def test_whatever_comes_is_an_expression_or_is_refused(text: str) -> None:
    try:
        pattern = Pattern.compile(text)
    except PatternError:
        return
    assert at_once(pattern.matching("ab12")) in {True, False}


@pytest.mark.parametrize(
    "expression",
    ["(a*)*b", "(a|a)*b", "(a|aa)+$b", "(.*)*(.*)*x", "(a?){300}a{300}", "(?:a{0,30}){15}", "(|a|b){0,200}c"],
)
def test_no_expression_takes_long(expression: str) -> None:
    """Each of these holds `re` for longer than anybody lives."""
    pattern = Pattern.compile(expression)
    name = "a" * 30_000
    steps = pattern.matching(name)
    longest, is_match = _longest(pattern, steps)
    assert not is_match
    assert longest <= WORK + 2 * NODES_MAX
    assert pattern._steps <= len(pattern._nodes) * 2 + 10


def test_names_that_are_all_different_leave_little_behind() -> None:
    pattern = Pattern.compile("(?:(?:[ab]*a[ab]{12})|c.*)*")
    for number in range(3_000):
        at_once(pattern.matching(f"{number:013b}".replace("0", "a").replace("1", "b") * 3))
    assert len(pattern._states) <= 1_000
    assert sum(len(state.nexts) for state in pattern._states.values()) <= 10_000


def test_states_of_many_nodes_are_fewer() -> None:
    """A thousand states of a thousand nodes each would be 60 MB, for each client that asks at the same time."""
    pattern = Pattern.compile("[ab]*a[ab]{900}x|[ab]*")
    chance = random.Random(1)
    for _ in range(4):
        assert at_once(pattern.matching("".join(chance.choices("ab", k=1_000))))
        assert sum(len(nodes) for nodes in pattern._states) <= HELD_MAX + NODES_MAX
    pattern.forget()
    assert pattern._states == {}


def _longest(pattern: Pattern, steps: Any) -> tuple[int, bool]:
    """Return how much work was done at most between two yields, and the result."""
    longest = 0
    closure = pattern._closure
    done = 0

    def counted(*args: Any) -> Any:
        nonlocal done
        reached = closure(*args)
        done += len(reached)
        return reached

    pattern._closure = counted  # type: ignore[assignment, method-assign]
    while True:
        done = 0
        try:
            next(steps)
        except StopIteration as end:
            return max(longest, done), end.value
        longest = max(longest, done)
