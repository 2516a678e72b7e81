"""Takes the modules of barnabas_raftlog that the clients import into `barnabas-clients`.

In a checkout they lie beside this folder. An sdist has them in it, so nothing is to be taken there; nor is it for an
editable install, which puts the whole folder on the path.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "barnabas_raftlog"


class RaftlogParts(BuildHookInterface[Any]):
    """The build hook `custom` of `pyproject.toml`; its setting `raftlog` lists the files and folders."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or (Path(self.root) / PACKAGE).is_dir():
            return
        package = Path(self.root).parent / "raftlog" / PACKAGE
        for part in self.config["raftlog"]:
            build_data["force_include"][str(package / part)] = f"{PACKAGE}/{part}"
