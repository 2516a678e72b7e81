"""`consume --offset` understands the ranges that rpk does."""

import pytest

from barnabas_broker.cli.errors import UsageError
from barnabas_broker.cli.streams.offset_ranges import Anchor, OffsetRange, Place, parse_range

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000
START, END = Place(Anchor.START), Place(Anchor.END)
DAY = Place(Anchor.TIME, 1_771_027_200_000)  # 2026-02-14 in UTC


def at(offset: int) -> Place:
    return Place(Anchor.OFFSET, offset)


def ago(hours: float) -> Place:
    return Place(Anchor.TIME, NOW_MS - round(hours * HOUR_MS))


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("5", at(5), None),
        ("-10", Place(Anchor.END, -10), None),
        ("+5", Place(Anchor.START, 5), None),
        ("start", START, None),
        ("beginning", START, None),
        ("end", END, None),
        ("5:10", at(5), at(10)),
        ("5:", at(5), None),
        (":10", START, at(10)),
        (":end", START, END),
        ("-10:-5", Place(Anchor.END, -10), Place(Anchor.END, -5)),
        ("@1h", ago(1), None),
        ("@-90m", ago(1.5), None),
        ("@-48h:-24h", ago(48), ago(24)),
        ("@-1h:end", ago(1), END),
        ("@:-1h", START, ago(1)),
        ("@2026-02-14T00:00Z", DAY, None),
        ("@2026-02-14T00:00:00Z:1h", DAY, DAY._replace(number=DAY.number + HOUR_MS)),
        ("@2026-02-14T00:00Z:2026-02-14T01:00Z", DAY, DAY._replace(number=DAY.number + HOUR_MS)),
        ("@2026-02-14T00:00Z:@2026-02-14T01:00Z", DAY, DAY._replace(number=DAY.number + HOUR_MS)),
        ("@1771027200000:", DAY, None),
        ("@1771027200000:@-1h", DAY, ago(1)),
    ],
)
def test_a_range_has_a_start_and_perhaps_an_end(text: str, start: Place, end: Place | None) -> None:
    assert parse_range(text, NOW_MS) == OffsetRange(start, end)


@pytest.mark.parametrize("text", ["", "x", ":", "@", "@:", "--5", "5:x", "5:4:6", "+-5", "1.5", "@soon", "@1h:soon"])
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(UsageError, match="write "):
        parse_range(text, NOW_MS)


@pytest.mark.parametrize("text", ["10:5", "+3:+2", "-5:-10", "@-1h:-2h"])
def test_a_range_that_ends_before_it_begins_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="ends before it begins"):
        parse_range(text, NOW_MS)
