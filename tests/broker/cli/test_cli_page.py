"""docs/cli.md says what the commands can do, all of it, and nothing that they cannot."""

import re
from pathlib import Path
from typing import Any

import typer

from barnabas_broker.cli.parser import app
from barnabas_broker.cli.parser.options import context_settings
from barnabas_broker.cli.streams.lines import TEMPLATE_FIELDS

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


def options() -> dict[str, set[str]]:
    """Return the options of the commands that are explained on the page."""
    found: dict[str, set[str]] = {}
    root = typer.main.get_command(app.app)
    families = [
        "cluster",
        "produce",
        "consume",
        "bench",
        "topic",
        "config",
        "group",
        "snapshot",
        "features",
        "quorum",
        "txn",
    ]
    for name in (*families, "reassign", "check"):
        command = root.commands[name]  # type: ignore[attr-defined]  # the root of all commands is a group
        for sub in getattr(command, "commands", {"": command}).values():
            names = {option for parameter in sub.params for option in (*parameter.opts, *parameter.secondary_opts)}
            found.setdefault(name, set()).update(option for option in names if option.startswith("--"))
    return found


def commands() -> dict[str, dict[str, set[str]]]:
    """Return every command, as `topic create`, with its long options, each with the letters that stand for it."""
    found: dict[str, dict[str, set[str]]] = {}

    def visit(command: Any, name: str) -> None:
        for sub in getattr(command, "commands", {}):
            visit(command.commands[sub], f"{name} {sub}".strip())
        found[name] = {
            option: {letter for letter in parameter.opts if not letter.startswith("--")}
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("--")
        }

    visit(typer.main.get_command(app.app), "")
    return found


def told_letters() -> set[tuple[str, str, str]]:
    """Return what the table says: a command, a letter, its long option. A family is all of it that has the option."""
    told: set[tuple[str, str, str]] = set()
    there = commands()
    for line in re.findall(r"^\| (`-[^|]*) \| `(--[^|`]*)` \| (.*) \|$", section("Short options"), re.MULTILINE):
        letters, option, where = re.findall(r"`(-\w)`", line[0]), line[1], re.findall(r"`([a-z][a-z -]*)`", line[2])
        if line[2].startswith("all"):
            where = [""]
        for named in where:
            family = [one for one in there if f"{one} ".startswith(f"{named} ".lstrip())]
            having = [one for one in family if option in there[one]]
            assert having or option == "--help", f"{named} has no {option}"
            told |= {(one, letter, option) for one in having for letter in letters}
    return told


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_every_option_is_explained_where_its_command_is_and_no_other() -> None:
    everywhere = {"--bootstrap-server", "--timeout", "--json", "--help"}
    for name, there in options().items():
        told = set(re.findall(r"--[a-z][a-z-]+", section(name)))
        assert there - told - everywhere == set(), name
        assert told - there == set(), name


def test_every_field_of_a_template_is_named() -> None:
    for field in TEMPLATE_FIELDS:
        assert f"`{{{field}}}`" in section("consume")


def test_every_command_of_a_group_is_shown() -> None:
    root = typer.main.get_command(app.app)
    for name in ("cluster", "topic", "config", "group", "snapshot", "features", "quorum", "txn", "bench"):
        for sub in root.commands[name].commands:  # type: ignore[attr-defined]  # see above
            assert f"barnabas {name} {sub} " in section(name)


def test_the_table_of_short_options_is_what_the_commands_take() -> None:
    there = {
        (command, letter, option)
        for command, options in commands().items()
        for option, letters in options.items()
        for letter in letters
    }
    assert told_letters() == there
    assert context_settings()["help_option_names"] == ["-h", "--help"]
    assert "\n| `-h` | `--help` | all |\n" in section("Short options")
