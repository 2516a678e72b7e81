"""A Spark cluster of its own, from the jars of PySpark: a master, and workers that look like machines to Spark.

Spark schedules and speculates by host names, and all of 127.0.0.0/8 is this machine. So each worker gets an address.
The Python of the executors has what our packages need, and not them: those come from the driver, which has our wheels.
"""

import os
import socket
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from venv import EnvBuilder

import pyspark
from deploy import wheels
from spark.faults.processes import Process, until

__all__ = ["HOSTS", "Environments", "Standalone", "environments", "standalone"]

HOSTS = ("127.0.0.1", "127.0.0.2")
_SPARK_HOME = Path(pyspark.__file__).parent
_START_S = 180.0


class Standalone(NamedTuple):
    """A running cluster: where its master is, and where it reads its configuration from."""

    master: str
    processes: Sequence[Process]


class Environments(NamedTuple):
    """Python with what our packages need and without them, and Python with our wheels, too."""

    bare: Path
    installed: Path


def environments(folder: Path) -> Environments:
    """Build the wheels and make both environments."""
    built = [wheels.build(project, folder / "wheels" / name) for name, project in wheels.PROJECTS.items()]
    bare, installed = folder / "bare", folder / "installed"
    for each in (bare, installed):
        EnvBuilder(symlinks=True, with_pip=False).create(each)
        # Where this environment has what others have published. A .pth file that is found there is not read, and so
        # the folders of the source are not on the path.
        (_packages(each) / "dependencies.pth").write_text(f"{_SPARK_HOME.parent}\n")
    for wheel in built:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(_packages(installed))
    return Environments(bare / "bin/python", installed / "bin/python")


def _packages(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


@contextmanager
def standalone(folder: Path, settings: Mapping[str, str], cores: int = 2) -> Iterator[Standalone]:
    """Start a master, and a worker on each of `HOSTS`; `settings` are the defaults of the drivers.

    Drivers find the settings by `SPARK_CONF_DIR`, which is the folder `conf` in `folder`.
    """
    configuration = folder / "conf"
    configuration.mkdir(parents=True)
    lines = [f"{name} {value}" for name, value in settings.items()]
    (configuration / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    with socket.socket() as free:
        free.bind((HOSTS[0], 0))
        port = free.getsockname()[1]
    with ExitStack() as stack:
        words = ["org.apache.spark.deploy.master.Master", "--host", HOSTS[0], "--port", str(port), "--webui-port", "0"]
        master = stack.enter_context(_started(words, folder, "master", HOSTS[0]))
        until("the start of the master", lambda: "I have been elected leader" in master.said(), _START_S)
        processes = [master]
        for number, host in enumerate(HOSTS, 1):
            words = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", str(cores), "--memory", "1g"]
            words += ["--webui-port", "0", "--work-dir", str(folder / f"work-{number}"), f"spark://{HOSTS[0]}:{port}"]
            processes.append(stack.enter_context(_started(words, folder, f"worker-{number}", host)))
        until(
            "the registration of all workers", lambda: master.said().count("Registering worker") == len(HOSTS), _START_S
        )
        yield Standalone(f"spark://{HOSTS[0]}:{port}", processes)


@contextmanager
def _started(words: Sequence[str], folder: Path, name: str, host: str) -> Iterator[Process]:
    """Start a daemon of Spark without our path, and ask it to end: a worker ends its executors."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_CONF_DIR"}}
    (core,) = _SPARK_HOME.glob("jars/spark-core_*.jar")
    scala = core.name.removeprefix("spark-core_").partition("-")[0]
    # Without the version a worker looks for the folders of a build, to start executors from.
    environment |= {"SPARK_HOME": str(_SPARK_HOME), "SPARK_LOCAL_IP": host, "SPARK_SCALA_VERSION": scala}
    with Process(["java", "-Xmx256m", "-cp", f"{_SPARK_HOME}/jars/*", *words], folder, name, environment) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)
