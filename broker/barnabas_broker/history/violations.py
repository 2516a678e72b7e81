"""The names of the rules, and the report of broken ones. Pure."""

import enum
from typing import NamedTuple

__all__ = ["VIOLATIONS_MAX", "Report", "Rule", "Violation"]

VIOLATIONS_MAX = 10_000  # more teach nobody anything; they are still counted


class Rule(enum.Enum):
    """A promise of the cluster to its clients. The value is how the command prints it."""

    LOST = "acknowledged record lost"
    REORDERED = "records reordered"
    DUPLICATED = "record duplicated"
    NEVER_SENT = "record never sent"
    REFUSED_YET_THERE = "refused record found"
    CHANGED = "record changed"
    OFFSET_REUSED = "two records at one offset"
    POSITION_BACK = "position went back"
    HOLE = "hole in the offsets"
    HIGH_WATERMARK_BACK = "high watermark went back"
    COMMITTED_BACK = "committed offset went back"
    COMMITTED_BY_NOBODY = "committed offset from nobody"
    TWO_OWNERS = "two owners in one generation"
    TWO_IN_ONE_EPOCH = "two owners in one epoch"
    ABORTED_READ = "aborted transaction seen"
    OPEN_READ = "open transaction seen"
    TORN = "torn transaction"
    WORKED_TWICE = "input worked off twice"
    SKIPPED = "input skipped"
    CYCLE = "cycle of transactions"


class Violation(NamedTuple):
    """One broken rule. `line` is where it shows; `fault_line` is the last fault before that, 0 if there was none."""

    line: int
    rule: Rule
    subject: str
    text: str
    fault_line: int = 0

    def __str__(self) -> str:
        after = f" (after the fault of line {self.fault_line})" if self.fault_line else ""
        return f"line {self.line}: {self.rule.value}: {self.subject}: {self.text}{after}"


class Report:
    """The findings of all rules. Keeps the first `VIOLATIONS_MAX`, counts all; knows line and last fault."""

    def __init__(self) -> None:
        self.kept: list[Violation] = []
        self.count = 0
        self.line = 0
        self.fault_line = 0

    def add(self, rule: Rule, subject: str, text: str) -> None:
        self.count += 1
        if len(self.kept) < VIOLATIONS_MAX:
            self.kept.append(
                Violation(line=self.line, rule=rule, subject=subject, text=text, fault_line=self.fault_line)
            )
