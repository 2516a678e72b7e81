"""Builds the wheels and sdists of both distributions, with the build backend of this environment.

Nothing is fetched: `hatchling`, Cython and setuptools are among the tools of `.venv`.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

__all__ = ["PROJECTS", "build"]

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = {"barnabas-clients": ROOT / "clients", "barnabas": ROOT}
"""The folder of each distribution's pyproject.toml; what another one needs stands first."""


def build(
    project: Path, target: Path, kind: str = "wheel", variables: Mapping[str, str] = MappingProxyType({})
) -> Path:
    """Build one distribution into the new folder `target` and return the file: `wheel`, `wheel:editable` or `sdist`.

    `variables` of the environment are set beside those of this process: `CC`, or `BARNABAS_WALKER` (the build hook's).

    Raises:
        subprocess.CalledProcessError: the build has failed.
    """
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)]
    subprocess.run(command, cwd=project, env={**os.environ, **variables}, check=True, capture_output=True)
    (built,) = target.iterdir()
    return built
