"""Brings a table of latest records to where a changelog ends: one run takes all that the table lacks of it.

The table keeps which offsets it has, in the commit that added their rows, as an archive does: a run begins from there
and needs no state of its own. It works in rounds: tasks sift the next part of each partition, and the driver commits
their files together with the ranges, onto exactly the version that was compared. What was committed is never read
again. A run that dies has lost a round; of two runs at once, one commits each range.

Rows are only added. Which row of a key counts is decided by offsets when the table is read (`read`), or when its files
are merged (`merging`), so ranges may come in any order: holes are filled like the end.

A table has one topic. One that was deleted and created again is another one, whose keys begin anew: it gets another
table.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from barnabas_spark.lake.archive import PIECE_BYTES_MIN, go_to_end, results_of
from barnabas_spark.lake.committing import commit_ranges, pause
from barnabas_spark.lake.logs import ask_epoch_ends, ask_logs
from barnabas_spark.lake.ranges import CommittedRange, NotNextError, Purpose
from barnabas_spark.lake.rounds import (
    Gap,
    GapError,
    Spans,
    TopicLogs,
    check_ends,
    epochs_to_ask,
    gaps_before,
    gaps_in_words,
    missing_splits,
)
from barnabas_spark.lake.table import TableError, TableFormat
from barnabas_spark.lake.writing import Unreadable
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.planning.plan import Split

from .choosing import has_latest
from .writing import Sifted, SiftedPiece

__all__ = ["Changelog", "CompactResult", "PartitionResult", "RunPieces", "TopicChangelog", "compact"]

logger = logging.getLogger(__name__)

RunPieces = Callable[[Sequence[SiftedPiece]], Sequence[Sifted | Unreadable]]


class Changelog(Protocol):
    """Where the records come from, at one moment."""

    logs: TopicLogs

    def check(self, stored: Spans) -> None:
        """Raise `TableError` if this is not the log that the table was made from."""

    def gaps(self, stored: Spans) -> Sequence[Gap]:
        """Return the offsets behind the table's end that are gone for good."""

    def missing(self, stored: Spans) -> Sequence[Split]:
        """Return what a table lacks, ranges of one partition in the order of offsets."""

    def source(self, split: Split) -> object:
        """Return what reading a range takes beside it."""


class TopicChangelog:
    """A topic on its brokers."""

    def __init__(self, options: ReadOptions, topic: str) -> None:
        self._options = options
        self.logs = ask_logs(options, topic)

    def check(self, stored: Spans) -> None:
        check_ends(stored, self.logs, ask_epoch_ends(self._options, self.logs.topic, epochs_to_ask(stored, self.logs)))

    def gaps(self, stored: Spans) -> Sequence[Gap]:
        return gaps_before(stored, self.logs)

    def missing(self, stored: Spans) -> Sequence[Split]:
        return missing_splits(stored, self.logs)

    def source(self, split: Split) -> object:
        return None


class PartitionResult(NamedTuple):
    """What a run did for one partition; `end_offset` is where the table ends now. The others are as in `Sifted`."""

    partition: int
    end_offset: int
    offsets: int = 0
    read: int = 0
    kept: int = 0
    deleted: int = 0
    null_keys: int = 0
    plain_bytes: int = 0
    files: int = 0
    gap: int = 0


class CompactResult(NamedTuple):
    """What a run did; `left` are offsets that it is still to take."""

    topic_id: str
    partitions: Sequence[PartitionResult]
    rounds: int
    lost_rounds: int
    left: int


