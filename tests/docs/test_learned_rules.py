"""The page of rules that others learned the hard way names tests that exist, and has each that a test names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    (number, tests)
    for number, tests in re.findall(
        r"^\| ([TGW]\d+) \| .+ \| ((?:`tests/[^`]+`(?:, )?)+) \|$",
        (ROOT / "docs" / "learned-rules.md").read_text(),
        re.MULTILINE,
    )
]
OF_A_RULE = re.compile(r"def test_([tgw]\d+)_")


def names_in(path: Path) -> Iterator[str]:
    """Yield the tests of a file, those in classes with the class."""
    for node in ast.parse(path.read_text()).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        yield from (f"{prefix}{one.name}" for one in inside if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_test_of_a_rule_exists() -> None:
    named = {name for _, tests in ROWS for name in re.findall(r"`([^`]+)`", tests)}
    paths = {name.partition("::")[0] for name in named}
    assert not {path for path in paths if not (ROOT / path).is_file()}
    known = {f"{path}::{name}" for path in paths for name in names_in(ROOT / path)}
    assert not named - known


def test_every_rule_has_its_number_once_and_a_test_for_it() -> None:
    numbers = [number for number, _ in ROWS]
    lines = re.findall(r"^\| [TGW]\d+ ", (ROOT / "docs" / "learned-rules.md").read_text(), re.MULTILINE)
    assert len(lines) == len(numbers) == len(set(numbers)) > 25


def test_a_test_that_names_a_rule_is_of_one_that_is_there() -> None:
    of_rules = {
        number.upper() for path in (ROOT / "tests").rglob("test_*.py") for number in OF_A_RULE.findall(path.read_text())
    }
    assert not of_rules - {number for number, _ in ROWS}
