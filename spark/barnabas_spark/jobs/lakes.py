"""Finds a table that is there: its format, if nobody says it, and its newest version."""

from typing import Any, NamedTuple

from barnabas_spark.lake.formats.choosing import open_archive
from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.store import Location, MissingError, Store
from barnabas_spark.lake.table import TableError, TableState

__all__ = ["Lake", "find_lake"]

_SIGNS = {"parquet": "_manifests/", "delta": "_delta_log/", "iceberg": "metadata/"}


class Lake(NamedTuple):
    """A table at one version."""

    location: Location
    kind: str
    table: Any
    state: TableState


def find_lake(location: Location, kind: str = "") -> Lake:
    """Open the table at a location, for reading only.

    Raises:
        TableError: there is none, or it cannot be trusted.
    """
    chosen = kind or _kind(open_store(location), location)
    table = open_archive(chosen, location)
    state = table.load()
    if not state.version and not state.spans:
        raise TableError(f"there is no {chosen} table at {location.url}")
    return Lake(location, chosen, table, state)


def _kind(store: Store, location: Location) -> str:
    for kind, folder in _SIGNS.items():
        try:
            if any(True for _ in store.list(folder)):
                return kind
        except MissingError:
            continue
    if not location.is_local and location.catalog:
        return "iceberg"
    raise TableError(f"there is no table at {location.url}; --format says what to look for")
