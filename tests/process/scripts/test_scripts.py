"""Commands name modules that exist, and all modules of `scripts/` load: nothing is run."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts"
WRAPPERS = sorted(
    path
    for path in SCRIPTS.rglob("*")
    if path.is_file() and not path.suffix and path.read_bytes().startswith(b"#!/usr/bin/env bash\n")
)
STARTS_ONE = re.compile(r"module_command\(|Told\(|\"-m\"")
SOURCES = sorted(
    path
    for folder in ("scripts", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if STARTS_ONE.search(path.read_text())
)
NEEDS_ATHERIS = "fuzzing.decoders.one_target"
FETCHED = {"mkdocs"}  # by the command itself, when it needs it


def below_root(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=below_root)
def test_a_command_can_be_run_and_its_module_exists(wrapper: Path) -> None:
    text = wrapper.read_text()
    assert os.access(wrapper, os.X_OK)
    subprocess.run(["bash", "-n", wrapper], check=True)
    named = re.findall(r"(?:-m |module=)([a-z][a-z0-9_.]*)", text)
    assert not [module for module in named if module not in FETCHED and find_spec(module) is None]
    assert below_root(wrapper) in text, "its first lines show how it is called"


def test_every_command_of_the_list_is_there() -> None:
    assert {"demo", "test", "sim", "torture", "kill-rounds", "quick"} <= {path.name for path in WRAPPERS}


def children(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a source starts as processes, as far as it names them in so many words."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("module_command"), [ast.Constant(str(module)), *_]):
                yield module
            case ast.Call(ast.Name("Told"), [ast.Constant(str(module)), *_]):
                yield f"hostile.{module}"
            case ast.List(words) | ast.Tuple(words):
                for before, option, name in zip(words, words[1:], words[2:], strict=False):
                    match before, option, name:
                        case ast.Attribute(attr="executable"), ast.Constant("-m"), ast.Constant(str(module)):
                            yield module
                        case _:
                            pass
            case _:
                pass


@pytest.mark.parametrize("path", SOURCES, ids=below_root)
def test_every_module_that_is_started_exists(path: Path) -> None:
    named = set(children(ast.parse(path.read_text()))) - {"hostile.no-such-module"}
    assert not [module for module in named if "-" in module or find_spec(module) is None]


def test_modules_that_are_started_are_found() -> None:
    text = "module_command('a.b', 1); Told('sink', 2); [sys.executable, '-m', 'c']; ('-m', name)"
    assert list(children(ast.parse(text))) == ["a.b", "hostile.sink", "c"]


@pytest.mark.slow
def test_every_module_of_the_scripts_can_be_loaded() -> None:
    names = [".".join(path.relative_to(SCRIPTS).with_suffix("").parts) for path in SCRIPTS.rglob("*.py")]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name.removesuffix('.__init__'))"
    path = os.pathsep.join([str(SCRIPTS), str(ROOT / "tests")])
    words = [sys.executable, "-c", code, *sorted(set(names) - {NEEDS_ATHERIS})]
    subprocess.run(words, check=True, env=os.environ | {"PYTHONPATH": path})
