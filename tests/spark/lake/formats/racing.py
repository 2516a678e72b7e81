"""One archiver in a race: it takes what comes next of each partition, as the table says, until nothing is left."""

import sys
from collections.abc import Sequence
from pathlib import Path

from spark.lake.formats.archives import ARCHIVES, Archive, commit_ranges, key_of, range_of

from barnabas_spark.lake.ranges import NotNextError, Purpose

STEP = 3


def archive_up_to(archive: Archive, partitions: Sequence[int], end: int) -> int:
    """Archive these partitions up to an offset; return how many commits were this archiver's."""
    table, commits = archive.open(), 0
    while True:
        spans = table.load().spans
        starts = {one: spans[key_of(one)][-1].end_offset if key_of(one) in spans else 0 for one in partitions}
        left = [(one, start, min(start + STEP, end)) for one, start in starts.items() if start < end]
        if not left:
            return commits
        files = [archive.write(*one) for one in left]
        try:
            commit_ranges(table, files, [range_of(*one) for one in left], Purpose.ARCHIVE)
        except NotNextError:
            continue  # another one was faster
        commits += 1


def main() -> None:
    kind, root, end, *partitions = sys.argv[1:]
    archive_up_to(ARCHIVES[kind](Path(root)), [int(one) for one in partitions], int(end))
