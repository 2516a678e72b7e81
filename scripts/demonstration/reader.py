"""A member of a consumer group that counts every line exactly once.

Exactly once by stored offsets: the counts and the position are written to one database in one transaction, and the
database's position counts, not the group's. A reader that is killed between two transactions has done nothing that
shows; the next owner of its partitions goes on from the database's position. The position is also the fence: a reader
that was taken for dead and is not finds that it has moved, and its transaction does not happen.

`demonstration.load` runs it. It reads from standard output how many lines have been counted by all readers together,
and closes standard input when a reader should leave the group.
"""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path

from barnabas_clients import Consumer, TopicPartition

from .source import NOTHING_READ, chained

GROUP = "demo-readers"
SESSION_TIMEOUT_S = 6.0  # for a killed reader; the least that Kafka's default settings allow
TABLES = (
    "CREATE TABLE IF NOT EXISTS files (name BLOB PRIMARY KEY, lines INTEGER, chain BLOB) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, next_offset INTEGER)",
)


class TakenOverError(RuntimeError):
    """Another reader has gone on with this partition."""


class Results:
    """The database that the readers share. Used from worker threads, one call at a time."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        for table in TABLES:
            self._database.execute(table)

    def position(self, partition: int) -> int:
        """Return the position; a partition that nobody has read starts at 0."""
        self._database.execute("INSERT OR IGNORE INTO positions VALUES (?, 0)", (partition,))
        row = self._database.execute("SELECT next_offset FROM positions WHERE partition = ?", (partition,)).fetchone()
        return int(row[0])

    def add(self, partition: int, start: int, end: int, lines: Iterable[tuple[bytes, bytes]]) -> None:
        """Count the records [start, end) of a partition, all or none.

        Raises:
            TakenOverError: the partition is not at `start` any more.
        """
        files: dict[bytes, tuple[int, bytes]] = {}
        self._database.execute("BEGIN IMMEDIATE")
        try:
            moved = self._database.execute(
                "UPDATE positions SET next_offset = ? WHERE partition = ? AND next_offset = ?", (end, partition, start)
            )
            if moved.rowcount != 1:
                raise TakenOverError(f"partition {partition} is not at {start} any more")
            for name, line in lines:
                count, chain = files.get(name) or self._file(name)
                files[name] = (count + 1, chained(chain, line))
            self._database.executemany(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?)", [(name, *found) for name, found in files.items()]
            )
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise

    def files(self) -> dict[str, tuple[int, str]]:
        """Return lines and hash of every file."""
        rows = self._database.execute("SELECT name, lines, chain FROM files")
        return {name.decode(): (lines, chain.hex()) for name, lines, chain in rows}

    def lines(self) -> int:
        """Return the number of lines that all readers have counted."""
        return int(self._database.execute("SELECT coalesce(sum(next_offset), 0) FROM positions").fetchone()[0])

    def close(self) -> None:
        self._database.close()

    def _file(self, name: bytes) -> tuple[int, bytes]:
        row = self._database.execute("SELECT lines, chain FROM files WHERE name = ?", (name,)).fetchone()
        return (int(row[0]), bytes(row[1])) if row else (0, NOTHING_READ)


async def read(bootstrap: str, topic: str, results: Results) -> None:
    """Count records until it is cancelled."""

    async def go_on(consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        for each in sorted(partitions):
            await consumer.seek(each, await asyncio.to_thread(results.position, each.partition))

    consumer = Consumer(
        bootstrap,
        topics=[topic],
        group_id=GROUP,
        auto_offset_reset="earliest",
        auto_commit=False,
        session_timeout_s=SESSION_TIMEOUT_S,
        heartbeat_interval_s=1.0,
        on_assigned=go_on,
    )
    async with consumer:
        async for batch in consumer.batches(max_records=5_000):
            lines = [(record.key or b"", record.value or b"") for record in batch]
            start = batch[0].offset
            end = batch[-1].offset + 1
            try:
                await asyncio.to_thread(results.add, batch.partition.partition, start, end, lines)
            except TakenOverError:
                continue  # The group is about to say so too.
            await consumer.commit()  # Only for people that look at the group: the database's position counts.
            print(await asyncio.to_thread(results.lines), flush=True)


async def main(bootstrap: str, topic: str, path: Path) -> None:
    results = Results(path)
    try:
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read(bootstrap, topic, results))
            await asyncio.to_thread(sys.stdin.read)
            reading.cancel()
    finally:
        results.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(os.fsdecode(sys.argv[3]))))
