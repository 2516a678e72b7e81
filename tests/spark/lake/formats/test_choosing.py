"""A table is opened with options that something looks at; any other is refused by its name."""

from pathlib import Path

import pytest
from pyiceberg.utils.config import Config

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.jobs.archiving import ArchiveJob
from barnabas_spark.lake.formats.choosing import FORMATS, TABLE, open_table
from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.store import Location

BUCKET = "s3://bucket/orders"
STORE = {"endpoint": "http://127.0.0.1:1", "region": "us-east-1"}


def test_options_are_parted_into_those_of_the_store_and_of_the_catalog() -> None:
    location = Location(BUCKET, {**STORE, "catalog.type": "sql", "catalog.s3.endpoint": "other"})
    assert location.store_options == STORE
    assert location.catalog == {"type": "sql", "s3.endpoint": "other"}
    open_store(location)  # which names what it does not know


@pytest.mark.parametrize("kind", FORMATS)
def test_a_directory_has_no_option(kind: str, tmp_path: Path) -> None:
    complaint = f"{tmp_path} is a directory, and has no option 'uri'; those of a catalog are catalog.uri"
    with pytest.raises(BarnabasError, match=complaint):
        open_table(kind, Location(str(tmp_path), {"uri": "sqlite:///x"}), Layout())


@pytest.mark.parametrize("kind", [one for one in FORMATS if one != "iceberg"])
def test_only_iceberg_has_a_catalog(kind: str) -> None:
    with pytest.raises(BarnabasError, match=f"a {kind} table has no catalog: leave 'catalog.uri' out"):
        open_table(kind, Location(BUCKET, {**STORE, "catalog.uri": "sqlite:///x"}), Layout())


@pytest.mark.parametrize("options", [{}, STORE, {**STORE, TABLE: "a.b"}])
def test_an_iceberg_table_in_a_bucket_needs_a_catalog(options: dict[str, str]) -> None:
    with pytest.raises(BarnabasError, match=f"needs a catalog; give it as options of {BUCKET}: catalog.type=rest"):
        open_table("iceberg", Location(BUCKET, options), Layout())


def test_a_catalog_has_the_options_of_the_store_and_the_name_of_the_table(tmp_path: Path) -> None:
    catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.db", TABLE: "shop.orders"}
    opened = open_table("iceberg", Location(BUCKET, {**STORE, **catalog}), Layout())
    assert opened.identifier == "shop.orders"
    assert opened.load().spans == {}
    assert (tmp_path / "catalog.db").exists()
    known = opened._catalog().properties
    assert (known["s3.endpoint"], known["s3.region"]) == (STORE["endpoint"], STORE["region"])


def test_a_catalog_that_is_only_named_is_that_of_pyicebergs_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/shop.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # which is read once, when it is imported
    opened = open_table("iceberg", Location(BUCKET, {**STORE, "catalog.name": "shop"}), Layout())
    assert (opened.identifier, opened.load().spans) == ("lake.orders", {})
    assert (tmp_path / "shop.db").exists()


def test_the_table_of_rejects_has_a_name_of_its_own() -> None:
    job = ArchiveJob("t", Location(BUCKET, {**STORE, TABLE: "shop.orders"}), "iceberg", "b")
    assert job.rejects == Location(f"{BUCKET}_rejects", {**STORE, TABLE: "shop.orders_rejects"})
