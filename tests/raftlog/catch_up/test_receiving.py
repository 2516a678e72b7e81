"""Transfers run one from each sender, a few together, the rest in order."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from raftlog.messages import install_snapshot
from raftlog.multiraft.fakes import group_id
from raftlog.quiet_links import QuietLinks

from barnabas_raftlog.catch_up.receiving import RETRY_MS, TRANSFERS_MAX, CatchUp
from barnabas_raftlog.links.rpc import LinkDownError
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.multiraft.multiraft import MultiRaft
from barnabas_raftlog.raft.messages import Fact, GroupId, InstallSnapshot


class Links(QuietLinks):
    """Asks nobody: every call waits until the test answers it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, asyncio.Future[bytes]]] = []

    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.asked.append((node_id, answer))
        return await answer


class Node:
    def __init__(self) -> None:
        self.now_ms = 0
        self.links = Links()
        self.posted = list[tuple[GroupId, int]]()
        self.facts: list[tuple[GroupId, Fact]] = []
        raft = SimpleNamespace(groups={}, attach=lambda _: None, post=self._post)
        self.catch_up = CatchUp(
            3,
            self.links,
            cast("MultiRaft", raft),
            lambda: self.now_ms,
            1 << 20,
            lambda group, fact: self.facts.append((group, fact)),
            self._on_broken,
        )

    def _post(self, group: RaftGroup, message: InstallSnapshot) -> None:
        self.posted.append((group.group_id, message.snapshot_index))

    def _on_broken(self, error: BaseException) -> None:
        raise error

    def group(self, number: int) -> Any:
        async def in_writer(job: Callable[[], object]) -> object:
            return job()

        incoming = SimpleNamespace(close=lambda: None, clear=lambda: None)
        log = SimpleNamespace(
            is_adopting=False, is_deleted=False, incoming=lambda: incoming, in_writer=in_writer, term_at=lambda _: None
        )
        core = SimpleNamespace(term=5, commit_index=10)
        return SimpleNamespace(
            group_id=group_id(number), core=core, log=log, failed=None, prepared=None, is_removed=False
        )

    def offer(self, group: Any, source: int = 1, index: int = 50, term: int = 5) -> None:
        self.catch_up.on_offer(
            group, install_snapshot(term=term, source=source, target=3, snapshot_index=index, snapshot_term=4)
        )

    async def settle(self) -> list[int]:
        """Let tasks run; return the nodes that were asked since the last time."""
        before = getattr(self, "_seen", 0)
        for _ in range(10):
            await asyncio.sleep(0)
        self._seen = len(self.links.asked)
        return [source for source, _ in self.links.asked[before:]]


def run(scenario: Callable[[Node], Awaitable[None]]) -> None:
    async def main() -> None:
        node = Node()
        try:
            await scenario(node)
        finally:
            await node.catch_up.close()
        assert not node.catch_up._running
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_one_transfer_from_each_sender_and_the_rest_in_order() -> None:
    async def scenario(node: Node) -> None:
        groups = [node.group(number) for number in range(9)]
        for number, group in enumerate(groups):
            node.offer(group, source=1 + number % 3)
        assert await node.settle() == [1, 2, 3]
        node.links.asked[0][1].set_exception(LinkDownError("gone"))
        assert await node.settle() == [1]
        states = [transfer["state"] for transfer in node.catch_up.status()["transfers"]]
        assert states == ["interrupted", "manifest", "manifest", "manifest", *["waiting"] * 5]

    run(scenario)


def test_not_more_than_a_few_together() -> None:
    async def scenario(node: Node) -> None:
        for number in range(9):
            node.offer(node.group(number), source=10 + number)
        assert await node.settle() == list(range(10, 10 + TRANSFERS_MAX))

    run(scenario)


def test_an_offer_that_is_repeated_changes_nothing_and_one_after_a_failure_begins_again() -> None:
    async def scenario(node: Node) -> None:
        group = node.group(1)
        for _ in range(3):
            node.offer(group)
        assert await node.settle() == [1]
        node.links.asked[0][1].set_exception(LinkDownError("gone"))
        assert await node.settle() == []
        node.offer(group, source=2)
        assert await node.settle() == [2]
        assert [fact.kind for _, fact in node.facts] == ["catch-up interrupted"]

    run(scenario)


def test_what_is_no_matter_of_the_network_waits_a_while() -> None:
    async def scenario(node: Node) -> None:
        group = node.group(1)
        node.offer(group)
        await node.settle()
        node.links.asked[0][1].set_exception(OSError("no room"))
        await node.settle()
        node.offer(group)
        assert await node.settle() == []
        node.now_ms += RETRY_MS
        node.offer(group)
        assert await node.settle() == [1]

    run(scenario)


def test_what_is_old_or_not_needed_is_the_core_s_to_answer() -> None:
    async def scenario(node: Node) -> None:
        group = node.group(1)
        node.offer(group, index=10)
        node.offer(group, term=4)
        assert await node.settle() == []
        assert node.posted == [(group.group_id, 10), (group.group_id, 50)]
        group.log.is_adopting = True
        node.offer(group)
        assert await node.settle() == []

    run(scenario)


def test_a_removed_group_ends_its_transfer_and_lets_the_next_begin() -> None:
    async def scenario(node: Node) -> None:
        first = node.group(1)
        second = node.group(2)
        node.offer(first)
        node.offer(second)
        assert await node.settle() == [1]
        first.is_removed = True
        node.catch_up.on_removed(first)
        assert await node.settle() == [1]
        assert [transfer["group"] for transfer in node.catch_up.status()["transfers"]] == [second.group_id]

    run(scenario)
