"""A query owns its group alone, and finds its first offset there again."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_clients.assignors.assignor import Subscription
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_spark.streaming.continuation import Heads
from barnabas_spark.streaming.offsets import Offsets
from barnabas_spark.streaming.ownership import EXCLUSIVE, first_in, notes_of

A, B = bytes([1] * 16), bytes([2] * 16)
HEADS = Heads({("t", 0): 9, ("t", 1): 9, ("u", 0): 9}, {"t": A, "u": B})
FIRST = Offsets({("t", 0): 4, ("t", 1): 0, ("u", 0): 9}, {"t": A, "u": B})
Stored = dict[tuple[str, int], OffsetAndMetadata]


def subscription(*, owned: bool, generation_id: int = -1, topics: str = "t") -> Subscription:
    partitions = frozenset({TopicPartition("t", 0)}) if owned else frozenset[TopicPartition]()
    return Subscription(frozenset(topics.split()), owned=partitions, generation_id=generation_id)


@given(st.dictionaries(st.text(max_size=3), st.tuples(st.booleans(), st.integers(-1, 5)), min_size=1, max_size=5))
def test_exactly_one_member_gets_everything(members: dict[str, tuple[bool, int]]) -> None:
    told = {member: subscription(owned=owned, generation_id=at) for member, (owned, at) in members.items()}
    assignment = EXCLUSIVE.assign({"t": 3}, told)
    assert assignment.keys() == told.keys()
    (owner,) = [member for member, partitions in assignment.items() if partitions]
    assert assignment[owner] == [TopicPartition("t", partition) for partition in range(3)]
    assert members[owner][0] or not any(owned for owned, _ in members.values())


def test_the_owner_stays_the_owner() -> None:
    told = {"a": subscription(owned=False), "b": subscription(owned=True, generation_id=3)}
    assert EXCLUSIVE.assign({"t": 1}, told) == {"a": [], "b": [TopicPartition("t", 0)]}


def test_one_that_owned_long_ago_owns_nothing() -> None:
    told = {"a": subscription(owned=True, generation_id=2), "b": subscription(owned=True, generation_id=3)}
    assert EXCLUSIVE.assign({"t": 1}, told)["a"] == []


def test_an_owner_of_a_topic_that_is_gone_still_owns_something() -> None:
    assert EXCLUSIVE.assign({}, {"a": subscription(owned=False)})["a"]


def stored() -> Stored:
    notes = notes_of(FIRST)
    return {key: OffsetAndMetadata(offset, notes[key]) for key, offset in FIRST.positions.items()}


def test_a_first_offset_is_found_again() -> None:
    assert first_in(stored(), HEADS) == FIRST
    others = {("v", 0): OffsetAndMetadata(5, "a note of somebody"), ("v", 1): OffsetAndMetadata(7)}
    assert first_in(stored() | others, HEADS) == FIRST


def test_without_notes_there_is_none() -> None:
    assert first_in({}, HEADS) is None
    assert first_in({key: OffsetAndMetadata(offset) for key, offset in FIRST.positions.items()}, HEADS) is None


def broken() -> Iterator[tuple[Stored, Heads]]:
    for key in FIRST.positions:
        yield {other: position for other, position in stored().items() if other != key}, HEADS
        yield stored() | {key: OffsetAndMetadata(3)}, HEADS
    yield stored(), HEADS._replace(topic_ids={"t": A, "u": A})
    yield stored(), Heads({("t", 0): 9, ("t", 1): 9}, {"t": A})


@pytest.mark.parametrize(("positions", "heads"), list(broken()))
def test_a_part_of_a_first_offset_or_one_of_other_topics_does_not_count(positions: Stored, heads: Heads) -> None:
    assert first_in(positions, heads) is None
