"""Writes the rows of one task: encodes them in this thread, while the producer sends those before in its own.

*What is promised.* When `write_rows` returns, brokers have acknowledged every row, with acks as the options have them.
Within one attempt of a task every row is written once, because the producer is idempotent, whatever happens to leaders
and connections. When it raises, rows may have been written all the same, and an attempt that follows writes them again.

*Exactly once.* The rows of an `Attempt` are in a transaction that `write_rows` leaves open: brokers show them to
readers of committed records when the driver has committed it, with those of the batch's other tasks. A failed task
aborts its own, and what it could not abort the driver does.

*Memory.* At most `kafka.buffer.memory` of encoded rows are not acknowledged, in pieces of 8 MiB that lie in one buffer
each; beside them one piece is being encoded, and Spark holds one Arrow batch.

*Failures.* The first row that cannot be written fails the task, and its producer is closed: nothing of a failed attempt
is sent later.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barnabas_clients.errors import DeadlineExceededError
from barnabas_clients.producer.delivery import BatchDelivery
from barnabas_clients.producer.encoded import EncodedBatch
from barnabas_clients.producer.producer import Producer
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.errors import KafkaError
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.records.compression import Compression
from barnabas_spark.clusters import result, run, submit
from barnabas_spark.options.writes import WriteOptions

from .batches import Built, build_batches
from .columns import PIECE_BYTES, Piece, pieces
from .destinations import Destination, Destinations, Routed
from .exactly_once.decisions import Ticket
from .exactly_once.vacancies import Attempt
from .layout import Layout
from .outcome import TaskOutcome
from .producers import abort, begin_attempt, close_producer, prepare, producer_for

__all__ = ["NoTopicError", "NotWrittenError", "write_rows"]

logger = logging.getLogger(__name__)

PIECES_MIN: Final = 2
BATCH_BYTES_MIN: Final = 4_096
"""Batches are not made smaller than this, whatever a topic refuses."""


class NotWrittenError(BarnabasError):
    """Rows were not written. `row` is the first of them known, counted in its task from 0."""

    def __init__(self, row: int, destination: Destination, cause: Exception) -> None:
        where = f"{destination.topic}-{destination.partition}"
        super().__init__(f"row {row} of the task was not written to {where}: {cause}")
        self.row = row


class _Sent(NamedTuple):
    """A batch on its way, and which rows of the task it has."""

    destination: Destination
    built: Built
    rows: npt.NDArray[np.int64] | range
    delivery: BatchDelivery


def write_rows(
    batches: Iterable[Any], layout: Layout, options: WriteOptions, turn: int, attempt: Attempt | None = None
) -> TaskOutcome:
    """Write the rows of `batches`, which are Arrow record batches with Spark's columns, and wait until they are stored.

    Args:
        batches: is read as fast as brokers take the rows.
        layout: where the columns are.
        options: of the write.
        turn: any number from 0; where rows begin that may go to any partition.
        attempt: has a transaction of its own, which is to have the rows, and is left open.

    Raises:
        UnsuitableRowError: a row cannot become a record.
        NotWrittenError: brokers refused rows, or did not acknowledge them within `kafka.delivery.timeout.ms`.
        ClientError, KafkaError: no broker answers, or a topic does not exist.
    """
    source = pieces(batches, layout)
    first = next(source, None)
    if first is None:
        return TaskOutcome(0, 0)
    task = _Task(options, turn, attempt)
    try:
        task.write(first)
        for piece in source:
            task.write(piece)
        return task.finish()
    except BaseException:
        task.abandon()
        raise


class _Task:
    """One attempt of a task. Used by one thread."""

    def __init__(self, options: WriteOptions, turn: int, attempt: Attempt | None) -> None:
        self._options = options
        self._is_prepared = attempt is not None
        self._ticket: Ticket | None = None
        if attempt is None:
            found = run(producer_for(options), options.max_block_ms / 1000)
        else:
            found, self._ticket = run(begin_attempt(options, attempt), 2 * options.max_block_ms / 1000)
        self._producer: Producer = found.producer
        self._fitting_bytes = found.fitting_bytes
        self._destinations = Destinations(options, self._partition_count, turn)
        self._compression = Compression[options.compression.upper()]
        self._pieces_max = max(PIECES_MIN, options.buffer_bytes // PIECE_BYTES)
        # A batch is given up after this time. Whoever waits for room waits for that at most.
        self._patience_s = options.delivery_timeout_ms / 1000 + options.request_timeout_ms / 1000
        self._handing_over: Future[list[_Sent]] | None = None
        self._handing_count = 0
        self._under_way: deque[list[_Sent]] = deque()
        self._rows = 0
        self._sent_bytes = 0

    def write(self, piece: Piece) -> None:
        """Encode a piece and put it on its way, when the pieces before it have left so much room."""
        routed = self._destinations.route(piece)
        columns = piece.columns._replace(order=routed.order)
        built = build_batches(columns, routed.run_ends, self._compression, self._batch_bytes(routed))
        now_ms = time.time_ns() // 1_000_000
        self._take_over()
        self._settle(self._pieces_max - 1)
        self._handing_count = len(built)
        self._handing_over = submit(self._hand_over(built, routed, piece.first_row, now_ms))
        self._rows += piece.columns.row_count
        self._sent_bytes += sum(len(each.frame) for each in built)

    def _batch_bytes(self, routed: Routed) -> int:
        """Return the size of batches that all topics of a piece take, as far as is known."""
        for sent in self._under_way:
            self._learn(sent)
        topics = {destination.topic for destination in routed.destinations}
        fitting = (self._fitting_bytes[topic] for topic in topics & self._fitting_bytes.keys())
        return min([self._options.batch_bytes, *fitting])

    def _learn(self, sent: list[_Sent]) -> None:
        """Remember which batches were too large for their topics."""
        for each in sent:
            if halvings := each.delivery.halvings:
                topic = each.destination.topic
                fitting = max(each.built.plain_bytes >> halvings, BATCH_BYTES_MIN)
                self._fitting_bytes[topic] = min(self._fitting_bytes.get(topic, fitting), fitting)

    def finish(self) -> TaskOutcome:
        """Wait until all is acknowledged."""
        self._take_over()
        self._settle(0)
        if not self._is_prepared:
            return TaskOutcome(self._rows, self._sent_bytes)
        prepared = run(prepare(self._options, self._producer, self._ticket), self._patience_s)
        return TaskOutcome(self._rows, self._sent_bytes, prepared)

    def abandon(self) -> None:
        """Send nothing more."""
        if self._handing_over is not None:
            self._handing_over.cancel()
        try:
            closing = abort(self._producer) if self._is_prepared else close_producer(self._options, self._producer)
            run(closing, self._options.request_timeout_ms / 1000)
        except Exception:
            # What ended the task says more.
            logger.warning("closing the producer of a failed task failed", exc_info=True)

    def _partition_count(self, topic: str) -> int:
        timeout_s = self._options.max_block_ms / 1000
        try:
            return run(self._producer.partitions(topic, timeout_s, is_fresh=True), timeout_s)
        except DeadlineExceededError as error:
            cause = error.__cause__
            if isinstance(cause, KafkaError) and cause.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                reason = f"it does not exist, and was not created within {timeout_s:g} s (kafka.max.block.ms)"
                raise NoTopicError(topic, f"{reason}; create it first") from error
            raise
        except KafkaError as error:
            if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise NoTopicError(topic, "that is not a valid name") from error
            raise

    async def _hand_over(self, built: list[Built], routed: Routed, first_row: int, now_ms: int) -> list[_Sent]:
        """Give batches to the producer, in order, as it has room for them. Runs on the loop."""
        sent = []
        for each in built:
            destination = routed.destinations[each.run]
            encoded = EncodedBatch(each.frame, each.end - each.start, now_ms, now_ms)
            delivery = await self._producer.send_batch(*destination, encoded, self._patience_s)
            rows = (
                range(first_row + each.start, first_row + each.end)
                if routed.order is None
                else routed.order[each.start : each.end] + first_row
            )
            # The frame is the producer's now, which lets go of it when it can.
            sent.append(_Sent(destination, each._replace(frame=bytearray()), rows, delivery))
        return sent

    def _take_over(self) -> None:
        """Wait until the producer has taken the last piece."""
        if self._handing_over is not None:
            # Each of the batches may have to wait, and the wait for each has a deadline.
            self._under_way.append(result(self._handing_over, self._patience_s * self._handing_count))
            self._handing_over = None

    def _settle(self, left_max: int) -> None:
        """Wait until at most `left_max` pieces are not acknowledged, and look at what became of the others."""
        while self._under_way and (len(self._under_way) > left_max or _are_done(self._under_way[0])):
            sent = self._under_way.popleft()
            run(_wait(sent), self._patience_s)
            self._learn(sent)
            self._check(sent)

    def _check(self, sent: list[_Sent]) -> None:
        for each in sent:
            if (failure := each.delivery.failure()) is not None:
                index, cause = failure
                raise NotWrittenError(int(each.rows[index]), each.destination, cause) from cause


class NoTopicError(BarnabasError):
    """A topic does not exist, and brokers do not create it."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic!r}: {reason}")
        self.topic = topic
        self.reason = reason


def _are_done(sent: list[_Sent]) -> bool:
    return all(each.delivery.done() for each in sent)


async def _wait(sent: list[_Sent]) -> None:
    for each in sent:
        await each.delivery
