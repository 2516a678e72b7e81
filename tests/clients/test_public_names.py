"""`import barnabas_clients` offers the public names, and no others; the documents name all settings and counters."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import barnabas_clients
from barnabas_clients import Consumer, ConsumerMetrics, Producer, ProducerMetrics
from barnabas_clients.admin import client as admin_client

ROOT = Path(__file__).parents[2]


def test_every_public_name_can_be_had() -> None:
    for name in barnabas_clients.__all__:
        assert getattr(barnabas_clients, name).__name__ == name
    assert set(barnabas_clients.__all__) <= set(dir(barnabas_clients))


def test_what_calls_of_admin_return_can_be_had_beside_admin() -> None:
    """Their modules are loaded when a name, or a call, is used for the first time."""
    for name in admin_client.__all__:
        assert getattr(admin_client, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = admin_client.nothing


def test_a_type_checker_sees_the_same_names() -> None:
    tree = ast.parse(Path(str(barnabas_clients.__file__)).read_text())
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(barnabas_clients.__all__)


@pytest.mark.parametrize(("client", "page"), [(Consumer, "consumer.md"), (Producer, "producer.md")])
def test_the_settings_in_the_documents_are_those_of_the_client(client: type, page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    section = text.partition("\n## Settings\n")[2].partition("\n## ")[0]
    told = {name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    told |= {"client_id"} if "`client_id`" in section else set()
    assert told == set(inspect.signature(client).parameters) - {"bootstrap"}


@pytest.mark.parametrize("client", [Consumer, Producer])
def test_the_counters_in_the_documents_are_those_of_the_client(client: type) -> None:
    page = (ROOT / "docs" / "clients-in-a-service.md").read_text()
    counted: dict[type, tuple[str, ...]] = {Consumer: ConsumerMetrics._fields, Producer: ProducerMetrics._fields}
    table = page.partition(f"| `{client.__name__.lower()}.metrics()` | |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(counted[client])
