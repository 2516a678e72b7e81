"""Leader announcements between running nodes: they reach everybody, in one post, and those who come later."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from barnabas_metadata_quorum import announcer as announcer_module
from barnabas_metadata_quorum.leaders import NO_LEADER, Leadership, LeaderTable

from .harness import Node, quorum, run

TOPIC = b"t" * 16
Claim = Callable[[LeaderTable], bool]


async def until(node: Node, claim: Claim) -> None:
    """Wait until the claim holds of the node's leader table."""
    heard = asyncio.Event()
    node.announcer.subscribe(lambda _changed: heard.set())
    while not claim(node.announcer.table):
        heard.clear()
        await heard.wait()


def led_by(leader_id: int, *isr: int) -> Claim:
    def claim(table: LeaderTable) -> bool:
        leadership = table.get(TOPIC, 0)
        return leadership is not None and (leadership.leader_id, leadership.isr) == (leader_id, isr)

    return claim


def test_announcements_reach_everybody_and_those_who_come_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            announcer = nodes.nodes[1].announcer
            announcer.announce(TOPIC, 0, 3, 1, (1,))
            announcer.announce(TOPIC, 0, 3, 1, (1, 2))
            for node in nodes:
                await until(node, led_by(1, 1, 2))
            await nodes.stop(3)
            announcer.announce(TOPIC, 0, 3, 1, (1,))
            await nodes.start(3)
            for node in nodes:
                await until(node, led_by(1, 1))
            nodes.nodes[2].announcer.announce(TOPIC, 0, 4, 2, (2,))
            announcer.announce(TOPIC, 0, 3, 1, (1, 3))
            for node in nodes:
                await until(node, led_by(2, 2))

    run(main())


def test_one_iteration_of_the_loop_makes_one_post_per_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            node, posts = nodes.nodes[1], list[int]()
            post = node.links.post

            def counted(target: int, method: str, body: bytes) -> None:
                posts.append(target)
                post(target, method, body)

            node.links.post = counted  # type: ignore[method-assign,assignment]
            for partition in range(1_000):
                node.announcer.announce(TOPIC, partition, 1, 1, (1, 2, 3))
            assert node.announcer.table.count_led_by(1) == 1_000
            for other in nodes:
                await until(other, lambda table: len(table) == 1_000)
            assert posts == [2, 3]

    run(main())


def test_a_large_table_goes_in_parts(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2)) as nodes:
            count = 2 * announcer_module.ANNOUNCEMENTS_PER_POST + 1
            for partition in range(count):
                nodes.nodes[1].announcer.announce(TOPIC, partition, 1, 1, (1,))
            await until(nodes.nodes[2], lambda table: len(table) == count)

    run(main())


def test_what_raft_says_here_counts_until_the_leader_speaks(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2)) as nodes:
            announcer = nodes.nodes[1].announcer
            announcer.hear(TOPIC, 0, 5, 2, (1, 2))
            assert announcer.table.get(TOPIC, 0) == Leadership(5, 0, 2, (1, 2))
            nodes.nodes[2].announcer.announce(TOPIC, 0, 5, 2, (2,))
            await until(nodes.nodes[1], led_by(2, 2))
            announcer.hear(TOPIC, 0, 5, 2, (1, 2))
            assert led_by(2, 2)(announcer.table)

    run(main())


def test_who_stops_leading_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2)) as nodes:
            announcer = nodes.nodes[1].announcer
            announcer.announce(TOPIC, 0, 5, 1, (1, 2))
            announcer.announce(TOPIC, 0, 5, NO_LEADER, (1, 2))
            await until(nodes.nodes[2], led_by(NO_LEADER, 1, 2))
            announcer.announce(TOPIC, 0, 4, 1, (1,))
            assert led_by(NO_LEADER, 1, 2)(announcer.table)

    run(main())


def test_entries_of_a_deleted_topic_go(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            [created] = await nodes.nodes[1].create("t")
            nodes.nodes[1].announcer.announce(created.topic_id, 0, 1, 1, (1,))
            assert nodes.nodes[1].announcer.table.get(created.topic_id, 0) is not None
            await nodes.nodes[1].service.delete_topics(["t"], [], 5)
            for node in nodes:
                await node.until(lambda image: not image.topics)
                assert node.announcer.table.get(created.topic_id, 0) is None

    run(main())


def test_garbage_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2)) as nodes:
            await nodes.nodes[1].links.call(2, announcer_module.METHOD, b"\xc1", 5)
            assert len(nodes.nodes[2].announcer.table) == 0

    run(main())
