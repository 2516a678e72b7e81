"""Committed entries are applied once and in order; a snapshot file is whole."""

import uuid
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_metadata_quorum.image.frames import encode_frame
from barnabas_metadata_quorum.image.image import Image, apply_all
from barnabas_metadata_quorum.image.records import ProducerIdsAllocated, Record, TopicCreated, UnknownRecordError
from barnabas_metadata_quorum.image.snapshots import Snapshot, encode_snapshot
from barnabas_metadata_quorum.replica import APPLIED_BYTES, SNAPSHOT_BYTES, SNAPSHOT_RECORDS, MetadataReplica
from barnabas_metadata_quorum.snapshot_store import SnapshotStore
from barnabas_raftlog.errors import MalformedMessageError, StorageFailedError
from barnabas_raftlog.log.machine.files import OsFiles
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import ControlKind, control_frame

from .harness import InlineWorker

NEW = Snapshot(0, 0, Image("c"))


class ReplicaMachine(RuleBasedStateMachine):
    """Against the dumbest model: the list of all entries, and how many of them are committed."""

    def __init__(self) -> None:
        super().__init__()
        self.replica = MetadataReplica(NEW)
        self.log: list[tuple[Entry, list[Record]]] = []
        self.committed = 0
        self.next_id = 0

    @rule(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=3))
    def append(self, sizes: list[int]) -> None:
        entries = []
        for size in sizes:
            records: list[Record] = []
            for _ in range(size):
                self.next_id += 1
                records.append(ProducerIdsAllocated(self.next_id))
            index = len(self.log) + 1
            frame = encode_frame(records, 0) if records else control_frame(0, 1, ControlKind.NO_OP)
            entries.append(Entry(index, 1 + index // 5, bytes(frame)))
            self.log.append((entries[-1], records))
        self.replica.append(entries)

    @precondition(lambda self: len(self.log) > self.committed)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.committed + 1, len(self.log)))
        self.replica.truncate_from(index)
        del self.log[index - 1 :]

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.committed, len(self.log)))
        expected = [record for _, records in self.log[self.committed : index] for record in records]
        records = self.replica.commit(index)
        while self.replica.due_bytes(index):
            records += self.replica.commit(index)
        assert records == expected
        self.committed = index

    @rule()
    def restart_from_a_snapshot(self) -> None:
        self.replica = MetadataReplica(self.replica.snapshot())
        self.replica.append([entry for entry, _ in self.log[self.committed :]])

    @invariant()
    def agrees_with_the_model(self) -> None:
        applied = [record for _, records in self.log[: self.committed] for record in records]
        assert self.replica.image == apply_all(Image("c"), applied)
        assert self.replica.ahead() == apply_all(Image("c"), [r for _, records in self.log for r in records])
        assert (self.replica.applied_index, self.replica.last_index) == (self.committed, len(self.log))
        assert self.replica.applied_term == (self.log[self.committed - 1][0].term if self.committed else 0)


def test_much_that_is_committed_together_is_applied_in_pieces_of_whole_entries() -> None:
    replica = MetadataReplica(NEW)
    topics = 1_000
    frames = [bytes(encode_frame([created(f"t{number}")], 0)) for number in range(topics)]
    replica.append([Entry(index, 1, frame) for index, frame in enumerate(frames, 1)])
    pieces = []
    while replica.due_bytes(topics):
        pieces.append(len(replica.commit(topics)))
        assert len(replica.image.topics) == replica.applied_index == sum(pieces)
    assert sum(pieces) == topics
    assert max(pieces) <= APPLIED_BYTES // min(map(len, frames)) + 1


def created(name: str) -> TopicCreated:
    return TopicCreated(uuid.uuid4().bytes, name, ((1, 2, 3),), {})


TestReplica = ReplicaMachine.TestCase
TestReplica.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


def test_a_frame_that_cannot_be_read_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = MetadataReplica(NEW)
    replica.append([Entry(1, 1, bytes(encode_frame([ProducerIdsAllocated(1)], 0))), Entry(2, 1, b"?")])
    with pytest.raises(MalformedMessageError):
        replica.commit(2)
    assert (replica.applied_index, replica.image) == (0, NEW.image)
    assert replica.commit(1) == [ProducerIdsAllocated(1)]
    monkeypatch.setattr("barnabas_metadata_quorum.image.records.VERSIONS", {})
    replica.truncate_from(2)
    replica.append([Entry(2, 1, bytes(encode_frame([ProducerIdsAllocated(2)], 0)))])
    with pytest.raises(UnknownRecordError):
        replica.commit(2)


