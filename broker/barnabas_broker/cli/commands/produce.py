"""`barnabas produce`: lines in, records out, with our own `Producer`.

Memory is bounded by one block of lines, the producer's buffer, and `OPEN_MAX` deliveries that have not been looked at:
when the cluster is slower than the input, the input waits. Every delivery is looked at, in order, and the first that
failed ends the command with the number of its line. Records accepted before an error, the end of the input or Ctrl-C
are delivered first.
"""

import asyncio
import contextlib
import logging
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from barnabas_broker.cli.admin import check_bootstrap
from barnabas_broker.cli.errors import CommandError
from barnabas_broker.cli.lines import LineError, LineRecord, parse_json, raw_parser
from barnabas_broker.cli.output import complain
from barnabas_broker.cli.pipes import BlockingThread, EndSignals, Progress, blocks_of_lines, run, typed_bytes
from barnabas_broker.process.log_lines import log_to_stderr
from barnabas_clients import Producer
from barnabas_clients.errors import ClientError, DeadlineExceededError
from barnabas_clients.producer.delivery import Delivery, RecordsLostError
from barnabas_clients.protocol.errors import KafkaError
from barnabas_raftlog.errors import BarnabasError

__all__ = ["ProduceOrder", "produce"]

STDIN_FD = 0
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS: dict[str, Any] = {"all": "all", "-1": "all", "1": 1, "0": 0}
OPEN_MAX = 100_000
# A record of JSON is longer than the record: base64 adds a third, and \u0000 is six characters for a byte.
LINE_TO_RECORD_MAX = 6
LINE_BYTES_SPARE = 65_536
BATCH_BYTES = 65_536
BUFFER_BYTES = 32 << 20
INTERRUPTED = 130


class ProduceOrder(NamedTuple):
    """The options of the command line."""

    topic: str
    bootstrap: str
    form: str
    key_separator: str | None
    null: str | None
    headers: Sequence[str]
    partition: int | None
    keep_partitions: bool
    acks: str
    compression: str
    file: Path | None
    request_bytes_max: int
    progress: bool | None
    timeout_s: float


def produce(order: ProduceOrder) -> int:
    """Send every line; 130 if interrupted."""
    if order.acks not in ACKS:
        raise CommandError(f"--acks {order.acks} does not work: it must be all, 1 or 0")
    if order.compression not in COMPRESSIONS:
        raise CommandError(f"--compression {order.compression} does not work: it must be {', '.join(COMPRESSIONS)}")
    if order.keep_partitions and (order.form != "json" or order.partition is not None):
        raise CommandError("--keep-partitions is for --format json, without --partition")
    check_bootstrap(order.bootstrap)
    # An error is told once, by the line that it happened to.
    log_to_stderr(logging.ERROR, "barnabas: %(message)s")
    return run(_produce(order, _parser(order), [_header(word) for word in order.headers]))


async def _produce(
    order: ProduceOrder, parse: Callable[[bytes], LineRecord], headers: Sequence[tuple[str, bytes]]
) -> int:
    fd = STDIN_FD if order.file is None else os.open(order.file, os.O_RDONLY)
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise CommandError(f"{order.file} is a directory")
        total_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
        progress = Progress("sent", shown=Progress.wanted(order.progress), total_bytes=total_bytes)
        if os.isatty(fd):
            sys.stderr.write("one line is one record; Ctrl-D ends\n")
        lines = blocks_of_lines(fd, LINE_TO_RECORD_MAX * order.request_bytes_max + LINE_BYTES_SPARE)
        with EndSignals() as wishes:
            async with _producer(order) as producer:
                sending = _Sending(producer, order, parse, headers, progress)
                try:
                    await wishes.unless(sending.send(lines))
                finally:
                    await sending.settle()
            progress.close()
            if wishes.end.is_set():
                complain(f"interrupted; {progress.records} records were delivered")
                return INTERRUPTED
        return 0
    finally:
        if fd != STDIN_FD:
            os.close(fd)


