"""Divides a command that names much into small ones, and joins their answers. Pure.

One request of a client may name ten thousand topics. Each topic is decided for itself, as Kafka does, so nothing is
promised about all of them together. A part is a command of its own: it has its own id and answer, is one small entry
of the log, and is applied by every node before the next part is asked for. So neither the controller nor its followers
have to do more in one go than a part is worth, and others are served in between. An image of that time shows topics
that are there, with all of their partitions, and lacks others.

A part is as many items as weigh at most `WEIGHT_MAX` together, or a single heavier one: a topic is never divided, and
is decided in pieces if it has many partitions. If a part is refused as a whole, each of its items is refused. The
limits of a request as a whole are checked before the first part goes (`check_whole`).

The controller notices that a request names something twice only if one part has both.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar, assert_never

import msgspec

from barnabas_metadata_quorum.image.image import Image

from .commands import (
    AlterConfigs,
    AlterConfigsAnswer,
    AlteredTopic,
    AlterReassignments,
    AlterReassignmentsAnswer,
    Answer,
    ConfiguredTopic,
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsAnswer,
    CreateTopics,
    CreateTopicsAnswer,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsAnswer,
    GrownTopic,
    NewPartitions,
    NewTopic,
    Reassignment,
    ReassignmentFate,
    Refused,
    check_named,
)
from .topics import check_asked_for, growth, partitions_asked_for

__all__ = ["WEIGHT_MAX", "Divided", "check_whole", "parts_of", "refused_part", "together"]

WEIGHT_MAX = 20
"""Measured: 20 new topics take the controller 2 to 3 ms, any other command about 20 topics a tenth of that."""
CHECKED_AT_ONCE = 1_000

Divided = CreateTopics | CreatePartitions | AlterConfigs | DeleteTopics | AlterReassignments
Item = TypeVar("Item")


def check_whole(command: Divided, image: Image) -> Generator[None, None, None]:
    """Refuse a request for more than one command may have; `image` is this node's newest.

    Yields between pieces of the work.

    Raises:
        Refused: POLICY_VIOLATION.
    """
    match command:
        case CreateTopics():
            check_named(len(command.topics))
            check_asked_for([(yield from _sum_of(map(partitions_asked_for, command.topics)))])
        case CreatePartitions():
            check_named(len(command.topics))
            check_asked_for([(yield from _sum_of(growth(image, wanted) for wanted in command.topics))])
        case AlterConfigs():
            check_named(len(command.topics))
        case DeleteTopics():
            check_named(len(command.names) + len(command.topic_ids))
        case AlterReassignments():
            check_named(len(command.partitions), "partitions")
        case _:
            assert_never(command)


def _sum_of(counts: Iterable[int]) -> Generator[None, None, int]:
    found = 0
    for index, count in enumerate(counts, 1):
        found += count
        if not index % CHECKED_AT_ONCE:
            yield
    return found


def parts_of(command: Divided, image: Image) -> Iterator[Divided]:
    """Yield the parts, at least one; the weight of a topic may follow from `image`. All items are in their order."""
    if isinstance(command, DeleteTopics):
        if command.names or not command.topic_ids:
            yield from (DeleteTopics(names) for names in _divided(command.names, _one))
        if command.topic_ids:
            yield from (DeleteTopics((), topic_ids) for topic_ids in _divided(command.topic_ids, _one))
        return
    weigh: Callable[[Any], int]
    match command:
        case CreateTopics():
            field = "topics"
            weigh = _weight_of_new
        case CreatePartitions():
            field = "topics"
            weigh = partial(_weight_of_growth, image)
        case AlterConfigs():
            field = "topics"
            weigh = _weight_of_changes
        case AlterReassignments():
            field = "partitions"
            weigh = _weight_of_move
        case _:
            assert_never(command)
    for items in _divided(getattr(command, field), weigh):
        yield msgspec.structs.replace(command, **{field: items}, command_id=b"")


def refused_part(part: Divided, refused: Refused) -> Answer:
    """Return the answer to a part that was refused as a whole."""
    why = refused.reason, refused.message
    match part:
        case CreateTopics():
            return CreateTopicsAnswer(tuple(CreatedTopic(topic.name, *why) for topic in part.topics))
        case CreatePartitions():
            return CreatePartitionsAnswer(tuple(GrownTopic(wanted.name, *why) for wanted in part.topics))
        case AlterConfigs():
            return AlterConfigsAnswer(tuple(AlteredTopic(wanted.name, *why) for wanted in part.topics))
        case DeleteTopics():
            named = (DeletedTopic(name, bytes(16), *why) for name in part.names)
            return DeleteTopicsAnswer((*named, *(DeletedTopic(None, one, *why) for one in part.topic_ids)))
        case AlterReassignments():
            fates = (ReassignmentFate(one.topic, one.partition, *why) for one in part.partitions)
            return AlterReassignmentsAnswer(tuple(fates))
        case _:
            assert_never(part)


def together(answers: Sequence[Answer]) -> Answer:
    """Return the answers to all parts of a command, in their order, as one."""
    if len(answers) == 1:
        return answers[0]
    first: Any = answers[0]
    field = "partitions" if isinstance(first, AlterReassignmentsAnswer) else "topics"
    joined: Answer = type(first)(tuple(chain.from_iterable(getattr(answer, field) for answer in answers)))
    return joined


def _divided(items: Sequence[Item], weigh: Callable[[Item], int]) -> Iterator[tuple[Item, ...]]:
    part: list[Item] = []
    weight = 0
    for item in items:
        more = weigh(item)
        if part and weight + more > WEIGHT_MAX:
            yield tuple(part)
            part = []
            weight = 0
        part.append(item)
        weight += more
    yield tuple(part)


def _one(_: object) -> int:
    return 1


def _weight_of_new(topic: NewTopic) -> int:
    return partitions_asked_for(topic) + len(topic.configs) // 2


def _weight_of_growth(image: Image, wanted: NewPartitions) -> int:
    return 1 + max(growth(image, wanted), len(wanted.assignments or ()))


def _weight_of_changes(wanted: ConfiguredTopic) -> int:
    return 1 + len(wanted.changes) // 2


def _weight_of_move(wanted: Reassignment) -> int:
    return 1 + len(wanted.replicas or ()) // 10
