"""Where the scrub gets a copy of a damaged segment: from any live member of the group that has the same one.

The leader is asked first, then the others, a chunk at a time, by the calls that catch-up serves (`catch_up_source`),
which also throttle. Segments have one name and one content on all replicas that sealed them alike; a member whose log
begins elsewhere, or that sealed at another size, has none of that name and says so. What arrives is judged by the
scrub, entry by entry, so nothing is trusted here but the length. A replica that cannot be opened because of the damage
is no member yet of a group that is hosted here, so whoever lives is asked.

Limits: one copy at a time, in the file `repair` of the data directory; `CALL_S` for each chunk.
"""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.log.log_host import LogHost
from barnabas_raftlog.log.segment import Segment
from barnabas_raftlog.raft.messages import GroupId

from .catch_up_wire import CHUNK_BYTES_MAX, READ, ReadRequest, encode, open_chunk
from .group import Group

__all__ = ["SegmentRepair"]

CALL_S = 30.0


class RepairLinks(Protocol):
    """The part of `Links` that is used here."""

    @property
    def live_peers(self) -> list[int]: ...
    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes: ...


class SegmentRepair:
    """A `RepairSource` for one node."""

    def __init__(self, links: RepairLinks, groups: Mapping[GroupId, Group], host: LogHost, directory: str) -> None:
        self._links, self._groups, self._host = links, groups, host
        self._path = f"{directory}/repair"

    async def __call__(self, group: GroupId, segment: Segment) -> str | None:
        """Return the path of a copy, complete in length; None if no live member has the segment."""
        hosted = self._groups.get(group)
        live, leader_id = set(self._links.live_peers), None
        if hosted is not None:
            live, leader_id = live & hosted.members, hosted.leader_id
        for peer in sorted(live, key=lambda peer: (peer != leader_id, peer)):
            try:
                await self._fetch(peer, group, segment)
            except (BarnabasError, TimeoutError):
                continue  # It is gone, or has another one: the next may help.
            return self._path
        return None

    async def _fetch(self, peer: int, group_id: GroupId, segment: Segment) -> None:
        position = 0
        while position < segment.size_bytes:
            size_bytes = min(CHUNK_BYTES_MAX, segment.size_bytes - position)
            request = ReadRequest(group_id, 0, segment.base_offset, segment.first_index, position, size_bytes)
            data = open_chunk(await self._links.call(peer, READ, encode(request), CALL_S))
            await self._host.cold.in_thread(partial(self._write, position, data))
            position += len(data)

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
