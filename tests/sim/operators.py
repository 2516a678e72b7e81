"""Small mistakes, made everywhere: what mutation operators can do to a module, one place at a time.

An operator looks at one node of the syntax tree and says what text stands there instead. A mutant is one replacement;
its name says where and what, and stays the same while that line and its function do:

    election.on_vote_request: drop `raft.voted_for = request.source`

If a text occurs in a function more than once, the later ones have a number: `... #2`.

The operators: *negate* a comparison or a truth; move a *boundary* (`<` and `<=`); be *off by one* (`+ 1` left out);
*drop* a statement that changes something, a persist or a reset among them; drop one *operand* of an `and` or `or`; take
`min` for `max`; *swap* two neighbouring statements that change something.

Left alone: assertions and docstrings, which change nothing in a run that is right; what is only said to people, facts
and their words; constructors, where a statement that is missing shows as an AttributeError; and the swap of two
assignments of which neither reads what the other writes.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

__all__ = ["Mutant", "mutants_of"]

NEGATED: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
MOVED: dict[type[ast.cmpop], str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
SWAPPED_CALLS = {"min": "max", "max": "min"}
FOR_PEOPLE = ("note", "out_facts")
"""A statement that names one of these only says something to an operator."""
SHOWN_CHARACTERS = 90


class Mutant(NamedTuple):
    """`source[start:stop]` is to be `text` instead."""

    name: str
    start: int
    stop: int
    text: str

    def applied_to(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.stop :]


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Return every mutant of a module, in the order of its lines; the names are unique."""
    text = _Text(source)
    seen, mutants = Counter[str](), list[Mutant]()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef) or function.name == "__init__":
            continue
        for operator, start, stop, instead in _replacements(text, function):
            was = " ".join(text[start:stop].split())
            shown = was if operator in {"drop", "swap"} else f"{was}` to `{' '.join(instead.split())}"
            name = f"{module}.{function.name}: {operator} `{shown[:SHOWN_CHARACTERS]}`"
            seen[name] += 1
            mutants.append(Mutant(name if seen[name] == 1 else f"{name} #{seen[name]}", start, stop, instead))
    return sorted(mutants, key=lambda mutant: (mutant.start, mutant.name))


class _Text:
    """Source by the places that syntax trees use: lines from 1 and columns in UTF-8 bytes."""

    def __init__(self, source: str) -> None:
        assert source.isascii(), "columns are bytes"
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def __getitem__(self, places: slice) -> str:
        return self.source[places]

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )


Replacement = tuple[str, int, int, str]
"""(operator, start, stop, the text instead)"""


def _replacements(text: _Text, function: ast.FunctionDef) -> Iterator[Replacement]:
    waiting: list[ast.AST] = list(reversed(function.body))
    yield from _in_block(text, function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.Assert) or _is_for_people(node):
            continue
        for field in ("body", "orelse"):
            if isinstance(block := getattr(node, field, None), list):
                yield from _in_block(text, block)
        yield from _in_expression(text, node)
        waiting.extend(reversed(list(ast.iter_child_nodes(node))))


def _in_block(text: _Text, block: list[ast.stmt]) -> Iterator[Replacement]:
    for statement, following in zip_longest(block, block[1:]):
        if not _changes_something(statement):
            continue
        start, stop = text.span(statement)
        yield "drop", start, stop, "pass"
        if following is not None and _changes_something(following) and not _commute(statement, following):
            next_start, next_stop = text.span(following)
            yield "swap", start, next_stop, text[next_start:next_stop] + text[stop:next_start] + text[start:stop]


def _in_expression(text: _Text, node: ast.AST) -> Iterator[Replacement]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            start, stop = text.span(left)[1], text.span(right)[0]
            # A bracket may stand between the operand and the operator.
            before, after = _around(text[start:stop])
            yield (
                "negate",
                *text.span(node),
                _with(text, node, start, stop, f"{before} {NEGATED[type(operator)]} {after}"),
            )
            if type(operator) in MOVED:
                instead = f"{before} {MOVED[type(operator)]} {after}"
                yield "boundary", *text.span(node), _with(text, node, start, stop, instead)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "negate", *text.span(node), text[slice(*text.span(operand))]
        case ast.If(test=(ast.Name() | ast.Attribute() | ast.Call()) as test):
            start, stop = text.span(test)
            yield "negate", start, stop, f"not {text[start:stop]}"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
            yield "off by one", *text.span(node), text[slice(*text.span(left))]
        case ast.BoolOp(values=values):
            for value in values:
                rest = [f"({text[slice(*text.span(other))]})" for other in values if other is not value]
                word = " and " if isinstance(node.op, ast.And) else " or "
                yield "operand", *text.span(node), f"({word.join(rest)})"
        case ast.Call(func=ast.Name(id=("min" | "max") as name)):
            start, stop = text.span(node.func)
            yield "swap calls", start, stop, SWAPPED_CALLS[name]
        case _:
            pass


def _with(text: _Text, node: ast.expr, start: int, stop: int, instead: str) -> str:
    node_start, node_stop = text.span(node)
    return text[node_start:start] + instead + text[stop:node_stop]


def _around(between: str) -> tuple[str, str]:
    """Return the brackets before and behind an operator."""
    return between[: between.rfind(")") + 1], between[between.find("(") :] if "(" in between else ""


def _changes_something(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call()):
            return not _is_for_people(statement)
        case ast.Assign(targets=targets):
            # A name of its own is needed by what follows: without it the mutant would only be a NameError.
            return not all(isinstance(target, ast.Name) for target in targets)
        case ast.AugAssign() | ast.Delete():
            return True
        case _:
            return False


def _commute(one: ast.stmt, other: ast.stmt) -> bool:
    """True for two assignments of which neither reads or writes what the other writes."""
    if any(isinstance(part, ast.Call) for statement in (one, other) for part in ast.walk(statement)):
        return False
    return not _written(one) & _named(other) and not _written(other) & _named(one)


def _written(statement: ast.stmt) -> set[str]:
    parts = ast.walk(statement)
    return {ast.unparse(part) for part in parts if isinstance(getattr(part, "ctx", None), ast.Store | ast.Del)}


def _named(statement: ast.stmt) -> set[str]:
    return {
        ast.unparse(part) for part in ast.walk(statement) if isinstance(part, ast.Name | ast.Attribute | ast.Subscript)
    }


def _is_for_people(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and any(
        isinstance(part, ast.Attribute) and part.attr in FOR_PEOPLE for part in ast.walk(node)
    )
