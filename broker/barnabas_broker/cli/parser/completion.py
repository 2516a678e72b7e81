"""Completes what is typed in a shell: commands, options, and names that the cluster or the profiles know.

`barnabas completion bash` prints the script that asks for it, with `_BARNABAS_COMPLETE` in the environment. The cluster
of the command line (or of the variable, or of the profile) is asked for names, for a second at the most. Nothing is
ever printed but names: whoever presses Tab in the middle of a word has no use for an error.

Which parameter takes which names is a table, by the names of commands and parameters.
"""

import contextlib
import io
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from barnabas_broker.cli import profiles

from .options import DEFAULT

if TYPE_CHECKING:
    from barnabas_clients import Admin

__all__ = ["COMPLETE_VARIABLE", "complete", "completion", "is_wanted"]

COMPLETE_VARIABLE = "_BARNABAS_COMPLETE"
LIMIT_S = 1.0
NAMES_MAX = 1_000  # more than anybody reads, and what a shell sorts at once

Names = Callable[[Any], Iterable[str]]


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> int:
    """Print the script that completes commands, options and names in a shell."""
    from typer._completion_shared import get_completion_script  # noqa: PLC0415 - for this command

    script = get_completion_script(prog_name="barnabas", complete_var=COMPLETE_VARIABLE, shell=shell)
    typer.echo(script)
    return 0


def complete(command: Any, settings: dict[str, Any]) -> int:
    """Print what may stand at the place that the shell tells in the environment; nothing if that is unclear."""
    from typer._completion_classes import completion_init  # noqa: PLC0415 - typer calls it for scripts of its own

    with contextlib.suppress(Exception, SystemExit), contextlib.redirect_stderr(io.StringIO()):
        completion_init()
        _attach(command, ())
        command.main([], "barnabas", complete_var=COMPLETE_VARIABLE, standalone_mode=False, **settings)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    return 0


def _attach(command: Any, path: tuple[str, ...]) -> None:
    for name, each in getattr(command, "commands", {}).items():
        _attach(each, (*path, name))
    for parameter in command.params:
        if names := NAMES.get((path[:1], parameter.name)) or NAMES.get(((), parameter.name)):
            parameter._custom_shell_complete = _completer(names)  # what `autocompletion=` sets


def _completer(names: Names) -> Callable[[Any, Any, str], list[str]]:
    def found(context: Any, _parameter: Any, incomplete: str) -> list[str]:
        try:
            matching = (name for name in names(context) if name.startswith(incomplete))
            return [name for name, _ in zip(sorted(matching), range(NAMES_MAX), strict=False)]
        except Exception:  # noqa: BLE001 - a bug here must not print a traceback between two words
            return []

    return found


def _asked(context: Any, ask: "Callable[[Admin], Awaitable[Iterable[str]]]") -> Iterable[str]:
    """Ask the cluster that the command line is about."""
    import asyncio  # noqa: PLC0415 - see parser/app.py

    from barnabas_clients import Admin  # noqa: PLC0415 - see above

    bootstrap = context.params.get("bootstrap") or DEFAULT

    async def answer() -> Iterable[str]:
        async with (
            asyncio.timeout(LIMIT_S),
            Admin(bootstrap, client_id="barnabas-cli", timeout_s=LIMIT_S) as admin,
        ):
            return await ask(admin)

    return asyncio.run(answer())


def _topics(context: Any) -> Iterable[str]:
    async def ask(admin: "Admin") -> Iterable[str]:
        return [topic.name for topic in await admin.list_topics(include_internal=False)]

    return _asked(context, ask)


def _groups(context: Any) -> Iterable[str]:
    async def ask(admin: "Admin") -> Iterable[str]:
        return [group.group_id for group in await admin.list_groups()]

    return _asked(context, ask)


def _snapshots(context: Any) -> Iterable[str]:
    async def ask(admin: "Admin") -> Iterable[str]:
        return [snapshot.name for snapshot in await admin.list_snapshots()]

    return _asked(context, ask)


def _transactional_ids(context: Any) -> Iterable[str]:
    async def ask(admin: "Admin") -> Iterable[str]:
        return [row.transactional_id for row in (await admin.reachable_transactions()).transactions]

    return _asked(context, ask)


def _config_names(_context: Any) -> Iterable[str]:
    from barnabas_metadata_quorum.topic_configs import TOPIC_CONFIGS  # noqa: PLC0415 - see above

    return TOPIC_CONFIGS


def _configs(context: Any) -> Iterable[str]:
    return [f"{name}=" for name in _config_names(context)]


def _settings(_context: Any) -> Iterable[str]:
    from barnabas_broker.config.broker import settings  # noqa: PLC0415 - see above

    return [f"{setting.name}=" for setting in settings()]


def _profiles(_context: Any) -> Iterable[str]:
    return profiles.load(profiles.file_path()).by_name


def is_wanted() -> bool:
    """Say whether a shell asks."""
    return bool(os.environ.get(COMPLETE_VARIABLE))


NAMES: dict[tuple[tuple[str, ...], str], Names] = {  # the family of commands, or any; the parameter of the function
    (("topic",), "name"): _topics,
    (("topic",), "names"): _topics,
    (("topic",), "config"): _configs,
    (("topic",), "delete_config"): _config_names,
    (("group",), "name"): _groups,
    (("group",), "names"): _groups,
    (("group",), "topic"): _topics,
    (("group",), "topics"): _topics,
    (("snapshot",), "name"): _snapshots,
    (("snapshot",), "names"): _snapshots,
    (("snapshot",), "topics"): _topics,
    (("txn",), "names"): _transactional_ids,
    (("txn",), "topic"): _topics,
    (("txn",), "topics"): _topics,
    (("produce",), "topic"): _topics,
    (("consume",), "topics"): _topics,
    (("consume",), "group"): _groups,
    (("reassign",), "topics"): _topics,
    (("cluster",), "settings"): _settings,
    (("broker",), "settings"): _settings,
    (("profile",), "name"): _profiles,
}
