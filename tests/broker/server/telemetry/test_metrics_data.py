"""Attributes are added to metrics so that OpenTelemetry's own reader finds them; what is no metrics is refused."""

import random

import pytest

from barnabas_broker.server.telemetry.metrics_data import ROWS_MAX, MetricsDataError, with_attributes
from barnabas_broker.server.telemetry.subscriptions import Client

ME = Client("orders", "00000000-0000-0000-0000-000000000001", "x", "1.0", "127.0.0.1", "9")


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes((number << 3 | 2, len(content))) + content


def fields(data: bytes) -> list[tuple[int, bytes]]:
    """Read fields of bytes, in another way than the code does."""
    found = []
    while data:
        number, rest = data[0] >> 3, data[1:]
        size = shift = 0
        while True:
            byte, rest = rest[0], rest[1:]
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        found.append((number, rest[:size]))
        data = rest[size:]
    return found


def test_every_row_gets_a_resource_more_with_the_properties_of_the_client() -> None:
    first = field(1, field(1, field(1, b"k"))) + field(2, b"scope") + field(3, b"url")
    second = field(2, b"other")
    made = with_attributes(memoryview(field(1, first) + field(1, second)), ME)
    rows = fields(made)
    assert [number for number, _ in rows] == [1, 1]
    for (_, row), given in zip(rows, (first, second), strict=True):
        assert row.startswith(given)
        ((number, resource),) = fields(row[len(given) :])
        assert number == 1
        told = {}
        for one, attribute in fields(resource):
            (key, name), (value, any_value) = fields(attribute)
            assert (one, key, value) == (1, 1, 2)
            ((kind, text),) = fields(any_value)
            assert kind == 1
            told[name.decode()] = text.decode()
        assert told == ME._asdict()


def test_no_rows_are_no_bytes() -> None:
    assert with_attributes(memoryview(b""), ME) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",  # no length
        b"\x0a\x05\x0a\x01",  # cut off
        b"\x0a\x02\x0a\x05",  # cut off inside
        b"\x08\x01",  # a number among the rows
        b"\x12\x00",  # another field
        b"\x02\x00",  # field 0
        b"\x0b",  # a group
        b"\x0a" + b"\xff" * 11,  # a length that does not end
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a length beyond everything
        b"garbage",
        b"\x0a\x00" * (ROWS_MAX + 1),
    ],
)
def test_what_is_no_metrics_is_refused(data: bytes) -> None:
    with pytest.raises(MetricsDataError):
        with_attributes(memoryview(data), ME)


def test_damaged_bytes_are_refused_cleanly() -> None:
    chance = random.Random(714)
    good = field(1, field(1, b"\x0a\x01k") + field(2, b"scope") + b"\x18\x05" + b"\x25abcd" + b"\x29abcdefgh")
    refused = 0
    for _ in range(2_000):
        data = bytearray(good * 3)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            with_attributes(memoryview(data[: chance.randrange(len(data))]), ME)
        except MetricsDataError:
            refused += 1
    assert refused > 500
