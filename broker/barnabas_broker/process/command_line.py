"""Reads the command line of a broker.

One that is right in every respect, as nearly all are, is read from a table: argparse, with what it loads to find out
how wide a terminal is, takes 1.2 MiB in each broker for as long as it runs. Anything else (`-h`, a typo, an option
shortened or without its value) is left to argparse, which names the mistake. A test holds the two against each other.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from barnabas_broker.config.near_names import nearest
from barnabas_broker.config.plain_lines import plain_words
from barnabas_raftlog.errors import BarnabasError

__all__ = ["CommandLineError", "Options", "parse"]

OPTIONS = ("--config", "--set", "--token")
OF_THE_STARTER = "--ready-fd"  # given by the process that starts this one, and told to nobody else


class CommandLineError(BarnabasError):
    """The command line makes no sense; the message is one line."""


class Options(NamedTuple):
    """The wishes of a command line: the file, NAME=VALUE words in order, a token, and where to say `ready`."""

    config: Path | None = None
    settings: tuple[str, ...] = ()
    token: str | None = None
    ready_fd: int | None = None


def parse(argv: Sequence[str]) -> Options:
    """Read the words behind the program's name.

    Raises:
        CommandLineError: they make no sense.
        SystemExit: they ask for help, which has been printed.
    """
    found = _plain(argv)
    return _with_argparse(argv) if found is None else found


def _plain(argv: Sequence[str]) -> Options | None:
    """Return the options if all are plainly written (`plain_words`), or else None."""
    words = plain_words(argv, (*OPTIONS, OF_THE_STARTER))
    if words is None:
        return None
    last = dict(words)
    config, token, ready_fd = (last.get(name) for name in ("--config", "--token", OF_THE_STARTER))
    if ready_fd is not None and not (ready_fd.isascii() and ready_fd.isdigit()):
        return None
    return Options(
        config=None if config is None else Path(config),
        settings=tuple(text for name, text in words if name == "--set"),
        token=token,
        ready_fd=None if ready_fd is None else int(ready_fd),
    )


def _with_argparse(argv: Sequence[str]) -> Options:
    import argparse  # noqa: PLC0415 - only for who asks for help, and for mistakes

    # With `exit_on_error` alone, argparse still ends the process for some mistakes, in lines of its own.
    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            near = nearest(message.rpartition(": ")[2].split(" ")[0], OPTIONS)
            raise CommandLineError(f"{message}{near or '; see barnabas broker run -h'}")

    parser = Parser(prog="barnabas broker run", description="Run one broker in the foreground.", allow_abbrev=False)
    parser.add_argument("--config", type=Path, metavar="FILE", help="the broker's configuration, a TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; may be repeated")
    parser.add_argument("--token", metavar="T", help="get the cluster's secret, if there is none, and write it there")
    parser.add_argument(OF_THE_STARTER, type=int, help=argparse.SUPPRESS)
    found = parser.parse_args(argv)
    return Options(found.config, tuple(found.set), found.token, found.ready_fd)
