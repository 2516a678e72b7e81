"""A lost journal is missed after a crash, and not after a clean stop."""

from collections.abc import Callable
from random import Random

import pytest
from raftlog.log.memory_files import CrashError, MemoryFiles
from raftlog.log.node import Node, fill, replayed

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.checkpoint import decode, encode, encode_row
from barnabas_raftlog.log.journal.note import PREFIX, Begun, JournalNote, read_note


def newest_journal(files: MemoryFiles) -> str:
    begun = read_note(files, "data")
    assert begun is not None
    return f"data/journal/{begun.file}.journal"


def change(files: MemoryFiles, path: str, how: Callable[[bytearray], None]) -> None:
    inode = files.names[path]
    assert inode is not None
    how(inode.data)
    inode.sync()


def delete_all(files: MemoryFiles) -> None:
    for path in [name for name in files.names if name.endswith(".journal")]:
        files.remove(path)


def put_older(files: MemoryFiles) -> None:
    """Put the bytes of the file's life before, or the oldest other file, in its place."""
    path = newest_journal(files)
    other = next((name for name in files.names if name.endswith(".journal") and name != path), None)
    if other is None:
        files.remove(path)
    else:
        older = files.names[other]
        assert older is not None
        change(files, path, lambda data: data.__setitem__(slice(None), older.data))


def zero(begin: int, end: int | None) -> Callable[[MemoryFiles], None]:
    def damage(files: MemoryFiles) -> None:
        def zeroed(data: bytearray) -> None:
            stop = len(data) if end is None else end
            data[begin:stop] = bytes(stop - begin)

        change(files, newest_journal(files), zeroed)

    return damage


def cut(keep: Callable[[int], int]) -> Callable[[MemoryFiles], None]:
    def damage(files: MemoryFiles) -> None:
        change(files, newest_journal(files), lambda data: data.__delitem__(slice(keep(len(data)), None)))

    return damage


