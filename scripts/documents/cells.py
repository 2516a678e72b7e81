"""Runs the programs of a page in one process, one after the other, as a notebook runs its cells.

What one defines is there for the next, until the page ends. So pages about Spark share a session, which takes seconds
to start. `Cells` is that process itself, for tests that have a session; `python -m documents.cells` is another process,
which `documents.notebook` talks to.
"""

import io
import json
import os
import re
import shlex
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

__all__ = ["Cells"]

STATEMENT = re.compile(r"[^;]+")
JOBS = "barnabas-spark "


class Cells:
    """The programs of one page after the other. `spark` is there from the beginning, if a session has been started."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}

    def begin(self) -> None:
        """Forget what the last page has defined."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second

        # `__main__`: functions travel to Spark's workers by value.
        self._names = {"__name__": "__main__"}
        session = SparkSession.getActiveSession()
        if session is not None:
            self._names["spark"] = session

    def run(self, language: str, source: str) -> str:
        """Run a program, or statements in SQL of which rows are shown; return what is printed, a traceback included."""
        printed = io.StringIO()
        with redirect_stdout(printed):
            try:
                if language == "sql":
                    self._query(source)
                else:
                    exec(compile(source, "<page>", "exec"), self._names)  # noqa: S102 - ours
            except Exception:  # noqa: BLE001 - shown where the page has the program
                traceback.print_exc(file=printed)
        # `DataFrame.show` ends with an empty line, which no page wants to show.
        return re.sub(r"\n\n$", "\n", printed.getvalue())

    def job(self, command: str, environment: dict[str, str]) -> str | None:
        """Run a command line if it is a job of Spark's; return what it prints. None: it is another command."""
        if not command.startswith(JOBS):
            return None
        from barnabas_spark.jobs.cli import main  # noqa: PLC0415 - see above

        printed = io.StringIO()
        with patch.dict(os.environ, environment), redirect_stdout(printed), redirect_stderr(printed):
            main(shlex.split(command, comments=True)[1:])
        return printed.getvalue()

    def _query(self, source: str) -> None:
        for statement in STATEMENT.findall(source):
            if statement.strip():
                found = self._names["spark"].sql(statement)
                if found.columns:
                    found.show(truncate=False)


def main() -> None:
    """Answer each line of standard input, the arguments of a method of `Cells` in JSON, with what that returns."""
    cells = Cells()
    cells.begin()
    # Spark's JVM inherits standard output, and may write there, too.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            request = json.loads(line)
            if request is None:
                cells.begin()
                printed: str | None = ""
            elif request[0] == "job":
                printed = cells.job(*request[1:])
            else:
                printed = cells.run(*request)
            answers.write(json.dumps(printed) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
