"""The decoders of strangers' bytes, as functions of one input.

A decoder may refuse an input in the declared way, and nothing else. A target returns None for any bytes: it catches the
errors that the decoder declares. Any other error is a mistake, and so is an input that costs more than `TIME_S_MAX` of
processor time or `MEMORY_BYTES_MAX`: see `Meter`. Readers of records get a limit on decompressed bytes, as every caller
may give them one; with it the cost is bounded by the input.

Pure functions but for the meter.
"""

import resource
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from barnabas_broker.server.dispatch import ELEMENTS_MAX, ROUTES
from barnabas_clients.protocol.registry import APIS, Message, read_request_header
from barnabas_metadata_quorum.controller.commands import decode_answer, decode_command, decode_reply
from barnabas_metadata_quorum.image.frames import decode_frame as decode_metadata_frame
from barnabas_metadata_quorum.image.records import decode_record
from barnabas_metadata_quorum.image.snapshots import decode_snapshot
from barnabas_metadata_quorum.leaders.table import decode_announcements
from barnabas_raftlog.catch_up import messages as catch_up
from barnabas_raftlog.errors import BarnabasError, CorruptBatchError, MalformedMessageError, TooManyElementsError
from barnabas_raftlog.links.framing import FrameKind, FrameSplitter, frame_of, read_header
from barnabas_raftlog.links.handshake import ADMIN, Acceptor, Dialler, HandshakeRefusedError, Identity
from barnabas_raftlog.links.liveness import cluster_mark, decode_datagram
from barnabas_raftlog.links.raft_frames import decode_frame
from barnabas_raftlog.records.arrow import read_arrow
from barnabas_raftlog.records.bounded import BatchBounds, find_by_time, sound_part
from barnabas_raftlog.records.columns import read_columns
from barnabas_raftlog.records.header import parse_header, verify
from barnabas_raftlog.records.reader import batches, read_records
from barnabas_raftlog.records.walker.twins import KeyTable, squeeze
from barnabas_raftlog.wire.primitives import BLOB_BYTES_MAX

__all__ = ["INPUT_BYTES_MAX", "SECRET", "TARGETS", "Meter", "TooDearError"]

Target = Callable[[bytes], None]
T = TypeVar("T")

INPUT_BYTES_MAX = 16 << 10
TIME_S_MAX = 0.1
MEMORY_BYTES_MAX = 64 << 20
PLAIN_BYTES_MAX = 64 << 10
BOUNDS = BatchBounds(records_max=10_000, bytes_max=PLAIN_BYTES_MAX)
NONCE = bytes(range(16))
SECRET = b"a secret of three"
ME = Identity("cluster", 1, 7)
PEER = Identity("cluster", 2, 8)
STREAM_PIECE = 1_000
CATCH_UP_KINDS: tuple[type[Any], ...] = (
    catch_up.ManifestRequest,
    catch_up.ManifestReply,
    catch_up.ReadRequest,
    catch_up.EntriesRequest,
    catch_up.DamagedNotice,
)
METADATA_DECODERS: tuple[Callable[[bytes], object], ...] = (
    decode_command,
    decode_reply,
    decode_answer,
    decode_announcements,
)


class TooDearError(Exception):
    """An input has cost more than any may."""


