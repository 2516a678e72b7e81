"""Takes the compiled walker from the folder that `FOLDER` names, before anything imports it: a plugin of pytest."""

import os
from importlib import import_module

__all__ = ["FOLDER", "take"]

FOLDER = "BARNABAS_SANITIZED_WALKER"
COMPILED = "barnabas_raftlog.records.walker.compiled"


def take(folder: str) -> None:
    """Let the compiled modules of a folder come before those of the installation."""
    import_module(COMPILED).__path__.insert(0, folder)
    where = str(import_module(f"{COMPILED}.check").__file__)
    assert where.startswith(folder), where


if named := os.environ.get(FOLDER):
    take(named)
