"""The receiving end of catch-up: a follower that needs segments whole.

A leader whose log no longer begins early enough for a follower sends it an InstallSnapshot *without data*: an offer.
It does not reach the core. Here it becomes a transfer: the manifest, then every file that it names, in chunks, of
which as many are asked for at a time as a quarter of a second carries (`read_ahead`). When everything is there and
checked, an InstallSnapshot *with* data is made of it and stepped like any message of the current leader; only that
replaces the log (`Driver`, `ReplicaLog.adopt`). Until then the replica votes and acknowledges by its old log.

*Interrupted* is the normal case: the link goes, the leader changes, a process restarts, the disk fills, a file is gone
because retention was faster. The transfer then stands still with all that was received, until the next offer, which a
leader sends every election timeout for as long as it is needed. Then it begins again with a fresh manifest, of the
present leader, and fetches the missing files. While a transfer runs, later offers change nothing but the term and
source that it names in the end: files that are being sent are committed, and stay good under any leader.

*Bounds.* A task exists only while its transfer runs; one at a time from each sender, `TRANSFERS_MAX` together; the
rest wait in the order of their first offer. Bytes are throttled over the node by the same rate as the sending end.
A transfer that turns out not to be needed (another leader had the entries), or that nobody has offered for `KEEP_MS`,
is deleted, the one of a removed replica with the replica.

Not here: a choice of the sender (it is the leader), and several senders at once.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from barnabas_raftlog.errors import BarnabasError, MalformedMessageError
from barnabas_raftlog.links.interfaces import NodeLinks
from barnabas_raftlog.log.transfer.incoming import DamagedTransferError, Incoming, Prepared
from barnabas_raftlog.log.transfer.manifest import MANIFEST_BYTES_MAX, Manifest, SegmentFile, decode_manifest
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.multiraft.multiraft import MultiRaft
from barnabas_raftlog.raft.messages import Fact, GroupId, InstallSnapshot
from barnabas_raftlog.tasks import Tasks, failure_of

from .messages import (
    DAMAGED,
    MANIFEST,
    READ,
    DamagedNotice,
    ManifestReply,
    ManifestRequest,
    ReadRequest,
    decode,
    encode,
    open_chunk,
)
from .read_ahead import read_ahead
from .sending import CatchUpSource, Throttle, log_of

__all__ = ["CatchUp"]

TRANSFERS_MAX = 4
CALL_S = 30.0  # more than a sender takes to read a chunk, or to say that its manifest is not ready
DAMAGE_MAX = 3  # times that one file may arrive damaged before the sender is to blame
RETRY_MS = 5_000  # after a failure that is no matter of the network
KEEP_MS = 600_000
SWEEP_MS = 30_000

logger = logging.getLogger(__name__)


class Transfer:
    """One replica that is being filled. Lives from the first offer until the files are the log, or not wanted."""

    __slots__ = (
        "begun_ms",
        "cause",
        "commit_index",
        "done_bytes",
        "done_files",
        "files",
        "group",
        "incoming",
        "kept_bytes",
        "offer",
        "state",
        "total_bytes",
        "used_ms",
        "wait_until_ms",
    )

    def __init__(self, group: RaftGroup, offer: InstallSnapshot, incoming: Incoming, now_ms: int) -> None:
        self.group = group
        self.offer = offer
        self.incoming = incoming
        self.state = "waiting"
        self.cause = ""
        self.files = 0
        self.done_files = 0
        self.total_bytes = 0
        self.done_bytes = 0
        self.kept_bytes = 0
        self.begun_ms = now_ms
        self.used_ms = now_ms
        self.wait_until_ms = 0
        self.commit_index = group.core.commit_index  # once it moves, the replica gets on without

    def status(self) -> dict[str, Any]:
        return {
            "group": bytes(self.group.group_id),
            "source": self.offer.source,
            "state": self.state,
            "cause": self.cause,
            "files": self.files,
            "files_done": self.done_files,
            "bytes": self.total_bytes,
            "bytes_done": self.done_bytes,
            "bytes_kept": self.kept_bytes,
        }


class CatchUp:
    """Both ends of catch-up for one node. Owned by the node's loop; `close` before the groups and the storage."""

    def __init__(
        self,
        node_id: int,
        links: NodeLinks,
        multiraft: MultiRaft,
        clock: Callable[[], int],
        rate_bytes: int,
        on_fact: Callable[[GroupId, Fact], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._node_id = node_id
        self._links = links
        self._clock = clock
        self._post = multiraft.post
        self._on_fact = on_fact
        self._on_broken = on_broken
        self._sending = Throttle(rate_bytes, clock)
        self.source = CatchUpSource(links, multiraft.groups, clock, self._sending)
        multiraft.attach(self)
        self._throttle = Throttle(rate_bytes, clock)
        self._transfers: dict[GroupId, Transfer] = {}
        self._waiting: dict[GroupId, None] = {}
        self._running: dict[GroupId, asyncio.Task[None]] = {}
        self._tasks = Tasks(on_broken)
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self.received_bytes = 0
        self.finished = 0

    def limit(self, sent_bytes: int, received_bytes: int) -> None:
        """Send, and receive, at most so many bytes a second from now on."""
        self._sending.limit(sent_bytes)
        self._throttle.limit(received_bytes)

    def status(self) -> dict[str, Any]:
        """Return the state of all transfers, for an operator, as plain values."""
        return {
            "transfers": [transfer.status() for transfer in self._transfers.values()],
            "sending": len(self.source),
            "sent_bytes": self.source.sent_bytes,
            "received_bytes": self.received_bytes,
            "finished": self.finished,
        }

    async def close(self) -> None:
        """End all transfers. Received files are kept on the disk."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()
        for transfer in self._transfers.values():
            if not log_of(transfer.group).is_deleted:
                await log_of(transfer.group).in_writer(transfer.incoming.close)
        self._transfers.clear()
        self.source.close()

    # Told by the groups.

    def on_offer(self, group: RaftGroup, offer: InstallSnapshot) -> None:
        """A leader says that this replica cannot go on without files."""
        log = log_of(group)
        core = group.core
        now_ms = self._clock()
        if offer.term < core.term or offer.snapshot_index <= core.commit_index:
            self._post(group, offer)  # The core has an answer to that which needs no data.
            return
        if self._closing or group.failed is not None or log.is_adopting:
            return
        transfer = self._transfers.get(group.group_id)
        if transfer is None:
            transfer = Transfer(group, offer, log.incoming(), now_ms)
            self._transfers[group.group_id] = transfer
        transfer.offer = offer
        transfer.used_ms = now_ms
        transfer.commit_index = core.commit_index
        self._sweep_later()
        if group.group_id in self._running or now_ms < transfer.wait_until_ms:
            return
        group.prepared = None
        transfer.state = "waiting"
        self._waiting[group.group_id] = None
        self._start_next()

    def on_removed(self, group: RaftGroup) -> None:
        """The group is not hosted here any more; its directory is about to go."""
        self.source.end(group.group_id)
        transfer = self._transfers.pop(group.group_id, None)
        self._waiting.pop(group.group_id, None)
        if transfer is not None:
            running = self._running.get(group.group_id)
            if running is not None:
                running.cancel()
            self._tasks.spawn(self._let_go(transfer, delete=False))

    def adopt(self, group: RaftGroup, prepared: Prepared) -> None:
        log_of(group).adopt(prepared)

    def on_adopted(self, group: RaftGroup, prepared: Prepared) -> None:
        """Note that the received files are the log now."""
        transfer = self._transfers.pop(group.group_id, None)
        self.finished += 1
        if transfer is not None:
            took_ms = self._clock() - transfer.begun_ms
            text = f"{transfer.files} segments, {transfer.total_bytes} bytes in {took_ms} ms"
            self._say(transfer, "catch-up finished", f"{text}; the log ends with {prepared.manifest.snapshot_index}")

    # Which transfers run.

    def _start_next(self) -> None:
        busy = {self._transfers[group_id].offer.source for group_id in self._running if group_id in self._transfers}
        for group_id in list(self._waiting):
            transfer = self._transfers[group_id]
            if len(self._running) >= TRANSFERS_MAX or self._closing:
                return
            if transfer.offer.source not in busy:
                busy.add(transfer.offer.source)
                del self._waiting[group_id]
                self._running[group_id] = self._tasks.start(self._run(transfer), partial(self._on_done, group_id))

    def _on_done(self, group_id: GroupId, task: "asyncio.Task[None]") -> None:
        del self._running[group_id]
        if (error := failure_of(task)) is not None:
            self._on_broken(error)
        self._start_next()

    async def _run(self, transfer: Transfer) -> None:
        """Fetch the missing files; an error that stops that is written down, and the next offer goes on."""
        try:
            await self._fetch(transfer)
        except (DamagedTransferError, MalformedMessageError, OSError) as error:
            # TimeoutError is an OSError, and a matter of the network.
            patient = not isinstance(error, TimeoutError)
            transfer.wait_until_ms = self._clock() + (RETRY_MS if patient else 0)
            self._interrupted(transfer, str(error) or "no answer in time")
        except BarnabasError as error:
            self._interrupted(transfer, str(error))

    def _interrupted(self, transfer: Transfer, cause: str) -> None:
        if transfer.group.is_removed:
            return
        transfer.state = "interrupted"
        if cause != transfer.cause:
            transfer.cause = cause
            self._say(transfer, "catch-up interrupted", f"{transfer.done_bytes} of {transfer.total_bytes}: {cause}")

    def _say(self, transfer: Transfer, kind: str, cause: str) -> None:
        self._on_fact(transfer.group.group_id, Fact(kind, transfer.offer.term, cause))

    # The transfer.

    async def _fetch(self, transfer: Transfer) -> None:
        group = transfer.group
        incoming = transfer.incoming
        source = transfer.offer.source
        log = log_of(group)
        transfer.state = "manifest"
        manifest_id, manifest = await self._fetch_manifest(group.group_id, source, transfer)
        complete, left_bytes = await log.in_writer(partial(incoming.begin, manifest))
        done_bytes = sum(file.size_bytes for file in complete)
        transfer.files = len(manifest.files)
        transfer.total_bytes = manifest.size_bytes
        transfer.done_files = len(complete)
        transfer.done_bytes = done_bytes
        transfer.kept_bytes = done_bytes + left_bytes
        transfer.state = "files"
        text = f"{transfer.files} segments, {transfer.total_bytes} bytes from node {source}"
        self._say(transfer, "catch-up began", f"{text}, {transfer.kept_bytes} of them are here already")
        for file in manifest.files:
            if file not in complete:
                await self._fetch_file(transfer, source, manifest_id, file)
                transfer.done_files += 1
        if group.is_removed or manifest.snapshot_index <= group.core.commit_index:
            self._transfers.pop(group.group_id, None)
            await log.in_writer(incoming.clear)
            return
        prepared = await log.in_writer(incoming.prepare)
        if group.prepare_state is not None:
            await group.prepare_state(manifest.state)
        transfer.state = "installing"
        transfer.cause = ""
        group.prepared = prepared
        snapshot = InstallSnapshot(
            term=transfer.offer.term,
            source=transfer.offer.source,
            target=self._node_id,
            snapshot_index=manifest.snapshot_index,
            snapshot_term=manifest.snapshot_term,
            data=manifest.end_offset.to_bytes(8, "big") + manifest.state,
        )
        self._post(group, snapshot)

    async def _fetch_manifest(self, group_id: GroupId, source: int, transfer: Transfer) -> tuple[int, Manifest]:
        data = bytearray()
        manifest_id = 0
        total_bytes = 0
        while not total_bytes or len(data) < total_bytes:
            request = encode(ManifestRequest(group_id, manifest_id, len(data)))
            reply = decode(await self._links.call(source, MANIFEST, request, CALL_S), ManifestReply)
            manifest_id = reply.manifest_id
            total_bytes = reply.total_bytes
            transfer.files = reply.file_count
            transfer.done_files = 0
            if total_bytes > MANIFEST_BYTES_MAX or (total_bytes and not reply.data):
                raise MalformedMessageError(f"a manifest of {total_bytes} bytes that ends at {len(data)}")
            data += reply.data
            await self._throttle.take(len(reply.data))
        return manifest_id, decode_manifest(data)

    async def _fetch_file(self, transfer: Transfer, source: int, manifest_id: int, file: SegmentFile) -> None:
        log = log_of(transfer.group)
        incoming = transfer.incoming
        damaged = 0
        done_bytes = transfer.done_bytes
        while True:
            position = await log.in_writer(partial(incoming.open, file))
            if position is None:
                continue
            try:
                transfer.done_bytes = done_bytes + position
                read = partial(self._read, transfer.group.group_id, source, manifest_id, file)
                throttle = self._throttle
                chunks = read_ahead(read, position, file.size_bytes, throttle.chunk_bytes, throttle.reads_ahead)
                async with aclosing(chunks):
                    async for at, data in chunks:
                        await log.in_writer(partial(incoming.write, file, at, data))
                        transfer.done_bytes = done_bytes + at + len(data)
                await log.in_writer(partial(incoming.finish, file))
            except (DamagedTransferError, MalformedMessageError) as error:
                damaged += 1
                self._say(transfer, "catch-up damaged", str(error))
                if damaged == DAMAGE_MAX:
                    notice = DamagedNotice(transfer.group.group_id, file.base_offset, file.first_index)
                    self._links.post(source, DAMAGED, encode(notice))
                    raise
            else:
                transfer.done_bytes = done_bytes + file.size_bytes
                return

    async def _read(
        self, group_id: GroupId, source: int, manifest_id: int, file: SegmentFile, position: int, size_bytes: int
    ) -> memoryview:
        await self._throttle.take(size_bytes)
        request = ReadRequest(
            group=group_id,
            manifest_id=manifest_id,
            base_offset=file.base_offset,
            first_index=file.first_index,
            position=position,
            size_bytes=size_bytes,
        )
        data = open_chunk(await self._links.call(source, READ, encode(request), CALL_S))
        if not 0 < len(data) <= size_bytes:
            raise MalformedMessageError(f"{len(data)} bytes came where {size_bytes} were asked for")
        self.received_bytes += len(data)
        return data

    # Housekeeping.

    def _sweep_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_MS / 1000, self._sweep)

    def _sweep(self) -> None:
        """Delete transfers that are not needed any more, or that nobody has offered in a long time."""
        self._timer = None
        before_ms = self._clock() - KEEP_MS
        for group_id, transfer in list(self._transfers.items()):
            is_over = transfer.used_ms <= before_ms or transfer.group.core.commit_index > transfer.commit_index
            if is_over and group_id not in self._running:
                del self._transfers[group_id]
                self._waiting.pop(group_id, None)
                transfer.group.prepared = None
                self._tasks.spawn(self._let_go(transfer, delete=True))
        if self._transfers:
            self._sweep_later()

    async def _let_go(self, transfer: Transfer, *, delete: bool) -> None:
        incoming = transfer.incoming
        with suppress(OSError):  # The directory may be gone already, which is as good.
            await log_of(transfer.group).in_writer(incoming.clear if delete else incoming.close)
