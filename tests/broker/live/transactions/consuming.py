"""A consumer's side of a transaction: positions that a producer stages for a group, and what the group has then."""

import time
from collections.abc import Mapping
from typing import Any

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas_clients.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from broker.coordinators.groups.group_client import LOST, GroupClient

from .producing import Transactional

__all__ = ["stable_position", "stage", "stage_surely"]

PASSING = {*LOST, ErrorCode.CONCURRENT_TRANSACTIONS}
DEADLINE_S = 30.0


def stage(
    group: GroupClient, producer: Transactional, topic: str, offsets: Mapping[int, int], *, version: int = 5
) -> list[ErrorCode]:
    """Ask once; return the partitions' errors in their order."""
    rows = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in offsets.items()
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id=group.group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=rows)],
    )
    answer = group.ask(request, version)
    return [ErrorCode(one.error_code) for one in answer.topics[0].partitions]


def stage_surely(group: GroupClient, *about: Any, **fields: Any) -> list[ErrorCode]:
    """Ask as a client does, with whichever broker coordinates the group, until the answer is not "later"."""
    until_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            codes = stage(group, *about, **fields)
            if not PASSING.intersection(codes):
                return codes
            if codes[0] is not ErrorCode.CONCURRENT_TRANSACTIONS:
                group.lose()
        except OSError:
            group.lose()
        assert time.monotonic() < until_s, "it is not staged"


def stable_position(group: GroupClient, topic: str, index: int) -> int:
    """Return where the group goes on, when that is decided; -1: nowhere yet."""
    named = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index])]
    asked = OffsetFetchRequestGroup(group_id=group.group_id, topics=named)
    until_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            answer = group.ask(OffsetFetchRequest(groups=[asked], require_stable=True), 9).groups[0]
            if not answer.error_code:
                one = answer.topics[0].partitions[0]
                if one.error_code == ErrorCode.NONE:
                    offset: int = one.committed_offset
                    return offset
                assert one.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            else:
                group.lose()
        except OSError:
            group.lose()
        assert time.monotonic() < until_s, "nobody says where it is"
