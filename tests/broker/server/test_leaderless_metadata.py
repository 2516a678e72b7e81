"""Metadata of partitions whose leader is not known, or not to be reached: what a client has seen stays true."""

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_broker.server.context import NOBODY, Leader
from barnabas_broker.server.handlers import metadata
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.metadata import MetadataRequest
from barnabas_metadata_quorum.image.image import PartitionPlacement, Topic
from barnabas_raftlog.steps import at_once


def told(leader: Leader, *, is_hidden: bool = False) -> tuple[int, int, int]:
    """Return the error, leader and epoch that a client is told of a partition."""
    hosted: Any = SimpleNamespace(topic=Topic(b"t" * 16, "t", (PartitionPlacement((1,)),), {}))
    image = SimpleNamespace(brokers={1: SimpleNamespace(address_on=lambda _: None if is_hidden else "here")})
    broker: Any = SimpleNamespace(brokers=list, image=image, where_to_ask=lambda *_: leader)
    exchange: Any = SimpleNamespace(listener_name="PLAINTEXT", version=9)
    (row,) = at_once(metadata._topic(broker, MetadataRequest(), exchange, hosted)).partitions
    return row.error_code, row.leader_id, row.leader_epoch


@pytest.mark.parametrize(
    ("leader", "is_hidden", "expected"),
    [
        (Leader(1, 5, (1,)), False, (ErrorCode.NONE, 1, 5)),
        (Leader(-1, 5, (1,)), False, (ErrorCode.LEADER_NOT_AVAILABLE, -1, 5)),
        (Leader(1, 5, (1,)), True, (ErrorCode.LISTENER_NOT_FOUND, -1, 5)),
        (NOBODY, False, (ErrorCode.LEADER_NOT_AVAILABLE, -1, -1)),
    ],
)
def test_w5_without_a_leader_the_last_epoch_is_told(
    leader: Leader, is_hidden: bool, expected: tuple[int, int, int]
) -> None:
    """Clients take -1 for a broker that knows no epochs, and some then forget the one that they have seen."""
    assert told(leader, is_hidden=is_hidden) == expected
