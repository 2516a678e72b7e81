"""A start after a crash has a bounded part of the disk in memory."""

import pytest
from raftlog.log.memory_files import MemoryFiles
from raftlog.log.node import Node, fill

from barnabas_raftlog.log.journal.scan import WINDOW_BYTES
from barnabas_raftlog.log.storage import StorageConfig


@pytest.mark.parametrize("segments_are_there", [True, False])
def test_a_journal_is_read_in_pieces_whatever_its_size(
    segments_are_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StorageConfig(checkpoint_bytes=1 << 40)
    node = Node(config=config)
    log = node.log()
    for _ in range(8):
        fill(log, 4, body_bytes=100_000)
        node.storage.flush()
        node.sync_worker.run()
        if segments_are_there:
            node.write_worker.run()
    node.files.kill()
    sizes: list[int] = []
    read = MemoryFiles.read

    def noted(self: MemoryFiles, fd: int, position: int, size_bytes: int) -> bytearray:
        sizes.append(size_bytes)
        return read(self, fd, position, size_bytes)

    monkeypatch.setattr(MemoryFiles, "read", noted)
    again = Node(node.files, config)
    assert again.log().last_index == 32
    assert again.storage.stats.recovered_entries == (0 if segments_are_there else 32)
    assert max(sizes) == WINDOW_BYTES
    assert sum(sizes) > 3 * WINDOW_BYTES
