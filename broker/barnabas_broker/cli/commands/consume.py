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
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from barnabas_broker.cli.addresses import endpoints_of
from barnabas_broker.cli.commands.administration.names import topics_named
from barnabas_broker.cli.connecting import connected
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.legal_names import check_group_names, check_topic_names
from barnabas_broker.cli.near_names import did_you_mean
from barnabas_broker.cli.output import complain
from barnabas_broker.cli.streams.dates import date_form
from barnabas_broker.cli.streams.formats import percent_form
from barnabas_broker.cli.streams.lines import Record, escaped, json_form, raw_form, template_form
from barnabas_broker.cli.streams.offset_ranges import Anchor, OffsetRange, Place, parse_range
from barnabas_broker.cli.streams.options import as_usage, form_kind, seconds_of
from barnabas_broker.cli.streams.pipes import BlockingThread, EndSignals, Progress, run, typed_bytes, write_all
from barnabas_broker.cli.times import readable, timestamp_ms
from barnabas_broker.process.log_lines import log_to_stderr
from barnabas_clients import Admin, Consumer, CorruptRecordsError, OffsetAndMetadata, TopicPartition
from barnabas_clients.cluster.topic_view import TopicView
from barnabas_clients.consumer.errors import NotAssignedError
from barnabas_clients.consumer.record import ConsumerRecord
from barnabas_clients.errors import ClientError, CommitFailedError
from barnabas_clients.protocol.errors import KafkaError

__all__ = ["ConsumeOrder", "consume"]

STDOUT_FD = 1
COMMIT_EVERY_S = 5.0
# A coordinator that moves needs a second or two; without one, the end of the command should not take much longer.
COMMIT_TIMEOUT_S = 10.0
RECORDS_AT_ONCE = 1000
IDLE_LEAST_S = 0.1
# How soon a group that reads by a pattern finds a new topic.
PATTERN_AGE_S = 10.0
METADATA_AGE_S = 300.0
BEGINNING = OffsetRange(Place(Anchor.START))
FROM_NOW_ON = OffsetRange(Place(Anchor.END))
# A poll is short only so that wishes of the loop below (an end reached, an idle limit) are seen to.
POLL_S = 1.0
INTERRUPTED = 130
REGEX_HINT = " (--regex reads all topics that match a pattern)"

GroupProtocol = Literal["classic", "consumer"]
PROTOCOLS: tuple[GroupProtocol, ...] = get_args(GroupProtocol)
Form = Callable[[Record], bytes]


class ConsumeOrder(NamedTuple):
    """The options of the command line."""

    topics: Sequence[str]
    regex: bool
    bootstrap: str
    group_id: str | None
    group_protocol: str | None
    from_beginning: bool
    from_time: str | None
    offset: str | None
    partitions: Sequence[int]
    form: str
    key_separator: str | None
    headers: bool
    null: str
    escape: bool | None
    max_records: int | None
    exit_at_end: bool
    idle_exit: str | None
    read_committed: bool
    skip_corrupt: bool
    progress: bool | None
    timeout_s: float


def consume(order: ConsumeOrder) -> int:
    """Write records until told to stop; 130 if it was a signal that said so."""
    span = _span(order)
    idle_exit_s = None if order.idle_exit is None else seconds_of("--idle-exit", order.idle_exit, IDLE_LEAST_S)
    if order.group_id is None and order.partitions and (order.regex or len(order.topics) != 1):
        raise UsageError("--partition needs one topic")
    if order.regex:
        with as_usage("--regex"):
            _pattern(order.topics)
    else:
        check_topic_names(order.topics, REGEX_HINT)
    if order.group_id is not None:
        check_group_names([order.group_id])
    protocol = _protocol(order)
    form = _form(order)
    endpoints_of(order.bootstrap)  # It raises.
    log_to_stderr(logging.WARNING, "barnabas: %(message)s")
    return run(_consume(order, form, span, idle_exit_s, protocol))


def _protocol(order: ConsumeOrder) -> GroupProtocol:
    """Return how the members of the group share its topics."""
    if order.group_protocol is not None and order.group_id is None:
        raise UsageError("--group-protocol needs a --group")
    typed = "classic" if order.group_protocol is None else order.group_protocol
    for protocol in PROTOCOLS:
        if typed == protocol:
            return protocol
    near = did_you_mean(typed, PROTOCOLS)
    raise UsageError(f"--group-protocol {typed!r} is not valid{near}; write {' or '.join(PROTOCOLS)}")


