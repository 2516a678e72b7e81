"""Everything that a node takes from its machine: time, chance, files, threads, datagrams.

It is one value, injected. All code above this line of the program is deterministic: given the same environment, the
same event loop and the same messages, a node does the same things in the same order. That is what lets the simulator
(`tests/sim/cluster`) run whole nodes, unchanged, on a virtual clock, network and disk, and repeat a failure exactly. So
no module that a running node uses reads a clock, draws a random number, opens a file or a socket, or starts a thread by
itself.

The event loop is the other half of the machine, and needs no seam: asyncio passes it around already. TCP connections,
timers and the default executor (cold reads) come from the loop that runs the node. On a real machine, the network
between nodes can be made to take time (`link_delay`); the simulator's takes its own.

Deliberately not here: the process (pid, signals, arguments), which belongs to `main`.
"""

import asyncio
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from barnabas_broker.config.broker import BrokerConfig
from barnabas_raftlog.links.datagrams import Datagrams, DatagramSocket
from barnabas_raftlog.links.link_delay import LinkDelay
from barnabas_raftlog.links.links import monotonic_ms
from barnabas_raftlog.log.journal.kernel_sync import Syncer, open_kernel_sync
from barnabas_raftlog.log.machine.files import Files, OsFiles
from barnabas_raftlog.log.machine.worker import ThreadWorker, Worker

__all__ = ["NodeEnvironment", "configured_delay", "wall_ms"]


def wall_ms() -> int:
    """Return milliseconds since 1970, for people and for Kafka's timestamps; never for deadlines."""
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """Return an id that is another one after every start of this machine; empty if the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def descriptors() -> int:
    """Return how many files and sockets this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


class NodeEnvironment(NamedTuple):
    """The real machine unless told otherwise.

    `random_bytes` is the only source of chance: incarnations, ids, nonces and the seed of election jitter. `precise_ns`
    and `processor_ns` measure what the loop does (`loop_meter`), and decide nothing. `link_delay` is how long traffic
    of this node to others takes; None: nothing holds it back.
    """

    monotonic_ms: Callable[[], int] = monotonic_ms
    wall_ms: Callable[[], int] = wall_ms
    precise_ns: Callable[[], int] = time.perf_counter_ns
    processor_ns: Callable[[], int] = time.thread_time_ns  # of the calling thread, which is the loop's
    random_bytes: Callable[[int], bytes] = os.urandom
    files: Files = OsFiles()
    boot_id: Callable[[], str] = boot_id
    descriptors: Callable[[], int] = descriptors
    new_worker: Callable[[asyncio.AbstractEventLoop, str], Worker] = ThreadWorker
    new_syncer: Callable[[asyncio.AbstractEventLoop], Syncer | None] = open_kernel_sync
    new_datagrams: Callable[[Callable[[bytes, object], None]], Datagrams] = DatagramSocket
    link_delay: LinkDelay | None = None

    def new_id(self) -> UUID:
        """Return an id that nobody has had (UUID version 4)."""
        return UUID(bytes=self.random_bytes(16), version=4)


def configured_delay(config: BrokerConfig) -> LinkDelay | None:
    """Return the delay that `test.link.delay.us` and `test.link.jitter.us` ask for; None when they ask for none."""
    delay = LinkDelay(config.test_link_delay_us / 1000, config.test_link_jitter_us / 1000)
    return None if delay.is_none else delay
