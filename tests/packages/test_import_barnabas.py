"""`import barnabas` offers the clients and an embedded cluster, and loads what is used."""

import os
import subprocess
import sys
from typing import assert_type

import pytest

import barnabas
import barnabas_clients
from barnabas_broker import testing
from barnabas_raftlog.version import __version__

MAY_LOAD = {"barnabas", "importlib", "typing", "warnings"}  # and what these load


def loaded_by(code: str) -> set[str]:
    """Return the names of the modules that `code` loads, and that Python itself and `MAY_LOAD` do not."""
    others = ", ".join(sorted(MAY_LOAD - {"barnabas"}))
    program = f"import sys, {others}; before = set(sys.modules); {code}; print(*(set(sys.modules) - before))"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_it_loads_a_list_of_names_and_nothing_else() -> None:
    assert loaded_by("import barnabas") == {"barnabas", "barnabas_clients"}


@pytest.mark.parametrize("code", ["barnabas.__version__", "dir(barnabas)"])
def test_looking_at_it_loads_neither_a_client_nor_a_broker(code: str) -> None:
    loaded = loaded_by(f"import barnabas; {code}")
    assert loaded <= {"barnabas", "barnabas_clients", "barnabas_raftlog", "barnabas_raftlog.version"}


def test_its_clients_load_no_broker() -> None:
    loaded = loaded_by("import barnabas; barnabas.Producer, barnabas.Consumer, barnabas.Admin")
    tops = {name.partition(".")[0] for name in loaded}
    assert "barnabas_clients" in tops
    assert not {"barnabas_broker", "barnabas_metadata_quorum", "numpy", "typer", "rich", "uvloop"} & tops


def test_a_cluster_loads_no_command_line() -> None:
    tops = {name.partition(".")[0] for name in loaded_by("import barnabas; barnabas.Cluster")}
    assert "barnabas_broker" in tops
    assert not {"typer", "rich", "numpy", "pyspark", "pyarrow"} & tops


def test_it_offers_all_that_the_clients_do_and_an_embedded_cluster() -> None:
    clusters = {"Cluster", "RunningCluster"}
    names: set[str] = set(vars(barnabas)["__all__"])
    assert names == {*barnabas_clients.__all__, *clusters}
    assert all(getattr(barnabas, name) is getattr(barnabas_clients, name) for name in barnabas_clients.__all__)
    assert all(getattr(barnabas, name) is getattr(testing, name) for name in clusters)
    assert {*names, "__version__"} <= set(dir(barnabas))


def test_its_types_are_those_of_the_clients() -> None:
    assert_type(barnabas.__version__, str)
    assert_type(barnabas.Producer, type[barnabas_clients.Producer])
    assert_type(barnabas.Cluster, type[testing.Cluster])
    assert barnabas.__version__ == barnabas_clients.__version__ == __version__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'barnabas' has no attribute 'Customer'"):
        _ = barnabas.Customer  # type: ignore[attr-defined]  # mypy says so, too
    with pytest.raises(ImportError):
        from barnabas import Customer  # type: ignore[attr-defined]  # noqa: F401
