"""A command that names much goes in small parts: nothing is lost or reordered."""

from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps import outcome

from barnabas_metadata_quorum.controller.commands import (
    AlterConfigs,
    AlterReassignments,
    ConfigChange,
    ConfiguredTopic,
    CreatePartitions,
    CreateTopics,
    CreateTopicsAnswer,
    DeleteTopics,
    DeleteTopicsAnswer,
    NewPartitions,
    NewTopic,
    Reassignment,
    RefusalReason,
    Refused,
)
from barnabas_metadata_quorum.controller.parts import (
    CHECKED_AT_ONCE,
    WEIGHT_MAX,
    Divided,
    check_whole,
    parts_of,
    refused_part,
    together,
)
from barnabas_metadata_quorum.image.image import Image
from barnabas_raftlog.steps import at_once

IMAGE = Image("c")
NAMES = st.text("ab", max_size=2)
COUNTS = st.sampled_from([-1, 1, 2, WEIGHT_MAX - 1, WEIGHT_MAX, 10_000])
CHANGES = st.lists(st.builds(ConfigChange, NAMES), max_size=3).map(tuple)
COMMANDS = st.one_of(
    st.builds(CreateTopics, st.lists(st.builds(NewTopic, NAMES, COUNTS), max_size=90).map(tuple), st.booleans()),
    st.builds(CreatePartitions, st.lists(st.builds(NewPartitions, NAMES, COUNTS), max_size=90).map(tuple)),
    st.builds(AlterConfigs, st.lists(st.builds(ConfiguredTopic, NAMES, CHANGES), max_size=90).map(tuple)),
    st.builds(DeleteTopics, st.lists(NAMES, max_size=90).map(tuple), st.lists(st.binary(), max_size=90).map(tuple)),
    st.builds(AlterReassignments, st.lists(st.builds(Reassignment, NAMES, COUNTS, st.none()), max_size=90).map(tuple)),
)
WHY = Refused(RefusalReason.TIMED_OUT, "no time")


def items_of(command: Any) -> list[list[Any]]:
    fields = ("topics", "partitions", "names", "topic_ids")
    return [list(getattr(command, name)) for name in fields if hasattr(command, name)]


@given(COMMANDS)
def test_the_parts_together_are_the_command(command: Divided) -> None:
    parts = list(parts_of(command, IMAGE))
    assert parts
    found = zip(*map(items_of, parts), strict=True)
    assert [list(chain.from_iterable(lists)) for lists in found] == items_of(command)
    empty = {name: () for name in ("topics", "partitions", "names", "topic_ids") if hasattr(command, name)}
    assert all(msgspec.structs.replace(part, **empty) == msgspec.structs.replace(command, **empty) for part in parts)


@given(COMMANDS)
def test_a_refusal_of_each_part_is_one_of_each_item(command: Divided) -> None:
    answer: Any = together([refused_part(part, WHY) for part in parts_of(command, IMAGE)])
    assert answer == refused_part(command, WHY)
    [fates] = items_of(answer)
    assert len(fates) == sum(map(len, items_of(command)))
    assert all((fate.error, fate.message) == (WHY.reason, WHY.message) for fate in fates)


def test_no_part_is_large_unless_it_is_one_topic() -> None:
    small = CreateTopics(tuple(NewTopic(f"t{number}", 1, 3) for number in range(10_000)))
    assert {len(part.topics) for part in parts_of(small, IMAGE)} == {WEIGHT_MAX}  # type: ignore[union-attr]
    mixed = CreateTopics(
        (NewTopic("small", 1), NewTopic("large", 9_000), NewTopic("a", 10), NewTopic("b", WEIGHT_MAX - 10))
    )
    sizes = [[topic.name for topic in part.topics] for part in parts_of(mixed, IMAGE)]  # type: ignore[union-attr]
    assert sizes == [["small"], ["large"], ["a", "b"]]
    changes = tuple(ConfigChange(f"c{number}") for number in range(WEIGHT_MAX))
    configured = AlterConfigs(tuple(ConfiguredTopic(f"t{number}", changes) for number in range(4)))
    assert len(list(parts_of(configured, IMAGE))) == 4


@pytest.mark.parametrize(
    "command",
    [
        CreateTopics(tuple(NewTopic(f"t{number}", 2, 3) for number in range(5_001))),
        CreateTopics(tuple(NewTopic(f"t{number}") for number in range(10_001))),
        DeleteTopics(tuple(f"t{number}" for number in range(5_001)), 5_000 * (bytes(16),)),
    ],
)
def test_a_request_is_bounded_as_a_whole(command: Divided) -> None:
    with pytest.raises(Refused) as caught:
        at_once(check_whole(command, IMAGE))
    assert caught.value.reason is RefusalReason.POLICY_VIOLATION


def test_how_much_is_asked_for_is_counted_in_pieces() -> None:
    for command in (
        CreateTopics(tuple(NewTopic(f"t{number}") for number in range(5 * CHECKED_AT_ONCE))),
        CreatePartitions(tuple(NewPartitions(f"t{number}", 2) for number in range(5 * CHECKED_AT_ONCE))),
    ):
        assert outcome(check_whole(command, IMAGE)) == (None, 5)


def test_names_are_answered_before_ids() -> None:
    command = DeleteTopics(("a", "b"), (b"1", b"2"))
    answers = [refused_part(part, WHY) for part in parts_of(command, IMAGE)]
    answer = together(answers)
    assert isinstance(answer, DeleteTopicsAnswer)
    assert [(fate.name, fate.topic_id) for fate in answer.topics] == [
        ("a", bytes(16)),
        ("b", bytes(16)),
        (None, b"1"),
        (None, b"2"),
    ]
    assert isinstance(together([CreateTopicsAnswer(())]), CreateTopicsAnswer)
