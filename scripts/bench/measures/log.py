"""Measures the durable log alone, on a real disk: appends, reads and syncs.

"append" is the call on the loop; "loop" is all that the loop's thread spends for each batch, the call included, with
the hand-over to the workers and their completions (its CPU time, so waiting for the disk does not count). "in flight"
is the number of batches that wait for their sync at a time: with one it is the latency of a sync, with many it is group
commit.
"""

import argparse
import asyncio
import gc
import json
import struct
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import uvloop
from rich.console import Console
from rich.table import Table

from barnabas_raftlog.log.machine.files import OsFiles
from barnabas_raftlog.log.machine.worker import ThreadWorker
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.log.storage import Storage, StorageConfig
from barnabas_raftlog.raft.messages import Entry, GroupId
from barnabas_raftlog.wire.crc32c import crc32c

Result = tuple[str, float, str]


class Settings(NamedTuple):
    """The settings of the command line."""

    directory: str
    frame_bytes: int
    megabytes: int
    replicas: int


class Node:
    """An open storage, and an event that is set when something became durable."""

    def __init__(self) -> None:
        self.durable = asyncio.Event()
        self.storage: Storage
        self.workers: list[ThreadWorker] = []

    async def open(self, directory: str) -> "Node":
        loop = asyncio.get_running_loop()
        self.workers = [ThreadWorker(loop, "sync"), ThreadWorker(loop, "write")]
        self.storage = await Storage.open(
            OsFiles(),
            directory,
            StorageConfig(tail_cache_bytes=64 << 20),
            sync_worker=self.workers[0],
            write_worker=self.workers[1],
            on_durable=self.durable.set,
        )
        return self

    async def close(self) -> None:
        await self.storage.close()
        for worker in self.workers:
            worker.stop()

    async def until_durable(self, log: ReplicaLog, index: int) -> None:
        while log.durable_index < index:
            self.durable.clear()
            self.storage.flush()
            await self.durable.wait()


def frame_of(size_bytes: int) -> bytes:
    tail = struct.pack(">hiqqqhii", 0, 0, 1000, 1000, -1, -1, -1, 1) + bytes(size_bytes)
    return struct.pack(">qiibI", 0, 9 + len(tail), 0, 2, crc32c(tail)) + tail


def group(number: int) -> GroupId:
    return GroupId(bytes(16) + number.to_bytes(4, "big"))


async def calls(node: Node, settings: Settings, mode: Mode) -> list[Result]:
    """Time single calls, in rounds, with the disk's work outside of the measured time."""
    log = node.storage.open_log(group(1 if mode == "fsync" else 2), f"calls-{mode}", mode)
    frame = frame_of(settings.frame_bytes)
    appending = 0.0
    following = 0.0
    reading = 0.0
    count = 0
    reads = 0
    followed = 0
    gc.disable()
    for _ in range(20):
        frames = [bytearray(frame) for _ in range(100)]
        begin = time.perf_counter()
        for data in frames:
            log.append_batch(1, data)
        appending += time.perf_counter() - begin
        count += 100
        await node.until_durable(log, log.last_index)
        entries = []
        for number in range(64):
            data = bytearray(frame)
            struct.pack_into(">q", data, 0, log.log_end_offset + number)
            entries.append(Entry(log.last_index + 1 + number, 1, memoryview(data)))
        begin = time.perf_counter()
        log.append(entries)
        following += time.perf_counter() - begin
        followed += 64
        await node.until_durable(log, log.last_index)
        begin = time.perf_counter()
        for back in range(64):
            log.read(log.log_end_offset - 64 + back, log.log_end_offset, 1 << 20)
        reading += time.perf_counter() - begin
        reads += 64
    gc.enable()
    return [
        (f"append_batch, {mode}", appending / count * 1e6, "µs"),
        (f"append of 64 entries, {mode}, each", following / followed * 1e6, "µs"),
        (f"read from the tail cache, {mode}", reading / reads * 1e6, "µs"),
    ]


async def stream(node: Node, settings: Settings, mode: Mode, in_flight: int, number: int) -> list[Result]:
    """Append `megabytes`, never more than `in_flight` batches ahead of what is durable."""
    log = node.storage.open_log(group(number), f"stream-{number}", mode)
    frame = frame_of(settings.frame_bytes)
    total = settings.megabytes * 1_000_000 // len(frame)
    if in_flight == 1:
        total = min(total, 300)
    begin = time.perf_counter()
    begin_cpu = time.thread_time()
    copying = 0.0
    while log.last_index < total:
        await node.until_durable(log, log.last_index - in_flight + 1)
        for _ in range(min(total - log.last_index, in_flight - (log.last_index - log.durable_index))):
            copy = time.thread_time()
            data = bytearray(frame)
            copying += time.thread_time() - copy
            log.append_batch(1, data)
    await node.until_durable(log, total)
    took = time.perf_counter() - begin
    cpu = time.thread_time() - begin_cpu - copying
    name = f"{mode}, {in_flight} in flight"
    return [
        (f"{name}: throughput", total * len(frame) / took / 1e6, "MB/s"),
        (f"{name}: batches", total / took, "a second"),
        (f"{name}: loop, each batch", cpu / total * 1e6, "µs"),
    ]


async def opening(settings: Settings, directory: str) -> list[Result]:
    node = await Node().open(directory)
    frame = frame_of(settings.frame_bytes)
    for number in range(settings.replicas):
        log = node.storage.open_log(group(number), f"open-{number}", "fsync")
        for _ in range(20):
            log.append_batch(1, bytearray(frame))
    begin = time.perf_counter()
    await node.close()
    closed = time.perf_counter() - begin
    begin = time.perf_counter()
    node = await Node().open(directory)
    for number in range(settings.replicas):
        node.storage.open_log(group(number), f"open-{number}", "fsync")
    opened = time.perf_counter() - begin
    await node.close()
    return [
        (f"clean stop, {settings.replicas} replicas that were written to", closed * 1e3, "ms"),
        (f"start after it, {settings.replicas} replicas", opened * 1e3, "ms"),
    ]


async def measured(settings: Settings) -> list[Result]:
    results: list[Result] = []
    with tempfile.TemporaryDirectory(dir=settings.directory) as directory:
        node = await Node().open(f"{directory}/calls")
        for mode in ("fsync", "page-cache"):
            results += await calls(node, settings, mode)
        results += await stream(node, settings, "fsync", 1, 11)
        results += await stream(node, settings, "fsync", 64, 12)
        results += await stream(node, settings, "fsync", 1024, 13)
        results += await stream(node, settings, "page-cache", 64, 14)
        await node.close()
        results += await opening(settings, f"{directory}/opening")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", help="where to write (default: the folder for temporary files)")
    parser.add_argument("--frame-bytes", type=int, default=16 << 10, help="size of a batch (default: 16 KiB)")
    parser.add_argument("--megabytes", type=int, default=400, help="how much each stream writes (default: 400)")
    parser.add_argument("--replicas", type=int, default=100, help="how many replicas are opened (default: 100)")
    parser.add_argument("--json", type=Path, help="write the results there too")
    options = parser.parse_args()
    settings = Settings(options.directory, options.frame_bytes, options.megabytes, options.replicas)
    results = uvloop.run(measured(settings))
    table = Table("what", "value", "unit", title=f"the log, batches of {settings.frame_bytes} bytes")
    for name, value, unit in results:
        table.add_row(name, f"{value:.1f}", unit)
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps({name: [value, unit] for name, value, unit in results}, indent=1))


if __name__ == "__main__":
    main()
