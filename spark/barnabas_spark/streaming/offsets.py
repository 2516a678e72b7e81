"""Writes the position of a stream as JSON, for Spark's checkpoint, and reads it. Pure.

    {"@ids": {"orders": "7b4c0f0e-..."}, "orders": {"0": 120, "1": 98}}

A number is the next offset to read. `@ids` tells which topic of that name it belongs to. No topic can be called so.
Spark compares positions as texts, so equal positions have equal texts: everything is sorted.

Without `@ids` it is what Spark's own Kafka source writes. So a checkpoint of that source can be read, and a broker
without topic ids needs no other form. Then nobody can tell that a topic was deleted and created again.
"""

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.options.values import TopicPartition, is_int

__all__ = ["NOWHERE", "Offsets", "OffsetsError", "from_json", "to_json"]

IDS = "@ids"


class OffsetsError(BarnabasError):
    """The JSON is not a position of a stream of this source."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the checkpoint has offsets that this source did not write: {what}")


class Offsets(NamedTuple):
    """The next offset to read in each partition, and the ids of the topics, as far as they are known."""

    positions: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, bytes]


NOWHERE = Offsets({}, {})


def to_json(offsets: Offsets) -> dict[str, dict[str, int | str]]:
    """Return the JSON object; equal offsets give objects whose texts are equal."""
    found: dict[str, dict[str, int | str]] = {}
    topics = {topic for topic, _ in offsets.positions}
    if ids := {topic: str(uuid.UUID(bytes=offsets.topic_ids[topic])) for topic in topics & offsets.topic_ids.keys()}:
        found[IDS] = dict(sorted(ids.items()))
    for topic, partition in sorted(offsets.positions):
        found.setdefault(topic, {})[str(partition)] = offsets.positions[topic, partition]
    return found


def from_json(value: object) -> Offsets:
    """Return the offsets of a JSON object.

    Raises:
        OffsetsError: it is something else.
    """
    if not isinstance(value, dict):
        raise OffsetsError(f"{value!r:.80} is not an object")
    topics = dict(value)
    ids = topics.pop(IDS, {})
    if not isinstance(ids, dict):
        raise OffsetsError(f"{ids!r:.80} is not an object of topic ids")
    positions: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise OffsetsError(f"topic {topic} has no object of partitions")
        for partition, offset in partitions.items():
            if not (partition.isascii() and partition.isdecimal()):
                raise OffsetsError(f"{partition!r:.80} of topic {topic} is not a partition")
            if not is_int(offset) or not 0 <= offset < 2**63:
                raise OffsetsError(f"{offset!r:.80} of {topic}-{partition} is not an offset")
            positions[topic, int(partition)] = offset
    return Offsets(positions, {topic: _topic_id(topic, text) for topic, text in ids.items()})


def _topic_id(topic: str, text: object) -> bytes:
    try:
        return uuid.UUID(str(text)).bytes
    except ValueError:
        raise OffsetsError(f"{text!r:.80} is not the id of topic {topic}") from None
