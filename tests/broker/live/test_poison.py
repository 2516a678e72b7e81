"""An unreadable batch costs its readers an error and a step, never the partition."""

import asyncio
import os
import subprocess
import sys

import pytest

from barnabas_broker.testing import RunningCluster
from barnabas_clients import Consumer, CorruptRecordsError, TopicPartition
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_spark.clusters import close_all
from barnabas_spark.options.reads import parse_read_options
from barnabas_spark.planning.plan import Split
from barnabas_spark.reading.reader import read_split
from broker.wire_client import Wire, garbage

pytestmark = pytest.mark.slow
GOOD = [f"{number}".encode() for number in range(6)]


@pytest.fixture
def topic(wire: Wire, topic: str) -> str:
    """Return a topic whose batches are not looked into."""
    wire.create(f"{topic}-trusting", record_validation="none")
    return f"{topic}-trusting"


@pytest.fixture
def poisoned(wire: Wire, topic: str) -> str:
    """Return a topic with three records, four offsets of garbage, and three records."""
    for records in (GOOD[:3], None, GOOD[3:]):
        frame = garbage(4) if records is None else build_batch([NewRecord(None, value, 1_000) for value in records])
        assert wire.produce(topic, bytes(frame)).error_code == 0
    return topic


def barnabas(cluster: RunningCluster, *words: str) -> tuple[int, list[str], str]:
    """Run the command, and return its status, the lines that it wrote, and what it said on stderr."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "BARNABAS_BOOTSTRAP_SERVER": cluster.bootstrap}
    command = [sys.executable, "-m", "barnabas_broker.cli.entry", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.split(), done.stderr


def test_our_consumer_is_told_of_it_and_goes_on_behind_it(one_broker: RunningCluster, poisoned: str) -> None:
    partition = TopicPartition(poisoned, 0)

    async def read() -> tuple[list[bytes | None], list[CorruptRecordsError], int]:
        values = list[bytes | None]()
        errors = list[CorruptRecordsError]()
        async with Consumer(
            one_broker.bootstrap, topics=[poisoned], group_id=f"{poisoned}-g", auto_offset_reset="earliest"
        ) as consumer:
            while len(values) < len(GOOD):
                try:
                    for records in (await consumer.get_many()).values():
                        values += [record.value for record in records]
                except CorruptRecordsError as error:
                    errors.append(error)
                    if len(errors) == 2:
                        await consumer.skip(error)
                        await consumer.commit()
                        assert (await consumer.committed(partition))[partition].offset == 7
            return values, errors, await consumer.position(partition)

    values, errors, position = asyncio.run(asyncio.wait_for(read(), 60))
    assert (values, position) == (GOOD, 10)
    assert [(error.partition, error.offset, error.next_offset) for error in errors] == [(partition, 3, 7)] * 2
    assert str(errors[0]).startswith(f"{poisoned}-0 at offset 3: ")
    assert str(errors[0]).endswith("; what follows begins at offset 7")


def test_the_command_ends_with_a_way_past_it_or_leaves_it_out(one_broker: RunningCluster, poisoned: str) -> None:
    read = ("consume", poisoned, "--from-beginning", "--exit-at-end")
    status, lines, said = barnabas(one_broker, *read)
    assert (status, lines) == (1, ["0", "1", "2"])
    assert said.startswith(f"barnabas: {poisoned}-0 at offset 3: ")
    past = "--partition 0 --offset 7 goes past it, --skip-corrupt goes past all such"
    assert said.endswith(f"; what follows begins at offset 7 ({past})\n")
    assert barnabas(one_broker, "consume", poisoned, "--offset", "7", "--exit-at-end") == (0, ["3", "4", "5"], "")
    for words in ((), ("--group", f"{poisoned}-c")):
        status, lines, said = barnabas(one_broker, *read, "--skip-corrupt", *words)
        assert (status, lines) == (0, ["0", "1", "2", "3", "4", "5"])
        assert said.startswith(f"barnabas: left out: {poisoned}-0 at offset 3: ")
        assert said.count("\n") == 1


def test_a_log_can_be_made_to_begin_behind_it(one_broker: RunningCluster, poisoned: str) -> None:
    assert barnabas(one_broker, "topic", "delete-records", poisoned, "-p", "0", "--before-offset", "7")[0] == 0
    read = ("consume", poisoned, "--from-beginning", "--exit-at-end")
    assert barnabas(one_broker, *read) == (0, ["3", "4", "5"], "")


def test_a_group_can_be_moved_behind_it(one_broker: RunningCluster, poisoned: str) -> None:
    group = f"{poisoned}-m"
    read = ("consume", poisoned, "--group", group, "--from-beginning", "--exit-at-end")
    assert barnabas(one_broker, *read)[0] == 1
    moved = ("group", "reset-offsets", group, "-t", f"{poisoned}:0", "--to-offset", "7", "--execute")
    assert barnabas(one_broker, *moved)[0] == 0
    assert barnabas(one_broker, *read) == (0, ["3", "4", "5"], "")


def test_a_group_that_left_it_out_does_not_meet_it_again(one_broker: RunningCluster, wire: Wire, topic: str) -> None:
    for frame in (build_batch([NewRecord(None, b"0", 1_000)]), garbage(4)):
        assert wire.produce(topic, bytes(frame)).error_code == 0
    member = ("consume", topic, "--group", f"{topic}-d", "--from-beginning", "--exit-at-end", "--skip-corrupt")
    status, lines, said = barnabas(one_broker, *member)
    assert (status, lines) == (0, ["0"])
    assert "left out" in said
    assert barnabas(one_broker, *member) == (0, [], "")


def test_the_spark_reader_names_the_same_batch(one_broker: RunningCluster, poisoned: str) -> None:
    options = parse_read_options({"kafka.bootstrap.servers": one_broker.bootstrap, "subscribe": poisoned})
    topic_id = one_broker.cluster.nodes[1].partitions.topics[poisoned].topic.topic_id

    def values(start_offset: int, end_offset: int) -> list[bytes]:
        split = Split(
            topic=poisoned,
            topic_id=topic_id,
            partition=0,
            leader_epoch=-1,
            start_offset=start_offset,
            end_offset=end_offset,
        )
        return [one.as_py() for rows in read_split(split, options, ("value",)) for one in rows.column(0)]

    try:
        assert values(0, 3) + values(7, 10) == GOOD
        with pytest.raises(CorruptRecordsError, match=f"{poisoned}-0 at offset 3: .*begins at offset 7") as raised:
            values(1, 10)
        assert (raised.value.partition, raised.value.offset, raised.value.next_offset) == ((poisoned, 0), 3, 7)
    finally:
        close_all()
