"""docs/cli.md says what the commands can do, all of it, and nothing that they cannot."""

import re
from pathlib import Path

import typer

from barnabas_broker.cli.parser import app
from barnabas_broker.cli.streams.lines import TEMPLATE_FIELDS

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


def options() -> dict[str, set[str]]:
    """Return the options of the commands that are explained on the page."""
    found: dict[str, set[str]] = {}
    root = typer.main.get_command(app.app)
    for name in ("cluster", "produce", "consume", "bench", "topic", "config", "group", "reassign", "check"):
        command = root.commands[name]  # type: ignore[attr-defined]  # the root of all commands is a group
        for sub in getattr(command, "commands", {"": command}).values():
            names = {option for parameter in sub.params for option in (*parameter.opts, *parameter.secondary_opts)}
            found.setdefault(name, set()).update(option for option in names if option.startswith("--"))
    return found


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
    for name in ("cluster", "topic", "config", "group", "bench"):
        for sub in root.commands[name].commands:  # type: ignore[attr-defined]  # see above
            assert f"barnabas {name} {sub} " in section(name)
