"""Named snapshots in whole quorums of one process: who comes first, lost controllers, nodes behind, and upgrades."""

import asyncio
import struct
from pathlib import Path

import pytest

from barnabas_metadata_quorum import replica
from barnabas_metadata_quorum.controller.commands import (
    CreateSnapshot,
    CreateSnapshotAnswer,
    DeleteSnapshot,
    RefusalReason,
    Refused,
)
from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.records import RECORD_LEVEL, NamedSnapshot, PinnedTopic

from .harness import PATIENCE_S, Node, quorum, run


def snapshot(topic_id: bytes, number: int, name: str = "month-end") -> NamedSnapshot:
    ranges = struct.pack(">iiqq", 0, 1, 0, number)
    return NamedSnapshot(number.to_bytes(16, "big"), name, number, (PinnedTopic(topic_id, "orders", ranges),))


async def topic_of(node: Node) -> bytes:
    [created] = await node.create("orders", factor=3)
    return created.topic_id


async def keep(node: Node, wanted: NamedSnapshot) -> CreateSnapshotAnswer:
    answer = await node.service.submit(CreateSnapshot(wanted), PATIENCE_S)
    assert isinstance(answer, CreateSnapshotAnswer)
    return answer


def named(image: Image) -> dict[str, int]:
    return {name: one.created_at_ms for name, one in image.named_snapshots.items()}


def test_of_many_who_use_a_name_at_the_same_time_one_makes_the_snapshot_and_all_are_told_of_it(
    tmp_path: Path,
) -> None:
    """Half of them while the controller is lost."""

    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            topic_id = await topic_of(nodes.leader())
            others = [node for node in nodes if node is not nodes.leader()]
            asked = [keep(others[number % 2], snapshot(topic_id, number + 1)) for number in range(20)]
            answers = asyncio.gather(*asked[:10])
            await asyncio.sleep(0)
            await nodes.stop(nodes.leader().node_id)
            told = await answers + await asyncio.gather(*asked[10:])
            assert len({answer.snapshot_id for answer in told}) == 1
            assert [answer.created for answer in told].count(True) == 1
            winner = next(number for number, answer in enumerate(told, 1) if answer.created)
            for node in others:
                assert named(await node.until(lambda image: bool(image.named_snapshots))) == {"month-end": winner}

    run(main())


def test_a_stopped_cluster_comes_back_with_its_snapshots_and_a_node_behind_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "SNAPSHOT_RECORDS", 5)

    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            topic_id = await topic_of(nodes.nodes[1])
            await nodes.stop(3)
            for number in range(1, 15):
                await keep(nodes.nodes[1], snapshot(topic_id, number, f"s{number}"))
            await nodes.nodes[2].service.submit(DeleteSnapshot("s3", (3).to_bytes(16, "big")), PATIENCE_S)
            expected = {f"s{number}": number for number in range(1, 15) if number != 3}
            await nodes.start(3)
            late = await nodes.nodes[3].until(lambda image: named(image) == expected)
            assert late.named_snapshots_bytes == nodes.nodes[1].service.image.named_snapshots_bytes
            await nodes.stop(1, 2, 3)
            await nodes.start(1, 2, 3)
            for node in nodes:
                await node.until(lambda image: named(image) == expected)

    run(main())


def test_in_a_rolling_upgrade_nobody_makes_a_snapshot_before_the_last_broker_can_read_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, record_level=0) as nodes:
            topic_id = await topic_of(nodes.nodes[1])
            nodes.plan.record_level = RECORD_LEVEL
            for node_id in (1, 2, 3):
                with pytest.raises(Refused, match="a version that cannot read named snapshots") as caught:
                    await keep(nodes.nodes[2], snapshot(topic_id, 1))
                assert caught.value.reason is RefusalReason.UNSUPPORTED_VERSION
                await nodes.stop(node_id)
                await nodes.start(node_id)
                await nodes.until_up()
            assert (await keep(nodes.nodes[2], snapshot(topic_id, 1))).created

    run(main())
