"""A transaction of a producer: what is sent in it is read by all who read committed records, or by none.

    async with producer.transaction() as transaction:
        await producer.send("orders", b"one coffee", key=b"table 4")
        await transaction.send_offsets(consumer)

The end of the block commits. An exception aborts, a cancellation too. Then the block ends within `timeout_s`, or
`ABORT_S` if that is less: if no coordinator has answered by then, the next transaction aborts this one first, and if
there is none, the coordinator does by itself after `transaction_timeout_s`.

*Failures.* A record or an offset that fails costs the transaction, and never the producer unless `fenced` is true, or
`abortable` false: every further call in the transaction raises the same error, the commit too, and the end of the block
has aborted it. So a caller who catches an error that is `abortable` does the work once more, in another transaction. A
commit whose answer was lost raises with `may_be_done`: the transaction is whole in the log, or not there at all, but
nobody knows which.

Not here: what the coordinators are asked (conversation.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from barnabas_clients.arguments import seconds
from barnabas_clients.errors import ClientError, copy_of
from barnabas_clients.groups.offsets_to_send import GroupOffsets
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_clients.wording import shown_reason

from .transactions.situations import Situation

if TYPE_CHECKING:
    from .conversation import Conversation
    from .sender import Sender

__all__ = ["GroupConsumer", "GroupOffsets", "PreparedTransaction", "Transaction", "leave_nothing_open"]

ABORT_S: Final = 5.0
"""Some elections of a coordinator take less."""
_log = logging.getLogger("barnabas_clients.producer")


class PreparedTransaction(NamedTuple):
    """A transaction that nobody has ended, by what a coordinator needs to end it."""

    transactional_id: str
    producer_id: int
    epoch: int


class GroupConsumer(Protocol):
    """A consumer of a group: it knows how far its application has come, and in whose name that is stored."""

    def offsets_to_send(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> GroupOffsets: ...


class Transaction:
    """One transaction; `Producer.transaction` makes it. Use it once, as `async with`, or `begin` it and end it.

    The transactions of a producer follow one another. What any task sends while one is open is part of it.
    """

    def __init__(self, conversation: Conversation, sender: Sender, timeout_s: float) -> None:
        self._conversation = conversation
        self._sender = sender
        self._timeout_s = timeout_s
        self._number = 0
        self._is_over = False
        self._stored: list[Callable[[], None]] = []

    async def __aenter__(self) -> Self:
        """Begin it; the same as `begin`."""
        await self.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Commit, or abort after an exception, unless that was done. Raises as `commit`; an abort raises nothing."""
        if self._is_over:
            return
        if error is None:
            await self.commit()
        else:
            await self._abort_after(error)

    @property
    def is_open(self) -> bool:
        """True if it has begun and has not been ended yet."""
        return bool(self._number) and not self._is_over

    async def begin(self) -> None:
        """Begin it, when the one before has come to its end. The coordinator hears of it with the first record.

        Raises:
            KafkaError: the producer was fenced, or may not use its transactional id. ClientClosedError: it is closed.
            DeadlineExceededError: the coordinator did not answer in time. RuntimeError: another one is open.

        Cancellation: it has not begun.
        """
        if self._number or self._is_over:
            raise RuntimeError("this transaction has begun before; make another one")
        await self._conversation.begin(_deadline(self._timeout_s))
        self._number = self._conversation.number

    async def send_offsets(
        self,
        consumer: GroupConsumer,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Store offsets of a consumer's group with this transaction: those given, or behind all records handed out.

        They are stored in the name of the consumer as a member, so that they are refused if its partitions have gone to
        another one. After an abort, let the consumer read again from where it was: `Consumer.seek_to_committed`.

        Raises:
            ValueError: the consumer has no group, or commits by itself. CommitFailedError: it is not a member now.
            KafkaError: they were refused, which costs the transaction.
            DeadlineExceededError: nobody has answered in time, which costs it, too.

        Cancellation: it costs the transaction.
        """
        limit_s = self._timeout_s if timeout_s is None else seconds("timeout_s", timeout_s)
        self._check_open()
        conversation = self._conversation
        conversation.check_in_transaction()
        given = consumer.offsets_to_send(offsets)
        under_way = conversation.machine.add_offsets(given.member, given.offsets)
        if under_way.left:
            machine = conversation.machine
            failure: KafkaError | ClientError | None = None

            def is_over() -> bool:
                nonlocal failure
                failure = None if machine.situation is Situation.IN_TRANSACTION else machine.error
                return not under_way.left or machine.situation is not Situation.IN_TRANSACTION

            what = f"storing offsets of group {given.member.group_id}"
            await conversation.wait(is_over, _deadline(limit_s), what)
            if under_way.left:
                if failure is not None:
                    raise copy_of(failure)
                raise RuntimeError("the transaction was ended before its offsets were stored")
        self._stored.append(given.on_stored)

    async def commit(self) -> None:
        """Send what was put into it, and commit it when all of that is acknowledged.

        Raises:
            KafkaError, ClientError: it failed, and was aborted, if that was possible within `ABORT_S`. If `may_be_done`
                is not false, it may have been committed. `abortable`: another transaction can be begun.
            DeadlineExceededError: not within `timeout_s`. RuntimeError: it is not open.

        Cancellation: it is aborted, or was committed.
        """
        self._check_open()
        conversation = self._conversation
        self._is_over = True
        try:
            conversation.check_in_transaction()
            self._sender.enter_all()
            await conversation.commit(_deadline(self._timeout_s))
        except BaseException as error:
            self._is_over = False
            await self._abort_after(error)
            raise
        for on_stored in self._stored:
            on_stored()

    async def abort(self) -> None:
        """Abort it. Records that were not sent yet are not sent, and their deliveries fail.

        Raises:
            KafkaError: the producer was fenced. RuntimeError: it is not open.
            DeadlineExceededError: not within `timeout_s`; the next transaction tries again before it begins.

        Cancellation: the same as at the deadline.
        """
        self._check_open()
        await self._abort(self._timeout_s)

    async def _abort_after(self, error: BaseException) -> None:
        """Abort because of an exception, which says more than one of the abort would."""
        if not self.is_open:
            return
        try:
            await self._abort(min(self._timeout_s, ABORT_S))
        except (ClientError, KafkaError) as found:
            if found is not error:
                _log.warning("%s: not aborted yet: %s", self._conversation.subject, shown_reason(found))

    async def _abort(self, limit_s: float) -> None:
        self._is_over = True
        if self._conversation.number == self._number:
            await _abort(self._conversation, self._sender, limit_s)

    def _check_open(self) -> None:
        if not self._number:
            raise RuntimeError("this transaction has not begun")
        if self._is_over:
            raise RuntimeError("this transaction is over; make another one")


async def leave_nothing_open(conversation: Conversation, sender: Sender, limit_s: float) -> None:
    """Let an end that is under way come to its own, and abort what is open, within the limit; raises nothing."""
    if conversation.is_prepared:
        return
    deadline = _deadline(limit_s)
    situation = conversation.machine.situation
    try:
        if situation is Situation.COMMITTING or situation is Situation.ABORTING:
            await conversation.wait(lambda: conversation.machine.situation is not situation, deadline, "its end")
        await _abort(conversation, sender, min(limit_s, ABORT_S))
    except (ClientError, KafkaError) as error:
        _log.warning("closing: a transaction may be open until its time is over: %s", shown_reason(error))


async def _abort(conversation: Conversation, sender: Sender, limit_s: float) -> None:
    """Abort a transaction, unless it has ended by itself. Raises as `Conversation.abort`."""
    situation = conversation.machine.situation
    if situation is Situation.IN_TRANSACTION or situation is Situation.ABORTABLE_ERROR:
        # What is on the wire has the first half of the time, so that the other half is left for the coordinator.
        batches_deadline = _deadline(limit_s / 2)
        await conversation.abort(_deadline(limit_s), batches_deadline, sender.give_up_transaction)


def _deadline(limit_s: float) -> float:
    return asyncio.get_running_loop().time() + limit_s
