"""Both distributions, built once, and environments that have nothing but them and what they need."""

from pathlib import Path

import pytest
from deploy.wheels import PROJECTS, build

from .environments import Environment, new_environment

Files = dict[str, Path]
"""The file that was built of each distribution, by its name."""
WITHOUT_A_COMPILER = {"CC": "/bin/false"}
SOON_COMPILED = {"CFLAGS": "-O0"}
"""What is compiled is there, and not quick."""


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Return the wheels for this machine: with the compiled walker where a compiler is."""
    return {
        name: build(folder, tmp_path_factory.mktemp("wheel"), variables=SOON_COMPILED)
        for name, folder in PROJECTS.items()
    }


@pytest.fixture(scope="session")
def pure_wheels(wheels: Files, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Return the wheels that come out where no compiler is."""
    folder = tmp_path_factory.mktemp("pure")
    return {**wheels, "barnabas-clients": build(PROJECTS["barnabas-clients"], folder, variables=WITHOUT_A_COMPILER)}


@pytest.fixture(scope="session")
def sdists(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return {name: build(folder, tmp_path_factory.mktemp("sdist"), "sdist") for name, folder in PROJECTS.items()}


@pytest.fixture(scope="module")
def with_clients(wheels: Files, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment in which only `barnabas-clients` was installed."""
    return new_environment(tmp_path_factory.mktemp("clients"), [wheels["barnabas-clients"]])


@pytest.fixture(scope="module")
def with_both(wheels: Files, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment in which both were installed."""
    return new_environment(tmp_path_factory.mktemp("both"), list(wheels.values()))
