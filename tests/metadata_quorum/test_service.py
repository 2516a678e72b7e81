"""The metadata quorum at work: several nodes in one process, real links, real Raft."""

import asyncio
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_metadata_quorum import replica as replica_module
from barnabas_metadata_quorum import submission as submission_module
from barnabas_metadata_quorum.controller.commands import (
    BrokerHeartbeat,
    Command,
    CreateTopics,
    CreateTopicsAnswer,
    NewTopic,
    RefusalReason,
    Refused,
    Reply,
    encode_command,
)
from barnabas_metadata_quorum.controller.parts import WEIGHT_MAX
from barnabas_metadata_quorum.image.image import Image, topic_changes
from barnabas_metadata_quorum.image.records import BrokerUnfenced, UnknownRecordError, encode_record
from barnabas_metadata_quorum.image.snapshots import decode_snapshot, encode_snapshot
from barnabas_metadata_quorum.replica import APPLIED_BYTES
from barnabas_metadata_quorum.service import MetadataService
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.links.links import Links, RemoteError
from barnabas_raftlog.links.raft_frames import METADATA_GROUP
from barnabas_raftlog.wire.crc32c import crc32c

from .harness import PATIENCE_S, InlineWorker, RealDisk, quorum, run


class has:  # noqa: N801 - reads as a claim
    """True of an image in which exactly these topics exist."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def __call__(self, image: Image) -> bool:
        return {topic.name for topic in image.topics.values()} == self.names


def test_brokers_register_by_themselves_and_all_nodes_hold_equal_images(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2, 3), (4,)) as nodes:
            version = max(node.service.image.version for node in nodes)
            images = [await node.until(lambda image: image.version >= version) for node in nodes]
            assert all(image == images[0] for image in images)
            assert [b.port for _, b in sorted(images[0].brokers.items())] == [9_001, 9_002, 9_003, 9_004]
            assert [node.service.broker_epoch for node in nodes] == [
                images[0].brokers[node.node_id].epoch for node in nodes
            ]

    run(main())


def test_any_node_creates_and_deletes_topics_and_sees_what_it_did(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2, 3), (4,)) as nodes:
            names = []
            for node in nodes:
                names.append(f"by-{node.node_id}")
                [created] = await node.create(names[-1], partitions=2, factor=3)
                assert created.error is None
                assert created.topic_id in node.service.image.topics
            for node in nodes:
                await node.until(has(*names))
            learner = nodes.nodes[4].service
            assert [topic.error for topic in await learner.delete_topics([names[0], "nope"], [], 5)] == [
                None,
                RefusalReason.UNKNOWN_TOPIC,
            ]
            assert has(*names[1:])(learner.image)
            assert {(await learner.allocate_producer_ids(5)).first for _ in range(3)} == {0, 1_000, 2_000}

    run(main())


def test_what_names_much_is_done_in_parts_that_everybody_sees_whole(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2, 3)) as nodes:
            largest = {node.node_id: 0 for node in nodes}

            def watch(node_id: int, old: Image, new: Image) -> None:
                changes = topic_changes(old, new)
                largest[node_id] = max(largest[node_id], len(changes.created) + len(changes.deleted))
                assert all(len(topic.partitions) in {1, 500} for topic in changes.created)

            for node in nodes:
                node.service.subscribe(partial(watch, node.node_id))
            names = [f"t{number}" for number in range(300)]
            service = nodes.leader().service
            fates = await service.create_topics(
                [NewTopic("large", 500, 3), *(NewTopic(name, 1, 3) for name in names), NewTopic("t7", 1, 3)], PATIENCE_S
            )
            assert [fate.name for fate in fates] == ["large", *names, "t7"]
            assert [fate.error for fate in fates] == 301 * [None] + [RefusalReason.TOPIC_ALREADY_EXISTS]
            gone = await service.delete_topics([*names, "absent"], [bytes(16)], PATIENCE_S)
            assert [fate.error for fate in gone] == 300 * [None] + [
                RefusalReason.UNKNOWN_TOPIC,
                RefusalReason.UNKNOWN_TOPIC_ID,
            ]
            for node in nodes:
                await node.until(has("large"))
            assert 0 < max(largest.values()) <= APPLIED_BYTES // 50

    run(main())


def test_what_there_was_no_time_for_is_said_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            node = nodes.leader()
            late = Refused(RefusalReason.TIMED_OUT, "late")
            parts: list[Command] = []

            async def submit(command: Command, timeout_s: float) -> Reply:
                parts.append(command)
                if len(parts) > 1:
                    raise late
                return await submit_at_all(command, timeout_s)

            submit_at_all = node.service._submission.submit
            monkeypatch.setattr(node.service._submission, "submit", submit)
            fates = await node.service.create_topics([NewTopic(f"t{number}") for number in range(300)], PATIENCE_S)
            assert len(parts) == 2
            done = fates[:WEIGHT_MAX]
            others = fates[WEIGHT_MAX:]
            assert {fate.error for fate in done} == {None}
            assert {fate.error for fate in others} == {RefusalReason.TIMED_OUT}
            with pytest.raises(Refused, match="late"):
                await node.service.create_topics([NewTopic(f"u{number}") for number in range(300)], PATIENCE_S)

    run(main())


def test_commands_in_flight_are_decided_against_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            fates = await asyncio.gather(*(node.create("same") for node in nodes for _ in range(5)))
            errors = [fate.error for [fate] in fates]
            assert sorted(errors, key=str) == [None, *[RefusalReason.TOPIC_ALREADY_EXISTS] * 14]

    run(main())


def test_the_quorum_survives_the_loss_of_its_controller(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            first = nodes.leader()
            await first.create("before")
            await nodes.stop(first.node_id)
            survivor = next(iter(nodes))
            [created] = await survivor.create("after")
            assert created.error is None
            for node in nodes:
                await node.until(has("before", "after"))
            await nodes.start(first.node_id)
            await nodes.until_up()
            await nodes.nodes[first.node_id].until(has("before", "after"))

    run(main())


def test_a_retry_after_the_controller_died_gets_the_first_answer(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            first = nodes.leader()
            command = submission_module.with_identity(CreateTopics((NewTopic("once"),)))
            answer = await first.service.submit(command, 5)
            await nodes.stop(first.node_id)
            again = await next(iter(nodes)).service.submit(command, 10)
            assert again == answer
            assert isinstance(again, CreateTopicsAnswer)
            assert again.topics[0].error is None

    run(main())


def test_a_cluster_that_was_stopped_comes_back_with_what_it_had(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            await next(iter(nodes)).create("kept")
            epochs = {node.node_id: node.service.broker_epoch or 0 for node in nodes}
            await nodes.stop(1, 2, 3)
            await nodes.start(1, 2, 3)
            await nodes.until_up()
            for node in nodes:
                await node.until(has("kept"))
                assert (node.service.broker_epoch or 0) > epochs[node.node_id]

    run(main())


def test_a_single_node_is_a_quorum(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (7,)) as nodes:
            [created] = await nodes.nodes[7].create("alone")
            assert created.error is None

    run(main())


def test_without_a_majority_commands_time_out_and_say_why(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            follower = next(node for node in nodes if not node.service.is_active)
            await nodes.stop(*({1, 2, 3} - {follower.node_id}))
            with pytest.raises(Refused, match=r"no answer in 0\.2 s") as caught:
                await follower.service.create_topics([NewTopic("never")], 0.2)
            assert caught.value.reason is RefusalReason.TIMED_OUT

    run(main())


def test_a_silent_broker_is_fenced_and_one_that_returns_is_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1,), (2,), session_timeout_ms=600) as nodes:
            await nodes.stop(2)
            await nodes.nodes[1].until(lambda image: image.brokers[2].fenced)
            assert any("node 2: no heartbeat for" in cause for cause in nodes.nodes[1].saw("broker fenced"))
            await nodes.start(2)
            await nodes.until_up()

    run(main())


def test_a_controlled_shutdown_fences_at_once_and_hands_the_quorum_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, session_timeout_ms=600_000) as nodes:
            first = nodes.leader()
            await first.service.begin_shutdown(5)
            assert first.service.image.brokers[first.node_id].shutting_down
            [created] = await first.create("elsewhere", partitions=4, factor=2)
            topic = first.service.image.topics[created.topic_id]
            assert all(first.node_id not in partition.replicas for partition in topic.partitions)
            await first.service.finish_shutdown(5)
            assert not first.service.is_active
            await nodes.stop(first.node_id)
            await nodes.until_up()
            assert next(iter(nodes)).saw("broker fenced") == [f"node {first.node_id}: controlled shutdown"]

    run(main())


# --------------------------------------------------------------------------------------------- snapshots


def test_a_restart_goes_on_from_snapshot_and_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "SNAPSHOT_RECORDS", 10)

    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            names = ["before", *(f"t{number}" for number in range(30))]
            for name in names:
                await nodes.nodes[1].create(name)
            for node in nodes:
                await node.until(has(*names))
                assert node.disk.log.first_index > 1
                assert len(list((tmp_path / str(node.node_id)).iterdir())) == 1
            before = nodes.nodes[2].service.image
            await nodes.stop(1, 2, 3)
            await nodes.start(1, 2, 3)
            await nodes.until_up()
            for node in nodes:
                image = await node.until(has(*names))
                assert (image.topics, image.answers) == (before.topics, before.answers)

    run(main())


@pytest.mark.parametrize("role", ["voter", "learner"])
def test_a_node_behind_the_log_gets_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    monkeypatch.setattr(replica_module, "SNAPSHOT_RECORDS", 10)

    async def main() -> None:
        async with quorum(tmp_path, (1, 2, 3), (4,), session_timeout_ms=600_000) as nodes:
            late = {"voter": 3, "learner": 4}[role]
            await nodes.stop(late)
            names = ["before", *(f"t{number}" for number in range(30))]
            for name in names:
                await nodes.nodes[1].create(name)
            await nodes.start(late)
            node = nodes.nodes[late]
            await node.until(has(*names))
            assert len(node.saw("metadata snapshot installed")) == 1
            await nodes.until_up()
            # And it lasts: the next start finds the installed snapshot.
            await nodes.stop(late)
            await nodes.start(late)
            assert has(*names)(nodes.nodes[late].service.image)
            await nodes.until_up()

    run(main())


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def of_another_place(data: bytes) -> bytes:
    snapshot = decode_snapshot(data)
    return encode_snapshot(snapshot._replace(raft_index=1))


def contradicting_itself(data: bytes) -> bytes:
    """The same broker unfenced in an epoch that it never had."""
    record = encode_record(BrokerUnfenced(1, 1 << 40))
    body = data[10:] + len(record).to_bytes(4, "big") + record
    return data[:6] + crc32c(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("spoil", [damaged, of_another_place, contradicting_itself])
def test_a_snapshot_that_cannot_be_read_is_refused_and_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(replica_module, "SNAPSHOT_RECORDS", 10)

    async def main() -> None:
        refused = asyncio.Event()
        refuse = Links.refuse

        def noted(links: Links, node_id: int, text: str) -> None:
            refuse(links, node_id, text)
            refused.set()

        monkeypatch.setattr(Links, "refuse", noted)
        async with quorum(tmp_path, (1, 2, 3), (4,), session_timeout_ms=600_000) as nodes:
            await nodes.stop(4)
            names = ["before", *(f"t{number}" for number in range(30))]
            for name in names:
                await nodes.nodes[1].create(name)
            sound = {node.node_id: node.service._newest for node in nodes}
            for node in nodes:
                newest = node.service._newest
                assert newest is not None
                node.service._newest = (*newest[:2], spoil(newest[2]))
            await nodes.start(4)
            late = nodes.nodes[4]
            before = late.service.image, late.disk.log.first_index
            async with asyncio.timeout(PATIENCE_S):
                await refused.wait()
            assert (late.service.image, late.disk.log.first_index) == before
            assert not late.service._broken or not late.service._broken.done()
            assert not late.saw("metadata snapshot installed")
            for node in nodes:
                if node is not late:
                    node.service._newest = sound[node.node_id]
            await late.until(has(*names))

    run(main())


def test_a_crash_between_log_and_snapshot_file_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "SNAPSHOT_RECORDS", 10)

    async def main() -> None:
        async with quorum(tmp_path, (1, 2), (3,), session_timeout_ms=600_000) as nodes:
            for number in range(20):
                await nodes.nodes[1].create(f"t{number}")
            await nodes.nodes[3].until(has(*(f"t{number}" for number in range(20))))
            await nodes.stop(3)
            for file in (tmp_path / "3").iterdir():
                file.unlink()
            await nodes.start(3)
            assert len(nodes.nodes[3].saw("metadata log reset")) == 1
            await nodes.nodes[3].until(has(*(f"t{number}" for number in range(20))))
            await nodes.until_up()

    run(main())


@pytest.mark.parametrize("member", [3, 4], ids=["voter", "learner"])
def test_a_log_that_ends_before_the_snapshot_is_fetched_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: int
) -> None:
    """The other half: the snapshot's file was there, and the log's step to it was not."""
    monkeypatch.setattr(replica_module, "SNAPSHOT_RECORDS", 10)
    directory = tmp_path / str(member)
    old = tmp_path / "old"

    async def main() -> None:
        async with quorum(tmp_path, (1, 2, 3), (4,), disk=RealDisk, session_timeout_ms=600_000) as nodes:
            await nodes.nodes[1].create("before")
            await nodes.nodes[member].until(has("before"))
            await nodes.stop(member)
            shutil.copytree(directory, old)
            await nodes.start(member)
            names = ["before", *(f"t{number}" for number in range(30))]
            for name in names[1:]:
                await nodes.nodes[1].create(name)
            await nodes.nodes[member].until(has(*names))
            await nodes.stop(member)
            for snapshot in directory.glob("*.snapshot"):
                shutil.copy(snapshot, old)
            shutil.rmtree(directory)
            shutil.copytree(old, directory)
            await nodes.start(member)
            assert len(nodes.nodes[member].saw("metadata log reset")) == 1
            await nodes.nodes[member].until(has(*names))
            await nodes.until_up()
            await nodes.stop(member)
            await nodes.start(member)
            assert not nodes.nodes[member].saw("metadata log reset"), "once is enough"
            await nodes.nodes[member].until(has(*names))  # what the snapshot has not, the leader confirms

    run(main())


def test_the_log_keeps_its_prefix_until_the_snapshot_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "SNAPSHOT_RECORDS", 10)

    async def main() -> None:
        async with quorum(tmp_path, (1,)) as nodes:
            node = nodes.nodes[1]
            worker = node.disk.worker
            assert isinstance(worker, InlineWorker)
            worker.held = True
            for number in range(20):
                await node.create(f"t{number}")
            assert node.disk.log.first_index == 1
            assert len(worker.jobs) == 1
            worker.held = False
            worker.release()
            assert node.disk.log.first_index > 1

    run(main())


# ------------------------------------------------------------------------------------------------ faults


def test_a_record_of_a_newer_version_stops_the_node_with_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1,)) as nodes:
            node = nodes.nodes[1]
            monkeypatch.setattr("barnabas_metadata_quorum.image.records.VERSIONS", {})
            creating = asyncio.create_task(node.create("t"))
            with pytest.raises(UnknownRecordError, match="upgrade this node"):
                await node.service.wait()
            creating.cancel()
            await asyncio.wait([creating])
            assert not node.service.is_active

    run(main())


def test_an_outdated_broker_epoch_is_refused_across_the_wire(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            for node in nodes:
                with pytest.raises(Refused) as caught:
                    await node.service.submit(BrokerHeartbeat(1, 99, 0), 5)
                assert caught.value.reason is RefusalReason.STALE_BROKER_EPOCH

    run(main())


def test_garbage_and_strangers_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            with pytest.raises(RemoteError, match="MalformedMessageError"):
                await nodes.nodes[1].links.call(2, "controller", b"\xc1", 5)
            with pytest.raises(Refused, match="commands come from nodes"):
                await nodes.nodes[1].service._serve(-1, encode_command(CreateTopics(())))

    run(main())


def test_waiting_for_the_image_ends_in_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1,)) as nodes:
            service = nodes.nodes[1].service
            with pytest.raises(TimeoutError):
                await service.wait_until(lambda _: False, 0)
            assert await service.wait_until(lambda _: True, 0) is service.image
            assert not service._waiters

    run(main())


def test_subscribers_see_every_version_once_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            node = nodes.nodes[2]
            seen = [node.service.image]

            def on_image(old: Image, new: Image) -> None:
                assert old is seen[-1]
                seen.append(new)

            node.service.subscribe(on_image)
            await asyncio.gather(*(other.create(f"t{n}-{other.node_id}") for other in nodes for n in range(10)))
            await node.until(lambda image: len(image.topics) == 30)
            assert seen[-1] is node.service.image

    run(main())


def test_a_failed_log_ends_the_service(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2), session_timeout_ms=600) as nodes:
            follower = next(node for node in nodes if not node.service.is_active)
            failed = follower.disk.log.on_failed
            assert failed is not None
            failed(METADATA_GROUP, StorageFailedError("the disk is gone"))
            with pytest.raises(StorageFailedError, match="the disk is gone"):
                await follower.service.wait()

    run(main())


def test_others_have_their_turn_between_the_check_of_a_request_and_its_first_part() -> None:
    submitted: list[Command] = []

    async def submit(command: Command, _: int) -> CreateTopicsAnswer:
        submitted.append(command)
        return CreateTopicsAnswer(())

    clocks = SimpleNamespace(monotonic_ms=lambda: 0)
    service: Any = SimpleNamespace(_clocks=clocks, image=Image("cluster"), _submit=submit)
    submitting = MetadataService.submit(service, CreateTopics((NewTopic("t"),)), 1.0)
    submitting.send(None)
    assert not submitted
    with pytest.raises(StopIteration):
        submitting.send(None)
    assert len(submitted) == 1
