"""A follower gets what its manifest promised, even if the log changes in between."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from raftlog.log.node import Node, fill, group

from barnabas_raftlog.catch_up.messages import (
    MANIFEST,
    READ,
    ManifestReply,
    ManifestRequest,
    ReadRequest,
    decode,
    encode,
    open_chunk,
)
from barnabas_raftlog.catch_up.sending import CatchUpSource, Throttle
from barnabas_raftlog.log.replica.lending import SegmentGoneError
from barnabas_raftlog.log.transfer.manifest import Manifest, SegmentFile, decode_manifest
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.wire.crc32c import crc32c

FRAMES = 100


class Source:
    """A leader of one group of several sealed segments, and what followers ask it."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[int, bytes], Awaitable[bytes]]] = {}
        self.node = Node()
        self.log = self.node.log()
        fill(self.log, FRAMES)
        self.node.work()
        self.log.save_state(self.log.durable_index, b"state")
        listener = SimpleNamespace(snapshot=lambda: (FRAMES, 1, b"state"))
        hosted = SimpleNamespace(
            group_id=group(1),
            log=self.log,
            core=SimpleNamespace(commit_index=FRAMES),
            failed=None,
            listener=listener,
            sends_files=True,
            is_leader=True,
            is_witness=False,
            leader_id=1,
        )
        groups = {group(1): cast("RaftGroup", hosted)}
        self.source = CatchUpSource(cast("Any", self), groups, lambda: 0, Throttle(1 << 40, lambda: 0))

    def serve(self, method: str, handler: Callable[[int, bytes], Awaitable[bytes]]) -> None:
        self.handlers[method] = handler

    def drop_before(self, offset: int) -> None:
        self.log.drop_before(offset, FRAMES)
        self.node.work()

    async def manifest(self, follower: int = 2) -> tuple[int, Manifest]:
        reply = decode(await self.handlers[MANIFEST](follower, encode(ManifestRequest(group(1), 0, 0))), ManifestReply)
        assert len(reply.data) == reply.total_bytes > 0
        return reply.manifest_id, decode_manifest(reply.data)

    async def read(self, manifest_id: int, file: SegmentFile, follower: int = 2) -> memoryview:
        request = ReadRequest(
            group=group(1),
            manifest_id=manifest_id,
            base_offset=file.base_offset,
            first_index=file.first_index,
            position=0,
            size_bytes=file.size_bytes,
        )
        return open_chunk(await self.handlers[READ](follower, encode(request)))


def run(scenario: Callable[[Source], Awaitable[None]]) -> None:
    source = Source()

    async def main() -> None:
        try:
            await scenario(source)
        finally:
            source.source.close()

    asyncio.run(main())


def test_who_asks_anew_gets_every_file_that_the_new_manifest_names() -> None:
    """The log starts later by now, and of the files before that only the old manifest's pins kept some."""

    async def scenario(source: Source) -> None:
        old_id, old = await source.manifest()
        assert len(old.files) > 3
        source.drop_before(old.files[2].base_offset)
        assert source.log.log_start_offset == old.files[2].base_offset
        new_id, new = await source.manifest()
        for file in new.files:
            assert crc32c(await source.read(new_id, file)) == file.crc32c
        with pytest.raises(SegmentGoneError):
            await source.read(old_id, old.files[0])
        assert len(source.source) == 1

    run(scenario)


def test_files_stay_as_long_as_one_manifest_names_them() -> None:
    async def scenario(source: Source) -> None:
        first_id, first = await source.manifest(2)
        source.drop_before(first.files[2].base_offset)
        second_id, second = await source.manifest(3)
        assert second.files == first.files
        source.source.end(group(1))
        with pytest.raises(SegmentGoneError):
            await source.read(first_id, first.files[0], 2)
        third_id, third = await source.manifest(2)
        assert third.files == first.files[2:], "nobody keeps what is before the log's start any more"
        assert len({first_id, second_id, third_id}) == 3

    run(scenario)
