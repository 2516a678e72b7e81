"""The zip file that executors get is all that they need of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from barnabas_spark.shipping import write_zip

# What tasks of reads, writes and archives unpickle.
LOADED = (
    "barnabas_spark.source",
    "barnabas_spark.reading.reader",
    "barnabas_spark.writing.task",
    "barnabas_spark.streaming.reader",
    "barnabas_spark.lake.writing",
    "barnabas_spark.lake.compaction",
)


@pytest.mark.slow
def test_tasks_find_all_of_ours_in_the_zip_file_and_nowhere_else(tmp_path: Path) -> None:
    shipped = write_zip(tmp_path / "ours.zip")
    libraries = Path(pyspark.__file__).parents[1]
    code = (
        "import sys, importlib\n"
        f"sys.path[:] = [path for path in sys.path if 'python' in path and 'packages' not in path]\n"
        f"sys.path += [{str(shipped)!r}, {str(libraries)!r}]\n"
        f"for name in {LOADED!r}: importlib.import_module(name)\n"
        "print(*sorted({m.__file__.partition('.zip')[0] for n, m in list(sys.modules.items())"
        " if n.startswith(('barnabas_', 'pyspark_')) and getattr(m, '__file__', None)}))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, "-S", "-c", code]
    found = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [str(shipped).removesuffix(".zip")]
