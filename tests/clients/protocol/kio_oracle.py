"""Turns a message into the same one of `kio`, and into its bytes.

Others have generated `kio` from Kafka's own schemas.

`kio` turns some integers into richer types (timedelta, datetime, enum, UUID) and drops the unit from their names;
everything else is matched by position, because both sides declare fields in the order of the wire.
"""

import dataclasses
import datetime as dt
import importlib
import io
import re
import uuid
from functools import cache
from typing import Any, get_args, get_type_hints

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from barnabas_clients.protocol.registry import Api
from barnabas_raftlog.wire.layout import layout_of

# Kafka has renamed it in TxnOffsetCommit since kio was generated, as in OffsetCommit before.
_OLDER = {"generation_id_or_member_epoch": "generation_id"}
# kio has the schemas of Kafka 4.3. What came with 4.4 has its bytes in test_transactions.py and test_kafka_4_4.py.
_NEWER = {18: 5, 28: 6, 42: 3}


def known_to_kio(api: Api) -> range:
    """Return those versions of an API that kio knows."""
    return range(api.versions.start, min(api.versions.stop, _NEWER.get(api.key, api.versions.stop)))


@cache
def kio_class(name: str, version: int) -> Any:
    """Return kio's class for a message of ours."""
    api, side = re.fullmatch(r"(\w+)(Request|Response)", name).groups()  # type: ignore[union-attr]
    folder = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api).lower()
    return getattr(importlib.import_module(f"kio.schema.{folder}.v{version}.{side.lower()}"), name)


@cache
def _fields(kio_type: Any) -> list[tuple[str, Any, str]]:
    hints = get_type_hints(kio_type)
    return [(f.name, hints[f.name], f.metadata.get("kafka_type", "")) for f in dataclasses.fields(kio_type)]


@cache
def _our_fields(message: Any, version: int) -> list[str]:
    carried = {field.name for field in layout_of(message, version)}
    return [name for name in message.__struct_fields__ if name in carried]


def to_kio(message: Any, version: int, kio_type: Any = None) -> Any:
    """Convert a message of ours."""
    kio_type = kio_type or kio_class(type(message).__name__, version)
    message_type: Any = type(message)
    ours = _our_fields(message_type, version)
    theirs = _fields(kio_type)
    assert [_letters(name) for name in ours] == [_letters(name) for name, _, _ in theirs]
    values = (
        _convert(getattr(message, name), hint, kind, version)
        for name, (_, hint, kind) in zip(ours, theirs, strict=True)
    )
    return kio_type(**dict(zip((name for name, _, _ in theirs), values, strict=True)))


def _letters(name: str) -> str:
    """Return a name without its unit, and without underscores: kio writes `enable2_pc`."""
    return _OLDER.get(name, name).removesuffix("_ms").replace("_", "")


def _convert(value: Any, hint: Any, kind: str, version: int) -> Any:
    if value is None:
        return None
    if isinstance(value, list | tuple):
        element = next(
            (
                inner
                for choice in (hint, *get_args(hint))
                for inner in get_args(choice)
                if dataclasses.is_dataclass(inner)
            ),
            None,
        )
        return tuple(_convert(each, element, kind, version) for each in value)
    struct = next((choice for choice in (hint, *get_args(hint)) if dataclasses.is_dataclass(choice)), None)
    if struct is not None:
        return to_kio(value, version, struct)
    return _CONVERSIONS.get(kind, lambda plain: plain)(value)


def _date(milliseconds: int) -> dt.datetime | None:
    return None if milliseconds == -1 else dt.datetime.fromtimestamp(milliseconds / 1000, tz=dt.UTC)


def _duration(milliseconds: int) -> dt.timedelta:
    return dt.timedelta(milliseconds=milliseconds)


_CONVERSIONS: dict[str, Any] = {
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "datetime_i64": _date,
    "error_code": ErrorCode,
    "uuid": lambda value: uuid.UUID(bytes=value) if any(value) else None,
    "records": bytes,
}


@cache
def _writer(kio_type: Any) -> Any:
    return entity_writer(kio_type)


def kio_bytes(message: Any, version: int) -> bytes:
    """Encode a message of ours with kio."""
    converted = to_kio(message, version)
    out = io.BytesIO()
    kio_type: Any = type(converted)
    _writer(kio_type)(out, converted)
    return out.getvalue()
