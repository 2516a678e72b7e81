"""Starts the `barnabas` command, and gives its mistakes their form.

`broker run` goes straight to the broker, so that a broker loads neither typer nor rich, and a plain `cluster start` to
the brokers it starts (`quick_start`). Everything else is declared in `parser/`, which loads typer and nothing more;
each command imports its work when it runs. Why: three brokers and this command share two cores, and `--help` should
feel instant.

An operator's mistake is one line on stderr and exit status 1, or 2 when the command line itself is wrong. A traceback
is a bug of ours.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0 done, 1 failed, 2 asked for wrongly, 130 interrupted."""
    if not __debug__:
        sys.stderr.write("barnabas: refuses to run under -O: its assertions guard your data\n")
        return 1
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        from barnabas_raftlog.version import __version__  # noqa: PLC0415 - nothing else is needed

        sys.stdout.write(f"barnabas {__version__}\n")
        return 0
    if arguments[:2] == ["broker", "run"] and not {"-h", "--help"} & set(arguments):
        from barnabas_broker.main import main as run_broker  # noqa: PLC0415 - the broker is loaded by those who run it

        return run_broker(arguments[2:])
    from . import errors, quick_start  # noqa: PLC0415 - not for `broker run`

    if arguments[:2] == ["cluster", "start"] and (wishes := quick_start.read(arguments[2:])) is not None:
        from barnabas_broker.cli.commands.cluster import start  # noqa: PLC0415 - loaded by those who use it

        return errors.guarded(lambda: start.start(**wishes))

    from barnabas_broker.cli.parser.app import run  # noqa: PLC0415 - loads typer

    return errors.guarded(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
