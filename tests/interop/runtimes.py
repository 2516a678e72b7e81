"""Finds the runtimes that some clients need beside Python.

If `CI` is set, a missing runtime is a failure, because nobody reads "skipped" there. Elsewhere the checks that need it
are skipped, and `summary` tells at the end of the run how many they were, and what to install.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest
from bench import systems
from machines.cache import NotInstalledError, fetch, kept, sum_of

KAFKAJS = Path(__file__).resolve().parent / "kafkajs"
REASON = "needs "


def kafkajs() -> Path:
    """Return the folder with KafkaJS and this project's scenarios, fetched once into the cache."""
    if missing := [program for program in ("node", "npm") if shutil.which(program) is None]:
        leave_out(f"Node.js: no {' and no '.join(missing)} on the PATH")
    # Another package.json gets another folder, so that a checkout never runs with another one's versions.
    package = KAFKAJS / "package.json"

    def install(home: Path) -> None:
        home.mkdir()
        shutil.copy(package, home)
        fetch("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", cwd=home)

    try:
        return kept(f"kafkajs-{sum_of(package)}", install)
    except NotInstalledError as error:
        leave_out(f"KafkaJS, which npm could not fetch: {error}")


def kafka_jars() -> Path:
    """Return the folder with Apache Kafka's jars, fetched once into the cache."""
    if shutil.which("java") is None:
        leave_out("Java 17 or newer: no java on the PATH")
    try:
        return systems.install_kafka()
    except NotInstalledError as error:
        leave_out(f"Apache Kafka's jars, which Maven (mvn) fetches once: {error}")


def streams_jars() -> Path:
    """Return the folder with the jars of Kafka Streams, fetched once into the cache."""
    if missing := [program for program in ("java", "javac") if shutil.which(program) is None]:
        leave_out(f"a JDK, 17 or newer: no {' and no '.join(missing)} on the PATH")
    try:
        return systems.install_streams()
    except NotInstalledError as error:
        leave_out(f"Kafka Streams' jars, which Maven (mvn) fetches once: {error}")


def leave_out(what: str) -> NoReturn:
    """Skip the test that asks, or fail it where `CI` is set. `what` names what to install."""
    if os.environ.get("CI"):
        pytest.fail(f"{REASON}{what}", pytrace=False)
    pytest.skip(f"{REASON}{what}")


def summary(reasons: Iterable[str]) -> list[str]:
    """Return the closing lines for tests that were skipped for these reasons."""
    counted = Counter(reason.split(REASON, 1)[1] for reason in reasons if REASON in reason)
    return [f"{count} interop checks were left out: they need {what}" for what, count in sorted(counted.items())]
