"""Gives pytest the fixtures `barnabas_cluster` and `barnabas_bootstrap`: real brokers, shared by a session.

Installing Barnabas registers it (entry point `pytest11`). Brokers start when the first test asks for one of the
fixtures, so runs that ask for none pay nothing: this module loads no broker before.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import RunningCluster

__all__ = ["barnabas_bootstrap", "barnabas_cluster", "cluster_of", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings of pytest's configuration file that choose the brokers."""
    parser.addini("barnabas_brokers", "how many brokers the fixture barnabas_cluster has", default="1")
    parser.addini("barnabas_settings", "settings of its brokers, NAME=VALUE each", type="linelist", default=[])


@pytest.fixture(scope="session")
def barnabas_cluster(pytestconfig: pytest.Config) -> "Iterator[RunningCluster]":
    """Real brokers in a thread of this process, the same for the whole session.

    Raises:
        pytest.UsageError: `barnabas_brokers` or `barnabas_settings` make no sense.
    """
    with cluster_of(pytestconfig.getini("barnabas_brokers"), pytestconfig.getini("barnabas_settings")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def barnabas_bootstrap(barnabas_cluster: "RunningCluster") -> str:
    """Return the bootstrap servers of `barnabas_cluster`."""
    return barnabas_cluster.bootstrap


def cluster_of(brokers: str, settings: Sequence[str]) -> "RunningCluster":
    """Return the cluster that the settings of pytest's configuration file ask for, not started yet.

    Raises:
        pytest.UsageError: they make no sense.
    """
    from .testing import RunningCluster  # noqa: PLC0415 - see the module

    if not (brokers.isascii() and brokers.isdecimal() and int(brokers) > 0):
        raise pytest.UsageError(f"barnabas_brokers is {brokers!r}; it must be a number above 0")
    for line in settings:
        if "=" not in line:
            raise pytest.UsageError(f"barnabas_settings: {line!r} is not NAME=VALUE")
    try:
        return RunningCluster(int(brokers), settings=dict(line.partition("=")[::2] for line in settings))
    except ValueError as error:
        raise pytest.UsageError(f"barnabas_settings: {error}") from None
