"""Runs a module of these scripts as a process of its own, from any folder."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["Program", "module_command", "module_environment", "module_program"]

SCRIPTS = Path(__file__).resolve().parents[1]


class Program(NamedTuple):
    """How a process is started; `environment` is what it has beside this process' own."""

    command: list[str]
    environment: dict[str, str]


def module_program(module: str) -> Program:
    """Return how `module`, as `trials.torture`, is started."""
    return Program(module_command(module), module_environment())


def module_command(module: str, *arguments: object) -> list[str]:
    """Return the words that run `module`, as `trials.torture`; in `module_environment`."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def module_environment() -> dict[str, str]:
    """Return this process' environment, with these scripts where Python looks for modules."""
    path = os.pathsep.join([str(SCRIPTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return os.environ | {"PYTHONPATH": path}
