"""Verifies every sealed segment, slowly and without end; damaged ones are replaced from another replica.

Bits rot where nobody looks. So once in every `period_ms` a pass over all sealed segments of the node begins, at
`rate_bytes` a second, in the order of groups and offsets; each frame's checksum is verified, and its place in the log
(`segments.check`). A pass goes on after a restart where it was: `scrub` in the data directory has its cursor, saved at
every `SAVE_BYTES`. A segment that is sealed behind the cursor waits for the next pass.

A segment that a fetch or a follower's read found unreadable is a *suspect* (`SharedStorage.suspects`) and is checked at
once, at full speed. So is one whose file is missing or too short when the scrub begins.

Damage is reported as a fact, stays in `damaged` (for the status), and is never served: cold reads verify what they
return. It is mended from another replica: `repair` brings copies of the whole segment, one after the other, until one
holds, at every index, the entry that this log knows by its term; that is synced and renamed into the place of the
damaged file. If nobody has such a copy, it is asked for again every `REPAIR_RETRY_S`.

Limits: one segment is checked at a time, `CHUNK_BYTES` a job in the read thread; a repair has `REPAIR_TIMEOUT_S`.

Not here: the segment that is written to (it was just written, its tail is checked by recovery, and damage met in it
fails the replica); copies in the page cache that differ from the disk (readers get what the cache has, so that is
checked). A segment that was compacted is only mended by one that was compacted alike: another one may have a record
that a tombstone had deleted here, which is gone itself by now.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, Protocol

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.log.machine.disk_errors import will_pass
from barnabas_raftlog.log.machine.files import read_file
from barnabas_raftlog.log.machine.open_files import FileHandle
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.segments.check import SegmentCheck
from barnabas_raftlog.log.segments.operations import Save
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.raft.messages import Fact, GroupId

from .shared import SharedStorage

__all__ = ["Damage", "RepairSource", "Scrub", "ScrubbedStorage"]

CHUNK_BYTES = 256 << 10  # about a millisecond of a thread's work, interpreter lock held
SAVE_BYTES = 64 << 20
REPAIR_TIMEOUT_S = 600.0  # for a segment of 1 GiB, throttled
REPAIR_RETRY_S = 60.0
NO_CURSOR = ("", -1)
NOBODY_HAS_IT = "no other replica has what is in this segment"


class RepairSource(Protocol):
    """Gets copies of a sealed segment from other replicas."""

    def __call__(self, group: GroupId, segment: Segment) -> AsyncGenerator[str, None]:
        """Yield paths of files on the same file system, which the caller may move; the next may replace the last."""


class ScrubbedStorage(Protocol):
    """The part of `Storage` that is used here."""

    @property
    def directory(self) -> str: ...
    @property
    def shared(self) -> SharedStorage: ...
    @property
    def logs(self) -> list[ReplicaLog]: ...
    async def in_write_worker(self, job: Callable[[], bool]) -> bool: ...


class Damage(NamedTuple):
    """A sealed segment of one log that is not what was written, and where and how."""

    log: ReplicaLog
    segment: Segment
    cause: str


class Scrub:
    """One per node; `run` is its task. Owned by the loop."""

    def __init__(
        self,
        storage: ScrubbedStorage,
        wall_ms: Callable[[], int],
        on_fact: Callable[[GroupId, Fact], None],
        *,
        rate_bytes: int,
        period_ms: int,
        repair: RepairSource | None = None,
    ) -> None:
        self._storage = storage
        self._shared = storage.shared
        self._wall_ms = wall_ms
        self._on_fact = on_fact
        self._rate_bytes = rate_bytes
        self._period_ms = period_ms
        self.repair = repair
        self.on_unmended: Callable[[GroupId, str], None] | None = None  # no live node has what is in a segment
        self.damaged: dict[Segment, Damage] = {}
        self.checked_bytes = 0
        self.passes = 0
        self._wake = asyncio.Event()
        self._started_ms = 0
        self._cursor: tuple[str, int] = NO_CURSOR  # group in hex and base offset of the last segment checked
        self._is_done = True  # with the pass that began at `_started_ms`
        self._unsaved_bytes = 0
        self._repair_at_s = 0.0
        self._shared.on_suspect = self._wake.set

    def status(self) -> dict[str, Any]:
        """Return what an operator may ask, as plain values."""
        damaged = [
            {"replica": known.log.name, "base_offset": known.segment.base_offset, "cause": known.cause}
            for known in self.damaged.values()
        ]
        return {
            "damaged": damaged,
            "pass_started_ms": self._started_ms,
            "pass_done": self._is_done,
            "passes": self.passes,
            "checked_bytes": self.checked_bytes,
        }

    async def run(self) -> None:
        """Check and mend until cancelled. Cancelled, it leaves files whole, and goes on from its cursor next time."""
        await self._load()
        await self._look_at_sizes()
        while True:
            self._wake.clear()
            for log, segment in list(self._shared.suspects):
                assert isinstance(log, ReplicaLog)
                await self._check(log, segment, is_paced=False)
            await self._mend_all()
            if self._is_done and self._wall_ms() >= self._started_ms + self._period_ms:
                self._started_ms = self._wall_ms()
                self._cursor = NO_CURSOR
                self._is_done = False
            if self._is_done or await self._go_on():
                await self._wait()

    async def _go_on(self) -> bool:
        """Check what is left of this pass; False if a suspect was met meanwhile."""
        targets = [
            (log.group.hex(), segment.base_offset, log, segment)
            for log in self._storage.logs
            for segment in log.segments_to_scrub()
        ]
        for group, base_offset, log, segment in sorted(targets, key=lambda target: target[:2]):
            if (group, base_offset) <= self._cursor:
                continue
            await self._check(log, segment, is_paced=True)
            self._cursor = group, base_offset
            if self._unsaved_bytes >= SAVE_BYTES:
                await self._save()
            if self._wake.is_set():
                return False
        self._is_done = True
        self.passes += 1
        await self._save()
        return True

    async def _wait(self) -> None:
        """Wait for a suspect, for the next pass, or for the next attempt to mend."""
        timeout_s = max(0, self._started_ms + self._period_ms - self._wall_ms()) / 1000
        if self.damaged:
            timeout_s = min(timeout_s, max(0.0, self._repair_at_s - self._now_s()))
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _check(self, log: ReplicaLog, segment: Segment, *, is_paced: bool) -> None:
        check = log.begin_check(segment)
        if check is None:
            self._shared.suspects.pop((log, segment), None)
            self.damaged.pop(segment, None)
            return
        while not check.is_done:
            before = check.position
            await self._read(segment.log, check)
            size_bytes = check.position - before
            self.checked_bytes += size_bytes
            self._unsaved_bytes += size_bytes
            if log.begin_check(segment) is None:
                return  # It was dropped, or truncated, under our eyes.
            if is_paced:
                await asyncio.sleep(size_bytes / self._rate_bytes)
        if check.cause:
            self._on_damage(Damage(log, segment, check.cause))
        elif segment not in self.damaged:
            log.mended(segment)

    async def _read(self, handle: FileHandle, check: SegmentCheck) -> None:
        """Check one piece more; wait if the file cannot be read for a reason that will pass."""
        if not await self._shared.cold.in_thread(partial(self._read_chunk, handle, check)):
            await asyncio.sleep(self._shared.config.retry_s)

    def _read_chunk(self, handle: FileHandle, check: SegmentCheck) -> bool:
        """Return whether that worked; if not, it is to be tried again. Runs in a read thread."""
        try:
            with self._shared.opened.borrow(handle) as fd:
                data = self._shared.files.read(fd, check.position, max(CHUNK_BYTES, check.needs))
        except OSError as error:
            if will_pass(error):
                return False
            check.fail(f"cannot be read: {error}")
        else:
            check.feed(memoryview(data))
        return True

    def _on_damage(self, damage: Damage) -> None:
        if damage.segment not in self.damaged:
            text = f"{damage.segment.log.path}: {damage.cause}"
            self._on_fact(damage.log.group, Fact("segment damaged", 0, text))
            self._repair_at_s = self._now_s()
        self.damaged[damage.segment] = damage
        self._shared.suspect(damage.log, damage.segment, damage.cause)

    async def _mend_all(self) -> None:
        if not self.damaged or self._now_s() < self._repair_at_s:
            return
        self._repair_at_s = self._now_s() + REPAIR_RETRY_S
        for damage in list(self.damaged.values()):
            if damage.log.begin_check(damage.segment) is None:
                self._forget(damage)
                continue
            cause = await self._mend(damage)
            if not cause:
                self._forget(damage)
                damage.log.mended(damage.segment)
            text = f"{damage.segment.log.path}: {cause or 'replaced by a copy from another replica'}"
            kind = "segment not repaired" if cause else "segment repaired"
            self._on_fact(damage.log.group, Fact(kind, 0, text))
            if cause == NOBODY_HAS_IT and self.on_unmended is not None:
                self.on_unmended(damage.log.group, text)

    async def _mend(self, damage: Damage) -> str:
        """Return why it could not be done, or nothing."""
        if self.repair is None:
            return "there is nobody to get a copy from"
        cause = NOBODY_HAS_IT
        try:
            async with (
                asyncio.timeout(REPAIR_TIMEOUT_S),
                aclosing(self.repair(damage.log.group, damage.segment)) as copies,
            ):
                async for path in copies:
                    if not (cause := await self._take(path, damage.log, damage.segment)):
                        break
        except (BarnabasError, OSError, TimeoutError) as error:
            return f"getting a copy failed: {error}"
        return cause

    async def _take(self, path: str, log: ReplicaLog, segment: Segment) -> str:
        """Put a copy in the place of a damaged file, or say why not."""
        check = log.begin_check(segment)
        if check is None:
            return "it is not part of the log any more"
        copy = FileHandle(path)
        while not check.is_done:
            await self._read(copy, check)
        self._shared.opened.forget(copy)
        if check.cause:
            await self._storage.in_write_worker(partial(self._drop, path))
            return f"no copy is better: {check.cause}"
        replaced = await self._storage.in_write_worker(partial(self._replace, path, segment.log))
        return "" if replaced else "the copy could not be put in its place"

    def _replace(self, path: str, handle: FileHandle) -> bool:
        """Return whether that worked. Runs in the write worker, as the removal of segments does."""
        files = self._shared.files
        try:
            fd = files.open(path, create=False)
            try:
                files.sync(fd)
            finally:
                files.close(fd)
            if handle.removed:
                files.remove(path)
                return False
            files.rename(path, handle.path)
            self._shared.opened.renew(handle)
            files.sync_directory(handle.path.rpartition("/")[0])
        except OSError:
            self._drop(path)  # A sync may have failed: the next copy is another file.
            return False
        return True

    def _drop(self, path: str) -> bool:
        try:
            self._shared.files.remove(path)
        except OSError:
            return False  # The next copy takes its place.
        return True

    def _forget(self, damage: Damage) -> None:
        self.damaged.pop(damage.segment, None)
        self._shared.suspects.pop((damage.log, damage.segment), None)

    async def _look_at_sizes(self) -> None:
        """Make suspects of the segments whose files are missing or too short."""
        sealed = [(log, segment) for log in self._storage.logs for segment in log.segments_to_scrub()]
        for log, segment in await self._shared.cold.in_thread(partial(self._too_short, sealed)):
            self._shared.suspect(log, segment, "the file is missing or too short")

    def _too_short(self, sealed: list[tuple[ReplicaLog, Segment]]) -> list[tuple[ReplicaLog, Segment]]:
        short = []
        for log, segment in sealed:
            try:
                with self._shared.opened.borrow(segment.log) as fd:
                    is_short = self._shared.files.size(fd) < segment.size_bytes
            except OSError as error:
                is_short = not will_pass(error)
            if is_short:
                short.append((log, segment))
        return short

    # The cursor.

    async def _load(self) -> None:
        data = await self._shared.cold.in_thread(self._read_cursor)
        try:
            known = json.loads(data)
            started_ms = int(known["started_ms"])
            self._is_done = bool(known["is_done"])
            self._started_ms = started_ms
            self._cursor = (str(known["group"]), int(known["base_offset"]))
        except (ValueError, KeyError, TypeError):
            return  # There is none, or it makes no sense: a pass begins.

    def _read_cursor(self) -> bytes:
        try:
            return bytes(read_file(self._shared.files, f"{self._storage.directory}/scrub") or b"")
        except OSError:
            return b""  # As if there were none.

    async def _save(self) -> None:
        self._unsaved_bytes = 0
        group, base_offset = self._cursor
        state = {"started_ms": self._started_ms, "is_done": self._is_done, "group": group, "base_offset": base_offset}
        save = Save(f"{self._storage.directory}/scrub", json.dumps(state).encode())
        await self._storage.in_write_worker(partial(self._carry_out, save))

    def _carry_out(self, save: Save) -> bool:
        try:
            save.run(self._shared.files, self._shared.opened)
        except OSError:
            return False  # The pass begins earlier after a restart, nothing else.
        return True

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
