"""Terms that no honest cluster reaches, in directories of real brokers: no start.

One command mends the directories, and every record is back.
"""

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from machines import cluster_handle
from machines.cluster_handle import BARNABAS, run

from barnabas_broker.environment import boot_id
from barnabas_raftlog.log.checkpoint import decode
from barnabas_raftlog.log.machine.files import OsFiles
from barnabas_raftlog.log.machine.worker import ThreadWorker
from barnabas_raftlog.log.recovery.forgery import TERMS_SKIPPED
from barnabas_raftlog.log.shared import StorageConfig
from barnabas_raftlog.log.storage import Storage
from barnabas_raftlog.raft.messages import TERM_MAX, GroupId, HardState

pytestmark = [pytest.mark.process, pytest.mark.slow]

TOPIC = "orders"
RECORDS = [f"record {number}" for number in range(200)]


@pytest.fixture
def brokers() -> Iterator[cluster_handle.ClusterHandle]:
    with cluster_handle.cluster() as brokers:
        yield brokers


def directory(brokers: cluster_handle.ClusterHandle, node_id: int) -> Path:
    return brokers.data / f"broker-{node_id}" / "data"


def produce(brokers: cluster_handle.ClusterHandle, records: Sequence[str]) -> None:
    """Every one of them is acknowledged by all three."""
    text = "".join(f"{record}\n" for record in records)
    command = [str(BARNABAS), "produce", TOPIC, "--bootstrap-server", brokers.bootstrap]
    subprocess.run(command, input=text, text=True, check=True, timeout=60, capture_output=True)


def consume(brokers: cluster_handle.ClusterHandle) -> list[str]:
    options = ["--from-beginning", "--exit-at-end", "--bootstrap-server", brokers.bootstrap]
    return run("consume", TOPIC, *options).splitlines()


def groups(directory: Path) -> list[GroupId]:
    return [GroupId(group) for group in decode((directory / "checkpoint").read_bytes()).hard_states]


async def forge(directory: Path, forged: Sequence[GroupId], term: int) -> None:
    """Keep a vote in that term, as a broker did when it believed any."""
    worker = ThreadWorker(asyncio.get_running_loop(), "forging")
    storage = await Storage.open(
        OsFiles(),
        str(directory),
        StorageConfig(),
        sync_worker=worker,
        write_worker=worker,
        on_durable=lambda: None,
        boot_id=boot_id(),
    )
    for group in forged:
        storage.save_hard_state(group, HardState(term, 3))
    await storage.close()
    worker.stop()


def test_one_forged_directory_and_then_all_are_mended(brokers: cluster_handle.ClusterHandle) -> None:
    words = ["--partitions", 2, "--replication-factor", 3, "--config", "min.insync.replicas=3"]
    run("topic", "create", TOPIC, *words, "--bootstrap-server", brokers.bootstrap)
    produce(brokers, RECORDS[:100])
    brokers.stop()
    asyncio.run(forge(directory(brokers, 2), groups(directory(brokers, 2)), 1 << 40))
    with pytest.raises(cluster_handle.CommandFailedError, match=r"broker 2 did not start: .*barnabas log mend"):
        brokers.start()
    assert "mended" in run("log", "mend", "--directory", directory(brokers, 2))
    assert "nothing to mend" in run("log", "mend", "--directory", directory(brokers, 1))
    brokers.start()
    assert sorted(consume(brokers)) == sorted(RECORDS[:100])
    produce(brokers, RECORDS[100:])

    brokers.kill(1, 2, 3)
    brokers.stop()  # which waits until they are gone
    forged = {node_id: groups(directory(brokers, node_id)) for node_id in (1, 2, 3)}
    for (node_id, known), term in zip(forged.items(), (1 << 50, 1 << 30, TERM_MAX), strict=True):
        asyncio.run(forge(directory(brokers, node_id), known, term))
    with pytest.raises(cluster_handle.CommandFailedError, match=r"did not start: .*barnabas log mend"):
        brokers.start()
    options = [word for node_id in forged for word in ("--directory", directory(brokers, node_id))]
    assert run("log", "mend", *options).count("mended") == sum(map(len, forged.values()))
    brokers.start()
    assert sorted(consume(brokers)) == sorted(RECORDS)
    brokers.stop()
    for node_id, known in forged.items():
        states = decode((directory(brokers, node_id) / "checkpoint").read_bytes()).hard_states
        assert all(TERMS_SKIPPED < states[group].term < 3 * TERMS_SKIPPED for group in known)