def _span(order: ConsumeOrder) -> OffsetRange:
    """Return where to begin and to end, from whichever option says it."""
    if order.from_beginning + (order.from_time is not None) + (order.offset is not None) > 1:
        raise UsageError("say where to start once: --from-beginning, --from-time or --offset")
    now_ms = int(time.time() * 1000)
    span = BEGINNING if order.from_beginning else FROM_NOW_ON
    if order.from_time is not None:
        with as_usage("--from-time"):
            span = OffsetRange(Place(Anchor.TIME, timestamp_ms(order.from_time, now_ms)))
    if order.offset is not None:
        span = parse_range(order.offset, now_ms)
    if order.group_id is not None and (order.partitions or span not in (BEGINNING, FROM_NOW_ON)):
        raise UsageError(
            "a group decides who reads what from where: without --partition, --from-time, and --offset but start or "
            "end (barnabas group reset-offsets moves a group)"
        )
    return span


def _pattern(expressions: Sequence[str]) -> str:
    """Return one expression for whole names out of several that may match anywhere in a name, as rpk's do.

    Raises:
        CommandError: one is no regular expression.
    """
    for expression in expressions:
        try:
            re.compile(expression)
        except (re.error, RecursionError, OverflowError) as error:
            raise CommandError(f"{expression!r} is not a regular expression: {str(error)[:80]}") from error
    # Flags at the start of an expression are for it alone.
    parts = [re.sub(r"\A\(\?([aimsxu]+)\)(.*)\Z", r"(?\1:\2)", one, flags=re.DOTALL) for one in expressions]
    return f"(?s:.*)(?:{'|'.join(f'(?:{part})' for part in parts)})(?s:.*)"


async def _consume(
    order: ConsumeOrder, form: Form, span: OffsetRange, idle_exit_s: float | None, protocol: GroupProtocol
) -> int:
    shown = Progress.wanted(order.progress, output_is_busy=os.isatty(STDOUT_FD))
    progress = Progress("read", shown=shown)
    with EndSignals(STDOUT_FD) as wishes:
        known = await wishes.unless(_known_partitions(order))
        if known is not None:
            reading = _Reading(order, form, span, progress, wishes, protocol)
            async with connected(reading.consumer, order.timeout_s):
                try:
                    if await wishes.unless(reading.begin(known)):
                        await reading.read(idle_exit_s)
                finally:
                    await reading.commit()
        progress.close()
        return INTERRUPTED if wishes.signal is not None else 0


