"""`Consumer` and `Admin` check the places, offsets and names that they are handed."""

from typing import Any

import pytest

from barnabas_clients.place_arguments import (
    configs_of,
    group_states,
    offsets_of,
    partitions_of,
    replicas_of,
    timestamps_of,
)
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

T0 = TopicPartition("t", 0)


def test_a_partition_may_be_any_pair() -> None:
    found = partitions_of("partitions", [("t", 0), T0])
    assert found == [T0, T0]
    assert all(type(one) is TopicPartition for one in found)
    assert partitions_of("partitions", iter({T0})) == [T0]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (T0, TypeError, "partitions is one partition; it must be a list of partitions"),
        ("t-0", TypeError, "partitions is str 't-0'; it must be a list of partitions"),
        (["t"], TypeError, "a partition in partitions is str 't'; it must be a TopicPartition"),
        ([("t", "0")], TypeError, "the number of a partition in partitions is str '0'; it must be an int"),
        ([("t", -1)], ValueError, "it must be from 0 to 2147483647"),
        ([(b"t", 0)], TypeError, "the topic of a partition in partitions is bytes b't'; it must be a str"),
        ([("", 0)], ValueError, "the topic of a partition in partitions is empty"),
        ({T0: 5}, TypeError, "partitions is dict of 1; it must be a list of partitions"),
        (None, TypeError, "partitions is None"),
    ],
)
def test_what_are_no_partitions_is_said(given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as raised:
        partitions_of("partitions", given)
    assert said in str(raised.value)


def test_offsets_are_numbers_or_have_a_note() -> None:
    noted = OffsetAndMetadata(5, "note", 3)
    assert offsets_of("offsets", {T0: 5, ("t", 1): noted}) == {T0: OffsetAndMetadata(5), ("t", 1): noted}
    with pytest.raises(ValueError, match="the offset of t-0 is int -1"):
        offsets_of("offsets", {T0: -1})
    with pytest.raises(TypeError, match="the metadata of the offset of t-0 is None"):
        offsets_of("offsets", {T0: OffsetAndMetadata(1, None)})  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(TypeError, match="offsets is list of 1; it must be a mapping"):
        offsets_of("offsets", [T0])


def test_times_and_replicas_go_by_partition() -> None:
    assert timestamps_of("partitions", {T0: -1}) == {T0: -1}
    with pytest.raises(ValueError, match="before of t-0 is int -2"):
        timestamps_of("before", {T0: -2}, low=-1)
    assert replicas_of("targets", {T0: (1, 2), ("t", 1): None}) == {T0: [1, 2], ("t", 1): None}
    with pytest.raises(TypeError, match="targets of t-0 is int 1; it must be a list of broker ids"):
        replicas_of("targets", {T0: 1})


def test_configurations_are_written_as_brokers_write_them() -> None:
    given = {"a": "x", "b": 60_000, "c": True, "d": False, "e": ""}
    assert configs_of("configs", given, may_be_none=False) == {
        "a": "x",
        "b": "60000",
        "c": "true",
        "d": "false",
        "e": "",
    }
    assert configs_of("configs", {"a": None}, may_be_none=True) == {"a": None}
    for value in (None, 1.5, b"x", ["delete"]):
        with pytest.raises(TypeError, match=r"cleanup\.policy is .*; it must be a str, an int or a bool"):
            configs_of("configs", {"cleanup.policy": value}, may_be_none=False)


def test_states_are_those_that_there_are() -> None:
    assert group_states(["stable", "PREPARINGREBALANCE"]) == ["Stable", "PreparingRebalance"]
    with pytest.raises(ValueError, match="there is no state 'foo'; choose from Stable, Empty, "):
        group_states(["foo"])
