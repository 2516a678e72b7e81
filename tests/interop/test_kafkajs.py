"""KafkaJS works, in a Node.js process for each test.

`kafkajs/scenario.js` does the work and prints its observations, which are checked here. KafkaJS brings one assignment
strategy (round robin) and gzip; the other codecs are the usual plug-ins.
"""

import json
import os
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import runtimes, workload
from .conftest import NewTopicMaker
from .workload import Received, Sample

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SCENARIOS = Path(__file__).with_name("kafkajs") / "scenario.js"
PROCESS_LIMIT_S = 180
Run = Callable[..., Any]


@pytest.fixture(scope="session")
def run(bootstrap: str) -> Run:
    """Run one scenario and return what it printed."""
    modules = runtimes.kafkajs() / "node_modules"

    def scenario(name: str, **options: Any) -> Any:
        done = subprocess.run(
            ["node", SCENARIOS, name, "-"],
            input=json.dumps({"bootstrap": bootstrap} | options),
            env=os.environ | {"NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
            capture_output=True,
            text=True,
            timeout=PROCESS_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return scenario


def encoded(sample: Sample) -> dict[str, Any]:
    key, value, headers = sample
    return {"key": _text(key), "value": _text(value), "headers": [(name, _text(found)) for name, found in headers]}


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def decoded(record: dict[str, Any]) -> Received:
    return Received(
        (record["topic"], record["partition"]),
        record["offset"],
        record["timestamp"],
        Sample(
            _bytes(record["key"]),
            _bytes(record["value"]),
            tuple((name, _bytes(value)) for name, value in record["headers"]),
        ),
    )


@pytest.mark.parametrize("compression", workload.COMPRESSIONS)
def test_every_kind_of_record_comes_back(
    run: Run, bootstrap: str, codec_topic: str, name: str, compression: str
) -> None:
    partition = workload.COMPRESSIONS.index(compression)
    samples = list(workload.SAMPLES)
    seen = run(
        "roundTrip",
        topic=codec_topic,
        partition=partition,
        compression=compression,
        samples=[encoded(sample) for sample in samples],
        group=name,
    )
    assert seen["offsets"] == list(range(len(samples)))
    assert [decoded(record).sample for record in seen["received"]] == samples
    found = workload.read_back(bootstrap, (codec_topic, partition), len(samples))
    assert [record.sample for record in found] == samples


def test_two_members_share_and_hand_over(run: Run, new_topic: NewTopicMaker, name: str) -> None:
    topics = [new_topic(3), new_topic(3)]
    places = {(topic, partition) for topic in topics for partition in range(3)}
    seen = run("rebalance", topics=topics, partitions=3, group=name)
    assert [len(part) for part in seen["split"]] == [3, 3]
    of_second = [decoded(record) for record in seen["second"]]
    assert {f"{topic}/{partition}" for (topic, partition), *_ in of_second} == set(seen["split"][1])
    found = [decoded(record) for record in seen["first"]] + of_second
    words = (b"alone", b"shared", b"alone again")
    assert sorted((record.place, record.offset, record.sample.value) for record in found) == sorted(
        (place, offset, word) for place in places for offset, word in enumerate(words)
    )


def test_a_group_begins_again_at_its_commit(run: Run, new_topic: NewTopicMaker, name: str) -> None:
    seen = run("restart", topic=new_topic(), group=name)
    assert seen == {"first": list(range(8)), "second": [5, 6, 7]}


def test_records_are_found_by_their_time(run: Run, new_topic: NewTopicMaker, name: str) -> None:
    times = [workload.FIRST_TIMESTAMP_MS + 1000 * k for k in range(10)]
    at = [times[6], 0, times[4], times[4] + 1, times[9] + 1]
    seen = run("times", topic=new_topic(), group=name, times=times, at=at)
    assert seen["offsets"] == [6, 0, 4, 5, 10]
    found = [decoded(record) for record in seen["received"]]
    assert [(record.offset, record.timestamp_ms) for record in found[-4:]] == [(k, times[k]) for k in range(6, 10)]


def test_what_is_committed_in_a_transaction_is_read_with_its_offsets(
    run: Run, bootstrap: str, new_topic: NewTopicMaker, name: str
) -> None:
    topic = new_topic()
    assert run("transactions", topic=topic, group=name, transactionalId=name) == 5
    assert [record.sample.value for record in workload.read_back(bootstrap, (topic, 0), 1)] == [b"committed"]


def test_topics_are_made_described_grown_and_deleted(run: Run, replicas: int, name: str) -> None:
    assert run("topics", topic=name, replicas=replicas) == {
        "created": True,
        "createdAgain": False,
        "replicas": [replicas, replicas],
        "configs": {"max.message.bytes": "2000000", "cleanup.policy": "delete"},
        "grown": 5,
        "offsets": [0, 1, 2],
        "ends": [2, 3],
        "listed": True,
        "listedAfter": False,
    }


def test_groups_are_listed_described_reset_and_deleted(run: Run, new_topic: NewTopicMaker, name: str) -> None:
    assert run("groups", topic=new_topic(), group=name) == {
        "stable": {"state": "Stable", "protocolType": "consumer", "members": 1, "deletion": "NON_EMPTY_GROUP"},
        "afterwards": "Empty",
        "listed": True,
        "offsets": [6, -2],
        "received": [0, 1, 2, 3, 4, 5],
        "deleted": [[name, 0]],
        "listedAfter": False,
    }
