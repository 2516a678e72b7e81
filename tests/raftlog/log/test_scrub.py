"""A flipped bit in synced data is found, reported, served to nobody, and mended."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from random import Random

import pytest

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.scrub import Scrub
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.raft.messages import Fact, GroupId

from .memory_files import CrashError, Inode, MemoryFiles
from .node import Node, fill

HOUR_MS = 3_600_000


class Scrubbed:
    """A node whose log has sealed segments, the copies that another replica would have, and its scrub."""

    def __init__(self, files: MemoryFiles | None = None, *, count: int = 60) -> None:
        self.node = Node(files)
        self.log = self.node.log()
        if count:
            fill(self.log, count)
            self.node.work()
            self.node.storage.checkpoint()
            self.node.work()
        self.node.write_worker.inline = True
        self.facts: list[str] = []
        self.wall_ms = 1_000 * HOUR_MS
        self.copies = {name: bytes(inode.data) for name, inode in self.node.files.names.items() if inode is not None}
        self.asked: list[str] = []
        self.has_copies = True
        self.bad_copies = list[bytes]()
        self.unmended = list[str]()

    def inode(self, number: int) -> Inode:
        inode = self.node.files.names[self.log.segments_to_scrub()[number].log.path]
        assert inode is not None
        return inode

    async def repair(self, group: GroupId, segment: Segment) -> AsyncGenerator[str, None]:
        self.asked.append(segment.log.path)
        good = self.copies[segment.log.path]
        copies = [*self.bad_copies, good] if self.has_copies else self.bad_copies
        for copy in copies:
            files = self.node.files
            path = "data/copy"
            fd = files.open(path, create=True)
            files.write(fd, [copy], 0)
            files.truncate(fd, len(copy))
            files.close(fd)
            yield path

    def _on_fact(self, group: GroupId, fact: Fact) -> None:
        self.facts.append(fact.kind)

    def until(self, claim: Callable[[Scrub], bool], *, iterations: int = 2_000) -> Scrub:
        """Run the scrub until the claim holds."""

        async def main() -> Scrub:
            scrub = Scrub(
                self.node.storage,
                lambda: self.wall_ms,
                self._on_fact,
                rate_bytes=1 << 60,
                period_ms=HOUR_MS,
                repair=self.repair,
            )
            scrub.on_unmended = lambda _, why: self.unmended.append(why)
            task = asyncio.ensure_future(scrub.run())
            for _ in range(iterations):
                await asyncio.sleep(0)
                if claim(scrub) or task.done():
                    break
            assert not task.done(), task
            assert claim(scrub), scrub.status()
            task.cancel()
            return scrub

        return asyncio.run(main())

    def everything(self) -> bytes:
        async def main() -> bytes:
            found = b""
            offset = 0
            while offset < self.log.log_end_offset:
                frames = await self.log.read_cold(offset, self.log.log_end_offset, 1 << 20)
                found += b"".join(frames)
                offset = int.from_bytes(bytes(frames[-1])[-561:-553], "big") + 2
            return found

        return asyncio.run(main())


def test_a_pass_reads_every_sealed_segment_and_finds_nothing_where_nothing_is_wrong() -> None:
    scrubbed = Scrubbed()
    sealed = scrubbed.log.segments_to_scrub()
    assert len(sealed) >= 3
    scrub = scrubbed.until(lambda scrub: scrub.passes == 1)
    assert scrub.checked_bytes == sum(segment.size_bytes for segment in sealed)
    assert scrubbed.facts == []
    scrubbed.wall_ms += HOUR_MS
    assert scrubbed.until(lambda scrub: scrub.passes == 1).damaged == {}


@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_bit_is_found_by_the_scrub_and_repaired(seed: int) -> None:
    scrubbed = Scrubbed()
    rng = Random(seed)
    before = scrubbed.everything()
    inode = scrubbed.inode(rng.randrange(3))
    inode.data[rng.randrange(len(inode.data))] ^= 1 << rng.randrange(8)
    scrub = scrubbed.until(lambda scrub: scrub.passes == 1)
    scrubbed.until(lambda scrub: "segment repaired" in scrubbed.facts)
    assert scrubbed.facts[:2] == ["segment damaged", "segment repaired"]
    assert scrub.damaged == {}
    assert scrubbed.everything() == before
    assert scrubbed.log.failed is None


def test_a_flipped_bit_met_by_a_fetch_is_served_to_nobody_and_repaired_at_once() -> None:
    scrubbed = Scrubbed()
    before = scrubbed.everything()
    scrubbed.until(lambda scrub: scrub.passes == 1)
    scrubbed.inode(1).data[300] ^= 1
    with pytest.raises(StorageFailedError):
        scrubbed.everything()
    assert scrubbed.log.failed is None
    scrubbed.until(lambda scrub: "segment repaired" in scrubbed.facts)
    assert scrubbed.everything() == before


def test_a_follower_who_needs_a_damaged_segment_waits_and_is_told_when_it_is_mended() -> None:
    scrubbed = Scrubbed()
    told: list[GroupId] = []
    scrubbed.log.on_loaded = told.append
    scrubbed.inode(0).data[300] ^= 1
    for _ in range(3):
        assert scrubbed.log.entries(1, 1000) is None
    assert told == []
    scrubbed.until(lambda scrub: "segment repaired" in scrubbed.facts)
    assert told == [scrubbed.log.group]
    entries = scrubbed.log.entries(1, 1000)
    assert entries is not None
    assert entries[0].index == 1


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_sealed_file_that_is_short_or_missing_is_found_at_start(is_gone: bool) -> None:
    scrubbed = Scrubbed()
    before = scrubbed.everything()
    path = scrubbed.log.segments_to_scrub()[1].log.path
    copies = scrubbed.copies
    files = scrubbed.node.files
    inode = scrubbed.inode(1)
    if is_gone:
        files.remove(path)
        files.sync_directory(path.rpartition("/")[0])
    else:
        inode.truncate(len(inode.data) - 10)
    files.kill()
    again = Scrubbed(files, count=0)
    again.copies = copies
    assert again.log.failed is None
    again.until(lambda scrub: "segment repaired" in again.facts)
    assert again.everything() == before


def test_a_copy_that_is_no_better_takes_no_place() -> None:
    scrubbed = Scrubbed()
    path = scrubbed.log.segments_to_scrub()[1].log.path
    bad = bytearray(scrubbed.copies[path])
    bad[15] ^= 1  # the term, which no checksum covers
    scrubbed.copies[path] = bytes(bad)
    inode = scrubbed.inode(1)
    inode.data[700] ^= 1
    damaged = bytes(inode.data)
    scrub = scrubbed.until(lambda scrub: "segment not repaired" in scrubbed.facts)
    assert scrubbed.unmended == [], "somebody has it"
    assert [known.segment.log.path for known in scrub.damaged.values()] == [path]
    assert bytes(scrubbed.inode(1).data) == damaged
    assert len(scrubbed.asked) == 1, "it is asked for again after a while, not all the time"


def test_the_next_copy_is_taken_where_the_first_is_no_better() -> None:
    scrubbed = Scrubbed()
    before = scrubbed.everything()
    good = scrubbed.copies[scrubbed.log.segments_to_scrub()[1].log.path]
    scrubbed.bad_copies = [good[:-1] + b"?", good[:600], b""]
    scrubbed.inode(1).data[700] ^= 1
    scrub = scrubbed.until(lambda scrub: "segment repaired" in scrubbed.facts)
    assert scrub.damaged == {}
    assert scrubbed.everything() == before


def test_damage_that_nobody_can_mend_stays_in_the_status_and_the_rest_is_served() -> None:
    scrubbed = Scrubbed()
    scrubbed.has_copies = False
    scrubbed.inode(1).data[300] ^= 1
    scrub = scrubbed.until(lambda scrub: scrub.passes == 1 and "segment not repaired" in scrubbed.facts)
    assert [entry["replica"] for entry in scrub.status()["damaged"]] == ["t-1"]
    assert len(scrubbed.unmended) == 1
    assert asyncio.run(scrubbed.log.read_cold(0, 4, 1 << 20))
    fill(scrubbed.log, 1)


def test_a_pass_goes_on_after_a_restart_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_raftlog.log.scrub.SAVE_BYTES", 1)
    scrubbed = Scrubbed()
    sealed = scrubbed.log.segments_to_scrub()
    first = scrubbed.until(lambda scrub: scrub.checked_bytes > sealed[0].size_bytes)
    assert first.passes == 0
    second = scrubbed.until(lambda scrub: scrub.passes == 1)
    assert 0 < second.checked_bytes < sum(segment.size_bytes for segment in sealed)


def test_damage_in_the_segment_that_is_written_to_fails_the_replica() -> None:
    scrubbed = Scrubbed()
    segment = scrubbed.log.active
    inode = scrubbed.node.files.names[segment.log.path]
    assert inode is not None
    fill(scrubbed.log, 8)
    scrubbed.node.work()
    inode.data[300] ^= 1
    with pytest.raises(StorageFailedError):
        asyncio.run(scrubbed.log.read_cold(segment.base_offset, scrubbed.log.log_end_offset, 1 << 20))
    assert scrubbed.log.failed is not None


def put_in_place(scrubbed: Scrubbed, damaged: Segment) -> bool:
    """Put the copy of a damaged segment in its place, as the scrub does in the write worker."""
    scrub = Scrub(scrubbed.node.storage, lambda: 0, lambda *_: None, rate_bytes=1, period_ms=1)
    files = scrubbed.node.files
    copy = scrubbed.copies[damaged.log.path]
    fd = files.open("data/copy", create=True)
    files.write(fd, [copy], 0)
    files.close(fd)
    return scrub._replace("data/copy", damaged.log)


@pytest.mark.parametrize("seed", range(10))
def test_what_was_repaired_survives_a_loss_of_power(seed: int) -> None:
    scrubbed = Scrubbed()
    inode = scrubbed.inode(1)
    inode.data[200] ^= 1
    inode.sync()
    damaged = scrubbed.log.segments_to_scrub()[1]
    scrubbed.until(lambda _: "segment repaired" in scrubbed.facts)
    scrubbed.node.files.lose_power(Random(seed))
    repaired = scrubbed.node.files.names[damaged.log.path]
    assert repaired is not None
    assert bytes(repaired.data) == scrubbed.copies[damaged.log.path]


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_of_power_during_a_repair_leaves_the_damaged_file_or_the_copy(seed: int) -> None:
    for call in range(20):
        scrubbed = Scrubbed()
        inode = scrubbed.inode(1)
        inode.data[200] ^= 1
        inode.sync()
        damaged = scrubbed.log.segments_to_scrub()[1]
        data = bytes(inode.data)
        scrubbed.node.files.crash_in = call
        try:
            is_done = put_in_place(scrubbed, damaged)
        except CrashError:
            is_done = False
        scrubbed.node.files.lose_power(Random(seed * 100 + call))
        found = scrubbed.node.files.names[damaged.log.path]
        assert found is not None
        copy = scrubbed.copies[damaged.log.path]
        assert bytes(found.data) in ({copy} if is_done else {copy, data})
        if is_done:
            return
    pytest.fail("it takes more calls than were tried")


def test_a_copy_whose_sync_has_failed_is_never_used_again() -> None:
    scrubbed = Scrubbed()
    damaged = scrubbed.log.segments_to_scrub()[1]
    scrubbed.node.files.failing = lambda call, path: call == "sync" and path == "data/copy"
    assert not put_in_place(scrubbed, damaged)
    assert "data/copy" not in scrubbed.node.files.names