@pytest.mark.parametrize(("count", "per_entry"), [(SNAPSHOT_RECORDS, 100), (SNAPSHOT_BYTES // 20_000, 1)])
def test_a_snapshot_is_due_after_many_records_or_many_bytes(count: int, per_entry: int) -> None:
    replica = MetadataReplica(NEW)
    index = 0
    number = 0
    while not replica.snapshot_is_due:
        index += 1
        records: list[Record] = []
        for _ in range(per_entry):
            number += 1
            records.append(ProducerIdsAllocated(number))
        frame = bytes(encode_frame(records, 0))
        if per_entry == 1:
            frame = bytes(encode_frame([_large(number)], 0))
        replica.append([Entry(index, 1, frame)])
        replica.commit(index)
    assert number == pytest.approx(count, rel=0.1)
    assert replica.snapshot().raft_index == index
    assert not replica.snapshot_is_due


def _large(number: int) -> Record:
    from barnabas_metadata_quorum.image.records import CommandAnswered

    return CommandAnswered(number.to_bytes(4, "big"), bytes(20_000))


def test_an_installed_snapshot_replaces_everything() -> None:
    replica = MetadataReplica(NEW)
    replica.append([Entry(1, 1, bytes(encode_frame([ProducerIdsAllocated(1)], 0)))])
    image = apply_all(Image("c"), [ProducerIdsAllocated(50)])
    replica.install(Snapshot(9, 4, image))
    assert (replica.applied_index, replica.applied_term, replica.last_index) == (9, 4, 9)
    replica.append([Entry(10, 4, bytes(encode_frame([ProducerIdsAllocated(60)], 0)))])
    replica.commit(10)
    assert replica.image.next_producer_id == 60


# ----------------------------------------------------------------------------------------------- the file


class FailingFiles(OsFiles):
    """Fails the n-th call that changes something."""

    def __init__(self, fail_at: int) -> None:
        self.left = fail_at

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(28, "No space left on device")

    def write(self, fd, buffers, position):  # type: ignore[no-untyped-def]
        self._count()
        super().write(fd, buffers, position)

    def sync(self, fd: int) -> None:
        self._count()
        super().sync(fd)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)


def snapshot(index: int) -> Snapshot:
    return Snapshot(index, 1, apply_all(Image("c"), [ProducerIdsAllocated(index)]))


def test_the_newest_snapshot_is_the_only_one_kept(tmp_path: Path) -> None:
    store = SnapshotStore(OsFiles(), str(tmp_path), InlineWorker())
    saved = list[object]()
    assert store.load() is None
    for index in (9, 10, 100):
        store.save(snapshot(index), saved.append)
    store.replace_now(50, encode_snapshot(snapshot(50)))
    assert saved == [encode_snapshot(snapshot(index)) for index in (9, 10, 100)]
    loaded = store.load()
    assert loaded == (snapshot(100), encode_snapshot(snapshot(100)))


@pytest.mark.parametrize("fail_at", [1, 2, 3, 4])
def test_a_failure_at_any_point_leaves_a_whole_snapshot(tmp_path: Path, fail_at: int) -> None:
    SnapshotStore(OsFiles(), str(tmp_path), InlineWorker()).replace_now(1, encode_snapshot(snapshot(1)))
    results: list[object] = []
    SnapshotStore(FailingFiles(fail_at), str(tmp_path), InlineWorker()).save(snapshot(2), results.append)
    [result] = results
    assert isinstance(result, StorageFailedError)
    assert "No space left" in str(result)
    loaded = SnapshotStore(OsFiles(), str(tmp_path), InlineWorker()).load()
    assert loaded is not None
    assert loaded[0] == snapshot(1 if fail_at < 4 else 2)


def test_a_damaged_snapshot_is_not_passed_over(tmp_path: Path) -> None:
    store = SnapshotStore(OsFiles(), str(tmp_path), InlineWorker())
    store.replace_now(1, encode_snapshot(snapshot(1))[:-1])
    with pytest.raises(MalformedMessageError):
        store.load()


def test_an_unreadable_directory_is_a_storage_failure(tmp_path: Path) -> None:
    with pytest.raises(StorageFailedError, match="cannot be read"):
        SnapshotStore(OsFiles(), str(tmp_path / "missing"), InlineWorker()).load()
