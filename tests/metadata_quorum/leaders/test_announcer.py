"""Leader announcements between running nodes: they reach everybody, in one post, also latecomers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
from metadata_quorum.harness import Node, quorum, run
from patching import patch_method
from raftlog.quiet_links import QuietLinks

from barnabas_metadata_quorum.leaders import announcer as announcer_module
from barnabas_metadata_quorum.leaders.announcer import LeaderAnnouncer
from barnabas_metadata_quorum.leaders.table import NO_LEADER, Leadership, LeaderTable, decode_announcements

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


def test_one_iteration_of_the_loop_makes_one_post_per_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            node = nodes.nodes[1]
            posts = list[int]()
            post = node.links.post

            def counted(target: int, method: str, body: bytes) -> None:
                posts.append(target)
                post(target, method, body)

            patch_method(monkeypatch, node.links, "post", counted)
            for partition in range(1_000):
                node.announcer.announce(TOPIC, partition, 1, 1, (1, 2, 3))
            table = node.announcer.table
            assert len(list(table.led_by([1], table.keys()))) == 1_000
            for other in nodes:
                await until(other, lambda table: len(table) == 1_000)
            assert posts == [2, 3] * 2

    run(main())


def test_a_large_table_goes_in_parts(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2)) as nodes:
            count = 2 * announcer_module.ANNOUNCEMENTS_PER_POST + 1
            for partition in range(count):
                nodes.nodes[1].announcer.announce(TOPIC, partition, 1, 1, (1,))
            await until(nodes.nodes[2], lambda table: len(table) == count)

    run(main())


def test_whoever_is_to_have_everything_gets_it_in_slices_and_no_more_once_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(announcer_module, "LOOKED_PER_ITERATION", 10)

    async def main() -> None:
        network = Network(3)
        node = network.nodes[1]
        live = network.ports[1].on_peer[0]
        for partition in range(35):
            node.announce(TOPIC, partition, 3, 1, (1,))
            node.learn(b"u" * 16, partition, 3, 2, (2,))
        await network.deliver()

        def told() -> list[tuple[int, int]]:
            posts = [(post[1], len(decode_announcements(post[3]))) for post in network.posts if post[2] == "leaders"]
            network.posts.clear()
            return posts

        live(2, True)
        live(3, True)
        assert told() == [(2, 5)], "of ten entries of the table, half of which are of others"
        live(3, False)
        await asyncio.sleep(0)
        assert told() == [(2, 5)]
        node.announce(TOPIC, 99, 3, 1, (1,))  # The table may grow meanwhile.
        for _ in range(9):
            await asyncio.sleep(0)
        assert sum(count for peer, count in told() if peer == 2) == 35 - 10 + 1
        network.close()

    asyncio.run(main())


def test_what_raft_says_here_counts_until_the_leader_speaks(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2)) as nodes:
            announcer = nodes.nodes[1].announcer
            announcer.learn(TOPIC, 0, 5, 2, (1, 2))
            assert announcer.table.get(TOPIC, 0) == Leadership(5, 0, 2, (1, 2))
            nodes.nodes[2].announcer.announce(TOPIC, 0, 5, 2, (2,))
            await until(nodes.nodes[1], led_by(2, 2))
            announcer.learn(TOPIC, 0, 5, 2, (1, 2))
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


class Network:
    """Announcers of some nodes, all live, and their posts that a test has not delivered yet."""

    def __init__(self, count: int) -> None:
        self.posts: list[tuple[int, int, str, bytes]] = []
        self.ports = {node_id: Port(node_id, self.posts) for node_id in range(1, count + 1)}
        self.nodes = {n: LeaderAnnouncer(n, self.ports.keys(), port, port) for n, port in self.ports.items()}
        for node_id, port in self.ports.items():
            for peer in self.ports.keys() - {node_id}:
                port.on_peer[0](peer, True)

    async def deliver(self, is_lost: Callable[[], bool] = lambda: False) -> None:
        await asyncio.sleep(0)  # Announcements of one iteration leave together.
        while self.posts:
            source, target, method, body = self.posts.pop(0)
            if not is_lost():
                await self.ports[target].handlers[method](source, body)

    async def turn(self) -> None:
        """Let everybody check once, and lose nothing."""
        for node in self.nodes.values():
            node.check()
        await self.deliver()

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


class Port(QuietLinks):
    """Stands in for the links of one announcer, and for the source of images."""

    def __init__(self, node_id: int, posts: list[tuple[int, int, str, bytes]]) -> None:
        super().__init__()
        self.node_id = node_id
        self.posts = posts
        self.handlers: dict[str, Callable[[int, bytes], Awaitable[bytes]]] = {}

    def serve(self, method: str, handler: Callable[[int, bytes], Awaitable[bytes]]) -> None:
        self.handlers[method] = handler

    def post(self, node_id: int, method: str, body: bytes) -> None:
        assert method == "leaders" or len(body) <= 20
        self.posts.append((self.node_id, node_id, method, body))

    def subscribe(self, subscriber: object) -> None:
        pass


@pytest.mark.parametrize("seed", range(30))
def test_whatever_posts_are_lost_all_end_with_the_same_table_and_fall_silent(seed: int) -> None:
    async def main() -> None:
        rng = Random(seed)
        network = Network(4)
        terms = dict.fromkeys(range(5), 0)
        for _ in range(60):
            partition = rng.randrange(5)
            leader = network.nodes[rng.randint(1, 4)]
            known = leader.table.get(TOPIC, partition)
            if known is not None and known.leader_id == leader._node_id and rng.random() < 0.5:
                says = NO_LEADER if rng.random() < 0.3 else known.leader_id
                leader.announce(TOPIC, partition, known.term, says, (rng.randint(1, 4),))
            else:
                terms[partition] += 1
                leader.announce(TOPIC, partition, terms[partition], leader._node_id, ())
            if rng.random() < 0.3:
                await network.deliver(lambda: rng.random() < 0.5)
        await network.deliver(lambda: rng.random() < 0.9)
        for _ in range(6):
            await network.turn()
        entries = [{n: node.table.get(TOPIC, n) for n in terms} for node in network.nodes.values()]
        assert all(entry == entries[0] for entry in entries)
        assert all(node.is_confirmed and not node.has_timer for node in network.nodes.values())
        network.close()

    asyncio.run(main())


def test_a_node_that_never_confirms_is_asked_less_and_less() -> None:
    async def main() -> None:
        network = Network(2)
        node = network.nodes[1]
        asked = list[int]()
        for turn in range(1_000):
            node.check()
            asked += [turn] * len([post for post in network.posts if post[2] == "leaders.check"])
            network.posts.clear()
        assert asked[:7] == [0, 1, 3, 7, 15, 31, 63]
        assert asked[-1] - asked[-2] == 32
        node.announce(TOPIC, 0, 3, 1, (1,))
        await network.deliver(lambda: True)
        node.check()
        assert [post[2] for post in network.posts] == ["leaders.check"], "what is new is asked about at once"
        network.close()
        assert not node.has_timer

    asyncio.run(main())


def test_a_node_that_is_connected_and_not_live_hears_what_was_lost() -> None:
    async def main() -> None:
        network = Network(2)
        network.ports[1].on_peer[0](2, False)
        network.nodes[1].announce(TOPIC, 0, 3, 1, (1,))
        await network.deliver(lambda: True)
        assert network.nodes[2].table.get(TOPIC, 0) is None
        await network.turn()
        assert led_by(1, 1)(network.nodes[2].table)
        network.close()

    asyncio.run(main())


def test_an_announcement_that_a_link_lost_is_said_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link stands all the time, as one does that was congested for a moment."""
    monkeypatch.setattr(announcer_module, "CHECK_S", 0.02)

    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            one, two, three = (nodes.nodes[n] for n in (1, 2, 3))
            one.announcer.announce(TOPIC, 0, 3, 1, (1, 2))
            await until(three, led_by(1, 1, 2))
            post = two.links.post
            checked = asyncio.Event()

            def congested(peer: int, method: str, body: bytes) -> None:
                if peer != 3:
                    post(peer, method, body)
                elif method == "leaders.check":
                    checked.set()

            patch_method(monkeypatch, two.links, "post", congested)
            two.announcer.announce(TOPIC, 0, 4, 2, (2,))
            await until(one, led_by(2, 2))
            await checked.wait()
            assert led_by(1, 1, 2)(three.announcer.table)
            patch_method(monkeypatch, two.links, "post", post)
            await until(three, led_by(2, 2))

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
