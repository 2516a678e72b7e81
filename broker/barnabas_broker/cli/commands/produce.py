"""`barnabas produce`: lines in, records out, with our own `Producer`.

Memory is bounded by one block of lines, the producer's buffer, and `OPEN_MAX` deliveries that have not been looked at:
when the cluster is slower than the input, the input waits. Every delivery is looked at, in order, and the first that
failed ends the command with the number of its line. Records accepted before an error, the end of the input or Ctrl-C
are delivered first. Receipts, if somebody wants them, come in the order of the input, too.
"""

import asyncio
import contextlib
import json
import logging
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from barnabas_broker.cli.addresses import endpoints_of
from barnabas_broker.cli.commands.administration.names import missing_topics
from barnabas_broker.cli.connecting import connected
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.output import complain
from barnabas_broker.cli.streams.formats import FormatReader
from barnabas_broker.cli.streams.lines import LineError, LineRecord, parse_json, raw_parser
from barnabas_broker.cli.streams.options import acks_of, as_usage, check_compression, form_kind
from barnabas_broker.cli.streams.pipes import (
    BlockingThread,
    EndSignals,
    Progress,
    blocks_of_lines,
    blocks_of_records,
    run,
    typed_bytes,
    write_all,
)
from barnabas_broker.process.log_lines import log_to_stderr
from barnabas_clients import Admin, Producer
from barnabas_clients.errors import ClientError, DeadlineExceededError
from barnabas_clients.producer.delivery import Delivery, Receipt, RecordsLostError
from barnabas_clients.protocol.errors import KafkaError, UnknownTopicOrPartitionError
from barnabas_raftlog.errors import BarnabasError

__all__ = ["ProduceOrder", "produce"]

STDIN_FD = 0
STDOUT_FD = 1
OPEN_MAX = 100_000
# A record of JSON is longer than the record: base64 adds a third, and \u0000 is six characters for a byte.
LINE_TO_RECORD_MAX = 6
LINE_BYTES_SPARE = 65_536
BATCH_BYTES = 65_536
BUFFER_BYTES = 32 << 20
INTERRUPTED = 130
# Brokers that create topics have done it by then; those that do not would be asked until the deadline.
CREATED_WITHIN_S = 3.0


class ProduceOrder(NamedTuple):
    """The options of the command line."""

    topic: str
    bootstrap: str
    form: str
    key: str | None
    key_separator: str | None
    null: str | None
    tombstone: bool
    headers: Sequence[str]
    partition: int | None
    keep_partitions: bool
    acks: str
    compression: str
    file: Path | None
    request_bytes_max: int
    receipts: bool
    as_json: bool
    progress: bool | None
    timeout_s: float


class _Input(NamedTuple):
    """How the input is taken apart: in lines and what makes a record of one, or by a format."""

    parse: Callable[[bytes], LineRecord] | None
    reader: FormatReader | None
    headers: Sequence[tuple[str, bytes]]
    key: bytes | None
    skips_blank: bool

    @property
    def noun(self) -> str:
        return "line" if self.reader is None else "record"

    def blocks(self, fd: int, line_bytes_max: int) -> Iterator[list[bytes] | list[LineRecord]]:
        return blocks_of_lines(fd, line_bytes_max) if self.reader is None else blocks_of_records(fd, self.reader)


def produce(order: ProduceOrder) -> int:
    """Send every line; 130 if interrupted."""
    check_topic_names([order.topic])
    acks_of(order.acks)
    check_compression(order.compression)
    taking = _input(order)
    if order.keep_partitions and (taking.parse is not parse_json and taking.reader is None):
        raise UsageError("--keep-partitions is for --format json, or a format with %p")
    if order.keep_partitions and order.partition is not None:
        raise UsageError("--keep-partitions sends records to the partitions they name: without --partition")
    endpoints_of(order.bootstrap)  # It raises.
    # An error is told once, by the line that it happened to.
    log_to_stderr(logging.ERROR, "barnabas: %(message)s")
    return run(_produce(order, taking))


