"""The manifests of a Parquet table as bytes, and what a table has after them. Pure.

Manifest N says what commit N added, removed, and knows of offsets. It names the SHA-256 of manifest N - 1, so a chain
that was changed by hand is noticed. A checkpoint has what the table has after a manifest, and follows from the chain
alone: whoever writes it writes the same bytes.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from barnabas_spark.lake.ranges import CommittedRange, PartitionKey, Span, after
from barnabas_spark.lake.table import DataFile, TableError

__all__ = ["NO_MANIFEST", "Contents", "Manifest", "digest"]

FORMAT_VERSION = 1
NO_MANIFEST = ""


def digest(data: bytes) -> str:
    """Return the SHA-256 by which the next manifest names this one."""
    return sha256(data).hexdigest()


class Manifest(NamedTuple):
    """One commit. `schema` is Spark's JSON of the columns of files; `attempt` makes the bytes of every try unlike."""

    number: int
    previous: str
    purpose: str
    attempt: str
    committed_at_ms: int
    schema: Any
    partition_by: str
    added: Sequence[DataFile] = ()
    removed: Sequence[str] = ()
    ranges: Sequence[CommittedRange] = ()

    def encode(self) -> bytes:
        said = self._asdict() | {
            "format": FORMAT_VERSION,
            "added": [_file_to_json(one) for one in self.added],
            "removed": list(self.removed),
            "ranges": [_range_to_json(one) for one in self.ranges],
        }
        return json.dumps(said, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> "Manifest":
        """Read a manifest.

        Raises:
            TableError: it is damaged, or of a version to come.
        """
        said = _read(data, where)
        try:
            files = [_file_from_json(one) for one in said["added"]]
            ranges = [_range_from_json(one) for one in said["ranges"]]
            return cls(**_chosen(said, cls._fields) | {"added": files, "ranges": ranges})
        except (KeyError, TypeError, ValueError) as error:
            raise TableError(f"{where} is damaged: {error!r}") from error


class Contents(NamedTuple):
    """What a table has after manifest `number`, whose digest is `newest`; nothing at 0."""

    number: int = 0
    newest: str = NO_MANIFEST
    schema: Any = None
    partition_by: str = ""
    files: Mapping[str, DataFile] = {}
    spans: Mapping[PartitionKey, Sequence[Span]] = {}

    def followed_by(self, manifest: Manifest, data: bytes, where: str) -> "Contents":
        """Return the contents after one more commit, whose manifest has these bytes.

        Raises:
            TableError: the manifest does not follow.
        """
        if (manifest.number, manifest.previous) != (self.number + 1, self.newest):
            raise TableError(f"{where} does not follow the manifest before it: files of the table were changed by hand")
        files = dict(self.files)
        for path in manifest.removed:
            files.pop(path, None)
        files.update((one.path, one) for one in manifest.added)
        spans = dict(self.spans)
        for one in manifest.ranges:
            spans[one.key] = after(spans.get(one.key, ()), one.start_offset, one.end_offset, one.leader_epoch)
        return Contents(manifest.number, digest(data), manifest.schema, manifest.partition_by, files, spans)

    def encode(self) -> bytes:
        said = self._asdict() | {
            "format": FORMAT_VERSION,
            "files": [_file_to_json(one) for _, one in sorted(self.files.items())],
            "spans": [[*key, *map(list, spans)] for key, spans in sorted(self.spans.items())],
        }
        return json.dumps(said).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> "Contents":
        """Read a checkpoint, or raise `TableError`."""
        said = _read(data, where)
        try:
            files = {one["path"]: _file_from_json(one) for one in said["files"]}
            spans = {PartitionKey(*row[:3]): [Span(*span) for span in row[3:]] for row in said["spans"]}
            return cls(**_chosen(said, cls._fields) | {"files": files, "spans": spans})
        except (KeyError, TypeError, ValueError) as error:
            raise TableError(f"{where} is damaged: {error!r}") from error


def _read(data: bytes, where: str) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(data)
        version = said["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(f"{where} is damaged: it is not a manifest") from error
    if version != FORMAT_VERSION:
        raise TableError(f"{where} has format {version}, and this version reads {FORMAT_VERSION}: upgrade it")
    return said


def _chosen(said: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: said[name] for name in names}


def _file_to_json(one: DataFile) -> dict[str, Any]:
    return one._asdict() | {"partition_values": dict(one.partition_values)}


def _file_from_json(said: Mapping[str, Any]) -> DataFile:
    return DataFile(said["path"], said["size_bytes"], said["rows"], said["partition_values"])


def _range_to_json(one: CommittedRange) -> dict[str, Any]:
    return one._asdict() | {"key": one.key._asdict()}


def _range_from_json(said: Mapping[str, Any]) -> CommittedRange:
    return CommittedRange(**{**said, "key": PartitionKey(**said["key"])})
