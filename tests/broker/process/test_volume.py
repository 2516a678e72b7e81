"""The volume of a directory: asked once for many, and again when the answer has aged."""

import asyncio
import os
from pathlib import Path

import pytest

from barnabas_broker.process.volume import UNKNOWN, Volume


async def test_many_share_one_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = os.statvfs

    def counted(path: str) -> os.statvfs_result:
        asked.append(path)
        return real(path)

    monkeypatch.setattr(os, "statvfs", counted)
    one = Volume(str(tmp_path))
    found = await asyncio.gather(*(one.bytes() for _ in range(20)), one.bytes())
    assert found[0].total >= found[0].usable > 0
    assert {each.total for each in found} == {found[0].total}
    await one.bytes()
    assert len(asked) == 1
    one._until_s = 0.0
    await one.bytes()
    assert len(asked) == 2


async def test_a_directory_that_is_not_there_has_an_unknown_volume(tmp_path: Path) -> None:
    assert await Volume(str(tmp_path / "none")).bytes() == UNKNOWN
