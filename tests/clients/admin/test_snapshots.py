"""Named snapshots: what is left of a range, lost answers, and brokers without snapshots. The brokers are scripts."""

import pytest
from clients.conftest import Run
from clients.fake_broker import Answer, FakeBroker, FakeCluster, Hangup, serving
from hypothesis import given
from hypothesis import strategies as st

from barnabas_clients import Admin, ResourceNotFoundError, UnsupportedVersionError
from barnabas_clients.admin.snapshot_ranges import Left, LogState, PinnedRange, checked
from barnabas_clients.admin.snapshots import create_snapshot
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.create_snapshot import CreateSnapshotRequest, CreateSnapshotResponse
from barnabas_clients.protocol.delete_snapshot import DeleteSnapshotRequest, DeleteSnapshotResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.snapshot_rows import DescribedSnapshot

offsets = st.integers(0, 20)
RANGE = PinnedRange(10, 20, 3)
OURS = (25190, 25191, 25192)


@pytest.mark.parametrize(
    ("log", "left", "reason"),
    [
        (LogState(0, 20, 20), Left.WHOLE, ""),
        (LogState(10, 90, 25), Left.WHOLE, ""),
        (LogState(10, 90), Left.WHOLE, ""),
        (LogState(12, 90, 25), Left.PART, "offsets 10 to 12 are gone"),
        (LogState(20, 90, 25), Left.NOTHING, "offsets 10 to 20 are gone: the log starts at 20"),
        (LogState(30, 90, -1), Left.NOTHING, "offsets 10 to 20 are gone: the log starts at 30"),
        (
            LogState(0, 90, 17),
            Left.DIVERGED,
            "does not contain offset 20 of leader epoch 3: that epoch ends at offset 17",
        ),
        (LogState(0, 90, -1), Left.DIVERGED, "offset 20 of leader epoch 3: that epoch is not known any more"),
        (LogState(12, 17), Left.DIVERGED, "does not contain offset 20: it ends at offset 17"),
    ],
)
def test_a_range_is_compared_with_the_log(log: LogState, left: Left, reason: str) -> None:
    found = checked(RANGE, log)
    assert found.left is left
    assert reason in found.reason
    assert bool(found.reason) == (left is not Left.WHOLE)


@given(offsets, offsets, offsets, offsets)
def test_what_is_called_whole_can_be_read_and_what_is_not_can_not(
    start: int, size: int, first: int, size_now: int
) -> None:
    """The log holds the offsets [first, first + size_now), all of one epoch."""
    pinned = PinnedRange(start, start + size, 1)
    found = checked(pinned, LogState(first, first + size_now, first + size_now)).left
    wanted = set(range(start, start + size))
    there = wanted & set(range(first, first + size_now))
    assert (found is Left.WHOLE) == (there == wanted)
    if found is Left.NOTHING:
        assert not there
    if found is Left.PART:
        assert there == {offset for offset in wanted if offset >= first}


def test_brokers_without_snapshots_are_refused_with_the_reason(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        FakeCluster(broker).topics["t"] = [(1, 1)]
        for key in OURS:
            del broker.offered[key]
        async with serving(broker), Admin(f"127.0.0.1:{broker.port}") as admin:
            for call in (admin.list_snapshots(), admin.describe_snapshot("n"), admin.delete_snapshot("n")):
                with pytest.raises(UnsupportedVersionError, match="no named snapshots, as Apache Kafka"):
                    await call
            with pytest.raises(UnsupportedVersionError, match="no named snapshots, as Apache Kafka"):
                await admin.delete_snapshot("n", snapshot_id=b"i" * 16)

    run(main())


def test_a_lost_answer_is_asked_for_again_under_the_same_id(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        FakeCluster(broker).topics["t"] = [(1, 1)]
        asked: list[CreateSnapshotRequest] = []

        async def create(request: CreateSnapshotRequest) -> Answer:
            asked.append(request)
            if len(asked) == 1:
                return Hangup()
            made = DescribedSnapshot(name=request.name, snapshot_id=request.snapshot_id)
            return CreateSnapshotResponse(created=True, snapshots=[made])

        broker.answers[CreateSnapshotRequest] = create
        async with serving(broker), Cluster(f"127.0.0.1:{broker.port}") as cluster:
            made = await create_snapshot(cluster, "n", {b"t" * 16: {0: RANGE}}, 15)
        assert made.created
        assert {request.snapshot_id for request in asked} == {made.snapshot.snapshot_id}
        assert len(asked) == 2

    run(main())


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_snapshot_that_is_gone_counts_as_deleted_only_if_an_answer_was_lost(run: Run, is_lost: bool) -> None:
    async def main() -> None:
        broker = FakeBroker()
        FakeCluster(broker).topics["t"] = [(1, 1)]
        answers: list[Answer] = [DeleteSnapshotResponse(error_code=ErrorCode.RESOURCE_NOT_FOUND)]
        if is_lost:
            answers.insert(0, Hangup())

        async def delete(_: DeleteSnapshotRequest) -> Answer:
            return answers.pop(0)

        broker.answers[DeleteSnapshotRequest] = delete
        async with serving(broker), Admin(f"127.0.0.1:{broker.port}") as admin:
            if is_lost:
                await admin.delete_snapshot("n", snapshot_id=b"i" * 16)
            else:
                with pytest.raises(ResourceNotFoundError):
                    await admin.delete_snapshot("n", snapshot_id=b"i" * 16)
        assert not answers

    run(main())
