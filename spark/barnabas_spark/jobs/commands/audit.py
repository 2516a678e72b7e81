"""`barnabas-spark audit`."""

from pathlib import Path
from typing import Annotated

import typer

from barnabas_spark.jobs.app import app
from barnabas_spark.jobs.errors import UsageError
from barnabas_spark.jobs.options import (
    FORMATS,
    ISOLATION_LEVELS,
    AsJson,
    Bootstrap,
    FormatThere,
    Isolation,
    Master,
    StoreOptions,
    Topic,
    one_of,
    pairs,
)

__all__ = ["audit"]

Lake = Annotated[
    str, typer.Option("--lake", metavar="DIR|URL", help="The table of the topic; without it the topic alone is read.")
]
Group = Annotated[str, typer.Option("--group", help="A consumer group, whose lag is shown.")]
Report = Annotated[str, typer.Option("--report", metavar="FILE.html", help="Write a page with plots, too.")]
Quick = Annotated[bool, typer.Option("--quick", help="Do not read the rows of the topic again; compare offsets only.")]
LakeOnly = Annotated[bool, typer.Option("--lake-only", help="Ask no broker: check files against what commits say.")]


@app.command()
def audit(  # noqa: PLR0913, PLR0917 - one for each option
    topic: Topic,
    lake: Lake = "",
    kind: FormatThere = "",
    bootstrap: Bootstrap = "localhost:9092",
    master: Master = "",
    group: Group = "",
    quick: Quick = False,
    lake_only: LakeOnly = False,
    report: Report = "",
    store_options: StoreOptions = None,
    isolation_level: Isolation = "read_committed",
    as_json: AsJson = False,
) -> int:
    """Prove that a table has every row of a topic once and unchanged, or say which it has not.

    All files are read, and what the log still has of their offsets. Exit status: 0 nothing is wrong (lag is not), 1
    something is.
    """
    one_of("--isolation-level", isolation_level, ISOLATION_LEVELS)
    one_of("--format", kind, ("", *FORMATS))
    if lake_only and not lake:
        raise UsageError("--lake-only needs --lake")
    if lake_only and group:
        raise UsageError("--group asks the brokers, and --lake-only does not")
    if report and not Path(report).absolute().parent.is_dir():
        raise UsageError(f"--report: the directory of '{report}' does not exist")
    from barnabas_spark.jobs.auditing import AuditJob, run_audit  # noqa: PLC0415 - loaded when it runs
    from barnabas_spark.lake.store import Location  # noqa: PLC0415 - see above

    job = AuditJob(
        topic,
        Location(lake, pairs(store_options)) if lake else None,
        "" if lake_only else bootstrap,
        kind,
        master,
        not quick,
        group,
        report,
        as_json,
        isolation_level,
    )
    return run_audit(job)