async def _produce(order: ProduceOrder, taking: _Input) -> int:
    fd = STDIN_FD if order.file is None else os.open(order.file, os.O_RDONLY)
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise CommandError(f"{order.file} is a directory")
        # How much of the input a record by a format took is not known.
        is_counted = stat.S_ISREG(status.st_mode) and taking.reader is None
        total_bytes = status.st_size if is_counted else None
        progress = Progress("sent", shown=Progress.wanted(order.progress), total_bytes=total_bytes)
        if os.isatty(fd):
            what = "one line is one record" if taking.reader is None else f"records look like {order.form}"
            sys.stderr.write(f"{what}; Ctrl-D ends\n")
        blocks = taking.blocks(fd, _record_bytes_max(order))
        with EndSignals() as wishes:
            async with connected(_producer(order), order.timeout_s) as producer:
                sending = _Sending(producer, order, taking, progress)
                try:
                    await wishes.unless(sending.send(blocks))
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
    """The records of one input on their way. `_open` are deliveries not looked at: (number, bytes, delivery)."""

    def __init__(self, producer: Producer, order: ProduceOrder, taking: _Input, progress: Progress) -> None:
        self._producer = producer
        self._order = order
        self._taking = taking
        self._progress = progress
        self._output = BlockingThread() if order.receipts or order.as_json else None
        self._receipts: list[Receipt] = []
        self._open: deque[tuple[int, int, Delivery]] = deque()
        self._number = 0

    async def send(self, blocks: Iterator[list[bytes] | list[LineRecord]]) -> bool:
        """Send until the input ends; cancelled, it leaves accepted records on their way."""
        await self._find_topic()
        aside = BlockingThread()
        while (block := await self._next_block(aside, blocks)) is not None:
            for item in block:
                self._number += 1
                await self._send_item(item)
            await self._look()
            while len(self._open) > OPEN_MAX:
                await self._wait_for_first()
        return True

    async def _find_topic(self) -> None:
        """Let the brokers make the topic if they do such things, and end if they do not."""
        order = self._order
        # If something else is in the way, it may take the whole deadline.
        for limit_s in (min(CREATED_WITHIN_S, order.timeout_s), order.timeout_s):
            try:
                await self._producer.partitions(order.topic, limit_s)
            except DeadlineExceededError as error:
                if isinstance(error.__cause__, UnknownTopicOrPartitionError):
                    raise await self._missing() from error
                if limit_s == order.timeout_s:
                    raise
            else:
                return

    async def _missing(self) -> CommandError:
        order = self._order
        async with connected(
            Admin(order.bootstrap, client_id="barnabas-cli", timeout_s=order.timeout_s), order.timeout_s
        ) as admin:
            return await missing_topics(admin, [order.topic])

    async def settle(self) -> None:
        """Wait until everything that was accepted is delivered.

        Raises:
            LineError: something was not; says which line first.
        """
        try:
            while self._open:
                await self._wait_for_first()
        finally:
            await self._say_receipts()

    async def _next_block(
        self, aside: BlockingThread, blocks: Iterator[list[bytes] | list[LineRecord]]
    ) -> list[bytes] | list[LineRecord] | None:
        """Return the next lines or records, None at the end; meanwhile look after records on their way.

        An input may be silent for hours, and a failed delivery should be known before that.
        """
        reading = asyncio.ensure_future(aside.run(lambda: next(blocks, None)))
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

    async def _send_item(self, item: bytes | LineRecord) -> None:
        order, taking = self._order, self._taking
        if taking.skips_blank and isinstance(item, bytes) and not item.strip():
            return
        try:
            if isinstance(item, LineRecord):
                record, size_bytes = item, len(item.key or b"") + len(item.value or b"")
            else:
                assert taking.parse is not None
                record, size_bytes = taking.parse(item), len(item) + 1
            delivery = await self._producer.send(
                order.topic,
                None if order.tombstone and record.value == b"" else record.value,
                key=taking.key if record.key is None else record.key,
                partition=record.partition if order.keep_partitions else order.partition,
                timestamp_ms=record.timestamp_ms,
                headers=[*record.headers, *taking.headers],
            )
        except (BarnabasError, ValueError) as error:
            raise LineError(f"{taking.noun} {self._number}: {error}") from error
        self._open.append((self._number, size_bytes, delivery))

    async def _look(self) -> None:
        """Count what has been delivered since the last time."""
        count = size_bytes = 0
        while self._open and self._open[0][2].done():
            number, line_bytes, delivery = self._open.popleft()
            try:
                self._keep(delivery.result())
            except (ClientError, KafkaError) as error:
                raise await self._failure(number, error) from error
            count += 1
            size_bytes += line_bytes
        self._progress.add(count, size_bytes)
        await self._say_receipts()

    async def _wait_for_first(self) -> None:
        number, line_bytes, delivery = self._open[0]
        try:
            receipt = await delivery
        except (ClientError, KafkaError) as error:
            raise await self._failure(number, error) from error
        self._open.popleft()
        self._keep(receipt)
        self._progress.add(1, line_bytes)

    def _keep(self, receipt: Receipt) -> None:
        if self._output is not None:
            self._receipts.append(receipt)

    async def _say_receipts(self) -> None:
        """Print what has been delivered since the last time, however long its reader takes."""
        receipts, self._receipts = self._receipts, []
        if receipts and self._output is not None:
            tell = _json_told if self._order.as_json else _told
            lines = "".join(f"{tell(one)}\n" for one in receipts).encode()
            await self._output.run(lambda: write_all(STDOUT_FD, lines))

    async def _failure(self, number: int, error: ClientError | KafkaError) -> LineError:
        # The others are given up with it: their order matters more than those that might still get through.
        self._open.clear()
        with contextlib.suppress(RecordsLostError, DeadlineExceededError):
            await self._producer.close(0)
        text = f"{self._taking.noun} {number} was not delivered: {error}; {self._progress.records} records were"
        return LineError(text)


