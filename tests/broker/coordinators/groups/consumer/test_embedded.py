"""What members of the classic protocol say to each other, read and written as clients do it."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.coordinators.groups.consumer.embedded import (
    NAMES_MAX,
    NUMBERS_MAX,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from barnabas_clients.assignors import subscription
from barnabas_clients.assignors.assignor import Subscription
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import MalformedMessageError

NAMES = st.text("ab", min_size=1, max_size=3)
PARTITIONS = st.frozensets(st.builds(TopicPartition, NAMES, st.integers(0, 9)), max_size=8)


@given(topics=st.frozensets(NAMES, max_size=4), owned=PARTITIONS, rack=st.none() | NAMES)
def test_it_reads_what_clients_write(
    topics: frozenset[str], owned: frozenset[TopicPartition], rack: str | None
) -> None:
    data = subscription.encode_subscription(Subscription(topics=topics, owned=owned, generation_id=3, rack_id=rack))
    said = read_subscription(data)
    assert said.topic_names == tuple(sorted(topics))
    assert {TopicPartition(name, number) for name, numbers in said.owned.items() for number in numbers} == owned
    assert said.rack_id == rack
    assert version_of(data) == 3


@given(given=PARTITIONS, version=st.integers(0, 3))
def test_clients_read_what_it_writes(given: frozenset[TopicPartition], version: int) -> None:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(given):
        numbers.setdefault(topic, []).append(number)
    data = write_assignment(version, numbers)
    assert subscription.decode_assignment(data) == given
    assert read_assignment(data) == ({name: tuple(some) for name, some in numbers.items()}, False)
    assert version_of(data) == version


def test_an_older_version_says_less() -> None:
    old = b"\0\0" + struct.pack(">ih1si", 1, 1, b"t", -1)
    assert read_subscription(old) == (("t",), {}, None)


def test_a_newer_version_is_read_as_the_newest_that_is_known() -> None:
    newer = b"\0\x09" + subscription.encode_subscription(Subscription(topics=frozenset({"t"})))[2:] + b"more"
    assert (read_subscription(newer).topic_names, version_of(newer)) == (("t",), 3)


def test_what_an_assignor_has_put_beside_the_partitions_is_seen() -> None:
    assert read_assignment(b"") == ({}, False)
    data = subscription.encode_assignment([TopicPartition("t", 1)], b"mine")
    assert read_assignment(data) == ({"t": (1,)}, True)


def test_no_bytes_but_these_are_read() -> None:
    whole = subscription.encode_subscription(
        Subscription(topics=frozenset({"t"}), owned=frozenset({TopicPartition("t", 1)}))
    )
    for end in range(len(whole)):
        with pytest.raises(MalformedMessageError):
            read_subscription(whole[:end])
    for wrong in (b"\xff\xff" + whole[2:], b"\0\1\0\0\0\1\0\1\xff\xff\xff\xff\xff"):
        with pytest.raises(MalformedMessageError):
            read_subscription(wrong)


def test_nobody_says_so_much_that_others_wait() -> None:
    many = b"\0\0" + struct.pack(">i", NAMES_MAX + 1) + (NAMES_MAX + 1) * b"\0\1t" + b"\xff\xff\xff\xff"
    long = b"\0\0" + struct.pack(">i", 30) + 30 * (struct.pack(">h", 10_000) + 10_000 * b"t") + b"\xff\xff\xff\xff"
    for data in (many, long):
        with pytest.raises(MalformedMessageError):
            read_subscription(data)
    numbers = {"a": range(NUMBERS_MAX), "b": range(1)}
    with pytest.raises(MalformedMessageError):
        read_assignment(write_assignment(0, numbers))
    del numbers["b"]
    assert len(read_assignment(write_assignment(0, numbers))[0]["a"]) == NUMBERS_MAX
