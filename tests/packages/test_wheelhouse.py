"""The parts of `scripts/deploy/wheelhouse`: what a build is told, and whether a wheel keeps what its tag promises."""

import os
import zipfile
from pathlib import Path

import pytest
from deploy import wheelhouse
from deploy.wheelhouse import broken_promises, variables_for

from .conftest import Files

MODULE = "barnabas_raftlog/records/walker/compiled/check.so"


@pytest.mark.parametrize(
    ("inside", "found"),
    [
        (b"\x7fELF\0libc.so.6\0GLIBC_2.2.5\0GLIBC_2.14\0GLIBC_2.17\0", []),
        (b"\x7fELF\0libc.so.6\0GLIBC_2.28\0", [f"{MODULE} needs glibc 2.28"]),
        (b"\x7fELF\0libc.so.6\0libasan.so.8\0", [f"{MODULE} needs libasan.so.8"]),
        (None, ["nothing in it is compiled"]),
    ],
)
def test_a_wheel_that_needs_more_than_it_says_is_found(inside: bytes | None, found: list[str], tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("barnabas_raftlog/__init__.py", "")
        if inside is not None:
            archive.writestr(MODULE, inside)
    assert broken_promises(wheel) == found


def test_another_processor_has_another_compiler_and_suffix() -> None:
    here = variables_for(os.uname().machine, "3.12")
    assert here.keys() == {"BARNABAS_WALKER", "BARNABAS_WALKER_PLATFORM"}
    there = variables_for("riscv64", "3.12")
    assert there["BARNABAS_WALKER_PLATFORM"] == "manylinux_2_17_riscv64"
    assert there["SETUPTOOLS_EXT_SUFFIX"] == ".cpython-312-riscv64-linux-gnu.so"
    assert there["CC"].endswith("-m ziglang cc -target riscv64-linux-gnu.2.17")


@pytest.mark.slow
def test_all_is_built_for_each_python_and_a_broken_promise_is_the_exit_status(
    wheels: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built: list[tuple[str, str]] = []

    def compiled(python: str, version: str, processor: str, sdist: Path, target: Path) -> Path:
        assert (python, sdist.parent) == ("/python", target)
        built.append((version, processor))
        return wheels["barnabas"]

    monkeypatch.setattr(wheelhouse, "find", lambda version: ("/python", version) if version == "3.12" else None)
    monkeypatch.setattr(wheelhouse, "compiled_wheel", compiled)
    assert wheelhouse.main([str(tmp_path), "--only", "3.11", "--only", "3.12"]) == 1
    assert built == [("3.12", os.uname().machine)]
    assert {file.suffix for file in tmp_path.iterdir()} == {".gz", ".whl"}
    assert capsys.readouterr().out.splitlines() == [
        "3.11: not built, since it is not installed here",
        f"{wheels['barnabas'].name}: nothing in it is compiled",
    ]
