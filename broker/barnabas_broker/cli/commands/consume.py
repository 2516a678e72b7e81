"""`barnabas consume`: records in, lines out, with our own `Consumer`.

A record counts as consumed when it has been written to standard output: that is when its group may commit it, every
`COMMIT_EVERY_S`, when a partition leaves, and at the end. So records that a killed command had not written are read
again, and a clean end, Ctrl-C included, repeats nothing. Output that a pipe has taken and its reader never read is
gone, as with any command.

Memory is bounded by the consumer's buffer and one batch of lines: when nobody reads our output, nothing more is
fetched, and the membership lives on beside it.

A terminal obeys what is written to it, and records are written by anybody: there they are escaped, unless asked for as
they are. A pipe or a file gets every byte, because scripts count on that, as they do with kafka-console-consumer.

A batch that cannot be read ends the command, unless it was told to leave such batches out: then each is told on stderr,
and its group goes on behind it.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas_broker.cli.admin import check_bootstrap
from barnabas_broker.cli.errors import CommandError, typed
from barnabas_broker.cli.lines import Record, escaped, json_form, raw_form, template_form
from barnabas_broker.cli.output import complain
from barnabas_broker.cli.pipes import BlockingThread, EndSignals, Progress, run, typed_bytes, write_all
from barnabas_broker.cli.times import readable, timestamp_ms
from barnabas_broker.process.log_lines import log_to_stderr
from barnabas_clients import Admin, Consumer, CorruptRecordsError, OffsetAndMetadata, TopicPartition
from barnabas_clients.consumer.errors import NotAssignedError
from barnabas_clients.consumer.record import ConsumerRecord
from barnabas_clients.errors import ClientError, CommitFailedError
from barnabas_clients.protocol.errors import KafkaError, UnknownTopicOrPartitionError

__all__ = ["ConsumeOrder", "consume"]

STDOUT_FD = 1
COMMIT_EVERY_S = 5.0
# A coordinator that moves needs a second or two; without one, the end of the command should not take much longer.
COMMIT_TIMEOUT_S = 10.0
RECORDS_AT_ONCE = 1000
# A poll is short only so that wishes of the loop below (an end reached, an idle limit) are seen to.
POLL_S = 1.0
INTERRUPTED = 130

Form = Callable[[Record], bytes]


class ConsumeOrder(NamedTuple):
    """The options of the command line."""

    topics: Sequence[str]
    bootstrap: str
    group_id: str | None
    from_beginning: bool
    from_time: str | None
    offset: int | None
    partitions: Sequence[int]
    form: str
    key_separator: str | None
    headers: bool
    null: str
    escape: bool | None
    max_records: int | None
    exit_at_end: bool
    idle_exit_s: float | None
    read_committed: bool
    skip_corrupt: bool
    progress: bool | None
    timeout_s: float


def consume(order: ConsumeOrder) -> int:
    """Write records until told to stop; 130 if it was a signal that said so."""
    if order.from_beginning + (order.from_time is not None) + (order.offset is not None) > 1:
        raise CommandError("say where to start once: --from-beginning, --from-time or --offset")
    if order.group_id is not None:
        if order.partitions or order.offset is not None or order.from_time is not None:
            raise CommandError(
                "a group decides who reads what from where: without --partition, --offset and --from-time "
                "(barnabas group reset-offsets moves a group)"
            )
    elif order.partitions and len(order.topics) != 1:
        raise CommandError("--partition needs one topic")
    start_ms = None if order.from_time is None else timestamp_ms(order.from_time, int(time.time() * 1000))
    form = _form(order)
    if order.escape or (order.escape is None and os.isatty(STDOUT_FD)):
        form = escaped(form)
    check_bootstrap(order.bootstrap)
    log_to_stderr(logging.WARNING, "barnabas: %(message)s")
    return run(_consume(order, form, start_ms))


async def _consume(order: ConsumeOrder, form: Form, start_ms: int | None) -> int:
    shown = Progress.wanted(order.progress, output_is_busy=os.isatty(STDOUT_FD))
    progress = Progress("read", shown=shown)
    with EndSignals(STDOUT_FD) as wishes:
        known = await wishes.unless(_known_partitions(order))
        if known is not None:
            reading = _Reading(order, form, progress, wishes)
            async with reading.consumer:
                try:
                    if await wishes.unless(reading.begin(known, start_ms)):
                        await reading.read()
                finally:
                    await reading.commit()
        progress.close()
        return INTERRUPTED if wishes.signal is not None else 0


class _Reading:
    """One run of the command.

    `_written` is where partitions go on, as far as that is not committed; `_begun` are those held now of which records
    have been handed out, or whose first position has been taken down.
    """

    def __init__(self, order: ConsumeOrder, form: Form, progress: Progress, wishes: EndSignals) -> None:
        self._order = order
        self._form = form
        self._progress = progress
        self._wishes = wishes
        self._written: dict[TopicPartition, OffsetAndMetadata] = {}
        self._begun: set[TopicPartition] = set()
        self._committed_at_s = time.monotonic()
        self._ends: dict[TopicPartition, int] | None = None
        try:
            self.consumer = Consumer(
                order.bootstrap,
                topics=order.topics if order.group_id is not None else (),
                group_id=order.group_id,
                client_id="barnabas-cli",
                auto_offset_reset="earliest" if order.from_beginning else "latest",
                auto_commit=False,
                read_committed=order.read_committed,
                on_assigned=self._on_assigned,
                on_revoked=self._on_revoked,
                on_lost=self._on_lost,
                timeout_s=order.timeout_s,
            )
        except ValueError as error:
            raise CommandError(str(error)) from error

    async def begin(self, known: Mapping[str, Sequence[int]], start_ms: int | None) -> bool:
        """Go where reading shall begin; a group knows by itself."""
        order = self._order
        if order.group_id is not None:
            return True
        chosen = [TopicPartition(topic, number) for topic, numbers in known.items() for number in numbers]
        await self.consumer.assign(chosen)
        if order.offset is not None:
            await self._seek(chosen, order.offset)
        elif start_ms is not None:
            await self.consumer.seek_to_time(start_ms)
        elif not order.from_beginning:
            # Now, and not when the first fetch comes to it: records produced from here on shall be seen.
            await self.consumer.seek_to_end()
        if order.exit_at_end:
            self._ends = await self.consumer.end_offsets(chosen)
        return True

    async def read(self) -> None:
        """Write records as they come, until there has been enough."""
        order = self._order
        aside = BlockingThread()
        last_at_s = time.monotonic()
        while not (self._wishes.end.is_set() or await self._is_at_end()):
            at_once = RECORDS_AT_ONCE
            poll_s = POLL_S
            if order.max_records is not None:
                at_once = min(at_once, order.max_records - self._progress.records)
            if order.idle_exit_s is not None:
                poll_s = min(poll_s, max(0.0, last_at_s + order.idle_exit_s - time.monotonic()))
            try:
                found = await self._wishes.unless(self.consumer.get_many(at_once, poll_s))
            except CorruptRecordsError as error:
                await self._skip(error)
                found = None
                last_at_s = time.monotonic()
            if found:
                last_at_s = time.monotonic()
                await self._write(found, aside)
            elif order.idle_exit_s is not None and time.monotonic() - last_at_s >= order.idle_exit_s:
                return
            if time.monotonic() - self._committed_at_s >= COMMIT_EVERY_S:
                await self.commit()
            if self._progress.records == order.max_records:
                return

    async def commit(self, partitions: frozenset[TopicPartition] | None = None) -> None:
        """Commit what has been written, of some partitions or of all. A failure is told and is no reason to end."""
        self._committed_at_s = time.monotonic()
        if self._order.group_id is None:
            return
        await self._add_beginnings()
        chosen = {key: at for key, at in self._written.items() if partitions is None or key in partitions}
        for key in chosen:
            del self._written[key]
        if not chosen:
            return
        try:
            await self.consumer.commit(chosen, timeout_s=min(COMMIT_TIMEOUT_S, self._order.timeout_s))
        except (ClientError, KafkaError) as error:
            complain(f"not committed, and read again if that stays so: {error}")
            if not isinstance(error, CommitFailedError):
                self._written = chosen | self._written

    async def _add_beginnings(self) -> None:
        """Let a partition of which nothing has been read yet count as read up to where we stand in it.

        Else the next reader would begin at the end again, and miss the records between.
        """
        for key in self.consumer.assignment - self._begun:
            try:
                position = await self.consumer.position(key, timeout_s=0)
            except (ClientError, KafkaError):
                continue  # Not known yet: the next commit comes soon.
            self._begun.add(key)
            self._written.setdefault(key, OffsetAndMetadata(position))

    async def _write(self, found: Mapping[TopicPartition, Sequence[ConsumerRecord]], aside: BlockingThread) -> None:
        form = self._form
        lines = b"".join([form(record) for records in found.values() for record in records])
        self._begun.update(found)
        if await self._wishes.unless(_done(aside, lines)) is None:
            return  # Interrupted in the middle: records that may not be written are not committed.
        self._progress.add(sum(map(len, found.values())), len(lines))
        for key, records in found.items():
            # A partition that went while this was written, for longer than a group waits, is another's to commit.
            with contextlib.suppress(NotAssignedError):
                # Beyond the last record, when markers of transactions follow it.
                next_offset = await self.consumer.position(key)
                self._written[key] = OffsetAndMetadata(next_offset, "", records[-1].leader_epoch)

    async def _skip(self, error: CorruptRecordsError) -> None:
        """Leave out a batch that cannot be read, or end if that was not asked for."""
        if not self._order.skip_corrupt:
            raise CommandError(f"{error} (--skip-corrupt leaves out what cannot be read)") from error
        complain(f"left out: {error}")
        with contextlib.suppress(NotAssignedError):
            await self.consumer.skip(error)
            self._begun.add(error.partition)
            self._written[error.partition] = OffsetAndMetadata(error.next_offset)

    async def _is_at_end(self) -> bool:
        """Say whether everything has been written that was there when reading began."""
        if self._ends is None:
            return False
        for key, end in list(self._ends.items()):
            try:
                position = await self.consumer.position(key, timeout_s=0)
            except (ClientError, KafkaError):
                continue  # Not known yet, or on its way to or from us.
            if position >= end:
                self._ends.pop(key, None)
        return not self._ends

    async def _seek(self, chosen: Sequence[TopicPartition], offset: int) -> None:
        starts = await self.consumer.begin_offsets(chosen)
        ends = await self.consumer.end_offsets(chosen)
        for key in chosen:
            wanted = offset if offset >= 0 else max(starts[key], ends[key] + offset)
            if not starts[key] <= wanted <= ends[key]:
                there = f"{key} has the offsets from {starts[key]} to {ends[key]}"
                raise CommandError(f"--offset {offset} does not work: {there}")
            await self.consumer.seek(key, wanted)

    async def _on_assigned(self, consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        if self._order.exit_at_end:
            self._ends = (self._ends or {}) | await consumer.end_offsets(partitions)

    async def _on_revoked(self, _consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        await self.commit(partitions)
        self._let_go(partitions)

    async def _on_lost(self, _consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        self._let_go(partitions)

    def _let_go(self, partitions: frozenset[TopicPartition]) -> None:
        self._begun -= partitions
        for key in partitions:
            self._written.pop(key, None)
            if self._ends is not None:
                self._ends.pop(key, None)


async def _known_partitions(order: ConsumeOrder) -> dict[str, Sequence[int]]:
    """Return the partitions to read, and refuse missing ones: a consumer would wait for them for ever."""
    async with Admin(order.bootstrap, client_id="barnabas-cli", timeout_s=order.timeout_s) as admin:
        with typed():
            views = await admin.describe_topics(list(dict.fromkeys(order.topics)))
    for number in order.partitions:
        if number not in views[0].partitions:
            raise UnknownTopicOrPartitionError(
                f"{views[0].name}-{number}; it has {len(views[0].partitions)} partitions"
            )
    return {view.name: sorted(set(order.partitions) or view.partitions) for view in views}


async def _done(aside: BlockingThread, lines: bytes) -> bool:
    await aside.run(lambda: write_all(STDOUT_FD, lines))
    return True


def _form(order: ConsumeOrder) -> Form:
    separator = None if order.key_separator is None else typed_bytes(order.key_separator)
    null = typed_bytes(order.null)
    if order.form == "raw":
        return raw_form(separator, null, headers=order.headers)
    if separator is not None or order.headers:
        raise CommandError("--key-separator and --headers are for raw lines; JSON has both, a template names them")
    if order.form == "json":
        return json_form
    if "{" not in order.form:
        raise CommandError(f"--format {order.form} does not work: it must be raw, json or a template with {{fields}}")
    return template_form(order.form, null, readable)
