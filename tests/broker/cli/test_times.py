"""Times and durations as people type them."""

from datetime import datetime

import pytest

from barnabas_broker.cli.errors import CommandError
from barnabas_broker.cli.times import duration_ms, readable, timestamp_ms

NOW_MS = 1_763_700_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90_000),
        ("250ms", 250),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT1S", 86_401_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(text) == expected
    assert timestamp_ms(text, NOW_MS) == NOW_MS - expected


def test_times() -> None:
    assert timestamp_ms("1700000000000", NOW_MS) == 1_700_000_000_000
    assert timestamp_ms("2023-11-14T22:13:20Z", NOW_MS) == 1_700_000_000_000
    assert timestamp_ms("2023-11-14T23:13:20.5+01:00", NOW_MS) == 1_700_000_000_500
    local = datetime(2023, 11, 14, 22, 13, 20).astimezone()
    assert timestamp_ms("2023-11-14T22:13:20", NOW_MS) == int(local.timestamp() * 1000)
    assert timestamp_ms("9999w", NOW_MS) == 0


@pytest.mark.parametrize("text", ["", "soon", "5", "h", "p", "pt", "1h30", "-5m", "1x", "PT"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not a valid duration; write 90s"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["", "soon", "2023-13-01", "0001-01-01", "1969-12-31T00:00Z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(CommandError):
        timestamp_ms(text, NOW_MS)


def test_seconds_are_noticed() -> None:
    with pytest.raises(CommandError, match=r"1700000000000 would be 2023-11-14T22:13:20\.000Z"):
        timestamp_ms("1700000000", NOW_MS)


def test_times_are_written_to_the_millisecond() -> None:
    assert readable(1_700_000_000_999) == "2023-11-14T22:13:20.999Z"
    assert readable(-1) == "-1"
    assert readable(2**62) == str(2**62)
