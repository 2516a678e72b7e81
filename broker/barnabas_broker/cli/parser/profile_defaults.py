"""Lets the profile in use say what neither an option nor the environment says."""

from collections.abc import Callable
from typing import Any

from barnabas_broker.cli.profiles import Profile

from .options import DEFAULT

__all__ = ["defaults_of"]

# Parameters by their names in the commands' functions.
SETTING_OF = {"bootstrap": "bootstrap-server", "timeout": "timeout", "data": "data"}


def defaults_of(command: Any, read: Callable[[], Profile]) -> dict[str, Any]:
    """Return defaults in the form that the parser takes, for a command or for all commands of a group.

    The profile is read when the first of them is needed: a broken file harms nobody who says everything in options.
    """
    if subcommands := getattr(command, "commands", None):
        return {name: defaults_of(each, read) for name, each in subcommands.items()}
    defaults = {parameter.name: parameter for parameter in command.params}
    return {name: _reader(defaults[name], read) for name in SETTING_OF if name in defaults and _wants(name, defaults)}


def _wants(name: str, parameters: dict[str, Any]) -> bool:
    """Say whether a command's parameter is one that the profile speaks of.

    The timeout is that of requests to the cluster: `cluster stop` kills at the end of its own. An address or a
    directory that a command can do without would choose what it does.
    """
    if name == "data":
        return bool(parameters[name].required)
    return "bootstrap" in parameters and parameters["bootstrap"].default == DEFAULT


def _reader(parameter: Any, read: Callable[[], Profile]) -> Callable[[], Any]:
    def value() -> Any:
        said = read().get(SETTING_OF[parameter.name])
        return parameter.default if said is None else said

    return value
