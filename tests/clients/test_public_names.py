"""`import barnabas_clients` offers the public names, and no others; the documents name all settings and counters."""

import ast
import inspect
import re
from pathlib import Path
from typing import get_type_hints

import pytest

import barnabas_clients
from barnabas_clients import Admin, Consumer, ConsumerMetrics, Producer, ProducerMetrics

ROOT = Path(__file__).parents[2]


def test_every_public_name_can_be_had() -> None:
    for name in barnabas_clients.__all__:
        assert getattr(barnabas_clients, name).__name__ == name
    assert set(barnabas_clients.__all__) <= set(dir(barnabas_clients))


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_the_types_of_a_client_can_be_looked_at_while_it_runs(client: type) -> None:
    """Tools that build documents or inject dependencies do that; what an annotation names must be loaded by then."""
    methods = [name for name in dir(client) if not name.startswith("_") and callable(getattr(client, name))]
    assert len(methods) >= 5
    for name in ("__init__", *methods):
        get_type_hints(getattr(client, name))


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
