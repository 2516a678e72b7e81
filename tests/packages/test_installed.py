"""What was installed works: the clients without a broker, the broker with them, and both as they lie here."""

import zipfile
from pathlib import Path

import pytest
from deploy.wheels import PROJECTS, build

from barnabas_broker.testing import RunningCluster
from barnabas_raftlog.version import __version__

from .conftest import Files
from .environments import Environment, new_environment
from .sources import MODULES, PACKAGES, closure

pytestmark = pytest.mark.slow
NOT_IN_PLACE = {"BARNABAS_WALKER": "pure"}  # where the tests have their walker
CLIENTS_BYTES_MAX = 15_000_000
ONE_RECORD = """
import asyncio
import sys
from importlib.util import find_spec

from barnabas_clients import Consumer, Producer

async def main(bootstrap):
    async with Producer(bootstrap) as producer:
        await producer.send_and_wait("orders", b"one espresso", key=b"table 4")
    async with Consumer(bootstrap, topics=["orders"], group_id="bar", auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            return record.value.decode()

print(asyncio.run(main(sys.argv[1])))
print(*(name for name in sys.argv[2:] if find_spec(name)))
"""
EMBEDDED = """
import asyncio
import barnabas

async def main():
    async with barnabas.Cluster(brokers=1) as cluster, barnabas.Producer(cluster.bootstrap) as producer:
        receipt = await producer.send_and_wait("orders", b"one espresso", key=b"table 4")
        return receipt.offset

print(asyncio.run(main()))
"""
LOAD_ALL = (
    "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]; print('numpy' in sys.modules)"
)


def test_the_clients_alone_send_and_read_a_record(with_clients: Environment) -> None:
    absent = ("numpy", "barnabas", "barnabas_broker", "barnabas_metadata_quorum", "typer", "uvloop")
    with RunningCluster(1) as cluster:
        assert with_clients.python(ONE_RECORD, cluster.bootstrap, *absent).split("\n") == ["one espresso", "", ""]


def test_every_module_of_the_clients_loads_alone(with_clients: Environment) -> None:
    assert with_clients.python(LOAD_ALL, *sorted(closure("barnabas_clients"))).strip() == "False"


def test_every_module_of_both_loads(with_both: Environment) -> None:
    of_extras = {"barnabas_spark", "pyspark_barnabas"}
    modules = [one for one in MODULES if one.partition(".")[0] not in of_extras]
    modules.remove("barnabas_broker.pytest_plugin")  # pytest loads it, where pytest is
    assert with_both.python(LOAD_ALL, *sorted(modules)).strip() == "True"


def test_the_clients_are_small_with_all_that_they_need(with_clients: Environment) -> None:
    assert with_clients.needed == ("cramjam", "fastcrc", "msgspec")
    files = (file for top in with_clients.packages.iterdir() for file in (top.resolve(), *top.resolve().rglob("*")))
    assert sum(file.stat().st_size for file in files if file.is_file()) <= CLIENTS_BYTES_MAX


@pytest.mark.parametrize("environment", ["with_clients", "with_both"])
def test_nothing_that_is_required_is_missing(environment: str, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(environment).pip("check").startswith("No broken requirements")


def test_all_of_it_tells_its_version(with_clients: Environment, with_both: Environment) -> None:
    code = "import importlib, sys; print(*(importlib.import_module(name).__version__ for name in sys.argv[1:]))"
    assert with_clients.python(code, "barnabas_clients").split() == [__version__]
    assert with_both.python(code, "barnabas", "barnabas_clients").split() == [__version__, __version__]


def test_the_command_and_an_embedded_cluster_work(with_both: Environment) -> None:
    assert with_both.run("barnabas", "topic", "--help").strip().startswith("Usage: barnabas topic")
    assert with_both.python(EMBEDDED).split() == ["0"]


def test_removing_the_broker_leaves_the_clients_whole(wheels: Files, tmp_path: Path) -> None:
    environment = new_environment(tmp_path, list(wheels.values()))
    environment.pip("uninstall", "--quiet", "--yes", "barnabas")
    assert environment.python(LOAD_ALL, *sorted(closure("barnabas_clients"))).strip() == "False"
    left = {one.name for one in environment.packages.glob("barnabas*")}
    assert left == {"barnabas_clients", f"barnabas_clients-{__version__}.dist-info", "barnabas_raftlog"}


def test_editable_installations_find_every_package_where_it_lies(tmp_path: Path) -> None:
    """Whatever stands first on the path: neither has a part of a package that the other one has too."""
    paths: list[str] = []
    for name, folder in PROJECTS.items():
        with zipfile.ZipFile(build(folder, tmp_path / name, "wheel:editable", NOT_IN_PLACE)) as archive:
            files = [one for one in archive.namelist() if ".dist-info/" not in one]
            assert [Path(one).suffix for one in files] == [".pth"]
            paths += archive.read(files[0]).decode().split()
    for package, folder in PACKAGES.items():
        assert {found for path in paths if (found := Path(path, package)).is_dir()} == {folder}
