"""Consumers of librdkafka change their protocol one by one, and the group loses nothing and reads nothing twice."""

from collections.abc import Iterator

import pytest

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode

from .consumer_client import ConsumerClient
from .test_librdkafka import Group, send

QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200, "group_protocol": "classic"}
NEW = {"group_protocol": "consumer"}


@pytest.fixture
def group(brokers: RunningCluster, topic: str) -> Iterator[Group]:
    group = Group(brokers.bootstrap, topic)
    yield group
    for member in list(group.members):
        group.leave(member)


def kind_of(brokers: RunningCluster, topic: str) -> int:
    tool = ConsumerClient(brokers.bootstrap, topic, topic, member_id="")
    code = tool.described().error_code
    tool.lose()
    return int(code)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_rolls_to_the_new_protocol_and_back(
    brokers: RunningCluster, group: Group, topic: str, strategy: str
) -> None:
    classic = QUICK | {"partition_assignment_strategy": strategy}
    wanted = 0

    def work(what: str) -> None:
        """Let four partitions be shared by two, read something new, and commit it."""
        nonlocal wanted
        group.until(lambda: group.is_shared(4, 2), f"two share: {what}")
        send(group, topic, 8)
        wanted += 8
        group.until(lambda: len(group.read) >= wanted, f"all is read: {what}")
        for member in group.members:
            member.commit(asynchronous=False)

    group.join(topic, **classic)
    group.join(topic, **classic)
    work("both classic")
    assert kind_of(brokers, topic) == ErrorCode.GROUP_ID_NOT_FOUND
    for settings, what in ((NEW, "new"), (NEW, "new"), (classic, "back"), (classic, "back")):
        group.leave(group.members[0])
        group.join(topic, **settings)
        work(what)
        if what == "new":
            assert kind_of(brokers, topic) == ErrorCode.NONE
    assert kind_of(brokers, topic) == ErrorCode.GROUP_ID_NOT_FOUND, "it is a classic group again"
    assert sorted(group.read) == [(partition, offset) for partition in range(4) for offset in range(wanted // 4)]


def test_static_members_keep_what_they_have_in_their_restarts(
    brokers: RunningCluster, group: Group, topic: str
) -> None:
    for number in range(2):
        group.join(topic, group_instance_id=f"i{number}", **QUICK)
    group.until(lambda: group.is_shared(4, 2), "two share")
    for number in range(2):
        had = group.shares()[0]
        group.leave(group.members[0])
        again = group.join(topic, group_instance_id=f"i{number}", **NEW)
        group.until(lambda: group.is_shared(4, 2), "it is back")
        assert sorted(part.partition for part in again.assignment()) == had
