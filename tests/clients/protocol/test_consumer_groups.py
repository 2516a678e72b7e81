"""Messages of consumer groups (KIP-848), byte by byte as Kafka's schemas have them."""

from typing import Any

import pytest

from barnabas_clients.protocol.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
)
from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

ID = bytes(range(16))
ID_HEX = ID.hex()
OWNED = [ConsumerGroupHeartbeatTopicPartitions(topic_id=ID, partitions=(0, 5))]
OWNED_HEX = f"02 {ID_HEX} 03 00000000 00000005 00"
JOIN = ConsumerGroupHeartbeatRequest(
    group_id="g",
    member_id="m",
    member_epoch=0,
    rebalance_timeout_ms=300_000,
    subscribed_topic_names=("t",),
    topic_partitions=[],
)
MEMBER = ConsumerGroupDescribeMember(
    member_id="m",
    member_epoch=3,
    client_id="c",
    client_host="/h",
    subscribed_topic_names=("t",),
    assignment=ConsumerGroupDescribeAssignment(
        topic_partitions=[ConsumerGroupDescribeTopicPartitions(topic_id=ID, topic_name="t", partitions=(5,))]
    ),
    member_type=1,
)
MEMBER_HEX = f"02 6d 00 00 00000003 02 63 03 2f68 02 02 74 00 02 {ID_HEX} 02 74 02 00000005 00 00 01 00"
GROUP = ConsumerGroupDescribeGroup(
    group_id="g", group_state="Stable", group_epoch=3, assignment_epoch=3, assignor_name="uniform", members=[MEMBER]
)
GROUP_HEX = "00000000 02 0000 00 02 67 07 537461626c65 00000003 00000003 08 756e69666f726d 02"
CASES: list[tuple[Any, int, str]] = [
    (JOIN, 0, "02 67 02 6d 00000000 00 00 000493e0 02 02 74 00 01 00"),
    (JOIN, 1, "02 67 02 6d 00000000 00 00 000493e0 02 02 74 00 00 01 00"),
    (
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3),
        1,
        "02 67 02 6d 00000003 00 00 ffffffff 00 00 00 00 00",
    ),
    (
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=-2,
            instance_id="i",
            rack_id="r",
            subscribed_topic_regex="a.*",
            server_assignor="range",
            topic_partitions=OWNED,
        ),
        1,
        f"02 67 02 6d fffffffe 02 69 02 72 ffffffff 00 04 612e2a 06 72616e6765 {OWNED_HEX} 00",
    ),
    (
        ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=3, heartbeat_interval_ms=5_000),
        0,
        "00000000 0000 00 02 6d 00000003 00001388 ff 00",
    ),
    (
        ConsumerGroupHeartbeatResponse(
            error_code=110, error_message="x", assignment=ConsumerGroupHeartbeatAssignment(topic_partitions=OWNED)
        ),
        1,
        f"00000000 006e 02 78 00 00000000 00000000 01 {OWNED_HEX} 00 00",
    ),
    (ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=True), 1, "02 02 67 01 00"),
    (ConsumerGroupDescribeResponse(groups=[GROUP]), 1, f"{GROUP_HEX} {MEMBER_HEX} 01 00 80000000 00 00"),
    (ConsumerGroupDescribeResponse(groups=[GROUP]), 0, f"{GROUP_HEX} {MEMBER_HEX} 00 80000000 00 00"),
]


@pytest.mark.parametrize(
    ("message", "version", "expected"), CASES, ids=lambda case: type(case).__name__ if not isinstance(case, str) else ""
)
def test_bytes_are_those_of_the_schema(message: Any, version: int, expected: str) -> None:
    assert message.to_bytes(version) == bytes.fromhex(expected)


def test_no_assignment_is_not_an_empty_one() -> None:
    for assignment in (None, ConsumerGroupHeartbeatAssignment()):
        answer = ConsumerGroupHeartbeatResponse(assignment=assignment)
        assert ConsumerGroupHeartbeatResponse.decode(answer.to_bytes(1), 1).assignment == assignment
