"""`barnabas check`: read a history, and say whether the cluster kept its promises.

The verdict is the first line of the output, the violations follow with the lines they show at. Exit status: 0 all
promises were kept, 1 some were not, 2 the file is no history, or cannot be read. A history without a single
acknowledged record proves nothing and is refused like a malformed one; acknowledged records that no consumer looked for
are counted in the verdict, so that they are not taken for found.
"""

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path

from barnabas_broker.cli.errors import report
from barnabas_broker.cli.output import say, say_json
from barnabas_broker.cli.wording import counted
from barnabas_broker.history import Checker, HistoryError, Summary, decode

__all__ = ["check"]

KEPT = 0
BROKEN = 1
MALFORMED = 2
LINE_BYTES_MAX = 1 << 20  # an event is some hundred bytes; an assignment names its partitions


def check(history: str, limit: int, *, as_json: bool) -> int:
    """Judge the history in a file, or on standard input for `-`; print the verdict and return the exit status."""
    with contextlib.ExitStack() as cleanup:
        try:
            lines = sys.stdin.buffer if history == "-" else cleanup.enter_context(Path(history).open("rb"))
        except OSError as error:
            return report(f"{history}: {error.strerror}", MALFORMED)
        try:
            checker = judge(lines)
        except HistoryError as error:
            return report(f"{history}: {error}", MALFORMED)
    found = checker.summary()
    if not found.acknowledged:
        return report(f"{history}: no record was acknowledged in it, so it shows nothing", MALFORMED)
    shown = checker.violations[:limit]
    if as_json:
        answer = {
            "kept": not found.violations,
            **found._asdict(),
            "first": [{**v._asdict(), "rule": v.rule.name.lower()} for v in shown],
        }
        say_json(answer)
    else:
        say(verdict(found), *map(str, shown))
        if found.violations > len(shown):
            say(f"and {found.violations - len(shown):,} more")
    return BROKEN if found.violations else KEPT


def judge(lines: Iterable[bytes]) -> Checker:
    """Feed a checker with all lines of a history.

    Raises:
        HistoryError: a line is no event, or contradicts what its writer said before.
    """
    checker = Checker()
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_BYTES_MAX:
            raise HistoryError(number, f"longer than {LINE_BYTES_MAX} bytes")
        checker.feed(decode(line, number))
    return checker


def verdict(found: Summary) -> str:
    """Say in one line how it went."""
    scale = ", ".join(
        (
            counted(found.acknowledged, "acknowledged record"),
            counted(found.consumed, "read"),
            counted(found.commits, "commit"),
            counted(found.faults, "fault"),
        )
    )
    unread = sum(found.unread.values())
    unproven = f"; never looked for: {counted(unread, 'acknowledged record')}" if unread else ""
    if found.violations:
        return f"BROKEN: {counted(found.violations, 'violation')} ({scale}{unproven})"
    return f"kept: nothing lost, doubled, reordered or taken back ({scale}{unproven})"
