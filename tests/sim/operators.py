"""Mutation operators: small mistakes in a module, one place at a time.

An operator changes one place of a syntax tree. The mutant's name says what it did, and where, and stays the same as
long as that function has that expression, wherever its lines go:

    election.on_vote_request: drop `raft.voted_for = request.source`

A text that a function has more than once is numbered from the second on: `... #2`.

The operators: *negate* a comparison or a truth; move a *boundary* (`<` and `<=`); be *off by one* (`+ 1` and `- 1` add
nothing); *drop* a statement that changes something, a persist or a reset among them; *keep* one of several values that
a statement sets at once as it was; *leave out* one condition of an `and` or an `or`; *swap* two neighbouring statements
that change something, or *swap* `min` and `max`.

Left alone: assertions and docstrings, which change nothing in a run that is right; messages to people; statements of
constructors, and of what they call by the name of `_init_...`, because one that is missing shows as an AttributeError;
variables of a function, which would show as a NameError; and the order of two assignments of which neither reads what
the other writes.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple

__all__ = ["mutants_of", "mutated"]

NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
MOVED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
SWAPPED_CALLS = {"min": "max", "max": "min"}
FOR_PEOPLE = ("note", "out_facts")
"""A statement that names one of these only says something to an operator."""
SHOWN_CHARACTERS = 90
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Edit(NamedTuple):
    """A possible change of a tree: its name, the text and the line it concerns, and a function that makes it."""

    operator: str
    concerns: str
    line: int
    do: Callable[[], object]


def mutants_of(module: str, source: str) -> dict[str, int]:
    """Return the name of every mutant of a module, in the order of its functions, and the line that it is in."""
    return {name: edit.line for name, edit in _named_edits(module, ast.parse(source))}


def mutated(module: str, source: str, name: str) -> ast.Module | None:
    """Return the tree of a module with one mistake in it; None if no such mistake can be made there (any more)."""
    tree = ast.parse(source)
    for found, edit in _named_edits(module, tree):
        if found == name:
            edit.do()
            return ast.fix_missing_locations(tree)
    return None


def _named_edits(module: str, tree: ast.Module) -> Iterator[tuple[str, Edit]]:
    seen = Counter[str]()
    for path, function in _functions(tree, module):
        for edit in _edits(function):
            shown = (
                edit.concerns if len(edit.concerns) <= SHOWN_CHARACTERS else f"{edit.concerns[:SHOWN_CHARACTERS]}..."
            )
            name = f"{path}: {edit.operator} `{shown}`"
            seen[name] += 1
            yield (name if seen[name] == 1 else f"{name} #{seen[name]}"), edit


def _functions(node: ast.AST, path: str) -> Iterator[tuple[str, Function]]:
    """Yield functions and methods with their dotted names; those inside of functions belong to these."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield f"{path}.{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{path}.{child.name}")


def _edits(function: Function) -> Iterator[Edit]:
    is_constructor = function.name.startswith(("__init__", "_init_"))
    waiting: list[ast.AST] = [function]
    while waiting:
        node = waiting.pop()
        for field in ("body", "orelse"):
            if isinstance(block := getattr(node, field, None), list) and not is_constructor:
                yield from _in_block(block)
        yield from _in_expression(node)
        inner = function.body if node is function else list(ast.iter_child_nodes(node))
        waiting.extend(child for child in reversed(inner) if not isinstance(child, ast.Assert) and not _is_talk(child))


def _in_block(block: list[ast.stmt]) -> Iterator[Edit]:
    for place, statement in enumerate(block):
        if not _changes_something(statement):
            continue
        yield Edit("drop", _text(statement), statement.lineno, partial(block.__setitem__, place, ast.Pass()))
        if isinstance(statement, ast.Assign):
            yield from _kept(statement)
    for place, (one, other) in enumerate(pairwise(block)):
        if _changes_something(one) and _changes_something(other) and not _commute(one, other):
            both = f"{_text(one)}; {_text(other)}"
            do = partial(block.__setitem__, slice(place, place + 2), [other, one])
            yield Edit("swap", both, one.lineno, do)


def _kept(statement: ast.Assign) -> Iterator[Edit]:
    """Yield for `a, b = 1, 2` and for `a = b = 0` the changes that leave one of the two as it was."""
    for targets in (statement.targets, *(t.elts for t in statement.targets if isinstance(t, ast.Tuple))):
        for place, target in enumerate(targets):
            if len(targets) > 1 and isinstance(target, ast.Attribute | ast.Subscript):
                what = f"{_text(target)}` in `{_text(statement)}"
                do = partial(targets.__setitem__, place, ast.Name("_", ast.Store()))
                yield Edit("keep", what, statement.lineno, do)


def _in_expression(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Compare(ops=operators):
            if len(operators) == 1:
                do = partial(operators.__setitem__, 0, NEGATED[type(operators[0])]())
                yield Edit("negate", _text(node), node.lineno, do)
            for place, operator in enumerate(operators):
                if moved := MOVED.get(type(operator)):
                    what = _text(node) if len(operators) == 1 else f"{_text(node)}` at {place + 1} `"
                    yield Edit("boundary", what, node.lineno, partial(operators.__setitem__, place, moved()))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Edit("negate", _text(node), node.lineno, partial(setattr, node, "operand", _not(operand)))
        case ast.If(test=test) | ast.IfExp(test=test) if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield Edit("negate", _text(test), test.lineno, partial(setattr, node, "test", _not(test)))
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
            yield Edit("off by one", _text(node), node.lineno, partial(setattr, node, "right", ast.Constant(0)))
        case ast.BoolOp(op=operator, values=values):
            for place, value in enumerate(values):
                do = partial(values.__setitem__, place, ast.Constant(isinstance(operator, ast.And)))
                yield Edit("leave out", _text(value), value.lineno, do)
        case ast.Call(func=ast.Name(id=("min" | "max") as called) as name):
            yield Edit("swap", _text(node), node.lineno, partial(setattr, name, "id", SWAPPED_CALLS[called]))
        case _:
            pass


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _not(test: ast.expr) -> ast.UnaryOp:
    return ast.UnaryOp(ast.Not(), test)


def _changes_something(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call()):
            return not _is_talk(statement)
        case ast.Assign(targets=targets):
            return not any(isinstance(part, ast.Name) for target in targets for part in _parts(target))
        case ast.AugAssign() | ast.Delete():
            return True
        case _:
            return False


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple) else [target]


def _commute(one: ast.stmt, other: ast.stmt) -> bool:
    """True for two statements of which neither reads or writes what the other writes."""
    if not all(_is_known(part) for statement in (one, other) for part in ast.walk(statement)):
        return False
    return not _written(one) & _named(other) and not _written(other) & _named(one)


def _is_known(node: ast.AST) -> bool:
    """False for a call that may change anything: one that makes a value, or changes a collection, is known."""
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name[0].isupper() or name in {"frozenset", "len", "max", "min", "sorted"}
        case ast.Call(func=ast.Subscript()):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Attribute(), attr=method)):
            return method in {"add", "append", "clear", "discard", "pop", "popleft", "randrange"}
        case _:
            return not isinstance(node, ast.Call)


def _written(statement: ast.stmt) -> set[str]:
    found = set[str]()
    for part in ast.walk(statement):
        match part:
            case ast.Call(func=ast.Attribute(value=changed)):
                found.add(ast.unparse(changed))
            case ast.Name(ctx=context) | ast.Attribute(ctx=context) | ast.Subscript(ctx=context) if not isinstance(
                context, ast.Load
            ):
                found.add(ast.unparse(part))
            case _:
                pass
    return found


def _named(statement: ast.stmt) -> set[str]:
    return {
        ast.unparse(part) for part in ast.walk(statement) if isinstance(part, ast.Name | ast.Attribute | ast.Subscript)
    }


def _is_talk(node: ast.AST) -> bool:
    """True for a statement that only tells people something, or only under a condition."""
    if isinstance(node, ast.If):
        return not node.orelse and all(map(_is_talk, node.body))
    return isinstance(node, ast.Expr) and any(
        isinstance(part, ast.Attribute) and part.attr in FOR_PEOPLE for part in ast.walk(node)
    )
