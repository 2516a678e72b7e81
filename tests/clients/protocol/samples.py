"""Random messages in every declared version, drawn from a seed. Only fields that the version carries are set."""

import random
from typing import Any

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import APIS
from barnabas_raftlog.wire.layout import Array, Blob, Field, Fixed, Nested, RecordSet, Text, layout_of
from barnabas_raftlog.wire.schema import Message

# The first two lengths need one byte as a varint, the others two; 300 also leaves the table of short arrays.
LENGTHS = (0, 1, 126, 127, 128, 300)
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}  # a "H" has 16, and no sign

CODES = [code for code in ErrorCode if code <= ErrorCode.SHARE_SESSION_LIMIT_REACHED]  # the last one that kio knows
OURS_SINCE = 25185  # our own APIs have keys from here on, and nobody else knows them
EVERY_MESSAGE = [(api, side) for api in APIS.values() for side in ("request", "response")]
EVERY_MESSAGE_OF_KAFKA = [(api, side) for api, side in EVERY_MESSAGE if api.key < OURS_SINCE]
EVERY_VERSION = [(getattr(api, side), version) for api, side in EVERY_MESSAGE for version in api.versions]


def sample(message: type[Any], version: int, chance: random.Random, depth: int = 0) -> Any:
    """Return a message, or a struct in one, with random contents."""
    return message(**{field.name: _value(field, version, chance, depth) for field in layout_of(message, version)})


def _value(field: Field, version: int, chance: random.Random, depth: int) -> Any:
    if field.nullable and chance.random() < 0.2:
        return None
    if field.tag is not None and chance.random() < 0.4:
        return [] if isinstance(field.kind, Array) else field.default
    match field.kind:
        case Array(element):
            short = chance.randrange(3)
            count = chance.choice((200, short)) if isinstance(element, Fixed) and chance.random() < 0.1 else short
            plain = Field(name=field.name, kind=element, nullable=False, tag=None, default=None)
            values = [_value(plain, version, chance, depth + 1) for _ in range(count)]
            return values if isinstance(element, Nested) else tuple(values)
        case Nested(struct):
            return sample(struct, version, chance, depth)
        case Fixed(code):
            return _fixed(field.name, code, chance)
        case Text():
            return chance.choice(("", "topic", "ünï-çødé-日本-\U0001f680", "x" * chance.choice(LENGTHS)))
        case Blob() | RecordSet():
            return chance.randbytes(chance.choice(LENGTHS))


def _fixed(name: str, code: str, chance: random.Random) -> Any:
    if code == "16s":
        return chance.choice((bytes(16), chance.randbytes(16)))
    if code == "?":
        return chance.random() < 0.5
    if name.endswith("error_code"):
        return int(chance.choice(CODES))
    if name in {"log_append_time_ms", "transaction_start_time_ms"}:  # kio reads a date, of whole seconds
        at_ms = chance.randrange(2**31) * 1000
        return chance.choice((-1, at_ms)) if name == "log_append_time_ms" else at_ms
    if name in {"retention_time_ms", "max_lifetime_ms", "renew_period_ms", "expiry_time_period_ms"}:
        return chance.randrange(-(2**40), 2**40)  # kio reads a timedelta, which has less range
    if name in {"issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"}:  # likewise a date
        return chance.randrange(2**31) * 1000
    if code == "H":
        return chance.choice((0, 2**16 - 1, chance.randrange(2**16)))
    bits = BITS[code]
    return chance.choice((0, -1, 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, chance.randrange(2 ** (bits - 1))))


def filled(message: type[Message], version: int, seed: int = 0) -> Any:
    """Return a message in which no array is empty: one that reaches all of the codec."""
    for attempt in range(1000):  # A handful is enough.
        made = sample(message, version, random.Random(f"{message.__name__} {version} {seed} {attempt}"))
        if all(_is_full(getattr(made, field.name), field, version) for field in layout_of(message, version)):
            return made
    raise AssertionError(f"no full {message.__name__} v{version}")


def _is_full(value: Any, field: Field, version: int) -> bool:
    match field.kind:
        case Array(Nested(struct)):
            fields = layout_of(struct, version)
            return bool(value) and all(_is_full(getattr(each, f.name), f, version) for each in value for f in fields)
        case Array():
            return bool(value)
        case _:
            return True
