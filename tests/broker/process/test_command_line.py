"""The command line of a broker is read alike by the table and by argparse; argparse is for help and for mistakes."""

from pathlib import Path

import pytest

from barnabas_broker.process.command_line import CommandLineError, Options, _plain, _with_argparse, parse

PLAIN = [
    "",
    "--config broker.toml",
    "--config=broker.toml --ready-fd 7",
    "--config a --config=b --ready-fd=3 --ready-fd 4",
    "--set a=1 --set=b=2 --set c= --token T=x --token U",
]
OTHERS = ["--confg x", "--config", "--ready-fd seven", "--ready-fd ٣x", "--set", "word", "--conf x", "--token -t", "--"]


@pytest.mark.parametrize("line", PLAIN)
def test_a_plain_line_is_read_as_argparse_reads_it(line: str) -> None:
    assert _plain(line.split()) == _with_argparse(line.split()) == parse(line.split())


def test_what_is_read() -> None:
    words = ["--set", "a=1", "--config", "b.toml", "--set=c=2", "--token", "t", "--ready-fd", "5"]
    assert parse(words) == Options(Path("b.toml"), ("a=1", "c=2"), "t", 5)


@pytest.mark.parametrize("line", OTHERS)
def test_anything_else_is_left_to_argparse(line: str) -> None:
    assert _plain(line.split()) is None


@pytest.mark.parametrize("words", [["--config", ""], ["--config="], ["--ready-fd", ""]])
def test_an_empty_value_is_left_to_argparse(words: list[str]) -> None:
    assert _plain(words) is None


def test_a_mistake_is_named_in_one_line() -> None:
    with pytest.raises(CommandLineError, match=r"^unrecognized arguments: --confg x \(did you mean --config\?\)$"):
        parse(["--confg", "x"])
    with pytest.raises(
        CommandLineError, match=r"^argument --token: expected one argument; see barnabas broker run -h$"
    ):
        parse(["--token"])


def test_help_tells_of_the_options_of_users(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["-h"])
    said = capsys.readouterr().out
    assert all(name in said for name in ("--config FILE", "--set NAME=VALUE", "--token T"))
    assert "--ready-fd" not in said