class _Run:
    """One run under way."""

    def __init__(
        self, table: TableFormat, changelog: Changelog, run_pieces: RunPieces, round_bytes: int, wait: Any
    ) -> None:
        self.table = table
        self.changelog = changelog
        self.logs = changelog.logs
        self.run_pieces = run_pieces
        self.round_bytes = round_bytes
        self.wait = wait
        self.done: dict[int, PartitionResult] = {}
        self.unreadable: dict[int, str] = {}
        self.rounds = 0
        self.lost_rounds = 0
        self.stored: Spans = {}

    def begin(self, *, accept_gap: bool) -> None:
        """Compare the table with the changelog, and commit gaps that were accepted."""
        stored = self.table.load().spans
        _check_table(self.table, stored, self.logs)
        gaps = self.changelog.gaps(stored)
        if gaps and not accept_gap:
            raise GapError(
                f"{gaps_in_words(self.logs, gaps)}: what lies between is gone; --accept-gap goes on behind it"
            )
        self.changelog.check(stored)
        if gaps:
            ranges = [self._range(one.partition, one.start_offset, one.end_offset) for one in gaps]
            commit_ranges(self.table, [], ranges, Purpose.GAP, wait=self.wait)
            logger.warning("%s: the gap was committed", gaps_in_words(self.logs, gaps))
            for one in gaps:
                self._count(PartitionResult(one.partition, 0, gap=one.end_offset - one.start_offset))

    def pieces(self) -> list[SiftedPiece]:
        """Return the next round: of each partition, the first range that the table lacks now."""
        first: dict[int, Split] = {}
        for split in self._left():
            first.setdefault(split.partition, split)
        splits = [one for partition, one in sorted(first.items()) if partition not in self.unreadable]
        bytes_max = max(PIECE_BYTES_MIN, self.round_bytes // max(1, len(splits)))
        return [SiftedPiece(one, self.logs.topic_id, bytes_max, self.changelog.source(one)) for one in splits]

    def round(self, pieces: Sequence[SiftedPiece]) -> bool:
        """Sift and commit the pieces; return False if another run was faster."""
        results = results_of(self.run_pieces, pieces, self.unreadable)
        sifted = [one for one in results if isinstance(one, Sifted)]
        if not sifted:
            return True
        ranges = [
            self._range(one.split.partition, one.start_offset, one.end_offset)._replace(rows=one.kept, crc=one.crc)
            for one in sifted
        ]
        try:
            files = [file for one in sifted for file in one.files]
            # Not `ARCHIVE`: what is missing may lie before the table's end. Ranges that overlap are refused either way.
            commit_ranges(self.table, files, ranges, Purpose.BACKFILL, wait=self.wait)
        except NotNextError as error:
            logger.warning("another run was faster: %s", error)
            return False
        for one in sifted:
            offsets = one.end_offset - one.start_offset
            counted = (offsets, one.read, one.kept, one.deleted, one.null_keys, one.plain_bytes, len(one.files))
            self._count(PartitionResult(one.split.partition, 0, *counted))
        return True

    def result(self) -> CompactResult:
        left = sum(one.end_offset - one.start_offset for one in self._left())
        partitions = [
            self.done.get(each, PartitionResult(each, 0))._replace(end_offset=self._end(each))
            for each in sorted(self.logs.partitions)
        ]
        return CompactResult(self.logs.topic_id, partitions, self.rounds, self.lost_rounds, left)

    def _left(self) -> Sequence[Split]:
        self.stored = self.table.load().spans
        return self.changelog.missing(self.stored)

    def _end(self, partition: int) -> int:
        spans = self.stored.get(self.logs.key(partition), ())
        return spans[-1].end_offset if spans else self.logs.partitions[partition].start_offset

    def _range(self, partition: int, start_offset: int, end_offset: int) -> CommittedRange:
        epoch = self.logs.partitions[partition].leader_epoch
        key = self.logs.key(partition)
        level = self.logs.isolation_level
        return CommittedRange(key, start_offset, end_offset, epoch, level, 0, 0, self.logs.topic)

    def _count(self, one: PartitionResult) -> None:
        before = self.done.get(one.partition, PartitionResult(one.partition, 0))
        sums = [mine + its for mine, its in zip(before[2:], one[2:], strict=True)]
        self.done[one.partition] = PartitionResult(one.partition, 0, *sums)


def compact(
    table: TableFormat,
    changelog: Changelog,
    run_pieces: RunPieces,
    round_bytes: int = 1 << 30,
    *,
    accept_gap: bool = False,
    tell: Callable[[CompactResult], None] = lambda _: None,
    wait: Callable[[int], None] = pause,
) -> CompactResult:
    """Bring a table to where a changelog ends. `tell` hears before each round how far it is.

    Raises:
        GapError, LostLogError, TableError: the table and the changelog do not fit, or a commit was given up.
        ArchiveError: a partition could not be read, or other runs were faster again and again.
    """
    run = _Run(table, changelog, run_pieces, round_bytes, wait)
    run.begin(accept_gap=accept_gap)
    go_to_end(run, "run over", tell, wait)
    return run.result()


def _check_table(table: Any, stored: Spans, logs: TopicLogs) -> None:
    """Check that a table has latest records, of this topic and no other."""
    layout = getattr(table, "layout", None)
    if stored and layout is not None and not has_latest(layout):
        raise TableError("this is the table of an archive; write to another place, and read this one with --from-lake")
    here = (logs.cluster_id, logs.topic_id)
    if others := sorted({key[:2] for key in stored if stored[key]} - {here}):
        where = f" of cluster {others[0][0]}" if others[0][0] != logs.cluster_id else ""
        raise TableError(
            f"the table has keys of the topic with id {others[0][1]}{where}, and {logs.topic} has id {logs.topic_id}: "
            "it is another topic, or it was deleted and created again; its keys begin anew, in another table"
        )
