"""A job that commits to a table tries its store out first, before Spark starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark.lake.faults import Forgetful

from barnabas_spark.jobs import archiving, compacting
from barnabas_spark.jobs.archiving import ArchiveJob, ValueOptions, run_archive
from barnabas_spark.jobs.compacting import CompactJob, run_compact
from barnabas_spark.lake.formats.choosing import FORMATS
from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.store import Location, Store, StoreError

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose store forgets conditions. No job gets as far as a session of Spark."""
    there = tmp_path / "forgetful"

    def opened(location: Location) -> Store:
        return Forgetful(there) if location.url == str(there) else open_store(location)

    def started(*_: Any) -> Any:
        pytest.fail("Spark was started")

    for module in (archiving, compacting):
        monkeypatch.setattr(module, "open_store", opened)
        monkeypatch.setattr(module, "session", started)
    return there


def archived(kind: str, to: str, rejects: str = "") -> int:
    values = ValueOptions("id bigint", rejects_url=rejects) if rejects else ValueOptions()
    return run_archive(ArchiveJob("t", Location(to), kind, NOWHERE, values=values))


def compacted(kind: str, to: str) -> int:
    return run_compact(CompactJob("t", Location(to), kind, NOWHERE))


@pytest.mark.parametrize("job", [archived, compacted])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_store_that_forgets_is_refused(forgetful: Path, kind: str, job: Callable[[str, str], int]) -> None:
    with pytest.raises(StoreError, match="forgetful overwrites a file that it was told to create"):
        job(kind, str(forgetful))


@pytest.mark.parametrize("kind", FORMATS)
def test_so_is_one_for_rejects(forgetful: Path, tmp_path: Path, kind: str) -> None:
    with pytest.raises(StoreError, match="forgetful overwrites a file that it was told to create"):
        archived(kind, str(tmp_path / "lake"), rejects=str(forgetful))
