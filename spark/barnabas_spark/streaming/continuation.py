"""Decides where a stream goes on, when topics and partitions have come and gone. Pure.

A stream knows its position, with the ids of its topics, and the *heads*: the high watermark of each partition that it
is to read, all seen at one moment. From both follows where the next batch begins in each partition.

| since the last batch | the next batch |
| --- | --- |
| a partition or a topic was added | begins at its beginning; if that is not 0, records were lost |
| a topic was deleted and created again | fails, or begins at the new one's beginning, as `onTopicRecreated` says |
| a topic or a partition was deleted | fails; without `failOnDataLoss` it is left out, with a warning |
| a log ends before the position | fails; without `failOnDataLoss` the position goes back to the end |

So nothing is skipped without a word. `doubts` says whether one of the last three is the case: a broker that knows less
than another could make them up, so the shell looks again before it believes them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.options.streams import StreamOptions
from barnabas_spark.options.values import TopicPartition
from barnabas_spark.planning.plan import DataLossError

from .offsets import Offsets

__all__ = ["Continuation", "Heads", "TopicRecreatedError", "continued", "doubts", "merged", "unread"]


class TopicRecreatedError(BarnabasError):
    """A topic was deleted and created again, and `onTopicRecreated` is fail."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic} was deleted and created again since the last micro-batch: it is another topic now. "
            "Set onTopicRecreated to restart to read it from its beginning"
        )


class Heads(NamedTuple):
    """The high watermark of each partition to read, and the ids of the topics; both lack what does not exist."""

    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, bytes]


class Continuation(NamedTuple):
    """Where the next batch begins in each partition of the heads, and warnings for the user."""

    starts: Mapping[TopicPartition, int]
    warnings: tuple[str, ...]


def merged(known: Heads, seen: Heads) -> Heads:
    """Return the heads after another look. An end never goes back: a new leader may know less for a moment."""
    return seen._replace(
        ends={
            key: max(end, known.ends.get(key, 0)) if _is_same(known.topic_ids, seen.topic_ids, key[0]) else end
            for key, end in seen.ends.items()
        }
    )


def unread(start: Offsets, heads: Heads) -> set[TopicPartition]:
    """Return the partitions in which the stream has no position. The caller looks up where they begin."""
    return {key for key in heads.ends if not _has_position(start, heads.topic_ids, key)}


def doubts(start: Offsets, heads: Heads) -> bool:
    """Tell whether something that the stream has read seems to be gone."""
    return any(
        not _is_same(start.topic_ids, heads.topic_ids, key[0]) or heads.ends.get(key, -1) < offset
        for key, offset in start.positions.items()
    )


def continued(
    start: Offsets, heads: Heads, beginnings: Mapping[TopicPartition, int], options: StreamOptions
) -> Continuation:
    """Return where the next batch begins. `beginnings` has the log starts of the `unread` partitions.

    Raises:
        TopicRecreatedError: a topic is another one, and `onTopicRecreated` is fail.
        DataLossError: something is gone, and `failOnDataLoss` is true.
    """
    recreated = _recreated(start, heads)
    if recreated and options.on_topic_recreated == "fail":
        raise TopicRecreatedError(recreated[0])
    starts, losses = _starts(start, heads, beginnings)
    losses = [*_missing(start, heads), *losses]
    if losses and options.read.fail_on_data_loss:
        raise DataLossError(losses[0])
    return Continuation(
        starts,
        (
            *(f"topic {topic} was deleted and created again; it is read from its beginning" for topic in recreated),
            *(f"{what}; failOnDataLoss is false, so the stream goes on without it" for what in losses),
        ),
    )


def _recreated(start: Offsets, heads: Heads) -> list[str]:
    topics = {topic for topic, _ in start.positions} & {topic for topic, _ in heads.ends}
    return sorted(topic for topic in topics if not _is_same(start.topic_ids, heads.topic_ids, topic))


def _missing(start: Offsets, heads: Heads) -> list[str]:
    """Say what the stream has read and is not there."""
    there = {topic for topic, _ in heads.ends}
    topics = sorted({topic for topic, _ in start.positions} - there)
    recreated = _recreated(start, heads)
    return [
        *(f"topic {topic} was deleted, or is not among the topics to read any more" for topic in topics),
        *(
            f"{topic}-{partition} does not exist, or is not among the partitions to read any more"
            for topic, partition in sorted(start.positions.keys() - heads.ends.keys())
            if topic in there and topic not in recreated
        ),
    ]


def _starts(
    start: Offsets, heads: Heads, beginnings: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return where each partition begins, and what is lost before that."""
    starts: dict[TopicPartition, int] = {}
    losses: list[str] = []
    for key, end in sorted(heads.ends.items()):
        name = f"{key[0]}-{key[1]}"
        if not _has_position(start, heads.topic_ids, key):
            starts[key] = min(beginnings[key], end)
            if beginnings[key]:
                losses.append(f"{name} is new to the stream, and its offsets 0 to {beginnings[key]} are gone")
        else:
            starts[key] = min(start.positions[key], end)
            if end < start.positions[key]:
                losses.append(f"{name} was read up to {start.positions[key]}, and now the log ends at {end}")
    return starts, losses


def _is_same(before: Mapping[str, bytes], now: Mapping[str, bytes], topic: str) -> bool:
    """Tell whether a name stands for the topic that it stood for; yes if nobody knows."""
    return topic not in before or topic not in now or before[topic] == now[topic]


def _has_position(start: Offsets, topic_ids: Mapping[str, bytes], key: TopicPartition) -> bool:
    return key in start.positions and _is_same(start.topic_ids, topic_ids, key[0])
