"""A page-cache partition whose voter never comes back, on real brokers: `barnabas topic give-up-voter`."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from broker.wire_client import Wire
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas_broker.cli import entry as cli
from barnabas_broker.replicas.lost_voters import BadQuestionError, LostVoters
from barnabas_broker.testing import Cluster, RunningCluster

TOPIC = "doubtful"


WORDS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary() | st.text()
VALUES = st.recursive(WORDS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(WORDS, inner, max_size=5))


@given(st.binary() | VALUES.map(msgpack.packb) | st.lists(VALUES, min_size=4, max_size=4).map(msgpack.packb))
@example(msgpack.packb(None))
@example(msgpack.packb(5))
@example(msgpack.packb(0.5))
@example(msgpack.packb("four"))
@example(b"\x84\x90\x01\x01\x01\x02\x02\x03\x03")  # a map whose key is an array
def test_what_is_no_question_is_refused_and_nothing_else(body: bytes) -> None:
    partitions: Any = SimpleNamespace(topics={})
    with contextlib.suppress(BadQuestionError):
        assert not msgpack.unpackb(asyncio.run(LostVoters(partitions).answer(-1, body)))["hosts"]


async def fail(cluster: Cluster) -> None:
    """Stop all three; 3 is gone, 2 comes back as after a loss of power (not clean, another boot id), 1 as it was."""
    for node_id in (3, 1, 2):
        await cluster.stop(node_id)
    data = Path(cluster.configs[2].log_dir)
    (data / "clean-stop").unlink()
    (data / "boot-id").write_text("of another life")
    for node_id in (1, 2):
        await cluster.start(node_id)
    for node in cluster.nodes.values():
        await node.metadata.wait_until(node._is_member, 30.0)
        while not node.partitions.is_reconciled:
            await node.partitions.known_leaders.leaders_changed()


@pytest.fixture(scope="module")
def doubtful() -> Iterator[RunningCluster]:
    """Brokers 1 and 2 of three; 3 is gone, and 2 may have forgotten what it acknowledged together with 3."""
    with RunningCluster(3) as cluster:
        wire = Wire("127.0.0.1", cluster.cluster.nodes[1].port)
        wire.create(TOPIC, factor=3, flush_mode="page-cache")
        wire.close()
        cluster.run(fail)
        yield cluster


def give_up(cluster: RunningCluster, tmp_path: Path, *options: str) -> int:
    config = tmp_path / "broker.toml"
    config.write_text(cluster.cluster.configs[1].to_toml())
    return cli.main(["topic", "give-up-voter", TOPIC, "--partition", "0", "--config", str(config), *options])


def test_a_partition_goes_on_without_it_when_an_operator_accepts_what_that_costs(
    doubtful: RunningCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert give_up(doubtful, tmp_path, "--voter", "2", "--accept-data-loss") == 1
    assert "broker 2 answers: it is not lost" in capsys.readouterr().err
    assert give_up(doubtful, tmp_path, "--voter", "9") == 1
    assert "there is no broker 9" in capsys.readouterr().err
    spoilt = tmp_path / "spoilt.toml"
    spoilt.write_bytes(b"\xff" * 600)
    assert give_up(doubtful, tmp_path, "--voter", "3", "--config", str(spoilt)) == 1
    assert capsys.readouterr().err == f"barnabas: --config {spoilt}: not valid TOML: byte 0 is not UTF-8\n"

    assert give_up(doubtful, tmp_path, "--voter", "3") == 0
    told = capsys.readouterr().out
    assert "doubtful-0 has no leader" in told
    assert "broker 1: its log ends at offset 0, it has forgotten nothing" in told
    assert "broker 2: its log ends at offset 0, it may have forgotten what it acknowledged" in told
    assert "broker 3: no answer" in told
    assert "LOST for good is then every acknowledged record that only broker 3 still has" in told

    assert give_up(doubtful, tmp_path, "--voter", "3", "--accept-data-loss") == 0
    assert "lead" in capsys.readouterr().out
    events = [
        event["kind"]
        for node in doubtful.cluster.nodes.values()
        for event in node.status()["events"]
        if event["group"] == f"{TOPIC}-0"
    ]
    assert events.count("voter given up") in {1, 2}, "whoever is told last may have a leader by then"
    assert "acknowledged records may be missing" in events

    assert give_up(doubtful, tmp_path, "--voter", "3", "--accept-data-loss") == 1
    assert "has a leader" in capsys.readouterr().err
