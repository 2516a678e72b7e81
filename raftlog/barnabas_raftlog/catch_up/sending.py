"""The sending end of catch-up: a leader that gives out its sealed segments.

A follower begins by asking for a manifest, and keeps asking: for the rest of it, then for the files, a chunk at a time.
So this end has no task and decides nothing. It has a *session* for each follower and group: the manifest that was given
out, and a pin on the files that it names. A session ends when another one takes its place, when nobody has asked for
`IDLE_MS`, or with the group. A follower that goes on asking then gets `SegmentGoneError`, and begins again: it keeps
the files that it has, as far as the new manifest names the same.

*A manifest takes time* if checksums are not known yet, because each file has to be read once. They are computed while a
request waits, for `PREPARE_MS` at most; the answer then says how far it is, and the follower asks again. Reading for
checksums is not throttled, but it is one file at a time and a few MiB in one go. *Throttled:* every chunk waits for its
share of the node's rate before it is read.

A follower that gets the same file damaged several times says so. The file is then checked, and mended from another
replica if it is this one's fault (`scrub`). A read without a session, of any sealed segment by its name, is served too,
by leaders and followers alike: a repair takes one file from wherever it is (`repair`), or entries by their index if
segments end elsewhere. Nothing is pinned for that.

Limits: `SESSIONS_MAX` sessions, of which each holds its manifest in memory; `CHUNK_BYTES_MAX` bytes in an answer.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import cast

from msgspec import structs

from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.links.interfaces import NodeLinks
from barnabas_raftlog.log.replica.lending import SegmentGoneError
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.log.state_file import made
from barnabas_raftlog.log.transfer.manifest import SegmentFile, encode_manifest
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.raft.messages import Buffer, GroupId

from .messages import (
    CHUNK_BYTES_MAX,
    DAMAGED,
    ENTRIES,
    MANIFEST,
    READ,
    CatchUpBusyError,
    DamagedNotice,
    EntriesRequest,
    ManifestReply,
    ManifestRequest,
    ReadRequest,
    decode,
    encode,
    seal_chunk,
)
from .rate import TokenBucket

__all__ = ["CatchUpSource", "Throttle", "log_of"]

SESSIONS_MAX = 64
READS_AHEAD_MAX = 16  # chunks of a file that a follower asks for at a time
IDLE_MS = 60_000  # longer than any restart of a follower should take
PREPARE_MS = 5_000


class Throttle:
    """Waits by a token bucket. One for all that a node sends, one for all that it receives."""

    def __init__(self, rate_bytes: int, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.limit(rate_bytes)

    def limit(self, rate_bytes: int) -> None:
        """Go by another rate from now on. Who waits already goes on at the old one."""
        # A quarter of a second's worth: the pieces are small against the rate, or the rate would not be one.
        self.chunk_bytes = max(4096, min(CHUNK_BYTES_MAX, rate_bytes // 4))
        # As much as a round trip of a quarter of a second carries at that rate, and one more.
        self.reads_ahead = min(READS_AHEAD_MAX, 1 + rate_bytes // 4 // self.chunk_bytes)
        self._bucket = TokenBucket(rate_bytes, self.chunk_bytes, self._clock())

    async def take(self, size_bytes: int) -> None:
        """Wait until so many bytes may go. Cancelled, they count as gone."""
        wait_ms = self._bucket.take(size_bytes, self._clock())
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)


def log_of(group: RaftGroup) -> ReplicaLog:
    """Return the log of a group that has its segments sent as files."""
    return cast("ReplicaLog", group.log)


class _Session:
    """One follower that is being sent one group."""

    __slots__ = ("data", "log", "manifest_id", "segments", "used_ms")

    def __init__(self, manifest_id: int, log: ReplicaLog, segments: list[Segment], now_ms: int) -> None:
        self.manifest_id = manifest_id
        self.log = log
        self.segments = {(one.base_offset, one.first_index): one for one in segments}
        self.data: bytes | None = None
        self.used_ms = now_ms


class CatchUpSource:
    """See the module. Owned by the node's loop."""

    def __init__(
        self, links: NodeLinks, groups: Mapping[GroupId, RaftGroup], clock: Callable[[], int], throttle: Throttle
    ) -> None:
        self._groups = groups
        self._clock = clock
        self._throttle = throttle
        self._sessions: dict[tuple[int, GroupId], _Session] = {}
        self._next_id = 1
        self._timer: asyncio.TimerHandle | None = None
        self.sent_bytes = 0
        links.serve(MANIFEST, self._on_manifest)
        links.serve(READ, self._on_read)
        links.serve(ENTRIES, self._on_entries)
        links.serve(DAMAGED, self._on_damaged)

    def __len__(self) -> int:
        return len(self._sessions)

    def end(self, group_id: GroupId) -> None:
        """The group is removed here."""
        for key in [key for key in self._sessions if key[1] == group_id]:
            self._end(key)

    def close(self) -> None:
        for key in list(self._sessions):
            self._end(key)
        if self._timer is not None:
            self._timer.cancel()

    # Asked by followers.

    async def _on_manifest(self, source: int, body: bytes) -> bytes:
        request = decode(body, ManifestRequest)
        group = self._group(request.group)
        if not group.is_leader:
            raise NotLeaderError(group.leader_id)
        if request.manifest_id:
            session = self._session(source, group, request.manifest_id)
        else:
            session = self._begin(source, group)
        if session.data is None:
            ready_count = await self._prepare(group, session)
            if session.data is None:
                preparing = ManifestReply(
                    manifest_id=session.manifest_id,
                    total_bytes=0,
                    ready_count=ready_count,
                    file_count=len(session.segments),
                    data=b"",
                )
                return encode(preparing)
        data = session.data[request.position : request.position + self._throttle.chunk_bytes]
        await self._throttle.take(len(data))
        session.used_ms = self._clock()
        reply = ManifestReply(
            manifest_id=session.manifest_id,
            total_bytes=len(session.data),
            ready_count=len(session.segments),
            file_count=len(session.segments),
            data=data,
        )
        return encode(reply)

    def _begin(self, source: int, group: RaftGroup) -> _Session:
        key = (source, group.group_id)
        now_ms = self._clock()
        if key not in self._sessions and len(self._sessions) >= SESSIONS_MAX:
            raise CatchUpBusyError(f"{SESSIONS_MAX} transfers are under way")
        log = log_of(group)
        segments = log.sealed_segments(group.core.commit_index)
        session = _Session(self._next_id, log, segments, now_ms)
        self._next_id += 1
        # Before the old one ends: the log may start later by now, and keeps some of these files only for its pins.
        log.pin(segments)
        if key in self._sessions:
            self._end(key)
        self._sessions[key] = session
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_MS / 1000, self._expire)
        return session

    async def _prepare(self, group: RaftGroup, session: _Session) -> int:
        """Make the manifest, or go on making it; return how many files have their checksum."""
        until_ms = self._clock() + PREPARE_MS
        log = session.log
        files: list[SegmentFile] = []
        for segment in session.segments.values():
            while (checksum := await log.checksum_more(segment)) is None:
                if self._clock() >= until_ms:
                    session.used_ms = self._clock()
                    return len(files)
            files.append(log.file_of(segment, checksum))
        # As of now, which is later than the files: the entries between are sent as such.
        snapshot = group.listener.snapshot()
        if snapshot is None:
            raise CatchUpBusyError("the state that belongs to the log is not known yet as of any committed entry")
        # Of the same moment, and the log may lose its beginning while the state is encoded.
        manifest = log.manifest(files, b"")
        state = await log.in_thread(partial(made, snapshot[2]))
        try:
            session.data = encode_manifest(structs.replace(manifest, state=state))
        except ValueError as error:
            raise StorageFailedError(str(error)) from error
        session.used_ms = self._clock()
        return len(files)

    async def _on_read(self, source: int, body: bytes) -> bytes:
        request = decode(body, ReadRequest)
        group = self._group(request.group)
        name = (request.base_offset, request.first_index)
        if request.manifest_id:
            session = self._session(source, group, request.manifest_id)
            log = session.log
            segment = session.segments.get(name)
            if segment is None:
                raise SegmentGoneError(f"manifest {request.manifest_id} names no file {name}")
            session.used_ms = self._clock()
        else:
            log = log_of(group)
            segment = log.sealed_segment(*name, group.core.commit_index)
        size_bytes = min(request.size_bytes, self._throttle.chunk_bytes, segment.size_bytes - request.position)
        if request.position < 0 or size_bytes <= 0:
            raise SegmentGoneError(f"file {name} has no bytes at {request.position}")
        await self._throttle.take(size_bytes)
        self.sent_bytes += size_bytes
        return seal_chunk(await log.read_file(segment, request.position, size_bytes))

    async def _on_entries(self, source: int, body: bytes) -> bytes:
        del source
        request = decode(body, EntriesRequest)
        group = self._group(request.group)
        log = log_of(group)
        due = request.index
        total = 0
        last_index = min(group.core.commit_index, log.durable_index)
        bytes_max = min(request.size_bytes, self._throttle.chunk_bytes)
        await self._throttle.take(max(0, bytes_max))
        frames: list[Buffer] = []
        if not group.is_witness and due >= log.first_index:
            async with aclosing(log.replay(due)) as entries:
                async for entry in entries:
                    total += len(entry.frame)
                    if entry.index != due or due > last_index or (frames and total > bytes_max):
                        break
                    frames.append(entry.frame)
                    due += 1
        if not frames:
            raise SegmentGoneError(f"{log.name} has no committed entry {request.index}")
        data = b"".join(frames)
        self.sent_bytes += len(data)
        return seal_chunk(data)

    async def _on_damaged(self, source: int, body: bytes) -> bytes:
        notice = decode(body, DamagedNotice)
        group = self._group(notice.group)
        log = log_of(group)
        segment = log.sealed_segment(notice.base_offset, notice.first_index, group.core.commit_index)
        log.suspect(segment, f"node {source} got it damaged more than once")
        return b""

    # Inside.

    def _group(self, group_id: bytes) -> RaftGroup:
        group = self._groups.get(GroupId(group_id))
        if group is None or not group.sends_files or group.failed is not None:
            raise NotLeaderError
        return group

    def _session(self, source: int, group: RaftGroup, manifest_id: int) -> _Session:
        session = self._sessions.get((source, group.group_id))
        if session is None or session.manifest_id != manifest_id:
            raise SegmentGoneError(f"manifest {manifest_id} is not being sent any more")
        return session

    def _end(self, key: tuple[int, GroupId]) -> None:
        session = self._sessions.pop(key)
        session.log.unpin(list(session.segments.values()))

    def _expire(self) -> None:
        self._timer = None
        before_ms = self._clock() - IDLE_MS
        for key in [key for key, session in self._sessions.items() if session.used_ms <= before_ms]:
            self._end(key)
        if self._sessions:
            self._timer = asyncio.get_running_loop().call_later(IDLE_MS / 1000, self._expire)
