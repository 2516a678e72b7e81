"""Plays one member of a group of KIP-848 that says exactly what a test wants said."""

import time
from typing import Any

from broker.coordinators.groups.group_client import DEADLINE_S, GroupClient

from barnabas_clients.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from barnabas_clients.protocol.error_codes import ErrorCode

__all__ = ["ConsumerClient", "settle"]

NONE = ErrorCode.NONE


class ConsumerClient(GroupClient):
    """A member. `epoch` and `has` are what it was told last; `generation_id` is the epoch for offsets."""

    def __init__(self, bootstrap: str, group_id: str, *topics: str, member_id: str, **more: Any) -> None:
        super().__init__(bootstrap, group_id, *topics, **more)
        self.member_id = member_id
        self.epoch = 0
        self.has: dict[bytes, list[int]] = {}
        self.interval_ms = 0

    @property
    def numbers(self) -> list[int]:
        return sorted(number for numbers in self.has.values() for number in numbers)

    def request(self, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        owned = [
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in self.has.items()
        ]
        values: dict[str, Any] = {"group_id": self.group_id, "member_id": self.member_id, "member_epoch": self.epoch}
        if self.epoch == 0:
            values |= {
                "instance_id": self.instance_id,
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": self.topics,
                "topic_partitions": [],
            }
        else:
            values["topic_partitions"] = owned
        return ConsumerGroupHeartbeatRequest(**values | fields)

    def beat(self, version: int = 1, **fields: Any) -> Any:
        """Send a heartbeat, and keep to the answer."""
        answer = self.ask(self.request(**fields), version)
        if answer.error_code == NONE and answer.member_epoch >= 0:
            self.member_id = answer.member_id
            self.epoch = self.generation_id = answer.member_epoch
            self.interval_ms = answer.heartbeat_interval_ms
            if answer.assignment is not None:
                self.has = {one.topic_id: list(one.partitions) for one in answer.assignment.topic_partitions}
        return answer

    def beat_surely(self) -> Any:
        """Send a heartbeat to whoever coordinates by now."""
        answer = self.until_known(self.beat, lambda found: int(found.error_code))
        assert answer.error_code == NONE, answer
        return answer

    def leave_group(self, epoch: int = -1) -> Any:
        answer = self.ask(self.request(member_epoch=epoch, topic_partitions=None, instance_id=self.instance_id), 1)
        self.epoch = 0
        self.has = {}
        return answer

    def described(self, version: int = 1) -> Any:
        request = ConsumerGroupDescribeRequest(group_ids=[self.group_id], include_authorized_operations=True)
        (group,) = self.until_known(lambda: self.ask(request, version).groups, lambda found: int(found[0].error_code))
        return group


def settle(*members: ConsumerClient, partitions: int, least: int = 0) -> int:
    """Let them come by until they have all partitions, each one once; return how many rounds that took.

    `least`: so many each of them has then. Kafka counts a newcomer in some seconds after it has come.
    """
    until_s = time.monotonic() + DEADLINE_S
    rounds = 0
    while True:
        rounds += 1
        answers = [member.beat_surely() for member in members]
        numbers = sorted(number for member in members for number in member.numbers)
        is_fair = all(len(member.numbers) >= least for member in members)
        if is_fair and numbers == list(range(partitions)) and len({answer.member_epoch for answer in answers}) == 1:
            return rounds
        assert time.monotonic() < until_s, [(member.epoch, member.has) for member in members]
