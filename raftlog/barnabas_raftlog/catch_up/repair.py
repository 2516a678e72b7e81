"""Finds copies of a damaged segment for the scrub, on any live member.

The leader is asked first, then the others, a chunk at a time, by the calls that catch-up serves (`sending`), which also
throttle. Segments have one name and one content on all replicas that sealed them alike. A member that sealed at another
time or size has the entries all the same, in files with other ends, so it is asked for those, one after the other. The
scrub judges the copy, entry by entry, so nothing is trusted here but the length; if a copy is no better, the next is
asked for. A replica that cannot be opened because of the damage is no member yet of a group that is hosted here, so all
live nodes are asked.

Limits: one copy at a time, in the file `repair` of the data directory; `CALL_S` for each chunk. Of segments that were
compacted there are copies only if they were compacted alike.
"""

from collections.abc import AsyncGenerator, Mapping
from functools import partial

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.links.interfaces import NodeLinks
from barnabas_raftlog.log.segments.frame_walk import count_frames
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.log.shared import SharedStorage
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.raft.messages import GroupId

from .messages import CHUNK_BYTES_MAX, ENTRIES, READ, EntriesRequest, ReadRequest, encode, open_chunk

__all__ = ["SegmentRepair"]

CALL_S = 30.0


class SegmentRepair:
    """A `RepairSource` for one node."""

    def __init__(
        self, links: NodeLinks, groups: Mapping[GroupId, RaftGroup], host: SharedStorage, directory: str
    ) -> None:
        self._links = links
        self._groups = groups
        self._host = host
        self._path = f"{directory}/repair"

    async def __call__(self, group: GroupId, segment: Segment) -> AsyncGenerator[str, None]:
        """Yield the path of one copy after the other, complete in length, each in the place of the one before."""
        hosted = self._groups.get(group)
        live = set(self._links.live_peers)
        leader_id = None
        if hosted is not None:
            live &= hosted.members
            leader_id = hosted.leader_id
        for peer in sorted(live, key=lambda peer: (peer != leader_id, peer)):
            for fetch in (self._fetch_file, self._fetch_entries):
                try:
                    await fetch(peer, group, segment)
                except (BarnabasError, TimeoutError):
                    continue  # It is gone, or has another one: the next may help.
                yield self._path

    async def _fetch_file(self, peer: int, group: GroupId, segment: Segment) -> None:
        position = 0
        while position < segment.size_bytes:
            size_bytes = min(CHUNK_BYTES_MAX, segment.size_bytes - position)
            request = ReadRequest(
                group=group,
                manifest_id=0,
                base_offset=segment.base_offset,
                first_index=segment.first_index,
                position=position,
                size_bytes=size_bytes,
            )
            position += len(await self._add(position, peer, READ, request))

    async def _fetch_entries(self, peer: int, group: GroupId, segment: Segment) -> None:
        position = 0
        index = segment.first_index
        while position < segment.size_bytes:
            size_bytes = min(CHUNK_BYTES_MAX, segment.size_bytes - position)
            request = EntriesRequest(group, index, size_bytes)
            data = await self._add(position, peer, ENTRIES, request)
            position += len(data)
            index += count_frames(data)

    async def _add(self, position: int, peer: int, method: str, request: ReadRequest | EntriesRequest) -> memoryview:
        """Ask for a chunk, put it at `position` of the copy, and return it."""
        data = open_chunk(await self._links.call(peer, method, encode(request), CALL_S))
        await self._host.cold.in_thread(partial(self._write, position, data))
        return data

    def _write(self, position: int, data: memoryview) -> None:
        """Runs in a read thread."""
        files = self._host.files
        fd = files.open(self._path, create=True)
        try:
            if not position:
                files.truncate(fd, 0)
            files.write(fd, [data], position)
        finally:
            files.close(fd)
