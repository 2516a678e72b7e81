"""Options that several jobs have, and how their values are read."""

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from .errors import UsageError

__all__ = [
    "CODECS",
    "FORMATS",
    "ISOLATION_LEVELS",
    "PARTITIONINGS",
    "AcceptGap",
    "Adopt",
    "AsJson",
    "Bootstrap",
    "Compression",
    "FileSize",
    "Format",
    "FormatThere",
    "Isolation",
    "Level",
    "Master",
    "PartitionBy",
    "RoundSize",
    "RowGroup",
    "StoreOptions",
    "To",
    "Topic",
    "duration_ms",
    "one_of",
    "pairs",
    "size",
]

FORMATS = ("parquet", "delta", "iceberg")
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
PARTITIONINGS = ("day", "hour")
CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_MS = 366 * _UNITS_MS["d"]

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
To = Annotated[str, typer.Option("--to", metavar="DIR|URL", help="Where the table is: a directory, s3://..., gs://...")]
Format = Annotated[str, typer.Option("--format", help="parquet, delta or iceberg.")]
FormatThere = Annotated[
    str, typer.Option("--format", help="parquet, delta or iceberg; if it is not given, what is there.")
]
Bootstrap = Annotated[
    str, typer.Option("--bootstrap-server", "-b", envvar="BARNABAS_BOOTSTRAP_SERVER", help="Brokers, as host:port,...")
]
Master = Annotated[str, typer.Option("--master", help="The Spark master; local[*] if nothing else is configured.")]
PartitionBy = Annotated[str, typer.Option("--partition-by", help="day or hour, of the timestamp in UTC.")]
Compression = Annotated[str, typer.Option("--compression", help="zstd, snappy, gzip, lz4 or none.")]
Level = Annotated[int | None, typer.Option("--compression-level", help="Of zstd or gzip.")]
FileSize = Annotated[str, typer.Option("--file-size", help="Finish a file at this size.")]
RoundSize = Annotated[str, typer.Option("--round-size", help="Plain bytes of a commit, over all partitions.")]
RowGroup = Annotated[str, typer.Option("--row-group-size", help="Plain bytes of a row group.")]
AcceptGap = Annotated[bool, typer.Option("--accept-gap", help="Go on where the log lost offsets.")]
Adopt = Annotated[bool, typer.Option("--adopt", help="Take over a table whose marks are incomplete.")]
StoreOptions = Annotated[
    list[str] | None, typer.Option("--store-option", metavar="NAME=VALUE", help="Of the object store; repeatable.")
]
Isolation = Annotated[
    str, typer.Option("--isolation-level", help="read_committed, or read_uncommitted to have aborted records, too.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]


def one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    """Raise `UsageError` if `value` is not one of `allowed`."""
    if value not in allowed:
        raise UsageError(f"{option}: '{value}' is not known; write one of {', '.join(filter(None, allowed))}")


def size(option: str, text: str) -> int:
    """Read a size such as 64m, in bytes; raises `UsageError`."""
    plain = text.strip().lower().removesuffix("ib").removesuffix("b")
    unit = plain[-1:] if plain[-1:] in "kmg" else ""
    digits = plain.removesuffix(unit) if unit else plain
    if not (digits.isascii() and digits.isdecimal() and int(digits)):
        raise UsageError(f"{option}: '{text}' is not a size; write 64m, 1g or a number of bytes")
    return int(digits) * _UNITS[unit]


def duration_ms(option: str, text: str, *, least_ms: int = 1) -> int:
    """Return a duration in milliseconds, from `least_ms` to 366 days; raises `UsageError`."""
    found = re.fullmatch(r"([0-9]{1,12})(ms|s|m|h|d)", text.strip().lower())
    if found is None:
        raise UsageError(f"{option}: '{text}' is not a duration; write 500ms, 30s, 10m, 2h or 1d")
    duration = int(found[1]) * _UNITS_MS[found[2]]
    if not least_ms <= duration <= _MAX_MS:
        raise UsageError(f"{option}: '{text}' must be from {least_ms}ms to 366d")
    return duration


def pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Read the values of `--store-option`; raises `UsageError`."""
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--store-option: '{text}' is not NAME=VALUE")
        found[name] = value
    return found
