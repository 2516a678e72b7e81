"""The programs of the ecosystem, as Maven has them, each with its jars in a folder of the cache.

Each version is the newest that can be had, or, of what stands on another program, the newest for that.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from machines.cache import NotInstalledError, fetch, kept
from machines.java import jars

__all__ = ["install_connect", "install_debezium", "install_flink", "install_registry", "status_of"]

POMS = Path(__file__).with_name("maven")
# The connectors that come with Kafka are compiled against what 4.4.0 has elsewhere, and are of 4.3.1 themselves.
CONNECT_VERSION = "4.3.1"
DEBEZIUM_VERSION = "3.6.1.Final"
FLINK_VERSION = "2.2.1"
FLINK_KAFKA_VERSION = "5.0.0-2.2"
# Later ones need Java 21.
REGISTRY_VERSION = "3.0.9"


def status_of(trial: str, program: str, work: Callable[[], int]) -> int:
    """Do the work of a trial and return its status; one line and 1 if the program cannot be had."""
    try:
        return work()
    except NotInstalledError as error:
        print(f"scripts/trials/ecosystem/{trial}: {program} cannot be had: {error}", file=sys.stderr)
        return 1


def install_connect() -> Path:
    """Return the folder with Kafka Connect, its connectors for files and MirrorMaker 2, fetching them if need be."""
    return jars(f"connect-{CONNECT_VERSION}", POMS / "connect.pom.xml", f"-Dkafka.version={CONNECT_VERSION}")


def install_debezium() -> Path:
    """Return the folder with Debezium's connector for PostgreSQL, and Kafka Connect, fetching them if need be."""
    versions = (f"-Ddebezium.version={DEBEZIUM_VERSION}", f"-Dkafka.version={CONNECT_VERSION}")
    return jars(f"debezium-{DEBEZIUM_VERSION}-connect-{CONNECT_VERSION}", POMS / "debezium.pom.xml", *versions)


def install_flink() -> Path:
    """Return the folder with Apache Flink and its connector for Kafka, fetching them if need be."""
    name = f"flink-{FLINK_VERSION}-kafka-{FLINK_KAFKA_VERSION}"
    versions = (f"-Dflink.version={FLINK_VERSION}", f"-Dconnector.version={FLINK_KAFKA_VERSION}")
    return jars(name, POMS / "flink.pom.xml", *versions)


def install_registry() -> Path:
    """Return the folder with Apicurio Registry, fetching it if need be."""

    def unpack(to: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            artifact = f"io.apicurio:apicurio-registry-app:{REGISTRY_VERSION}:tar.gz:all"
            fetch("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
            (archive,) = Path(folder).iterdir()
            to.mkdir()
            fetch("tar", "-xzf", archive, "-C", to)

    return kept(f"apicurio-registry-{REGISTRY_VERSION}", unpack)
