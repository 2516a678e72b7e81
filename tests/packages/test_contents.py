"""Wheels and sdists hold what belongs in them, each file once, and say what they need."""

import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from deploy.wheels import PROJECTS, build
from packaging.requirements import Requirement
from trove_classifiers import classifiers

from barnabas_raftlog.version import __version__

from .conftest import SOON_COMPILED, Files
from .environments import metadata_of
from .sources import MODULES, PACKAGES, ROOT, closure, libraries

NAMES = tuple(PROJECTS)
WALKER = "barnabas_raftlog.records.walker."  # compiled as one, also for the readers of Spark
COMPILED = "barnabas_raftlog/records/walker/compiled"
SOURCES = ("raftlog", "clients", "metadata_quorum", "broker", "spark")
# Wanted by a part of the code that asks for an extra, or runs without it; pytest loads the plugin by itself.
OF_EXTRAS = {"pyspark", "py4j", "pyarrow", "deltalake", "matplotlib", "obstore", "pyiceberg", "google_crc32c", "pytest"}


def project(name: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((PROJECTS[name] / "pyproject.toml").read_text())["project"]
    return table


def inside(wheel: Path) -> set[str]:
    """Return the names of the files of a wheel, its metadata left out."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def contents(wheel: Path) -> dict[str, list[bytes]]:
    """Return the sorted lines of each file of a wheel: RECORD lists files in the order in which they were found.

    What was compiled is there by its name only, and not in RECORD: made in another folder it may be other bytes.
    """

    def lines(name: str) -> list[bytes]:
        if name.endswith(".so"):
            return []
        return sorted(line for line in archive.read(name).splitlines() if b".so,sha256=" not in line)

    with zipfile.ZipFile(wheel) as archive:
        return {name: lines(name) for name in archive.namelist()}


def modules(wheel: Path) -> set[str]:
    files = (PurePosixPath(name) for name in inside(wheel) if name.endswith(".py"))
    return {".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files}


def test_no_file_is_in_both_wheels(wheels: Files) -> None:
    assert inside(wheels["barnabas-clients"]) & inside(wheels["barnabas"]) == set()


def test_every_module_is_in_a_wheel_and_nothing_else_is(pure_wheels: Files) -> None:
    marks = {f"{package}/py.typed" for package in PACKAGES}
    sources = {str(file.relative_to(PACKAGES[name.partition(".")[0]].parent)) for name, file in MODULES.items()}
    types = walker_files(".pyi")
    assert inside(pure_wheels["barnabas-clients"]) | inside(pure_wheels["barnabas"]) == sources | marks | types


def walker_files(*suffixes: str) -> set[str]:
    """Return the names, as in a wheel, of the files of the compiled walker that are no modules in Python."""
    folder = PACKAGES["barnabas_raftlog"].parent
    return {str(file.relative_to(folder)) for file in (folder / COMPILED).rglob("*") if file.suffix in suffixes}


def test_the_clients_have_exactly_the_modules_that_they_import(wheels: Files) -> None:
    """If not: `raftlog` in clients/pyproject.toml, and `exclude` in the one above it, list them."""
    there, wanted = modules(wheels["barnabas-clients"]), closure("barnabas_clients")
    unused = {module for module in there - wanted if not module.startswith(WALKER)}
    assert unused == set(), "listed, and nothing imports it"
    assert wanted - there == set(), "imported, and not listed"


def test_every_package_says_that_it_is_typed() -> None:
    folders = {file.parent for name in SOURCES for file in (ROOT / name).glob("*/__init__.py")}
    assert folders == set(PACKAGES.values())


@pytest.mark.parametrize("name", NAMES)
def test_all_that_is_imported_is_required_and_nothing_else_is(name: str, wheels: Files) -> None:
    used = set().union(*(libraries(module) for module in modules(wheels[name])))
    wanted = used - sys.stdlib_module_names - OF_EXTRAS
    required = {Requirement(text).name for text in project(name)["dependencies"]} - PROJECTS.keys()
    # Each of them has the name of what it installs.
    assert {normal(one) for one in wanted} == {normal(one) for one in required}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", NAMES)
def test_the_metadata_says_what_it_is(name: str, wheels: Files) -> None:
    metadata = metadata_of(wheels[name])
    assert metadata["Name"] == name
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Summary"]
    assert metadata["Keywords"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (PROJECTS[name] / "README.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_classifiers_are_those_that_an_index_knows(name: str, wheels: Files) -> None:
    ours = metadata_of(wheels[name]).get_all("Classifier", [])
    assert set(ours) - set(classifiers) == set()
    assert {"Framework :: AsyncIO", "Typing :: Typed", "Operating System :: POSIX :: Linux"} <= set(ours)
    versions = [
        one.rpartition(" ")[2] for one in ours if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", one)
    ]
    assert versions[:3] == ["3.11", "3.12", "3.13"]


def test_the_broker_requires_clients_of_its_own_version(wheels: Files) -> None:
    required = metadata_of(wheels["barnabas"]).get_all("Requires-Dist", [])
    assert f"barnabas-clients=={__version__}" in required
    extras = {"pyspark", "pyarrow", "pandas"} | {"deltalake", "matplotlib", "obstore", "pyiceberg"}
    assert {Requirement(text).name for text in required if "extra ==" in text} == extras


def test_two_commands_are_installed(wheels: Files) -> None:
    with zipfile.ZipFile(wheels["barnabas"]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert archive.read(name).decode().split() == [
            "[console_scripts]",
            "barnabas",
            "=",
            "barnabas_broker.cli.entry:main",
            "barnabas-spark",
            "=",
            "barnabas_spark.jobs.cli:main",
            "[pytest11]",
            "barnabas",
            "=",
            "barnabas_broker.pytest_plugin",
        ]
    with zipfile.ZipFile(wheels["barnabas-clients"]) as archive:
        assert [name for name in archive.namelist() if name.endswith("entry_points.txt")] == []


def test_both_have_the_licence() -> None:
    assert (ROOT / "clients" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_sdist_builds_the_same_wheel_without_the_repository(
    name: str, wheels: Files, sdists: Files, tmp_path: Path
) -> None:
    with tarfile.open(sdists[name]) as archive:
        # Early releases of Python 3.11 have no filters; the archive is our own.
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]  # noqa: S202
    (unpacked,) = tmp_path.iterdir()
    assert contents(build(unpacked, tmp_path / "built", variables=SOON_COMPILED)) == contents(wheels[name])


@pytest.mark.parametrize("name", NAMES)
def test_an_sdist_has_what_its_wheel_is_made_of_and_nothing_else(name: str, pure_wheels: Files, sdists: Files) -> None:
    with tarfile.open(sdists[name]) as archive:
        there = {str(PurePosixPath(*PurePosixPath(one).parts[1:])) for one in archive.getnames()}
    about = {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE", ".gitignore"}
    about |= {"hatch_build.py", "compile_walker.py"} if name == "barnabas-clients" else {"CHANGELOG.md"}
    within = {re.sub(rf"^({'|'.join(SOURCES)})/", "", one) for one in there - about}
    assert about <= there
    to_compile = walker_files(".pyx", ".pxd") if name == "barnabas-clients" else set()
    assert within == inside(pure_wheels[name]) | to_compile
