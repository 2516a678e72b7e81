"""The edits of each operator to a few lines, and their names."""

import ast

import pytest

from .operators import mutants_of, mutated

SOURCE = '''
class Counter:
    """A text."""

    def __init__(self):
        self.count = self.low = 0
        self.is_new = self.count == 0

    def add(self, value):
        assert value >= 0
        if value > self.limit and not self.closed:
            self.count, self.low = self.count + 1, min(self.low, value)
            self.seen.append(value)
            self.note("added")
            known = self.seen
            self.seen = []
        return known
'''

MUTANTS = {
    "counter.Counter.__init__: negate `self.count == 0`": "self.count != 0",
    "counter.Counter.add: drop `self.count, self.low = (self.count + 1, min(self.low, value))`": None,
    "counter.Counter.add: keep `self.count` in `self.count, self.low = (self.count + 1, min(self.low, value))`": (
        "_, self.low = (self.count + 1"
    ),
    "counter.Counter.add: keep `self.low` in `self.count, self.low = (self.count + 1, min(self.low, value))`": (
        "self.count, _ = (self.count + 1"
    ),
    "counter.Counter.add: drop `self.seen.append(value)`": None,
    "counter.Counter.add: drop `self.seen = []`": None,
    "counter.Counter.add: leave out `value > self.limit`": "if True and (not self.closed)",
    "counter.Counter.add: leave out `not self.closed`": "if value > self.limit and True",
    "counter.Counter.add: negate `value > self.limit`": "if value <= self.limit and",
    "counter.Counter.add: boundary `value > self.limit`": "if value >= self.limit and",
    "counter.Counter.add: negate `not self.closed`": "not not self.closed",
    "counter.Counter.add: off by one `self.count + 1`": "self.count + 0",
    "counter.Counter.add: swap `min(self.low, value)`": "max(self.low, value)",
}


def test_every_place_has_its_mutants_and_nothing_else_has() -> None:
    assert set(mutants_of("counter", SOURCE)) == set(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_what_its_name_says(name: str) -> None:
    tree = mutated("counter", SOURCE, name)
    assert tree is not None
    lines = set(ast.unparse(tree).splitlines())
    before = set(ast.unparse(ast.parse(SOURCE)).splitlines())
    (new,) = lines - before or {"pass"}
    assert (MUTANTS[name] or "pass") in new


def test_repeated_text_is_numbered() -> None:
    source = "def f(a):\n    a.x = 1\n    g()\n    a.x = 1\n"
    names = mutants_of("m", source)
    assert "m.f: drop `a.x = 1`" in names
    assert "m.f: drop `a.x = 1` #2" in names


def test_order_is_swapped_only_where_it_matters() -> None:
    def swaps(*lines: str) -> bool:
        source = "def f(a, b):\n" + "".join(f"    {line}\n" for line in lines)
        return any(": swap " in name for name in mutants_of("m", source))

    assert swaps("a.x = 1", "a.y = a.x")
    assert swaps("a.x = 1", "b.save()")
    assert swaps("a.out.append(1)", "a.out.append(2)")
    assert not swaps("a.x = 1", "a.y = 2")
    assert not swaps("a.seen.clear()", "a.y = len(b.rows)")


def test_what_no_operator_can_make_is_nothing() -> None:
    assert mutated("counter", SOURCE, "counter.Counter.add: drop `self.note('added')`") is None
