"""Archives a topic into a table: one run brings the table to the high watermarks of its beginning.

A run works in rounds. In each, tasks read the next rows of all partitions and write files, up to a size. Then the
driver commits them with their ranges, in one commit of the table. So a run that dies has lost a round, and
nothing that was committed; the next run begins where the table ends.

Several archivers of one topic into one table harm nobody. The ranges of one of them are committed, the others find that
out, leave their files as orphans, and go on behind.

*Rejects,* where the table has columns of the value, are committed before the rows, to a table of their own, with the
same ranges (values/rejects.py).

A partition that cannot be read (offsets that went away while it was read, a corrupt batch) is left out of further
rounds, and is an error at the end. The others are archived first.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.planning.plan import Split

from .committing import commit_ranges, pause
from .logs import ask_epoch_ends, ask_logs
from .ranges import CommittedRange, NotNextError, Purpose
from .rounds import (
    Gap,
    GapError,
    Spans,
    TopicLogs,
    backfill_splits,
    check_ends,
    check_topic,
    epochs_to_ask,
    gaps_before,
    gaps_in_words,
    next_splits,
)
from .table import TableFormat
from .values.rejects import known_part
from .writing import Piece, Unreadable, Written

__all__ = [
    "ArchiveError",
    "ArchiveResult",
    "ArchiveSettings",
    "Archived",
    "RunPieces",
    "archive",
    "go_to_end",
    "results_of",
]

logger = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")
Result_co = TypeVar("Result_co", covariant=True)
RunPieces = Callable[[Sequence[Piece]], Sequence[Written | Unreadable]]

ROUND_BYTES = 1 << 30
PIECE_BYTES_MIN = 1 << 20
# In a row: whoever lost so many rounds to other archivers leaves the table to them.
LOST_ROUNDS_MAX = 20
# Files of a round that took longer are not committed: somebody may be removing them as orphans (orphans.py).
ROUND_S_MAX = 3 * 3600.0


class ArchiveError(BarnabasError):
    """A run that could not archive everything. What it committed stays."""


class ArchiveSettings(NamedTuple):
    """One topic, and how to read it. `round_bytes` are plain bytes of rows, over all partitions.

    `backfill` are offsets [start, end): holes between them are filled, and nothing is archived behind the table's end.
    `only_known` are offsets whose rejects are committed already: nothing else is archived.
    """

    topic: str
    options: ReadOptions
    round_bytes: int = ROUND_BYTES
    accept_gap: bool = False
    restart_topic: bool = False
    backfill: tuple[int, int] | None = None
    only_known: bool = False


class Archived(NamedTuple):
    """What a run did for one partition: [start_offset, end_offset) is in the table now, beside what was there."""

    partition: int
    start_offset: int
    end_offset: int
    rows: int = 0
    plain_bytes: int = 0
    file_bytes: int = 0
    files: int = 0
    gap: int = 0
    rejects: int = 0


class ArchiveResult(NamedTuple):
    """What a run did. `lost_rounds` went to other archivers; `left` are offsets that it was to archive and did not."""

    topic_id: str
    partitions: Sequence[Archived]
    rounds: int
    lost_rounds: int
    left: int


class _Run:
    """One run under way."""

    def __init__(
        self,
        table: TableFormat,
        settings: ArchiveSettings,
        run_pieces: RunPieces,
        wait: Callable[[int], None],
        rejects: TableFormat | None,
    ) -> None:
        self.table = table
        self.rejects = rejects
        self.settings = settings
        self.run_pieces = run_pieces
        self.wait = wait
        self.logs: TopicLogs = ask_logs(settings.options, settings.topic)
        self.done: dict[int, Archived] = {}
        self.unreadable: dict[int, str] = {}
        self.rounds = 0
        self.lost_rounds = 0
        self.stored: Spans = {}

    def begin(self) -> None:
        """Compare the table with the logs, and commit gaps that were accepted."""
        stored = self.table.load().spans
        if not self.settings.restart_topic:
            check_topic(stored, self.logs)
        gaps = gaps_before(stored, self.logs) if self.settings.backfill is None else []
        if gaps and not self.settings.accept_gap:
            raise GapError(_said(self.logs, gaps))
        check_ends(
            stored, self.logs, ask_epoch_ends(self.settings.options, self.logs.topic, epochs_to_ask(stored, self.logs))
        )
        if gaps:
            ranges = [self._range(one.partition, one.start_offset, one.end_offset) for one in gaps]
            commit_ranges(self.table, [], ranges, Purpose.GAP, wait=self.wait)
            for one in gaps:
                logger.warning("%s", _said(self.logs, [one], accepted=True))
                self._count(
                    Archived(one.partition, one.start_offset, one.end_offset, gap=one.end_offset - one.start_offset)
                )

    def pieces(self) -> list[Piece]:
        """Return the next round, from what the table has now."""
        self.stored = self.table.load().spans
        splits = [one for one in self._left() if one.partition not in self.unreadable]
        share = max(PIECE_BYTES_MIN, self.settings.round_bytes // max(1, len(splits)))
        bytes_max = min(share, self.settings.round_bytes)
        if self.rejects is None:
            return [Piece(one, self.logs.topic_id, bytes_max) for one in splits]
        known = self.rejects.load().spans
        found = []
        for one in splits:
            spans = known.get(self.logs.key(one.partition), ())
            end_offset, is_known = known_part(one.start_offset, one.end_offset, spans)
            if is_known or not self.settings.only_known:
                split = one._replace(end_offset=end_offset)
                found.append(Piece(split, self.logs.topic_id, bytes_max, is_known))
        return found

    def round(self, pieces: Sequence[Piece]) -> bool:
        """Read, write and commit the pieces; return False if another archiver was faster."""
        results = results_of(self.run_pieces, pieces, self.unreadable)
        written = [one for one in results if isinstance(one, Written)]
        if not written:
            return True
        files = [file for one in written for file in one.files]
        ranges = [
            self._range(one.split.partition, one.start_offset, one.end_offset)._replace(
                rows=one.rows, crc=one.checksum.value if one.rows else 0
            )
            for one in written
        ]
        try:
            self._commit_rejects(written)
            purpose = Purpose.ARCHIVE if self.settings.backfill is None else Purpose.BACKFILL
            commit_ranges(self.table, files, ranges, purpose, wait=self.wait)
        except NotNextError as error:
            logger.warning("another archiver was faster: %s", error)
            return False
        for one in written:
            self._count(_archived(one))
        return True

    def _commit_rejects(self, written: Sequence[Written]) -> None:
        """Commit the rejects of pieces, those that have none as well, unless they are committed already."""
        new = [one for one in written if not one.is_known]
        if self.rejects is None or not new:
            return
        ranges = [
            self._range(one.split.partition, one.start_offset, one.end_offset)._replace(
                rows=one.rejected.rows, crc=one.rejected.checksum.value if one.rejected.rows else 0
            )
            for one in new
        ]
        files = [file for one in new for file in one.rejected.files]
        commit_ranges(self.rejects, files, ranges, Purpose.REJECTS, wait=self.wait)

    def result(self) -> ArchiveResult:
        left = sum(one.end_offset - one.start_offset for one in self._left())
        partitions = [self.done.get(each) or self._nothing(each) for each in sorted(self.logs.partitions)]
        return ArchiveResult(self.logs.topic_id, partitions, self.rounds, self.lost_rounds, left)

    def _left(self) -> list[Split]:
        between = self.settings.backfill
        if between is None:
            return next_splits(self.stored, self.logs)
        return backfill_splits(self.stored, self.logs, *between)

    def _nothing(self, partition: int) -> Archived:
        spans = self.stored.get(self.logs.key(partition), ())
        end_offset = spans[-1].end_offset if spans else self.logs.partitions[partition].start_offset
        return Archived(partition, end_offset, end_offset)

    def _range(self, partition: int, start_offset: int, end_offset: int) -> CommittedRange:
        epoch = self.logs.partitions[partition].leader_epoch
        level = self.logs.isolation_level
        return CommittedRange(self.logs.key(partition), start_offset, end_offset, epoch, level, 0, 0, self.logs.topic)

    def _count(self, one: Archived) -> None:
        before = self.done.get(one.partition)
        if before is not None:
            sums = [mine + its for mine, its in zip(before[3:], one[3:], strict=True)]
            one = Archived(one.partition, before.start_offset, one.end_offset, *sums)
        self.done[one.partition] = one


def archive(
    table: TableFormat,
    settings: ArchiveSettings,
    run_pieces: RunPieces,
    *,
    rejects: TableFormat | None = None,
    tell: Callable[[ArchiveResult], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    wait: Callable[[int], None] = pause,
) -> ArchiveResult:
    """Bring a table to where the logs of a topic end now. `tell` hears before each round how far it is.

    `rejects` is the table of what does not fit the schema of the values; `run_pieces` must write files for it. If
    `should_stop` says so before a round, the result is what was committed until then.

    Raises:
        GapError, LostLogError, OtherTopicError: the table and the logs do not fit; nothing was committed.
        ArchiveError: a partition could not be read, or other archivers were faster again and again.
        TableError: the table cannot be trusted, or a commit was given up.
        KafkaError, ClientError: the topic does not exist, or no broker answers.
    """
    run = _Run(table, settings, run_pieces, wait, rejects)
    run.begin()
    go_to_end(run, "archiver of", tell, wait, should_stop)
    return run.result()


class _Rounds(Protocol[P, Result_co]):
    """A run that goes on in rounds, whatever they are made of."""

    rounds: int
    lost_rounds: int
    unreadable: dict[int, str]

    def pieces(self) -> Sequence[P]:
        """Return the next round, empty at the end."""

    def round(self, pieces: Sequence[P], /) -> bool:
        """Carry it out; return False if somebody else was faster."""

    def result(self) -> Result_co:
        """Return how far the run is."""


def go_to_end(
    run: _Rounds[P, Result_co],
    rival: str,
    tell: Callable[[Result_co], None],
    wait: Callable[[int], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Carry out the rounds of a run until none is left, or it should stop. `tell` hears before each how far it is.

    Raises:
        ArchiveError: a partition could not be read, or a `rival` was faster again and again.
    """
    lost = 0
    while pieces := run.pieces():
        tell(run.result())
        if should_stop():
            break
        if run.round(pieces):
            run.rounds += 1
            lost = 0
            continue
        run.lost_rounds += 1
        lost += 1
        if lost >= LOST_ROUNDS_MAX:
            raise ArchiveError(f"{lost} rounds in a row went to another {rival} this table: one is enough")
        wait(lost)
    if run.unreadable:
        raise ArchiveError("; ".join(reason for _, reason in sorted(run.unreadable.items())))


