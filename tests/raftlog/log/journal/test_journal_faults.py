"""A node starts with all that was durable after any failure of its journal."""

import errno
from contextlib import suppress
from random import Random

import pytest
from raftlog.log.memory_files import CrashError
from raftlog.log.node import Node, fill, group

from barnabas_raftlog.errors import StorageFailedError

CODES = [errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENOMEM]


class Faults:
    """Fails a kind of call for some calls, then another; only what concerns the journal and its note."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.left = 0
        self.renew()

    def renew(self) -> None:
        rng = self.rng
        self.left = rng.randrange(1, 30)
        self.call = rng.choice(["write", "sync", "open", "preallocate", "sync_directory", "rename", "read", "none"])
        self.code = rng.choice(CODES)

    def __call__(self, call: str, path: str) -> int:
        self.left -= 1
        if self.left < 0:
            self.renew()
        concerned = "journal" in path or path in {"data", "data/checkpoint.new"}
        return self.code if call == self.call and concerned else 0


@pytest.mark.parametrize("seed", [*range(60), 270])
def test_a_crash_while_the_journal_fails_here_and_there_loses_nothing_and_refuses_nothing(seed: int) -> None:
    rng = Random(seed)
    node = Node()
    durable = 0
    for _ in range(5):
        log = node.log()
        assert log.failed is None
        assert log.last_index >= durable
        vote = node.storage.hard_state(group(1)).term
        node.files.failing = Faults(rng)
        node.files.crash_in = rng.randrange(1_500)
        with suppress(CrashError):
            for step in range(40):
                with suppress(StorageFailedError):
                    fill(log, rng.randrange(4), term=log.last_term or 1)
                if rng.random() < 0.1:
                    node.storage.checkpoint()
                node.work(1)
                if step % 7 == 0:
                    node.wait()
                durable = max(durable, log.durable_index)
        durable = max(durable, log.durable_index)
        assert node.storage.hard_state(group(1)).term >= vote
        if rng.random() < 0.5:
            node.files.lose_power(rng)
        else:
            node.files.kill()
        node = Node(node.files)
