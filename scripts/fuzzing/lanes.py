"""Carries frames to a broker over many connections, and decodes every answer.

Well-formed frames go a handful at a time; a mutated one goes alone, with an honest question behind it. A connection
without an answer in `PATIENCE_S` hangs up: many requests wait for something that never comes, and many frames promise
bytes that never follow. That is how clients are, so no such end counts as a failure by itself.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import APIS, decode_response, encode_request, read_request_header
from barnabas_raftlog.errors import MalformedMessageError

from .boundaries import Names
from .failures import Failure
from .frames import Frame, name_of

__all__ = ["Lanes"]

PATIENCE_S = 1.0
CONNECT_S = 30.0
AT_ONCE = 8
REMEMBERED = 64  # frames of one connection
CONNECTIONS_REMEMBERED = 2_000
QUESTION_ID = 0x7FFFFFFE
QUESTION = b"".join(encode_request(ApiVersionsRequest(), 0, QUESTION_ID, "fuzz"))
ANSWER_BYTES_MAX = 64 << 20


class Lanes:
    """Some connections at a time to one broker, all on one event loop."""

    def __init__(self, host: str, port: int, names: Names) -> None:
        self._address = (host, port)
        self._names = names
        self.sent: Counter[tuple[int, int, bool]] = Counter()
        self.answered: Counter[tuple[int, int, bool]] = Counter()
        self.connections = 0
        self.failures: list[Failure] = []
        self.by_port: dict[int, deque[bytes]] = {}  # the local end of a recent connection: its frames

    async def send(self, source: Iterator[Frame], count: int) -> None:
        """Send everything that `source` has, over `count` connections at a time.

        Raises:
            OSError: the broker does not take connections any more.
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self._run(source))

    async def _run(self, source: Iterator[Frame]) -> None:
        lane: _Lane | None = None
        held: Frame | None = None
        while True:
            burst = [held] if held is not None else list(islice(source, 1))
            held = None
            while burst and burst[-1].is_lie and len(burst) < AT_ONCE and (following := next(source, None)) is not None:
                if not following.is_lie:
                    held = following
                    break
                burst.append(following)
            if not burst:
                break
            if lane is None:
                lane = await self._connect()
            if not await self._exchange(lane, burst):
                lane.close()
                lane = None
        if lane is not None:
            lane.close()

    async def _connect(self) -> "_Lane":
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(*self._address)
        self.connections += 1
        remembered: deque[bytes] = deque(maxlen=REMEMBERED)
        port = writer.get_extra_info("sockname")[1]
        self.by_port.pop(port, None)
        self.by_port[port] = remembered
        if len(self.by_port) > CONNECTIONS_REMEMBERED:
            del self.by_port[next(iter(self.by_port))]
        return _Lane(reader, writer, remembered)

    async def _exchange(self, lane: "_Lane", burst: Sequence[Frame]) -> bool:
        """Send, and take the answers; return whether the connection is of use after that."""
        waiting = {frame.correlation_id: frame for frame in burst if frame.is_lie}
        for frame in burst:
            self.sent[frame.api_key, frame.version, frame.is_lie] += 1
            lane.remembered.append(frame.data)
        try:
            async with asyncio.timeout(PATIENCE_S):
                lane.writer.write(b"".join([*(frame.data for frame in burst), QUESTION]))
                while True:
                    answer = await lane.answer()
                    correlation_id = int.from_bytes(answer[:4], "big")
                    if correlation_id == QUESTION_ID:
                        return True
                    frame = waiting.pop(correlation_id, burst[-1])
                    self.answered[frame.api_key, frame.version, frame.is_lie] += 1
                    self._look_at(answer, frame, lane)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return False
        except MalformedMessageError as error:
            self.failures.append(Failure(str(error), tuple(lane.remembered)))
            return False

    def _look_at(self, answer: bytes, frame: Frame, lane: "_Lane") -> None:
        """Decode an answer; note contents that it should not have."""
        try:
            header = read_request_header(frame.data[4:])
            request = APIS[header.api_key].request
        except (MalformedMessageError, KeyError):
            return  # Its bytes are such that nobody can say what it asked for.
        name = name_of(header.api_key, header.api_version)
        try:
            decoded = decode_response(request, answer, header.api_version)
        except MalformedMessageError as error:
            self.failures.append(Failure(f"{name}: an answer that cannot be read: {error}", tuple(lane.remembered)))
            return
        if ErrorCode.UNKNOWN_SERVER_ERROR in _codes(decoded):
            self.failures.append(Failure(f"{name}: UNKNOWN_SERVER_ERROR", (frame.data,)))
        self._names.learn(decoded)


class _Lane:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, remembered: deque[bytes]) -> None:
        self._reader = reader
        self.writer = writer
        self.remembered = remembered

    async def answer(self) -> bytes:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise MalformedMessageError(f"an answer of {size} bytes")
        return await self._reader.readexactly(size)

    def close(self) -> None:
        self.writer.close()


def _codes(value: object) -> Iterator[int]:
    """Yield every error code in an answer, however deep."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            found = getattr(value, name)
            if name == "error_code":
                yield found
            elif isinstance(found, (list, msgspec.Struct)):
                yield from _codes(found)
    elif isinstance(value, list):
        for item in value:
            yield from _codes(item)