class Meter:
    """Runs a target and measures the cost of one input. Memory is seen when the process has never had so much."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.time_s_max = 0.0

    def __call__(self, data: bytes) -> None:
        """Run the target.

        Raises:
            TooDearError: it took too long or too much.
        """
        peak = _peak_bytes()
        resident = _resident_bytes()
        start_s = time.thread_time()
        self._target(data)
        took_s = time.thread_time() - start_s
        self.time_s_max = max(self.time_s_max, took_s)
        if took_s > TIME_S_MAX:
            raise TooDearError(f"{took_s * 1000:.0f} ms of processor time for {len(data)} bytes")
        if (now := _peak_bytes()) > peak and now - resident > MEMORY_BYTES_MAX:
            raise TooDearError(f"{(now - resident) >> 20} MiB for {len(data)} bytes")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def requests(data: bytes) -> None:
    """Decode a request without its size, at once and in steps; both must find the same."""
    try:
        header = read_request_header(data)
    except MalformedMessageError:
        return
    route = ROUTES.get(header.api_key)
    if route is None or header.api_version not in route.advertised or header.api_version < route.served_from:
        return
    kind = APIS[header.api_key].request
    version = header.api_version
    position = header.body_position
    whole: Message | None
    try:
        whole = kind.decode(data, version, position, exact=False)
    except MalformedMessageError:
        whole = None
    try:
        stepped = _drained(kind.decode_in_steps(data, version, position, exact=False, elements_max=ELEMENTS_MAX))
    except TooManyElementsError:
        return
    except MalformedMessageError:
        assert whole is None or len(data) > BLOB_BYTES_MAX, "refused in steps and not at once"
    else:
        assert whole == stepped, "not the same in steps"


def responses(data: bytes) -> None:
    """Decode an answer, as clients do; the first two bytes name the API and version."""
    if len(data) < 2:
        return
    api = APIS[sorted(APIS)[data[0] % len(APIS)]]
    version = api.versions[data[1] % len(api.versions)]
    _refusing(MalformedMessageError, lambda: api.response.decode(data[2:], version))


def records(data: bytes) -> None:
    """Read batches: the header, the records one by one, within bounds, and as columns. Checksums are not looked at."""
    _refusing(CorruptBatchError, lambda: parse_header(data))
    _refusing(CorruptBatchError, lambda: verify(memoryview(data)))
    _refusing(CorruptBatchError, lambda: list(read_records(data, check_crc=False, limit_bytes=PLAIN_BYTES_MAX)))
    _refusing(CorruptBatchError, lambda: read_columns(data, check_crc=False, limit_bytes=PLAIN_BYTES_MAX))
    _refusing(CorruptBatchError, lambda: read_arrow(data, check_crc=False, limit_bytes=PLAIN_BYTES_MAX))
    _refusing(CorruptBatchError, lambda: _compact_within_bounds(data))
    _refusing(BarnabasError, lambda: decode_metadata_frame(data[: PLAIN_BYTES_MAX // 64]))


def _compact_within_bounds(data: bytes) -> None:
    for header, frame in batches(data, check_crc=False):
        find_by_time(header, frame, BOUNDS, start_offset=0, wanted_ms=1)
        find_by_time(header, frame, BOUNDS, start_offset=0, wanted_ms=None)
        part = sound_part(header, frame, BOUNDS)
        table = KeyTable(part.record_count, SECRET[:16])
        assert table.note(part), "more keys than records"
        squeeze(bytearray(part.body), table.kept(part, drop_tombstones=True).marks, part.record_count)


def peers(data: bytes) -> None:
    """Decode bytes of other nodes; the first byte names the decoder."""
    if not data:
        return
    rest = data[1:]
    match data[0] % 5:
        case 0:
            _refusing(MalformedMessageError, lambda: _frame(rest))
        case 1:
            _refusing(MalformedMessageError, lambda: _stream(rest))
        case 2:
            _shake_hands(rest)
        case 3:
            for secret in (None, SECRET):
                decode_datagram(rest, ME.node_id, cluster_mark(ME.cluster_id), secret)
        case _:
            _refusing(MalformedMessageError, lambda: catch_up.open_chunk(rest))
            for kind in CATCH_UP_KINDS:
                _refusing(MalformedMessageError, partial(catch_up.decode, rest, kind))


def quorum(data: bytes) -> None:
    """Decode messages of nodes about the metadata."""
    for decode in METADATA_DECODERS:
        _refusing(MalformedMessageError, partial(decode, data))
    _refusing(BarnabasError, partial(decode_record, data))
    _refusing(BarnabasError, partial(decode_snapshot, data))


TARGETS: dict[str, Target] = {
    "requests": requests,
    "responses": responses,
    "records": records,
    "peers": peers,
    "quorum": quorum,
}


def _frame(data: bytes) -> None:
    frame = frame_of(memoryview(data), owned=True)
    header = read_header(frame.header)
    if header[0] in {FrameKind.RAFT, FrameKind.DIGEST}:
        for owned in (True, False):
            decode_frame(header, frame.payload, PEER.node_id, ME.node_id, owned=owned)


def _stream(data: bytes) -> None:
    splitter = FrameSplitter(memoryview(bytearray(8 << 10)))
    position = 0
    while position < len(data):
        buffer = splitter.buffer()
        piece = data[position : position + min(len(buffer), STREAM_PIECE)]
        buffer[: len(piece)] = piece
        position += len(piece)
        for frame in splitter.received(len(piece)):
            read_header(frame.header)


def _shake_hands(data: bytes) -> None:
    try:
        header = read_header(memoryview(data))
    except MalformedMessageError:
        return
    knows = frozenset({PEER.node_id})
    for secret in (None, SECRET):
        sides = (Acceptor(ME, knows, secret, NONCE), Dialler(ME, PEER.node_id, secret, NONCE))
        for side in (*sides, Dialler(Identity("", ADMIN, 0), ADMIN, secret, NONCE)):
            if isinstance(side, Dialler):
                side.first()
            try:
                side.receive(header)
                side.receive(header)
            except (MalformedMessageError, HandshakeRefusedError):
                pass


def _refusing(declared: type[Exception], act: Callable[[], object]) -> None:
    """Act; the declared errors may come out."""
    try:
        act()
    except declared:
        return


def _drained(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
