"""What becomes of the image here, when it changes at an awkward moment."""

import asyncio
from typing import Any, cast

from barnabas_broker.config import BrokerConfig
from barnabas_broker.partitions import Partitions
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.image import Image, Partition, Topic


class Announcer:
    def subscribe(self, _: object) -> None:
        """Nobody announces anything."""


class Multiraft:
    """Elections are held while something is being opened."""

    def __init__(self) -> None:
        self.is_holding = False

    def hold_elections(self) -> None:
        self.is_holding = True

    def release_elections(self) -> None:
        self.is_holding = False


def made() -> tuple[Partitions, Multiraft]:
    multiraft = Multiraft()
    config = BrokerConfig(
        node_id=1, cluster_id="test", cluster_nodes={1: "127.0.0.1:1"}, log_dir="nowhere"
    )  # All topics are elsewhere, so nothing is opened.
    clocks = Clocks(lambda: 0, lambda: 0)
    parts = (config, None, multiraft, Announcer(), clocks, lambda _: True, None, lambda *_: None, lambda _: None)
    return Partitions(*cast("Any", parts)), multiraft


def with_topics(count: int) -> Image:
    topics = [Topic(bytes([number]) * 16, f"t{number}", (Partition((2, 3)),), {}) for number in range(count)]
    return Image("test", topics={topic.topic_id: topic for topic in topics})


async def test_a_change_in_the_moment_that_the_last_one_is_done_is_not_forgotten() -> None:
    partitions, _ = made()
    partitions.on_image(with_topics(0), with_topics(1))
    task = partitions._reconciling
    assert task is not None
    await asyncio.sleep(0)
    assert task.done()
    assert partitions._reconciling is task, "the moment: nobody has heard yet that it is done"
    partitions.on_image(with_topics(1), with_topics(2))
    async with asyncio.timeout(5):
        while not partitions.is_reconciled:
            await partitions.leaders_changed()


async def test_elections_are_held_while_replicas_are_opened() -> None:
    partitions, multiraft = made()
    partitions.on_image(with_topics(0), with_topics(1))
    assert multiraft.is_holding
    async with asyncio.timeout(5):
        await partitions.leaders_changed()
    assert partitions.is_reconciled
    assert not multiraft.is_holding
