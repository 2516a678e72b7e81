"""The settings of the pytest plugin. An example of docs/testing-your-code.md uses its fixtures (`tests/docs`)."""

import tomllib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from barnabas_broker.pytest_plugin import cluster_of


def test_a_configuration_file_chooses_brokers_and_settings() -> None:
    with cluster_of("2", ["num.partitions=6", "flush.mode=page-cache"]) as running:
        configs = running.cluster.configs
        assert running.bootstrap.count(",") == 1
    assert [config.num_partitions for config in configs.values()] == [6, 6]


@pytest.mark.parametrize(
    ("brokers", "settings", "said"),
    [
        ("0", [], "barnabas_brokers is '0'; it must be a number above 0"),
        ("three", [], "barnabas_brokers is 'three'"),
        ("1", ["num.partitions"], "'num.partitions' is not NAME=VALUE"),
        ("1", ["num.partitons=6"], "barnabas_settings: .*did you mean num.partitions"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(brokers: str, settings: Sequence[str], said: str) -> None:
    with pytest.raises(pytest.UsageError, match=said) as refused:
        cluster_of(brokers, settings)
    assert "\n" not in str(refused.value)


def test_installing_barnabas_registers_the_plugin() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    assert hasattr(import_module(module), "barnabas_bootstrap")
