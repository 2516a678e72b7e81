"""Other people's transactional clients: what is committed is read, by each of them, and what is aborted is not.

They are tried at both levels of `transaction.version`. Java and franz-go use the second protocol of transactions at
level 2; librdkafka, kafka-python and aiokafka know the first one only.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import pytest
from broker.live.requests.feature_updates import FEATURE, features_of
from broker.wire_client import Wire
from confluent_kafka.admin import AdminClient
from interop import workload
from interop.conftest import NewTopicMaker
from interop.test_confluent import committed
from machines.cluster_handle import ClusterHandle

from barnabas_clients import Admin
from barnabas_clients.admin.values import FeatureChange

from .programs import FencedError, Program, franz_go, java
from .python_clients import Aiokafka, KafkaPython, Librdkafka

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

CLIENTS: dict[str, Callable[[str], Any]] = {
    "librdkafka": Librdkafka,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
    "java": java,
    "franz-go": franz_go,
}
COUNT = 10


def set_level(bootstrap: str, level: int) -> None:
    """Set the level of `transaction.version`, and wait until each broker says so."""

    async def update() -> None:
        async with Admin(bootstrap) as admin:
            change = FeatureChange.UPGRADE if level == 2 else FeatureChange.SAFE_DOWNGRADE
            await admin.update_features({FEATURE: level}, change=change)

    with closing(Wire(*address_of(bootstrap.split(",", maxsplit=1)[0]))) as wire:
        changes = not is_at(wire, level)
    if changes:
        asyncio.run(update())
    for address in bootstrap.split(","):
        with closing(Wire(*address_of(address))) as wire:
            workload.wait_until(partial(is_at, wire, level), f"{address} to have level {level}")


def address_of(text: str) -> tuple[str, int]:
    host, port = text.rsplit(":", 1)
    return host, int(port)


def is_at(wire: Wire, level: int) -> bool:
    return (FEATURE, level) in {(one.name, one.max_version_level) for one in features_of(wire).finalized_features}


@pytest.fixture(scope="module", params=[2, 1])
def level(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[int]:
    set_level(bootstrap, request.param)
    yield request.param
    set_level(bootstrap, 2)


@pytest.fixture(scope="module")
def running(bootstrap: str) -> Iterator[dict[str, Any]]:
    """Start all clients; each opens its connections when it is asked for something."""
    with ExitStack() as ends:
        clients = {}
        for name, start in CLIENTS.items():
            clients[name] = start(bootstrap)
            ends.callback(clients[name].end)
        yield clients


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, level: int, running: dict[str, Any]) -> Any:
    return running[request.param]


def test_everybody_reads_what_was_committed_and_nothing_else(
    client: Any, running: dict[str, Any], new_topic: NewTopicMaker, name: str
) -> None:
    topic = new_topic()
    client.open(name, name)
    for number in range(6):
        client.begin(name)
        client.send(name, topic, f"a{number}")
        client.send(name, topic, f"b{number}")
        client.abort(name) if number % 2 == 0 else client.commit(name)
    client.close(name)
    for reader in running.values():
        assert reader.read(topic, 6) == [f"{letter}{number}" for number in (1, 3, 5) for letter in "ab"]


def test_the_protocol_that_a_client_speaks_is_the_one_that_the_level_says(
    client: Any, request: pytest.FixtureRequest, level: int, new_topic: NewTopicMaker, name: str
) -> None:
    """The second one is EndTxn from version 5 on, and Produce from 12 on: by the brokers' own counts of requests."""
    if os.environ.get("BARNABAS_INTEROP_BOOTSTRAP"):
        pytest.skip("only brokers of Barnabas tell how often they got which request")
    brokers = request.getfixturevalue("cluster")
    is_second = level == 2 and client.__class__ is Program
    topic = new_topic()
    client.open(name, name)
    before = asked_of(brokers)
    client.begin(name)
    client.send(name, topic, "v")
    client.commit(name)
    asked = asked_of(brokers) - before
    client.close(name)
    ends = {version for (api, version), count in asked.items() if api == "EndTxn" and count}
    produces = {version for (api, version), count in asked.items() if api == "Produce" and count}
    assert ends
    assert produces
    assert {version >= 5 for version in ends} == {is_second}, ends
    assert {version >= 12 for version in produces} == {is_second}, produces


def asked_of(brokers: ClusterHandle) -> Counter[tuple[str, int]]:
    """Return how often the brokers have been asked what, by the API's name and version."""
    found = Counter[tuple[str, int]]()
    for broker in brokers.status()["brokers"]:
        for what, count in broker["stats"]["requests_by_version"].items():
            api, _, version = what.partition(" v")
            found[api, int(version)] += count
    return found


def test_a_second_instance_fences_the_first_and_aborts_what_it_has_left(
    client: Any, new_topic: NewTopicMaker, name: str
) -> None:
    topic = new_topic()
    client.open("old", name)
    client.begin("old")
    client.send("old", topic, "left")
    client.open("new", name)
    with pytest.raises(FencedError):
        client.commit("old")
    client.begin("new")
    client.send("new", topic, "new")
    client.commit("new")
    assert client.read(topic, 1) == ["new"]
    client.close("new")
    client.close("old")


def test_records_are_copied_and_their_offsets_are_of_the_transaction(
    client: Any, admin: AdminClient, new_topic: NewTopicMaker, name: str
) -> None:
    source, target = new_topic(), new_topic()
    client.open(name, name)
    client.begin(name)
    for number in range(COUNT):
        client.send(name, source, f"r{number}")
    client.commit(name)
    client.close(name)
    client.copy(f"{name}-copy", name, source, target, COUNT)
    assert client.read(target, COUNT) == [f"R{number}" for number in range(COUNT)]
    # The commit's marker has an offset too.
    assert committed(admin, name) == {(source, 0): COUNT}