def _producer(order: ProduceOrder) -> Producer:
    acks = acks_of(order.acks)
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


def _record_bytes_max(order: ProduceOrder) -> int:
    """Return how long a record of the input may be: longer than it is when sent, because it may be encoded."""
    return LINE_TO_RECORD_MAX * order.request_bytes_max + LINE_BYTES_SPARE


def _input(order: ProduceOrder) -> _Input:
    kind = form_kind(order.form, [])
    key = None if order.key is None else typed_bytes(order.key)
    null = None if order.null is None else typed_bytes(order.null)
    headers = [_header(word) for word in order.headers]
    parse: Callable[[bytes], LineRecord] | None = None
    reader: FormatReader | None = None
    if kind != "raw" and order.key_separator is not None:
        raise UsageError("--key-separator is for raw lines; in JSON a key is a field, and a format says where it ends")
    if kind == "json":
        if null is not None or order.tombstone:
            raise UsageError("--null and --tombstone are for raw lines and formats; in JSON null is null")
        parse = parse_json
    elif kind == "percent":
        with as_usage("--format"):
            limit_bytes = _record_bytes_max(order)
            reader = FormatReader(order.form, null, tombstone=order.tombstone, limit_bytes=limit_bytes)
    else:
        if order.key_separator == "":
            raise UsageError("--key-separator must not be empty")
        parse = raw_parser(None if order.key_separator is None else typed_bytes(order.key_separator), null)
    return _Input(parse, reader, headers, key, skips_blank=kind == "json")


def _told(receipt: Receipt) -> str:
    offset = "unknown" if receipt.offset < 0 else receipt.offset
    return f"{receipt.topic} partition {receipt.partition} offset {offset}"


def _json_told(receipt: Receipt) -> str:
    offset = None if receipt.offset < 0 else receipt.offset
    return json.dumps(receipt._asdict() | {"offset": offset}, separators=(",", ":"))


def _header(word: str) -> tuple[str, bytes]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise UsageError(f"{word!r} is not a header; write NAME=VALUE")
    return name, typed_bytes(value)
