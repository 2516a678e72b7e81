"""`barnabas-spark settle`: what a sink has decided, what became of that, and its end."""

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.jobs.app import app
from barnabas_spark.jobs.errors import UsageError
from barnabas_spark.jobs.options import AsJson, Bootstrap
from barnabas_spark.jobs.output import print_table, say, say_json

if TYPE_CHECKING:
    from barnabas_spark.writing.exactly_once.requests import Standing
    from barnabas_spark.writing.exactly_once.settling import Settled

__all__ = ["UnknownSinkError", "settle"]

Sink = Annotated[str, typer.Argument(metavar="SINK", help="txnAppId, or the id of the query in its checkpoint.")]
Finish = Annotated[
    bool, typer.Option("--finish", help="Take the sink over: commit what was decided, and abort what was not.")
]
AcceptTorn = Annotated[
    int | None,
    typer.Option("--accept-torn", metavar="BATCH", min=0, help="With --finish: go on although rows of it are lost."),
]


class UnknownSinkError(BarnabasError):
    """No batch and no transaction is known of a sink: most likely its name is misspelt."""


@app.command()
def settle(
    sink: Sink,
    bootstrap: Bootstrap = "localhost:9092",
    finish: Finish = False,
    accept_torn: AcceptTorn = None,
    as_json: AsJson = False,
) -> int:
    """Show the last batch of a sink that writes exactly once, and bring it to rest with --finish.

    With --finish whoever writes to the sink meanwhile is refused at its next step.
    """
    if accept_torn is not None and not finish:
        raise UsageError("--accept-torn goes with --finish, which commits what is left of the batch")
    from barnabas_spark.options.writes import check_sink, parse_write_options  # noqa: PLC0415 - loaded when it runs
    from barnabas_spark.writing.exactly_once import requests, settling  # noqa: PLC0415 - see above

    try:
        check_sink(sink)
    except ValueError as error:
        raise UsageError(f"SINK {error}") from None
    given = {"kafka.bootstrap.servers": bootstrap, "exactlyOnce": "true", "txnAppId": sink, "txnVersion": "0"}
    options = parse_write_options(given)
    found = requests.standing(sink, options)
    if found.last is None and not found.open_ids:
        raise UnknownSinkError(f"sink {sink!r} has no batch and no open transaction on {bootstrap}")
    if not finish:
        _show(sink, found, as_json=as_json)
        return int(not found.is_at_rest)
    # Nobody is taken over for what is refused anyway.
    settling.check_accepted(sink, found.last, accept_torn)
    _tell(sink, requests.carry_out(settling.settle(sink, accept_torn), options), as_json=as_json)
    return 0


def _show(sink: str, found: "Standing", *, as_json: bool) -> None:
    last = found.last
    if as_json:
        shown = {
            "sink": sink,
            "batch": None if last is None else last.version,
            "done": last is not None and last.is_done,
            "decided": found.outcomes,
            "undecided": list(found.open_ids),
        }
        say_json([shown])
        return
    if last is None:
        say(f"sink {sink}: no batch was decided")
    else:
        say(f"sink {sink}: batch {last.version} is {'done' if last.is_done else 'decided, and not done'}")
    rows = [(one, "decided", outcome) for one, outcome in found.outcomes.items()]
    rows += [(one, "not decided", "open") for one in found.open_ids]
    if rows:
        print_table(("TRANSACTION", "DECISION", "STATE"), rows)


def _tell(sink: str, settled: "Settled", *, as_json: bool) -> None:
    if as_json:
        say_json([{"sink": sink, "batch": settled.version, "lost": [one.transactional_id for one in settled.lost]}])
        return
    for one in settled.lost:
        say(f"lost: the rows of {one.transactional_id}")
    what = f"batch {settled.version} is done" if settled.version >= 0 else "it has no batch"
    say(f"sink {sink}: {what}, and nothing is open")
