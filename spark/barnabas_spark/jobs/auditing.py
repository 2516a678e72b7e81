"""The job `audit`: proves what a lake has of a topic, shows what was found, and writes a report."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas_spark.lake.store import Location

from .archiving import read_options
from .audit.evidence import Evidence
from .audit.findings import Finding, findings_of
from .audit.gathering import Question, gather
from .audit.summary import PartitionSummary, summaries_of
from .audit.tables import partition_table
from .output import print_table, say, say_json
from .session import session

__all__ = ["AuditJob", "run_audit", "verdict_of"]

SOUND = 0
WRONG = 1


class AuditJob(NamedTuple):
    """What the command line says. `location` is None to look at the topic alone; `bootstrap` is "" to ask no broker."""

    topic: str
    location: Location | None
    bootstrap: str
    kind: str = ""
    master: str = ""
    reads_log: bool = True
    group: str = ""
    report: str = ""
    as_json: bool = False
    isolation_level: str = "read_committed"


def run_audit(job: AuditJob) -> int:
    """Run it; return the exit status: 1 if anything is wrong. Lag is not wrong."""
    options = read_options(job.bootstrap, job.topic, job.isolation_level) if job.bootstrap else None
    question = Question(job.topic, job.location, job.kind, options, job.reads_log, job.group)
    began = time.monotonic()
    with session("audit", job.master) as spark:
        seen = gather(spark, question, say)._replace(took_s=time.monotonic() - began)
    findings = findings_of(seen)
    summaries = summaries_of(seen, findings)
    verdict = verdict_of(seen, summaries, findings)
    if job.as_json:
        _show_json(summaries, findings)
    else:
        _show(seen, summaries, findings)
    if job.report:
        from .audit.report import page_of  # noqa: PLC0415 - it loads matplotlib

        Path(job.report).write_text(page_of(seen, summaries, findings, verdict), "utf-8")
        say(f"the report is {job.report}")
    say(verdict)
    return WRONG if any(one.is_wrong for one in findings) else SOUND


def verdict_of(seen: Evidence, summaries: Sequence[PartitionSummary], findings: Sequence[Finding]) -> str:
    """Return what came out, in a line."""
    wrong = sum(one.is_wrong for one in findings)
    rows = sum(one.rows for one in summaries)
    proofs = [
        f"{sum(one.claims_proved for one in summaries)} of {sum(one.claims for one in summaries)} commits"
        if seen.location
        else "",
        f"{sum(one.log_proved for one in summaries)} of {sum(one.log_units for one in summaries)} ranges of the log"
        if seen.log
        else "",
    ]
    what = "1 thing is wrong" if wrong == 1 else f"{wrong} things are wrong" if wrong else "nothing is wrong"
    proved = " and ".join(filter(None, proofs))
    return f"{what}: {rows:,} rows read; {proved} proved; {seen.took_s:.1f} s" if proved else f"{what}: {rows:,} rows"


def _show_json(summaries: Sequence[PartitionSummary], findings: Sequence[Finding]) -> None:
    say_json({"what": "partition"} | one._asdict() for one in summaries)
    say_json({"what": "finding"} | one._asdict() for one in findings)


def _show(seen: Evidence, summaries: Sequence[PartitionSummary], findings: Sequence[Finding]) -> None:
    columns, rows = partition_table(seen, summaries)
    print_table(columns, rows)
    if findings:
        print_table(("", "partition", "offsets", "what"), map(_finding_row, findings))


def _finding_row(one: Finding) -> tuple[object, ...]:
    offsets = None if one.start_offset < 0 else f"[{one.start_offset}, {one.end_offset})"
    what = one.kind.upper() if one.is_wrong else one.kind
    return what, None if one.partition < 0 else one.partition, offsets, one.text