DAMAGES = {
    "deleted": lambda files: files.remove(newest_journal(files)),
    "deleted with all others": delete_all,
    "emptied": cut(lambda _: 0),
    "cut to its header": cut(lambda _: 512),
    "cut by half": cut(lambda size: size // 1024 * 512),
    "cut by a sector": cut(lambda size: size - 512),
    "zeroed in front": zero(0, 512),
    "zeroed behind the header": zero(512, 1024),
    "zeroed as a whole": zero(0, None),
    "replaced by an older one": put_older,
}


# A start may not need the bytes that these take away: they may be behind the last batch, or older than the checkpoint.
MAY_MATTER = {"cut by half", "cut by a sector", "zeroed behind the header"}


def life(batches: int, *, checkpoint: bool) -> tuple[Node, list[tuple[int, int, bytes]]]:
    """Return a node whose journal has so many batches since the start, or a checkpoint, and its promises."""
    node = Node()
    log = node.log()
    for number in range(batches):
        fill(log, 1)
        node.work(1)
        if checkpoint and number == batches // 2:
            node.storage.checkpoint()
            node.work()
    node.work()
    assert log.durable_index == log.last_index
    return node, node.run(replayed(log))


def started(files: MemoryFiles) -> tuple[Node | None, str]:
    """Return the node that starts, or the reason why it does not."""
    try:
        return Node(files), ""
    except StorageFailedError as error:
        return None, str(error)


@pytest.mark.parametrize("batches", [1, 2, 12, 60])
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("how", ["stopped", "killed", "power lost"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_after_each_end(damage: str, how: str, checkpoint: bool, batches: int) -> None:
    node, promised = life(batches, checkpoint=checkpoint)
    if how == "stopped":
        node.close()
        node.files.kill()
    elif how == "killed":
        node.files.kill()
    else:
        node.files.lose_power(Random(batches))
    path = newest_journal(node.files)
    DAMAGES[damage](node.files)
    for _ in range(2):  # Nothing is concluded by the first, and nothing made good.
        again, refusal = started(node.files)
        if again is not None:
            assert how == "stopped" or damage in MAY_MATTER, "it is noticed"
            assert again.run(replayed(again.log())) == promised
        else:
            assert how != "stopped", "nothing of the journal is needed"
            assert "new member, without data" in refusal
            assert path in refusal or "sequence number" in refusal
        node.files.kill()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("journal_life", [1, 5])
def test_a_crash_at_any_call_around_a_file_s_first_batch_is_no_damage(journal_life: int, seed: int) -> None:
    for call in range(200):
        node = Node()
        log = node.log()
        while node.storage._checkpointer.place.sequence < journal_life:
            fill(log, 3)
            node.work(1)
        durable = log.durable_index
        node.files.crash_in = call
        try:
            fill(log, 30)
            for _ in range(6):
                node.work(1)
                durable = max(durable, log.durable_index)
        except CrashError:
            durable = max(durable, log.durable_index)
        else:
            if call > 100:
                break
        node.files.lose_power(Random(seed * 1_000 + call))
        again = Node(node.files).log()
        assert again.failed is None
        assert again.last_index >= durable


def test_a_directory_that_an_older_version_left_opens_and_is_noted_from_then_on() -> None:
    node, promised = life(5, checkpoint=True)
    node.files.kill()
    files = node.files
    for path in [name for name in files.names if name.startswith(f"data/{PREFIX}")]:
        files.remove(path)
    checkpoint = files.names["data/checkpoint"]
    assert checkpoint is not None
    known = decode(checkpoint.data)
    place = type(known.journal)(known.journal.sequence, known.journal.position, known.journal.batch)
    rows = [encode_row(row) for row in known.rows.values()]
    checkpoint.data[:] = encode(known.number, place, rows, known.hard_states)
    again = Node(files)
    log = again.log()
    assert again.run(replayed(log)) == promised
    fill(log, 1)
    again.work()
    assert read_note(files, "data") is not None
    files.kill()
    DAMAGES["deleted"](files)
    with pytest.raises(StorageFailedError, match="is missing"):
        Node(files)


def test_without_a_note_what_the_checkpoint_says_of_the_journal_is_missed() -> None:
    node, _ = life(5, checkpoint=True)
    node.files.kill()
    for path in [name for name in node.files.names if name.startswith(f"data/{PREFIX}")]:
        node.files.remove(path)
    delete_all(node.files)
    with pytest.raises(StorageFailedError, match="the journal file with sequence number 1 is missing"):
        Node(node.files)


def test_a_note_is_one_synced_write_in_the_life_of_a_file() -> None:
    node, _ = life(60, checkpoint=False)
    (log,) = node.storage.logs
    place = node.storage._checkpointer.place
    checkpoints = node.storage.stats.checkpoints
    node.files.calls.clear()
    for _ in range(60):
        fill(log, 1)
        node.work(1)
    noted = [call for call in node.files.calls if call == ("sync_directory", "data")]
    begun = node.storage._checkpointer.place.sequence - place.sequence
    assert begun > 1
    assert len(noted) == begun + node.storage.stats.checkpoints - checkpoints


def test_a_note_says_what_was_begun_last_and_one_name_is_kept() -> None:
    files = MemoryFiles()
    files.make_directory("data")
    assert read_note(files, "data") is None
    JournalNote(files, "data").write(3, "00000001")
    note = JournalNote(files, "data")
    note.write(12, "00000002")
    note.write(12, "00000002")
    assert read_note(files, "data") == Begun(12, "00000002")
    assert [name for name in files.names if PREFIX in name] == [f"data/{PREFIX}12.00000002"]


def test_a_directory_whose_identity_is_missing_is_not_given_another() -> None:
    node, _ = life(2, checkpoint=True)
    node.files.kill()
    node.files.remove("data/meta.json")
    with pytest.raises(StorageFailedError, match=r"meta.json is missing"):
        Node(node.files)
    assert "data/meta.json" not in node.files.names


@pytest.mark.parametrize("left", ["checkpoint", "journal/", "replicas/"])
def test_whatever_is_left_beside_a_missing_identity_the_start_is_refused_with_what_can_be_done(left: str) -> None:
    node, _ = life(2, checkpoint=True)
    node.files.kill()
    for name in list(node.files.names):
        if not name.startswith(f"data/{left}") and not name.endswith(("data", "/journal", "/replicas")):
            del node.files.names[name]
    with pytest.raises(
        StorageFailedError, match=r"meta.json is missing, and data is not empty. Move the whole directory"
    ):
        Node(node.files)


@pytest.mark.parametrize("change_to", [b"BNBSCKPT", b"\0" * 600, b"\xff" * 600])
def test_a_damaged_checkpoint_is_refused_with_what_can_be_done(change_to: bytes) -> None:
    node, _ = life(2, checkpoint=True)
    node.files.kill()
    change(node.files, "data/checkpoint", lambda data: data.__setitem__(slice(None), change_to))
    with pytest.raises(StorageFailedError, match=r"Move the whole directory away and start again") as refused:
        Node(node.files)
    assert "\n" not in str(refused.value)


def copied(files: MemoryFiles, source: str, target: str) -> None:
    inode = files.names[source]
    assert inode is not None
    fd = files.open(target, create=True)
    files.write(fd, [bytes(inode.data)], 0)
    files.sync(fd)
    files.close(fd)


@pytest.mark.parametrize("name", ["00000001.journal.bak", "00000001.bak", "notes.txt", "1.journal", "copy.journal"])
def test_what_somebody_put_beside_the_journal_is_neither_read_nor_written_over(name: str) -> None:
    """A copy of a file was taken for the file, with its older bytes; or for one to write over."""
    node = Node()
    log = node.log()
    fill(log, 1)
    node.work()
    copied(node.files, newest_journal(node.files), f"data/journal/{name}")
    before = node.files.names[f"data/journal/{name}"]
    assert before is not None
    data = bytes(before.data)
    for _ in range(10):
        fill(log, 1)
        node.work(1)
    promised = node.run(replayed(log))
    for _ in range(3):
        node.files.kill()
        node = Node(node.files)
        log = node.log()
        assert node.run(replayed(log)) == promised
        fill(log, 20)
        node.work()
        promised = node.run(replayed(log))
    assert node.files.names[f"data/journal/{name}"] is before
    assert bytes(before.data) == data


def test_two_files_that_say_to_be_the_same_are_not_chosen_between() -> None:
    node, _ = life(3, checkpoint=False)
    node.files.kill()
    copied(node.files, newest_journal(node.files), "data/journal/00000077.journal")
    with pytest.raises(StorageFailedError, match="are the same journal file"):
        Node(node.files)


@pytest.mark.parametrize(
    "text",
    ["[]", "1", '{"version": 1}', '{"version": 1, "directory_id": 5}', '{"version": 1, "directory_id": "x"}', "{"],
)
def test_an_identity_that_makes_no_sense_is_one_refusal(text: str) -> None:
    node, _ = life(2, checkpoint=True)
    node.files.kill()
    change(node.files, "data/meta.json", lambda data: data.__setitem__(slice(None), text.encode()))
    with pytest.raises(StorageFailedError, match="cannot start from data"):
        Node(node.files)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_file_whose_note_could_not_be_synced_stays_and_is_noted_when_that_can_be_done(
    rounds: int, power: bool
) -> None:
    node = Node()
    log = node.log()
    fill(log, 3)
    node.work()
    bad = newest_journal(node.files)
    node.files.failing = lambda call, path: (call, path) in {("sync", bad), ("write", bad), ("sync_directory", "data")}
    fill(log, 2)
    node.work()
    for _ in range(rounds):
        node.wait()
    assert (log.durable_index, node.storage.failed is None) == (3, False)
    if power:
        node.files.failing = lambda call, path: 0
        for _ in range(3):
            node.wait()
        assert log.durable_index == 5
        node.files.lose_power(Random(rounds))
    again = Node(node.files) if power else node.killed()
    assert again.log().last_index >= (5 if power else 3)


def test_a_first_note_that_could_not_be_synced_names_nothing_that_is_not_there() -> None:
    node = Node()
    log = node.log()
    node.files.failing = lambda call, path: (call, path) == ("sync_directory", "data")
    fill(log, 2)
    node.work()
    for _ in range(3):
        node.wait()
    assert log.durable_index == 0
    assert node.killed().log().failed is None
