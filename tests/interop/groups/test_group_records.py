"""Records of groups of KIP-848 are read by Apache Kafka's own classes, and are what these would have written."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.coordinators.groups.consumer.consumer_desk import Classic, Client, Desk, SomeTopics, settle
from broker.coordinators.groups.consumer.test_consumer_records import CASES
from interop.lines.line_programs import LineProgram, java_command

from barnabas_broker.coordinators.groups.consumer.values import Kind
from barnabas_broker.coordinators.groups.table import record_of_consumer
from barnabas_clients.protocol.error_codes import ErrorCode

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SOURCE = Path(__file__).with_name("KafkaGroupRecords.java")


@pytest.fixture(scope="module")
def kafka() -> Iterator[LineProgram]:
    kafka = LineProgram(*java_command(SOURCE))
    yield kafka
    kafka.end()


def test_every_kind_of_record_is_kafkas(kafka: LineProgram) -> None:
    for _, key, _, value in CASES:
        record = f"{bytes.fromhex(key).hex()} {bytes.fromhex(value).hex()}"
        assert kafka.line_for(*record.split()) == record


def test_the_records_of_a_group_at_work_are_kafkas(kafka: LineProgram) -> None:
    desk = Desk(SomeTopics(t=5, u=3))
    clients = [
        Client(desk, "a", "t", "u", instance="i"),
        Client(desk, "b", topic_pattern="[tu]", topic_names=None),
        Client(desk, "c", "t", server_assignor="range"),
    ]
    for count in (1, 2, 3):
        settle(*clients[:count])
    clients[0].leave(-2)
    settle(Client(desk, "a2", "u", instance="i"), *clients[1:])
    assert Classic(desk, "d", "t", eager=False).join() is ErrorCode.NONE
    assert desk.changes[-1].key.subject == "d"
    seen = set()
    for change in desk.changes:
        if change.value is not None:
            key, value = record_of_consumer(change.key, change.value)
            assert value is not None
            record = f"{key.hex()} {value.hex()}"
            assert kafka.line_for(*record.split()) == record
            seen.add(change.key.kind)
    assert seen == set(Kind)
