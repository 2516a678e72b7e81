"""The bytes that members exchange are those of Apache Kafka 4.3 and of kio."""

from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.consumer_protocol_assignment.v3 import data as kio_assignment
from kio.schema.consumer_protocol_subscription.v3 import data as kio_subscription
from kio.serial import entity_reader, entity_writer

from barnabas_clients.assignors.assignor import Subscription
from barnabas_clients.assignors.built_in import COOPERATIVE_STICKY, STICKY
from barnabas_clients.assignors.subscription import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import MalformedMessageError

HELD = frozenset({TopicPartition("orders", 2), TopicPartition("a", 0), TopicPartition("orders", 0)})
ORDERS = frozenset({"orders"})
SUBSCRIPTIONS = {
    "00030000000200016100066f726465727300000002010200000002000161000000010000000000066f7264657273"
    "0000000200000000000000020000000700027231": Subscription(
        topics=frozenset({"orders", "a"}), user_data=b"\1\2", owned=HELD, generation_id=7, rack_id="r1"
    ),
    "00030000000100066f7264657273ffffffff00000000ffffffffffff": Subscription(ORDERS),
    "00020000000100066f7264657273ffffffff00000002000161000000010000000000066f726465727300000002"
    "000000000000000200000007": Subscription(ORDERS, None, HELD, 7),
    "00010000000100066f7264657273ffffffff00000002000161000000010000000000066f726465727300000002"
    "0000000000000002": Subscription(ORDERS, None, HELD),
    "00000000000100066f7264657273000000020102": Subscription(ORDERS, b"\1\2"),
}
ASSIGNMENTS = [
    "00030000000200066f72646572730000000200000002000000000001610000000100000000ffffffff",
    "00000000000200066f726465727300000002000000020000000000016100000001000000000000000109",
]
MODEST = settings(max_examples=30, deadline=None)
topics = st.text(max_size=6)
partitions = st.frozensets(st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1)), max_size=6)
subscriptions = st.builds(
    Subscription,
    st.frozensets(topics, max_size=4),
    st.none() | st.binary(max_size=5),
    partitions,
    st.integers(-1, 2**31 - 1),
    st.none() | topics,
    st.none(),
)


@pytest.mark.parametrize("data", SUBSCRIPTIONS)
def test_subscriptions_of_all_versions_are_read(data: str) -> None:
    assert decode_subscription(bytes.fromhex(data)) == SUBSCRIPTIONS[data]


@pytest.mark.parametrize("data", [data for data in SUBSCRIPTIONS if data.startswith("0003")])
def test_subscriptions_are_written_as_kafka_writes_them(data: str) -> None:
    assert encode_subscription(SUBSCRIPTIONS[data]).hex() == data


@pytest.mark.parametrize("data", ASSIGNMENTS)
def test_assignments_of_all_versions_are_read(data: str) -> None:
    assert decode_assignment(bytes.fromhex(data)) == HELD


def test_what_sticky_assignors_remember_is_kafkas() -> None:
    held = [TopicPartition("orders", 2), TopicPartition("orders", 0)]
    assert STICKY.user_data((), -1) is None
    assert (STICKY.user_data(held, 7) or b"").hex() == "0000000100066f726465727300000002000000000000000200000007"
    assert COOPERATIVE_STICKY.user_data((), -1) == b"\xff\xff\xff\xff"
    assert COOPERATIVE_STICKY.user_data(held, 7) == b"\0\0\0\7"


@MODEST
@given(subscriptions)
def test_subscriptions_agree_with_another_codec(subscription: Subscription) -> None:
    data = encode_subscription(subscription)
    assert decode_subscription(data, "i") == subscription._replace(group_instance_id="i")
    parsed, size = entity_reader(kio_subscription.ConsumerProtocolSubscription)(data[2:], 0)
    assert size == len(data) - 2
    assert set(parsed.topics) == subscription.topics
    assert (parsed.user_data, parsed.generation_id, parsed.rack_id) == (
        subscription.user_data,
        subscription.generation_id,
        subscription.rack_id,
    )
    assert {(row.topic, number) for row in parsed.owned_partitions for number in row.partitions} == subscription.owned
    copy = BytesIO()
    entity_writer(kio_subscription.ConsumerProtocolSubscription)(copy, parsed)
    assert copy.getvalue() == data[2:]


@MODEST
@given(partitions, st.none() | st.binary(max_size=5))
def test_assignments_agree_with_another_codec(assigned: frozenset[TopicPartition], user_data: bytes | None) -> None:
    data = encode_assignment(assigned, user_data)
    assert decode_assignment(data) == assigned
    parsed, size = entity_reader(kio_assignment.ConsumerProtocolAssignment)(data[2:], 0)
    assert size == len(data) - 2
    assert parsed.user_data == user_data
    assert {(row.topic, number) for row in parsed.assigned_partitions for number in row.partitions} == assigned


def test_no_bytes_are_no_partitions() -> None:
    assert decode_assignment(b"") == frozenset()


@MODEST
@given(subscriptions, partitions, st.binary(max_size=8))
def test_what_newer_versions_append_is_ignored(
    subscription: Subscription, assigned: frozenset[TopicPartition], tail: bytes
) -> None:
    assert decode_subscription(b"\0\x09" + encode_subscription(subscription)[2:] + tail) == subscription
    assert decode_assignment(b"\0\x09" + encode_assignment(assigned)[2:] + tail) == assigned


@MODEST
@given(subscriptions, st.data())
def test_damaged_bytes_are_malformed_and_nothing_worse(subscription: Subscription, data: st.DataObject) -> None:
    whole = encode_subscription(subscription)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(MalformedMessageError):
        decode_subscription(cut)
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:place] + bytes([data.draw(st.integers(0, 255))]) + whole[place + 1 :]
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(damaged)
        except MalformedMessageError:
            continue
