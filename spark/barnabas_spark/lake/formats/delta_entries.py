"""Keeps spans in Delta's application transactions, a number under a name each. Pure.

A transaction survives checkpoints and the removal of old commits, as long as it has no `lastUpdated`. It holds one
integer only, so a table has several of them:

    barnabas/<cluster id>/<topic id>/<partition>                 where the newest span ends, or -1: no span any more
    barnabas-span/<cluster id>/<topic id>/<partition>/<start>    where the span that begins at `start` ends; `start`
                                                                 itself: another span has taken it in
    barnabas-epoch/<cluster id>/<topic id>/<partition>/<start>   the leader epoch of that span
    barnabas-archive/checksum                                    63 bits of a hash over all spans
    barnabas-archive/version                                     the version of the table that wrote the newest of these

The first one is what Delta's own check of conflicts fences: every commit of ranges writes it. How many there are grows
with partitions and with spans, not with commits: a span that goes on keeps its start. One that was lost or changed is
found, by the checksum.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from barnabas_spark.lake.ranges import PartitionKey, Span
from barnabas_spark.lake.table import TableError

from .vectors import check_spans, encode_spans

__all__ = ["VERSION", "changes", "is_ours", "main_entry", "spans_of"]

VERSION = "barnabas-archive/version"
CHECKSUM = "barnabas-archive/checksum"
MAIN, SPAN, EPOCH, ARCHIVE = "barnabas/", "barnabas-span/", "barnabas-epoch/", "barnabas-archive/"
GONE = -1


def is_ours(app_id: str) -> bool:
    """Tell whether an application transaction is one of those above."""
    return app_id.startswith((MAIN, SPAN, EPOCH, ARCHIVE))


def main_entry(key: PartitionKey) -> str:
    """Return the name of the transaction that fences a partition."""
    return f"{MAIN}{key.cluster_id}/{key.topic_id}/{key.partition}"


def spans_of(entries: Mapping[str, int]) -> dict[PartitionKey, list[Span]]:
    """Return the spans that `entries` say, which are all transactions of a table that are ours.

    Raises:
        TableError: they contradict one another, so at least one is lost or was changed.
    """
    if not entries:
        return {}
    spans: dict[PartitionKey, list[Span]] = {}
    for name, end_offset in sorted(entries.items()):
        if name.startswith(SPAN):
            tail, _, start = name.removeprefix(SPAN).rpartition("/")
            if end_offset > int(start):
                epoch = entries.get(f"{EPOCH}{tail}/{start}", -1)
                spans.setdefault(_key(tail), []).append(Span(int(start), end_offset, epoch))
    for found in spans.values():
        found.sort()
    ends = {_key(name.removeprefix(MAIN)): end for name, end in entries.items() if name.startswith(MAIN)}
    ends = {key: end for key, end in ends.items() if end != GONE}
    if ends != {key: found[-1].end_offset for key, found in spans.items()} or entries.get(CHECKSUM) != _checksum(spans):
        raise TableError(
            "the table contradicts itself: of the application transactions 'barnabas...' that say which offsets it has,"
            " some are missing or were changed; restore the table to the version before that happened"
        )
    check_spans(spans)
    return spans


def _checksum(spans: Mapping[PartitionKey, Sequence[Span]]) -> int:
    return int.from_bytes(hashlib.blake2b(encode_spans(spans).encode(), digest_size=8).digest()) >> 1


def _key(tail: str) -> PartitionKey:
    cluster_id, topic_id, partition = tail.rsplit("/", 2)
    return PartitionKey(cluster_id, topic_id, int(partition))


def changes(
    entries: Mapping[str, int],
    spans: Mapping[PartitionKey, Sequence[Span]],
    committed: Iterable[PartitionKey],
    version: int,
) -> dict[str, int]:
    """Return what the commit of `version` must write, so that a table that has `entries` says `spans` afterwards.

    The fences of `committed` are always among it.
    """
    wanted = {VERSION: version, CHECKSUM: _checksum(spans)}
    for key, found in spans.items():
        tail = f"{key.cluster_id}/{key.topic_id}/{key.partition}"
        for span in found:
            wanted[f"{SPAN}{tail}/{span.start_offset}"] = span.end_offset
            wanted[f"{EPOCH}{tail}/{span.start_offset}"] = span.leader_epoch
            wanted[f"{MAIN}{tail}"] = span.end_offset
    for name in entries.keys() - wanted.keys():
        if name.startswith(SPAN):
            wanted[name] = int(name.rpartition("/")[2])
        elif name.startswith(MAIN):
            wanted[name] = GONE
    always = {main_entry(key) for key in committed}
    return {name: number for name, number in sorted(wanted.items()) if name in always or entries.get(name) != number}
