"""Keeps what was measured: every figure of every line, with the settings and the commit."""

import datetime as dt
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .lines import Line

__all__ = ["save"]

FILE = "spark-samples.json"


def save(directory: Path, settings: Mapping[str, object], lines: Sequence[Line]) -> Path:
    """Write the lines so far into a folder, and return the file."""
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    system = f"{platform.system()} {platform.release()}"
    found = {
        "commit": git.stdout.strip() or "unknown",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {system}, Python {platform.python_version()}",
        "settings": {name: str(value) for name, value in sorted(settings.items())},
        "lines": [_plain(line) for line in lines],
    }
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / FILE
    file.write_text(json.dumps(found, indent=1) + "\n")
    return file


def _plain(line: Line) -> dict[str, object]:
    plain = line._replace(ours=list(line.ours), theirs=list(line.theirs))._asdict()
    del plain["instead"]
    limit = line.limit.text if line.limit else ""
    return plain | {"limit": limit, "ratio": line.ratio, "verdict": line.verdict}
