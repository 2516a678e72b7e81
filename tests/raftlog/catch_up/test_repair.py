"""Copies of a damaged segment come from other replicas, however they sealed it."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from raftlog.log.node import SMALL, Node, fill, group
from raftlog.quiet_links import QuietLinks

from barnabas_raftlog.catch_up.messages import ENTRIES, READ, EntriesRequest, encode
from barnabas_raftlog.catch_up.repair import SegmentRepair
from barnabas_raftlog.catch_up.sending import CatchUpSource, Throttle
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.raft.messages import GroupId

FRAMES = 60


class Other:
    """Another node that has the group, and serves the calls of catch-up."""

    def __init__(self, segment_bytes: int, *, count: int = FRAMES, **more: Any) -> None:
        self.handlers: dict[str, Callable[[int, bytes], Awaitable[bytes]]] = {}
        self.node = Node(config=msgspec.structs.replace(SMALL, segment_bytes=segment_bytes))
        self.log = self.node.log()
        fill(self.log, count)
        self.node.work()
        hosted = {
            "group_id": group(1),
            "log": self.log,
            "core": SimpleNamespace(commit_index=count),
            "failed": None,
            "sends_files": True,
            "is_leader": True,
            "is_witness": False,
            "leader_id": 2,
            "members": {1, 2, 3},
        }
        hosted |= more
        groups = {group(1): cast("RaftGroup", SimpleNamespace(**hosted))}
        CatchUpSource(cast("Any", self), groups, lambda: 0, Throttle(1 << 40, lambda: 0))

    def serve(self, method: str, handler: Callable[[int, bytes], Awaitable[bytes]]) -> None:
        self.handlers[method] = handler


class Links(QuietLinks):
    def __init__(self, others: dict[int, Other]) -> None:
        super().__init__()
        self.live_peers = sorted(others)
        self.others = others
        self.asked = list[tuple[int, str]]()

    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
        self.asked.append((node_id, method))
        return await self.others[node_id].handlers[method](1, body)


def copies(others: dict[int, Other]) -> tuple[list[bytes], bytes, Links]:
    """Return the copies found of the second segment of eight KiB, its own bytes, and the links that were asked."""
    here = Node()
    log = here.log()
    fill(log, FRAMES)
    here.work()
    segment = log.segments_to_scrub()[1]
    links = Links(others)
    found = list[bytes]()
    hosted = SimpleNamespace(members={1, 2, 3}, leader_id=2)
    groups = cast("dict[GroupId, RaftGroup]", {group(1): hosted})

    async def main() -> None:
        async for path in SegmentRepair(links, groups, here.storage.shared, "data")(group(1), segment):
            inode = here.files.names[path]
            assert inode is not None
            found.append(bytes(inode.data[: segment.size_bytes]))

    asyncio.run(main())
    inode = here.files.names[segment.log.path]
    assert inode is not None
    return found, bytes(inode.data[: segment.size_bytes]), links


def test_who_has_the_same_file_gives_it() -> None:
    found, wanted, links = copies({2: Other(8 << 10)})
    assert found[0] == wanted
    assert links.asked[0] == (2, READ)


@pytest.mark.parametrize("segment_bytes", [3 << 10, 11 << 10, 1 << 20])
def test_who_has_sealed_otherwise_gives_the_entries(segment_bytes: int) -> None:
    """In smaller files, in larger ones, and in one that is not sealed."""
    found, wanted, links = copies({2: Other(segment_bytes)})
    assert found == [wanted]
    assert {method for _, method in links.asked} == {READ, ENTRIES}


def test_the_next_is_asked_when_one_has_not_all_of_it() -> None:
    short = Other(1 << 20, count=20)
    found, wanted, links = copies({2: short, 3: Other(11 << 10)})
    assert found == [wanted]
    assert [peer for peer, _ in links.asked] == sorted(peer for peer, _ in links.asked)
    assert {peer for peer, _ in links.asked} == {2, 3}


@pytest.mark.parametrize(
    ("index", "more"),
    [
        (0, {}),
        (-1, {}),
        (FRAMES + 1, {}),
        (41, {"core": SimpleNamespace(commit_index=40)}),
        (1, {"is_witness": 1}),
        (1, {"sends_files": False}),
        (1, {"failed": BarnabasError("a disk")}),
    ],
)
def test_what_is_not_there_not_committed_or_not_to_be_had_is_refused(index: int, more: dict[str, Any]) -> None:
    other = Other(8 << 10, **more)
    with pytest.raises(BarnabasError):
        asyncio.run(_ask(other, index, 1000))


@pytest.mark.parametrize("size_bytes", [-5, 0, 1])
def test_one_entry_comes_however_little_was_asked_for(size_bytes: int) -> None:
    other = Other(8 << 10)
    assert len(asyncio.run(_ask(other, 7, size_bytes))) == 4 + len(_frame(other.log, 7))


async def _ask(other: Other, index: int, size_bytes: int) -> bytes:
    return await other.handlers[ENTRIES](1, encode(EntriesRequest(group(1), index, size_bytes)))


def _frame(log: ReplicaLog, index: int) -> bytes:
    async def main() -> bytes:
        async for entry in log.replay(index):
            return bytes(entry.frame)
        raise AssertionError(index)

    return asyncio.run(main())
