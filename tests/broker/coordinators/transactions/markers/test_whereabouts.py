"""Places are found by the names of now; what the image lacks is gone only if a current one lacks it, too."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_broker.coordinators.transactions.marker_queues import GONE, NOBODY
from barnabas_broker.coordinators.transactions.whereabouts import Whereabouts
from barnabas_broker.leadership.known_leaders import KnownLeaders
from barnabas_metadata_quorum.controller.commands import ReadIndex, ReadIndexAnswer
from barnabas_metadata_quorum.leaders.table import NO_LEADER

NODE = 1


class Cluster:
    """Topic `t` with three partitions, of which 0 is led by `leader_id`, and 1 by nobody known."""

    def __init__(self, leader_id: int = 2) -> None:
        self.live = {2, 3}
        topic = SimpleNamespace(topic_id=b"t", partitions=range(3))
        leaders = {(b"t", 0): leader_id, (b"t", 2): NO_LEADER}
        known = {key: SimpleNamespace(leader_id=node_id) for key, node_id in leaders.items()}
        partitions: Any = SimpleNamespace(
            topics={"t": SimpleNamespace(topic=topic)},
            known_leaders=SimpleNamespace(leadership=lambda *key: known.get(key), leaders_changed=lambda: "news"),
            is_live=self.live.__contains__,
        )
        self.image = SimpleNamespace(version=5)
        self.version = 5
        metadata: Any = SimpleNamespace(image=self.image, submit=self._submit)
        self.whereabouts = Whereabouts(NODE, partitions, metadata)

    async def _submit(self, command: ReadIndex, timeout_s: float) -> ReadIndexAnswer:
        assert isinstance(command, ReadIndex)
        assert timeout_s > 0
        return ReadIndexAnswer(self.version)


@pytest.mark.parametrize(("leader_id", "found"), [(2, 2), (3, 3), (4, NOBODY), (NODE, NODE)])
def test_a_leader_is_found_if_it_is_this_broker_or_can_be_reached(leader_id: int, found: int) -> None:
    assert Cluster(leader_id).whereabouts.find(("t", 0)) == found


def test_without_a_leader_there_is_nobody_and_without_a_topic_it_is_gone() -> None:
    find = Cluster().whereabouts.find
    assert [find(("t", 1)), find(("t", 2)), find(("t", 3)), find(("u", 0))] == [NOBODY, NOBODY, GONE, GONE]


async def test_an_image_is_confirmed_when_it_shows_what_the_controller_has_said() -> None:
    cluster = Cluster()
    await cluster.whereabouts.confirm()
    cluster.version = 6
    with pytest.raises(TimeoutError, match="image is at 5"):
        await cluster.whereabouts.confirm()
    cluster.image.version = 7
    await cluster.whereabouts.confirm()


async def test_the_end_of_a_topic_that_nobody_has_led_is_news() -> None:
    """Its table of leaders has no entry that would go."""
    announcer: Any = SimpleNamespace(subscribe=lambda _: None, table=None)
    known_leaders = KnownLeaders(NODE, announcer, set(), lambda: 0, 1_000, lambda _: None)
    news = known_leaders.leaders_changed()
    known_leaders.on_deleted(b"t")
    for _ in range(3):
        await asyncio.sleep(0)
    assert news.done()
