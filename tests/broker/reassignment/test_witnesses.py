"""A witness comes, moves and goes with its partition, and clients never notice."""

import asyncio

import pytest

from barnabas_broker.cli.parser.app import run as barnabas
from barnabas_broker.config.witness_rows import WITNESSES, decode_witnesses
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients import Admin, Producer
from barnabas_clients.admin.client import ConfigResource
from barnabas_clients.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from broker.wire_client import Wire

from .moving import (
    WAIT_S,
    all_know_it_left,
    arrived,
    create,
    everything,
    files_are_at,
    in_sync,
    leader,
    move,
    partition_at,
    partition_of,
    under_load,
)

VALUE_BYTES = 64 << 10
WINDOW = 32


async def witness_of(cluster: Cluster, name: str) -> int:
    return (await partition_of(cluster, name)).witness


async def write_until_the_witness_forgets(cluster: Cluster, name: str) -> list[bytes]:
    """Write until the witness has dropped the beginning of its log, and return what was written."""
    log = partition_at(cluster, await witness_of(cluster, name), name).log
    values: list[bytes] = []
    async with asyncio.timeout(WAIT_S), Producer(cluster.bootstrap, client_id="fill") as producer:
        while log.first_index == 1:
            window = [b"%08d" % (len(values) + more) + b"x" * VALUE_BYTES for more in range(WINDOW)]
            for delivery in [await producer.send(name, value, partition=0) for value in window]:
                await delivery
            values += window
    return values


def test_clients_are_told_of_two_replicas_and_the_third_broker_serves_nobody(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> int:
        await create(cluster, "told", 1, 2)
        await in_sync(cluster, "told", (1, 2))
        witness = await witness_of(cluster, "told")
        assert witness not in {1, 2}
        await files_are_at(cluster, "told", (1, 2, witness))
        assert cluster.nodes[witness].status()["witnesses"] >= 1
        async with Admin(cluster.bootstrap) as admin:
            (topic,) = await admin.describe_topics(["told"])
            entry = (await admin.describe_configs([ConfigResource.topic("told")]))[ConfigResource.topic("told")]
        assert set(topic.partitions[0].replicas) == set(topic.partitions[0].in_sync_replicas) == {1, 2}
        assert entry[WITNESSES].read_only
        assert decode_witnesses({WITNESSES: entry[WITNESSES].value}) == {0: witness}
        return witness

    node = six_brokers.cluster.nodes[six_brokers.run(run, 30.0)]
    wire = Wire("127.0.0.1", node.port)
    try:
        asked = ListOffsetsTopic(name="told", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        answer = wire.ask(ListOffsetsRequest(topics=[asked]), 7)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        held = wire.ask(DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="told", partitions=[0])]), 4)
        assert not held.results[0].topics
    finally:
        wire.close()


def test_a_witness_that_becomes_a_replica_has_everything_and_the_reverse(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> None:
        await create(cluster, "raised", 1, 2)
        witness = await witness_of(cluster, "raised")
        values = await write_until_the_witness_forgets(cluster, "raised")
        await move(cluster, "raised", (1, 2, witness))
        await arrived(cluster, "raised")
        await in_sync(cluster, "raised", (1, 2, witness))
        assert partition_at(cluster, witness, "raised").log.first_index == 1
        # It is alone in the end: what it has is all there is.
        await move(cluster, "raised", (witness,))
        await arrived(cluster, "raised")
        await leader(cluster, "raised", (witness,))
        assert await everything(cluster, "raised") == values
        await move(cluster, "raised", (witness, 1))
        await arrived(cluster, "raised")
        new = await witness_of(cluster, "raised")
        assert new not in {1, witness}
        assert await everything(cluster, "raised") == values
        log = partition_at(cluster, new, "raised").log
        assert log.first_index > 1 or log.last_index == 0, "it was sent what the replicas have"

    six_brokers.run(run, 60.0)


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_witness_whose_broker_is_lost_is_replaced_by_asking_again(
    six_brokers: RunningCluster, *, is_empty: bool
) -> None:
    name = f"replaced-{is_empty}"

    async def run(cluster: Cluster) -> None:
        await create(cluster, name, 1, 2)
        lost = await witness_of(cluster, name)
        if not is_empty:
            await write_until_the_witness_forgets(cluster, name)
        before = [] if is_empty else await everything(cluster, name)
        async with under_load(cluster, name) as load:
            await leader(cluster, name, (1, 2))
            await cluster.stop(lost)
            await move(cluster, name, (1, 2))
            await arrived(cluster, name)
            now = await witness_of(cluster, name)
            assert now not in {1, 2, lost}
            # The new one counts: another broker may go.
            await cluster.stop(2)
            await leader(cluster, name, (1,))
        assert await everything(cluster, name) == before + load.acknowledged
        for node_id in (2, lost):
            await cluster.start(node_id)
        await cluster.wait_ready()
        await in_sync(cluster, name, (1, 2))
        await files_are_at(cluster, name, (1, 2, now))

    six_brokers.run(run, 60.0)


def test_the_commands_show_the_witness_and_ask_for_one_that_is_missing(
    six_brokers: RunningCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", six_brokers.bootstrap)

    async def begin(cluster: Cluster) -> int:
        await create(cluster, "typed-two", 1, 2)
        return await witness_of(cluster, "typed-two")

    async def leave(cluster: Cluster) -> None:
        await cluster.stop(before)
        await all_know_it_left(cluster, before)

    async def come_back(cluster: Cluster) -> int:
        await cluster.start(before)
        await cluster.wait_ready()
        return await witness_of(cluster, "typed-two")

    before = six_brokers.run(begin, 30.0)
    assert barnabas(["topic", "describe", "typed-two"]) == 0
    _, columns, row, *_ = capsys.readouterr().out.splitlines()
    assert (columns.split()[-1], row.split()[-1]) == ("witness", str(before))
    assert barnabas(["reassign", "typed-two", "--brokers", "1,2", "--execute"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].rstrip().endswith(f"1,2, witness {before}  stays")
    six_brokers.run(leave, 30.0)
    assert barnabas(["reassign", "typed-two", "--brokers", "1,2", "--execute"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].rstrip().endswith("stays, gets a witness")
    assert shown.err.splitlines()[-1] == "done"
    assert six_brokers.run(come_back, 30.0) not in {1, 2, before}