class _Sending:
    """The lines of one input on their way. `_open` are deliveries not looked at: (line number, bytes, delivery)."""

    def __init__(
        self,
        producer: Producer,
        order: ProduceOrder,
        parse: Callable[[bytes], LineRecord],
        headers: Sequence[tuple[str, bytes]],
        progress: Progress,
    ) -> None:
        self._producer = producer
        self._order = order
        self._parse = parse
        self._headers = headers
        self._progress = progress
        self._open: deque[tuple[int, int, Delivery]] = deque()
        self._number = 0

    async def send(self, lines: Iterator[list[bytes]]) -> bool:
        """Send until the input ends; cancelled, it leaves accepted records on their way."""
        await self._producer.partitions(self._order.topic)
        aside = BlockingThread()
        while block := await self._next_block(aside, lines):
            for line in block:
                self._number += 1
                await self._send_line(line)
            await self._look()
            while len(self._open) > OPEN_MAX:
                await self._wait_for_first()
        return True

    async def settle(self) -> None:
        """Wait until everything that was accepted is delivered.

        Raises:
            LineError: something was not; says which line first.
        """
        while self._open:
            await self._wait_for_first()

    async def _next_block(self, aside: BlockingThread, lines: Iterator[list[bytes]]) -> list[bytes] | None:
        """Return the next lines, None at the end; meanwhile look after records on their way.

        An input may be silent for hours, and a failed delivery should be known before that.
        """
        reading = asyncio.ensure_future(aside.run(lambda: next(lines, None)))
        try:
            while self._open and not reading.done():
                settling = asyncio.ensure_future(self._wait_for_first())
                try:
                    await asyncio.wait({reading, settling}, return_when=asyncio.FIRST_COMPLETED)
                    if settling.done():
                        settling.result()
                        await self._look()
                finally:
                    settling.cancel()
                    await asyncio.wait({settling})
                    # An exit for another reason has not looked at its failure.
                    _ = settling.cancelled() or settling.exception()
            return await reading
        finally:
            reading.cancel()

    async def _send_line(self, line: bytes) -> None:
        order = self._order
        if order.form == "json" and not line.strip():
            return
        try:
            record = self._parse(line)
            delivery = await self._producer.send(
                order.topic,
                record.value,
                key=record.key,
                partition=record.partition if order.keep_partitions else order.partition,
                timestamp_ms=record.timestamp_ms,
                headers=[*record.headers, *self._headers],
            )
        except (BarnabasError, ValueError) as error:
            raise LineError(f"line {self._number}: {error}") from error
        self._open.append((self._number, len(line) + 1, delivery))

    async def _look(self) -> None:
        """Count what has been delivered since the last time."""
        count = size_bytes = 0
        while self._open and self._open[0][2].done():
            number, line_bytes, delivery = self._open.popleft()
            try:
                delivery.result()
            except (ClientError, KafkaError) as error:
                raise await self._failure(number, error) from error
            count += 1
            size_bytes += line_bytes
        self._progress.add(count, size_bytes)

    async def _wait_for_first(self) -> None:
        number, line_bytes, delivery = self._open[0]
        try:
            await delivery
        except (ClientError, KafkaError) as error:
            raise await self._failure(number, error) from error
        self._open.popleft()
        self._progress.add(1, line_bytes)

    async def _failure(self, number: int, error: ClientError | KafkaError) -> LineError:
        # The others are given up with it: their order matters more than those that might still get through.
        self._open.clear()
        with contextlib.suppress(RecordsLostError, DeadlineExceededError):
            await self._producer.close(0)
        return LineError(f"line {number} was not delivered: {error}; {self._progress.records} records were")


def _producer(order: ProduceOrder) -> Producer:
    acks = ACKS[order.acks]
    try:
        return Producer(
            order.bootstrap,
            client_id="barnabas-cli",
            acks=acks,
            idempotent=acks == "all",
            compression=cast("Any", order.compression),
            batch_bytes=min(BATCH_BYTES, order.request_bytes_max),
            # Room for the largest record beside others.
            buffer_bytes=max(BUFFER_BYTES, 3 * order.request_bytes_max),
            request_bytes_max=order.request_bytes_max,
            delivery_timeout_s=order.timeout_s,
            request_timeout_s=order.timeout_s,
            timeout_s=order.timeout_s,
        )
    except ValueError as error:
        raise CommandError(str(error)) from error


def _parser(order: ProduceOrder) -> Callable[[bytes], LineRecord]:
    if order.form == "json":
        if order.key_separator is not None or order.null is not None:
            raise CommandError(
                "--key-separator and --null are for raw lines; in JSON a key is a field and null is null"
            )
        return parse_json
    if order.form != "raw":
        raise CommandError(f"--format {order.form} does not work: it must be raw or json")
    if order.key_separator == "":
        raise CommandError("--key-separator must not be empty")
    return raw_parser(
        None if order.key_separator is None else typed_bytes(order.key_separator),
        None if order.null is None else typed_bytes(order.null),
    )


def _header(word: str) -> tuple[str, bytes]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise CommandError(f"{word!r} is no header; write NAME=VALUE")
    return name, typed_bytes(value)