def results_of(
    run_pieces: Callable[[Sequence[P]], Sequence[R]], pieces: Sequence[P], unreadable: dict[int, str]
) -> Sequence[R]:
    """Run the pieces of a round; return their results, and add partitions that cannot be read to `unreadable`.

    Raises:
        ArchiveError: the round took so long that its files may not be committed any more.
    """
    began = time.monotonic()
    results = run_pieces(pieces)
    if len(results) != len(pieces):
        raise ArchiveError(f"{len(pieces)} tasks gave {len(results)} results")
    if time.monotonic() - began > ROUND_S_MAX:
        raise ArchiveError(f"a round took longer than {ROUND_S_MAX / 3600:g} hours; give --round-size less")
    for one in results:
        if isinstance(one, Unreadable):
            unreadable[one.split.partition] = one.reason
            logger.warning("%s", one.reason)
    return results


def _archived(one: Written) -> Archived:
    return Archived(
        one.split.partition,
        one.start_offset,
        one.end_offset,
        one.rows,
        one.plain_bytes,
        sum(file.size_bytes for file in one.files),
        len(one.files),
        rejects=one.rejected.rows,
    )


def _said(logs: TopicLogs, gaps: Sequence[Gap], *, accepted: bool = False) -> str:
    advice = "the gap was committed" if accepted else "what lies between is gone; --accept-gap goes on behind it"
    return f"{gaps_in_words(logs, gaps)}: {advice}"
