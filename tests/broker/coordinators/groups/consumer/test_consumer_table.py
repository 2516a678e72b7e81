"""A table takes long records of groups of KIP-848 in pieces: a broker that starts reads all there are."""

from barnabas_broker.coordinators.groups.consumer.values import (
    ConsumerKey,
    Kind,
    MemberAssignment,
    MemberMetadata,
    MemberState,
)
from barnabas_broker.coordinators.groups.table import RECORDS_BYTES, GroupTable, record_of_consumer
from barnabas_raftlog.records.header import BatchHeader
from barnabas_raftlog.records.reader import Record

from .consumer_desk import topic_id


def test_it_is_taken_in_pieces_of_so_many_bytes() -> None:
    assigned = {topic_id(f"t{number:04}"): {0: 1} for number in range(1_000)}
    records: list[Record] = []
    for number in range(20):
        for kind, value in (
            (Kind.MEMBER_METADATA, MemberMetadata(topic_names=("t",))),
            (Kind.MEMBER_ASSIGNMENT, MemberAssignment(1, 0, MemberState.STABLE, assigned)),
        ):
            key, encoded = record_of_consumer(ConsumerKey("g", kind, f"m{number}"), value)
            records.append(Record(len(records), 0, key, encoded))
    table = GroupTable()
    header = BatchHeader(0, 0, 1, 2, 0, 0, len(records) - 1, 0, 0, -1, -1, -1, len(records))
    pieces = sum(1 for _ in table.take(header, records))
    longest = max(len(record.value or b"") for record in records)
    assert pieces >= sum(len(record.value or b"") for record in records) // (RECORDS_BYTES + longest)
    assert len(table.consumers["g"].assignments) == 20