class _Reading:
    """One run of the command.

    `_written` is where partitions go on, as far as that is not committed; `_begun` are those held now of which records
    have been handed out, or whose first position has been taken down. `_ends` are those that have not been read up to
    their end, if there is one; `_bounds` has all ends that no record behind them may be written of.
    """

    def __init__(
        self,
        order: ConsumeOrder,
        form: Form,
        span: OffsetRange,
        progress: Progress,
        wishes: EndSignals,
        protocol: GroupProtocol,
    ) -> None:
        self._order = order
        self._form = form
        self._span = span
        self._progress = progress
        self._wishes = wishes
        self._written: dict[TopicPartition, OffsetAndMetadata] = {}
        self._begun: set[TopicPartition] = set()
        self._committed_at_s = time.monotonic()
        self._ends: dict[TopicPartition, int] | None = None
        self._bounds: dict[TopicPartition, int] = {}
        in_group = order.group_id is not None
        try:
            self.consumer = Consumer(
                order.bootstrap,
                topics=order.topics if in_group and not order.regex else (),
                pattern=_pattern(order.topics) if in_group and order.regex else None,
                metadata_max_age_s=PATTERN_AGE_S if order.regex else METADATA_AGE_S,
                group_id=order.group_id,
                group_protocol=protocol,
                client_id="barnabas-cli",
                auto_offset_reset="earliest" if span == BEGINNING else "latest",
                auto_commit=False,
                read_committed=order.read_committed,
                on_assigned=self._on_assigned,
                on_revoked=self._on_revoked,
                on_lost=self._on_lost,
                timeout_s=order.timeout_s,
            )
        except ValueError as error:
            raise CommandError(str(error)) from error

    async def begin(self, known: Mapping[str, Sequence[int]]) -> bool:
        """Go where reading shall begin; a group knows by itself."""
        if self._order.group_id is not None:
            return True
        chosen = [TopicPartition(topic, number) for topic, numbers in known.items() for number in numbers]
        await self.consumer.assign(chosen)
        # Now, and not when the first fetch comes to it: records produced from here on shall be seen.
        starts = await self._offsets(chosen, self._span.start, is_start=True)
        if self._span.end is not None:
            self._bounds = await self._offsets(chosen, self._span.end, is_start=False)
        if self._order.exit_at_end:
            ends = await self.consumer.end_offsets(chosen)
            self._bounds = {key: min(end, self._bounds.get(key, end)) for key, end in ends.items()}
        if self._span.end is not None or self._order.exit_at_end:
            self._ends = dict(self._bounds)
        for key, offset in starts.items():
            await self.consumer.seek(key, offset)
        return True

    async def read(self, idle_exit_s: float | None) -> None:
        """Write records as they come, until there has been enough."""
        order = self._order
        aside = BlockingThread()
        last_at_s = time.monotonic()
        while not (self._wishes.end.is_set() or await self._is_at_end()):
            at_once = RECORDS_AT_ONCE
            poll_s = POLL_S
            if order.max_records is not None:
                at_once = min(at_once, order.max_records - self._progress.records)
            if idle_exit_s is not None:
                poll_s = min(poll_s, max(0.0, last_at_s + idle_exit_s - time.monotonic()))
            try:
                found = await self._wishes.unless(self.consumer.get_many(at_once, poll_s))
            except CorruptRecordsError as error:
                await self._skip(error)
                found = None
                last_at_s = time.monotonic()
            if found:
                last_at_s = time.monotonic()
                await self._write(self._within_bounds(found), aside)
            elif idle_exit_s is not None and time.monotonic() - last_at_s >= idle_exit_s:
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

    def _within_bounds(
        self, found: Mapping[TopicPartition, Sequence[ConsumerRecord]]
    ) -> Mapping[TopicPartition, Sequence[ConsumerRecord]]:
        """Leave out records behind an end, and ask for no more of a partition that is there."""
        if not self._bounds:
            return found
        within = {}
        for key, records in found.items():
            bound = self._bounds[key]
            if records[-1].offset >= bound - 1:
                self.consumer.pause(key)
                records = [record for record in records if record.offset < bound]  # noqa: PLW2901 - those that count
            if records:
                within[key] = records
        return within

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
            past = "--skip-corrupt goes past all such"
            if self._order.group_id is None:
                past = f"--partition {error.partition.partition} --offset {error.next_offset} goes past it, {past}"
            raise CommandError(f"{error} ({past})") from error
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

    async def _offsets(
        self, chosen: Sequence[TopicPartition], place: Place, *, is_start: bool
    ) -> dict[TopicPartition, int]:
        """Return a place's offset in each partition. An end may lie behind the records that there are."""
        consumer = self.consumer
        ends = await consumer.end_offsets(chosen)
        if place == FROM_NOW_ON.start:
            return ends
        if place.anchor is Anchor.TIME:
            found = await consumer.offsets_for_times(dict.fromkeys(chosen, place.number))
            return {key: ends[key] if (at := found[key]) is None else at.offset for key in chosen}
        starts = await consumer.begin_offsets(chosen)
        if place.anchor is Anchor.START:
            return {key: min(starts[key] + place.number, ends[key]) for key in chosen}
        if place.anchor is Anchor.END:
            return {key: max(starts[key], ends[key] + place.number) for key in chosen}
        for key in chosen:
            if is_start and not starts[key] <= place.number <= ends[key]:
                there = f"{key} has the offsets from {starts[key]} to {ends[key]}"
                raise CommandError(f"--offset {self._order.offset} is not possible: {there}")
        return dict.fromkeys(chosen, place.number)

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
    async with connected(
        Admin(order.bootstrap, client_id="barnabas-cli", timeout_s=order.timeout_s), order.timeout_s
    ) as admin:
        views = await (_matching(admin, order) if order.regex else topics_named(admin, order.topics))
    for number in order.partitions:
        if number not in views[0].partitions:
            there = len(views[0].partitions)
            raise CommandError(f"topic {views[0].name!r} has no partition {number}; it has {there}, from 0 on")
    return {view.name: sorted(set(order.partitions) or view.partitions) for view in views}


async def _matching(admin: Admin, order: ConsumeOrder) -> list[TopicView]:
    """Return the topics that match, in the order of their names; internal ones never do."""
    matches = re.compile(_pattern(order.topics)).fullmatch
    views = [view for view in await admin.list_topics() if matches(view.name)]
    if not views:
        text = f"no topic matches {', '.join(map(repr, order.topics))}"
        if order.group_id is None:
            raise CommandError(text)
        complain(f"{text} yet; waiting for one")
    return sorted(views, key=lambda view: view.name)


async def _done(aside: BlockingThread, lines: bytes) -> bool:
    await aside.run(lambda: write_all(STDOUT_FD, lines))
    return True


def _form(order: ConsumeOrder) -> Form:
    """Return what writes a record; escaped where that is asked for, or goes to a terminal."""
    kind = form_kind(order.form, ["template"])
    separator = None if order.key_separator is None else typed_bytes(order.key_separator)
    null = typed_bytes(order.null)
    escape = order.escape or (order.escape is None and os.isatty(STDOUT_FD))
    if kind != "raw" and (separator is not None or order.headers):
        raise UsageError("--key-separator and --headers are for raw lines; JSON has both, a format names them")
    if kind == "percent":
        with as_usage("--format"):
            # Its sizes are those of the records, and what is encoded needs no escapes: so it escapes by itself.
            return percent_form(order.form, null, date_form, escape=escape)
    if kind == "template":
        with as_usage("--format"):
            form: Form = template_form(order.form, null, readable)
    else:
        form = json_form if kind == "json" else raw_form(separator, null, headers=order.headers)
    return escaped(form) if escape else form
