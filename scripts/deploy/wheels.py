"""Builds the wheels and sdists of both distributions, with the build backend of this environment.

Nothing is fetched: `hatchling` is among the tools of `.venv`.
"""

import subprocess
import sys
from pathlib import Path

__all__ = ["PROJECTS", "build"]

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = {"barnabas-clients": ROOT / "clients", "barnabas": ROOT}
"""The folder of each distribution's pyproject.toml; what another one needs stands first."""


def build(project: Path, target: Path, kind: str = "wheel") -> Path:
    """Build one distribution into the new folder `target` and return the file: `wheel`, `wheel:editable` or `sdist`."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (built,) = target.iterdir()
    return built
