"""Says which files a table has, from the bytes of its metadata alone: with none of our code, deltalake or pyiceberg."""

import io
import json
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

import duckdb
import pyarrow.parquet as pq


def delta_files(root: Path) -> list[str]:
    """Replay the log: from the newest checkpoint if there is one, else from the first commit."""
    log = root / "_delta_log"
    live: set[str] = set()
    first = 0
    if checkpoints := sorted(log.glob("*.checkpoint.parquet")):
        first = int(checkpoints[-1].name.split(".")[0]) + 1
        adds = pq.read_table(checkpoints[-1], columns=["add"]).column("add").to_pylist()
        live = {unquote(add["path"]) for add in adds if add}
    for commit in sorted(log.glob("*.json")):
        if int(commit.stem) >= first:
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            live -= {unquote(action["remove"]["path"]) for action in actions if action.get("remove")}
            live |= {unquote(action["add"]["path"]) for action in actions if action.get("add")}
    return sorted(str(root / path) for path in live)


def parquet_files(root: Path) -> list[str]:
    """Replay the manifests from the first on."""
    live: set[str] = set()
    for manifest in sorted((root / "_manifests").iterdir()):
        said = json.loads(manifest.read_bytes())
        live -= set(said["removed"])
        live |= {one["path"] for one in said["added"]}
    return sorted(str(root / path) for path in live)


def iceberg_files(root: Path, table: str, moved: Mapping[str, str] | None = None) -> list[str]:
    """Follow the catalog's pointer to the metadata, its current snapshot, the list of manifests, and the manifests.

    `moved`: to which directory what lies below a URL was copied.
    """

    def local(location: str) -> Path:
        for url, directory in (moved or {}).items():
            location = location.replace(url, directory)
        return Path(location.removeprefix("file://"))

    with sqlite3.connect(root / "catalog.db") as connection:
        found = connection.execute("SELECT metadata_location FROM iceberg_tables WHERE table_name = ?", (table,))
        (location,) = found.fetchone()
    connection.close()
    metadata = json.loads(local(location).read_text())
    current = [one for one in metadata["snapshots"] if one["snapshot-id"] == metadata.get("current-snapshot-id")]
    files = [
        str(local(entry["data_file"]["file_path"]))
        for snapshot in current
        for manifest in avro_records(local(snapshot["manifest-list"]).read_bytes())
        for entry in avro_records(local(manifest["manifest_path"]).read_bytes())
        if entry["status"] != 2  # deleted
    ]
    return sorted(files)


def rows(paths: list[str]) -> list[tuple[int, int, bytes]]:
    """Return (partition, offset, value) of all rows of all files, a file that is named twice counted twice."""
    if not paths:
        return []
    with duckdb.connect() as connection:
        return connection.execute(
            'SELECT "partition", "offset", "value" FROM read_parquet(?) ORDER BY 1, 2, 3', [paths]
        ).fetchall()


def avro_records(data: bytes) -> Iterator[Any]:
    """Yield the records of an Avro object container file."""
    stream = io.BytesIO(data)
    assert stream.read(4) == b"Obj\x01"
    metadata = dict(_blocks(stream, lambda: (_bytes(stream).decode(), _bytes(stream))))
    schema, codec = json.loads(metadata["avro.schema"]), metadata.get("avro.codec", b"null")
    assert codec in {b"null", b"deflate"}, codec
    marker = stream.read(16)
    while stream.tell() < len(data):
        count, size = _long(stream), _long(stream)
        block = stream.read(size)
        records = io.BytesIO(zlib.decompress(block, -15) if codec == b"deflate" else block)
        for _ in range(count):
            yield _value(records, schema)
        assert stream.read(16) == marker


def _value(stream: BinaryIO, schema: Any) -> Any:
    if isinstance(schema, list):
        return _value(stream, schema[_long(stream)])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return _value(stream, kind)
    if kind in PRIMITIVES:
        return PRIMITIVES[kind](stream)
    if kind == "fixed":
        return stream.read(schema["size"])
    if kind == "record":
        return {field["name"]: _value(stream, field["type"]) for field in schema["fields"]}
    if kind == "array":
        return list(_blocks(stream, lambda: _value(stream, schema["items"])))
    assert kind == "map", schema
    return dict(_blocks(stream, lambda: (_bytes(stream).decode(), _value(stream, schema["values"]))))


def _blocks(stream: BinaryIO, read: Any) -> Iterator[Any]:
    while count := _long(stream):
        if count < 0:
            count = -count
            _long(stream)
        for _ in range(count):
            yield read()


def _long(stream: BinaryIO) -> int:
    number = shift = 0
    while True:
        (byte,) = stream.read(1)
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)


def _bytes(stream: BinaryIO) -> bytes:
    return stream.read(_long(stream))


PRIMITIVES: dict[str, Callable[[BinaryIO], Any]] = {
    "null": lambda _: None,
    "boolean": lambda stream: stream.read(1) == b"\x01",
    "int": _long,
    "long": _long,
    "float": lambda stream: struct.unpack("<f", stream.read(4))[0],
    "double": lambda stream: struct.unpack("<d", stream.read(8))[0],
    "bytes": _bytes,
    "string": lambda stream: _bytes(stream).decode(),
}
