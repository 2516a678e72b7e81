"""The record walker is compiled into wheels and in place where a compiler is, and missed nowhere."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from deploy.wheels import PROJECTS, build
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from barnabas_raftlog.records.walker import twins

from .conftest import WITHOUT_A_COMPILER, Files
from .environments import Environment, new_environment
from .sources import PACKAGES, ROOT

CLIENTS = PROJECTS["barnabas-clients"]
COMPILED = "barnabas_raftlog/records/walker/compiled"
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
MODULES = sorted(file.stem for file in (PACKAGES["barnabas_raftlog"].parent / COMPILED).glob("*.pyx"))
EVERY_FILE = {f"{COMPILED}/{module}{SUFFIX}" for module in MODULES}
WALK = """
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import HEADER_BYTES
from barnabas_raftlog.records.walker.twins import IS_COMPILED, LACK, check
batch = build_batch([NewRecord(b"key", b"value", 1_000, [])] * 3)
print(IS_COMPILED, "missing" in LACK, check.__module__, *check(batch[HEADER_BYTES:], 3, 1_000, 2, is_dense=True))
"""


def has_a_compiler(folder: Path) -> bool:
    """Tell whether the compiler that setuptools would use makes a program of a line."""
    (folder / "a.c").write_text("int main(void) { return 0; }\n")
    compiler = shlex.split(os.environ.get("CC") or str(sysconfig.get_config_var("CC")))
    try:
        done = subprocess.run([*compiler, "a.c", "-o", "a"], cwd=folder, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


@pytest.fixture(scope="session")
def is_compilable(tmp_path_factory: pytest.TempPathFactory) -> bool:
    return has_a_compiler(tmp_path_factory.mktemp("compiler"))


@pytest.fixture(scope="module")
def with_pure_clients(pure_wheels: Files, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return new_environment(tmp_path_factory.mktemp("pure"), [pure_wheels["barnabas-clients"]])


def compiled_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.endswith((".so", ".pyd"))}


def test_these_tests_run_on_the_compiled_walker_where_a_compiler_is(is_compilable: bool) -> None:
    """If not, `scripts/env` says what it lacks: Python's headers, for one. `CC=/bin/false` does without a compiler."""
    assert is_compilable == twins.IS_COMPILED


def test_a_wheel_has_every_compiled_module_and_the_tag_of_this_machine(wheels: Files, is_compilable: bool) -> None:
    wheel = wheels["barnabas-clients"]
    assert compiled_in(wheel) == (EVERY_FILE if is_compilable else set())
    *_, tags = parse_wheel_filename(wheel.name)
    assert tags <= set(sys_tags())
    assert {tag.abi != "none" for tag in tags} == {is_compilable}


def test_a_wheel_that_was_built_without_a_compiler_is_for_every_machine(pure_wheels: Files) -> None:
    wheel = pure_wheels["barnabas-clients"]
    assert compiled_in(wheel) == set()
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        assert b"Root-Is-Purelib: true" in archive.read(name)


def test_the_clients_check_records_compiled_where_a_compiler_is(with_clients: Environment, is_compilable: bool) -> None:
    kind = "compiled" if is_compilable else "pure"
    expected = f"{is_compilable} {not is_compilable} barnabas_raftlog.records.walker.{kind}.check 0 3 "
    assert with_clients.python(WALK).startswith(expected)


def test_the_clients_check_records_in_python_where_no_compiler_was(with_pure_clients: Environment) -> None:
    expected = "False True barnabas_raftlog.records.walker.pure.check 0 3 "
    assert with_pure_clients.python(WALK).startswith(expected)


def built(folder: Path, target: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel where nothing is printed but by the build."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{"PATH": "/nowhere"}, WITHOUT_A_COMPILER], ids=["no cc", "a cc that fails"])
def test_a_build_without_a_compiler_says_so_in_a_line(variables: dict[str, str], tmp_path: Path) -> None:
    done = built(CLIENTS, tmp_path, **variables)
    assert done.returncode == 0
    (told, file) = done.stderr.splitlines()
    assert told.startswith("the record walker is not compiled, and its twin in Python will be used: ")
    assert file.endswith("-py3-none-any.whl")


@pytest.mark.slow
def test_a_build_that_must_be_compiled_fails_without_a_compiler(tmp_path: Path) -> None:
    done = built(CLIENTS, tmp_path, BARNABAS_WALKER="compiled", **WITHOUT_A_COMPILER)
    assert done.returncode != 0
    assert "BARNABAS_WALKER is 'compiled', and the record walker cannot be compiled here" in done.stderr


@pytest.mark.slow
def test_a_build_that_is_told_nonsense_fails(tmp_path: Path) -> None:
    done = built(CLIENTS, tmp_path, BARNABAS_WALKER="yes")
    assert "BARNABAS_WALKER must be 'compiled', 'pure' or empty, and is 'yes'" in done.stderr


@pytest.mark.slow
def test_nothing_old_gets_into_a_wheel_or_an_sdist(tmp_path: Path) -> None:
    shutil.copytree(CLIENTS, tmp_path / "clients")
    shutil.copytree(PACKAGES["barnabas_raftlog"].parent, tmp_path / "raftlog")
    shutil.copy(ROOT / "README.md", tmp_path)
    for name in (f"check{SUFFIX}", "old.abi3.so", "check.c"):
        (tmp_path / "raftlog" / COMPILED / name).touch()
    wheel = build(tmp_path / "clients", tmp_path / "wheel", variables=WITHOUT_A_COMPILER)
    sdist = build(tmp_path / "clients", tmp_path / "sdist", "sdist")
    assert compiled_in(wheel) == set()
    with tarfile.open(sdist) as archive:
        assert {Path(name).suffix for name in archive.getnames()} & {".so", ".c"} == set()


@pytest.mark.slow
@pytest.mark.parametrize("is_compiled", [True, False])
def test_an_editable_installation_compiles_in_place(is_compiled: bool, is_compilable: bool, tmp_path: Path) -> None:
    shutil.copytree(CLIENTS, tmp_path / "clients")
    shutil.copytree(PACKAGES["barnabas_raftlog"].parent, tmp_path / "raftlog")
    for file in (tmp_path / "raftlog" / COMPILED).glob("*.pyx"):
        if file.stem != "check":  # one will do
            file.unlink()
    old = tmp_path / "raftlog" / COMPILED / f"check{SUFFIX}"
    old.write_bytes(b"")
    variables = {} if is_compiled else WITHOUT_A_COMPILER
    build(tmp_path / "clients", tmp_path / "wheel", "wheel:editable", variables)
    assert old.exists() == (is_compiled and is_compilable)
    assert not old.exists() or old.stat().st_size
