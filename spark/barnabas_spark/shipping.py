"""Puts our packages into one zip file, for executors that do not have them.

What others have published (numpy, pyarrow, msgspec and the like) has to be there. The two wheels of this project are
no substitute: `barnabas_raftlog` is divided between them, and Python finds a package in one zip file only. Nor does it
load compiled code from there: executors without our packages decode and encode with numpy.
"""

import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["PACKAGES", "ship", "write_zip"]

PACKAGES = ("barnabas_clients", "barnabas_raftlog", "barnabas_spark", "pyspark_barnabas")
NAME = "barnabas-spark.zip"


def write_zip(path: Path) -> Path:
    """Write the packages that this process would import to a zip file; return its path."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            spec = find_spec(package)
            for location in (spec.submodule_search_locations or ()) if spec else ():
                for file in sorted(Path(location).rglob("*.py")):
                    archive.write(file, Path(package, file.relative_to(location)))
    return path


def ship(context: Any, folder: Path) -> None:
    """Give all executors of a SparkContext our packages. The file, in `folder`, must stay as long as the context."""
    context.addPyFile(str(write_zip(folder / NAME)))
