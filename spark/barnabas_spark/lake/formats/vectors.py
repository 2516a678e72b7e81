"""Writes the spans of a table, and what a commit adds to them, as JSON. Pure.

The text is canonical: equal spans have equal text, so two places that must agree are compared as text.

    {"<cluster id>": {"<topic id>": {"<partition>": [[start, end, leader epoch], ...]}}}
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from barnabas_spark.lake.ranges import CommittedRange, PartitionKey, Purpose, Span, after, check_next
from barnabas_spark.lake.table import TableError

__all__ = [
    "COMPACTION",
    "EVOLUTION",
    "check_spans",
    "decode_spans",
    "describe_commit",
    "encode_spans",
    "id_of_commit",
    "is_archive_file",
    "spans_after",
]

COMPACTION = "compaction"  # the purpose of a commit that has no ranges
EVOLUTION = "schema"  # of one that changes columns
ARCHIVE_FILE = "barnabas-"  # how the names of files with archived rows begin


def spans_after(
    stored: Mapping[PartitionKey, Sequence[Span]], ranges: Iterable[CommittedRange], purpose: Purpose
) -> dict[PartitionKey, list[Span]]:
    """Return the spans of a table that had `stored`, once `ranges` are committed.

    Raises:
        NotNextError: a range may not be committed onto `stored`. Callers have compared that; this is a second look.
    """
    proposed = list(ranges)
    check_next(stored, proposed, purpose)
    spans = {key: list(found) for key, found in stored.items() if found}
    for one in proposed:
        spans[one.key] = after(spans.get(one.key, ()), one.start_offset, one.end_offset, one.leader_epoch)
    return spans


def encode_spans(spans: Mapping[PartitionKey, Sequence[Span]]) -> str:
    """Return the text of `spans`; partitions without a span are left out."""
    tree: dict[str, dict[str, dict[str, list[list[int]]]]] = {}
    for key in sorted(spans):
        if spans[key]:
            partitions = tree.setdefault(key.cluster_id, {}).setdefault(key.topic_id, {})
            partitions[str(key.partition)] = [list(span) for span in spans[key]]
    return json.dumps(tree, separators=(",", ":"))


def decode_spans(text: str) -> dict[PartitionKey, list[Span]]:
    """Read what `encode_spans` wrote.

    Raises:
        TableError: the text is something else, or its spans are not sorted and disjoint.
    """
    try:
        spans = {
            PartitionKey(cluster_id, topic_id, int(partition)): [_span(numbers) for numbers in found]
            for cluster_id, topics in json.loads(text).items()
            for topic_id, partitions in topics.items()
            for partition, found in partitions.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        raise TableError(f"the ranges of offsets that the table keeps cannot be read: {shown!r}") from error
    check_spans(spans)
    return spans


def _span(numbers: Sequence[int]) -> Span:
    start_offset, end_offset, leader_epoch = (int(number) for number in numbers)
    return Span(start_offset, end_offset, leader_epoch)


def check_spans(spans: Mapping[PartitionKey, Sequence[Span]]) -> None:
    """Check that the spans of each partition are sorted, disjoint, and none is empty.

    Raises:
        TableError: they are not.
    """
    for key, found in spans.items():
        empty = [span for span in found if not 0 <= span.start_offset < span.end_offset]
        crossed = [other for one, other in pairwise(found) if one.end_offset > other.start_offset]
        for span in (*empty, *crossed):
            raise TableError(
                f"the table contradicts itself: its range [{span.start_offset}, {span.end_offset}) of partition"
                f" {key.partition} of topic {key.topic_id} is empty or overlaps another one"
            )


def describe_commit(commit_id: str, purpose: str, ranges: Iterable[CommittedRange] = ()) -> str:
    """Return the text that stands with a commit, for people and for `id_of_commit`."""
    described = [
        {
            "clusterId": one.key.cluster_id,
            "topicId": one.key.topic_id,
            "topic": one.topic,
            "partition": one.key.partition,
            "startOffset": one.start_offset,
            "endOffset": one.end_offset,
            "leaderEpoch": one.leader_epoch,
            "isolationLevel": one.isolation_level,
            "rows": one.rows,
            "crc": one.crc,
        }
        for one in ranges
    ]
    tree = {"barnabas": {"commit": commit_id, "purpose": purpose, "ranges": described}}
    return json.dumps(tree, separators=(",", ":"))


def id_of_commit(text: object) -> str | None:
    """Return the id in the text that `describe_commit` wrote, or None for whatever else stands there."""
    try:
        tree: Any = json.loads(text) if isinstance(text, str) else None
        return str(tree["barnabas"]["commit"])
    except (ValueError, KeyError, TypeError):
        return None


def is_archive_file(path: str) -> bool:
    """Tell by its name whether an archive has written a file."""
    return path.rpartition("/")[2].startswith(ARCHIVE_FILE)
