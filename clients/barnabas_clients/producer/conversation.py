"""Asks the coordinators of a transactional producer what its transactions need, until it is answered.

`Transactions` (transactions/state_machine.py) decides what is asked; here are the search for coordinators, the pauses,
the deadlines, and the calls that wait. One request is out at a time. A task asks as long as there is something to ask,
and ends then; `kick` starts it again when there may be more.

*Deadlines.* Requests are repeated without an end of their own: whoever waits for them gives up at a deadline, and so
does a caller who is cancelled. Giving up ends the task, and the machine is told, for which the request that was out is
in doubt from then on. Nobody waits for additions of the first protocol but batches, which have a deadline too.

*News.* `on_news` is called, never from within a call into this module that changes the machine, when the situation, the
owner or the partitions may have changed.

Limits: one task, one request; coordinators of at most `GROUPS_MAX` groups are remembered.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas_clients.backoff import Backoff, Jitter
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientClosedError, ClientError, DeadlineExceededError, copy_of
from barnabas_clients.groups.coordinator import ATTEMPT_TIMEOUT_S, FIND_TIMEOUT_S, Coordinator
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.tasks import Tasks, report
from barnabas_raftlog.wire.schema import Message

from .transactions.requests import Owner, Request, produce_versions
from .transactions.situations import FAILED, MISUSE, Situation
from .transactions.state_machine import Step, Transactions

__all__ = ["Conversation"]

FEATURE: Final = "transaction.version"
GROUPS_MAX: Final = 16
SOON_S: Final = 0.02
"""As Kafka's producer does, which knows that the markers of the transaction before are being written."""
_COORDINATOR_S: Final = ATTEMPT_TIMEOUT_S + FIND_TIMEOUT_S


class Conversation:
    """The conversation of one producer with its coordinators. Used from one event loop; `close` must be called.

    `is_under_way` says whether batches have neither been acknowledged nor given up.
    """

    def __init__(
        self, cluster: Cluster, machine: Transactions, jitter: Jitter, *, is_under_way: Callable[[], bool]
    ) -> None:
        self.machine = machine
        self.on_news: Callable[[], None] = lambda: None
        self.number = 0
        """Of the present transaction, or of the last one."""
        self._cluster = cluster
        self._jitter = jitter
        self._is_under_way = is_under_way
        self._backoff = Backoff()
        self._tasks = Tasks(report)
        self._task: asyncio.Task[None] | None = None
        self._coordinator = Coordinator.of_transactions(cluster, machine.owner.transactional_id)
        self._groups: dict[str, Coordinator] = {}
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._last = ""
        # Partitions that the machine knows of, so that it is not told again and again.
        self._touched: set[TopicPartition] = set()
        self._is_kick_due = False
        self._is_closed = False
        self._is_prepared = False

    @property
    def subject(self) -> str:
        """What this is about, for people."""
        return self._coordinator.subject

    def check_in_transaction(self) -> None:
        """Raise unless something may be put into a transaction: its own error, or RuntimeError if none is open."""
        machine = self.machine
        if self._is_prepared:
            raise RuntimeError("the transaction is prepared: it can only be ended, by whoever knows its name")
        if machine.situation is Situation.IN_TRANSACTION:
            return
        if machine.error is not None and machine.situation in FAILED:
            raise copy_of(machine.error)
        raise RuntimeError(MISUSE[machine.situation])

    # The steps of a producer.

    async def begin(self, deadline: float) -> None:
        """Begin a transaction, when the one before has come to its end.

        Raises:
            KafkaError: the producer was fenced, or may not have the transactional id. RuntimeError: one is open.
            DeadlineExceededError: there is no producer id in time, or the transaction before could not be ended.
        """
        await self.get_ready(deadline)
        self.machine.begin()
        self._touched.clear()
        self.number += 1
        self._last = ""

    async def get_ready(self, deadline: float) -> None:
        """Get a producer id, and leave nothing open of what was before. Raises as `begin`."""
        machine = self.machine
        while True:
            self._see_version()
            situation = machine.situation
            if situation is Situation.READY:
                return
            if situation is Situation.FATAL_ERROR:
                assert machine.error is not None
                raise copy_of(machine.error)
            if situation in {Situation.IN_TRANSACTION, Situation.COMMITTING}:
                raise RuntimeError(MISUSE[situation])
            if situation is Situation.ABORTABLE_ERROR:
                machine.abort()
            elif situation is Situation.UNINITIALISED:
                machine.initialise()
            await self._wait_for_end(deadline, "getting ready for a transaction")
            if machine.situation is Situation.UNINITIALISED:
                assert machine.error is not None
                raise copy_of(machine.error)

    def prepare(self) -> Owner | None:
        """Leave the transaction open, in which everything is stored; None if nothing is in it.

        Raises:
            KafkaError, ClientError: something was not stored. RuntimeError: none is open.
        """
        self.check_in_transaction()
        self._is_prepared = True
        return self.machine.owner if self.machine.is_started else None

    @property
    def is_prepared(self) -> bool:
        """True if the transaction is to stay open although nobody here ends it."""
        return self._is_prepared

    async def commit(self, deadline: float) -> None:
        """Commit the transaction, of which everything is on its way.

        Raises:
            KafkaError, ClientError: it failed; `abortable` says whether an abort is left, `may_be_done` whether it may
                have been committed.
        """
        self.machine.commit()
        await self._wait_for_end(deadline, "the commit")

    async def abort(self, deadline: float, batches_deadline: float, on_late: Callable[[], None]) -> None:
        """Abort the transaction; `on_late` is called if batches are still under way at `batches_deadline`.

        Raises:
            KafkaError: the producer was fenced meanwhile. DeadlineExceededError: nobody knows of the abort yet.
        """
        self.machine.abort()
        self._tell()
        loop = asyncio.get_running_loop()

        def give_up_batches() -> None:
            if self.machine.situation is Situation.ABORTING and self._is_under_way():
                on_late()
                self.kick()

        timer = loop.call_at(batches_deadline, give_up_batches)
        try:
            await self._wait_for_end(deadline, "the abort")
        finally:
            timer.cancel()

    async def wait(self, is_over: Callable[[], bool], deadline: float, what: str) -> None:
        """Wait until something is over, or the transaction cannot go on.

        Raises:
            DeadlineExceededError: not within the deadline; that costs the transaction. So does a cancellation.
        """
        if self._is_closed:
            raise ClientClosedError("the producer is closed")
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        row = (is_over, over)
        self._waiting.append(row)
        self.kick()
        try:
            async with asyncio.timeout_at(deadline):
                await over
        except TimeoutError as cause:
            # A future that is awaited is cancelled with the wait, unless it was done before.
            if over.cancelled():
                last = f"; last: {self._last}" if self._last else ""
                error = DeadlineExceededError(f"{self.subject}: {what} was not done in time{last}")
                self.give_up(error)
                raise error from cause
        except asyncio.CancelledError:
            if over.cancelled():
                self.give_up(ClientError(f"{self.subject}: {what} was cancelled"))
            raise
        finally:
            self._waiting.remove(row)

    def give_up(self, error: ClientError) -> None:
        """Ask no more for what is under way, since nobody waits for it."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.machine.give_up(error)
        self._tell()

    async def close(self) -> None:
        """End the task, and every wait. Waits for nobody else."""
        self._is_closed = True
        for _, over in self._waiting:
            if not over.done():
                over.set_exception(ClientClosedError("the producer was closed"))
        await self._tasks.close()

    # Called by the sender.

    @property
    def produce_versions(self) -> range:
        """The versions of Produce that belong to the protocol of the transaction."""
        return produce_versions(is_second=self.machine.is_second)

    def may_send(self, partition: TopicPartition) -> bool:
        """Say whether a new batch for this partition may leave now; if not, see to it that it soon may."""
        machine = self.machine
        if not machine.may_send(partition) and machine.situation is Situation.IN_TRANSACTION:
            self.touch(partition)
        return machine.may_send(partition)

    def touch(self, partition: TopicPartition) -> None:
        """Note that there is a batch for this partition."""
        if partition not in self._touched:
            self._touched.add(partition)
            self.machine.touch(partition)
            if not self.machine.is_second:
                self.kick_soon()

    def on_batch_done(self, error: KafkaError | ClientError | None) -> None:
        """Take the outcome of a batch. `error` is its failure, unless the transaction's own end is its reason."""
        situation = self.machine.situation
        if error is not None:
            self._last = str(error)
            self.machine.on_batch_failed(error)
        is_awaited = situation is Situation.COMMITTING or situation is Situation.ABORTING
        if error is not None or (is_awaited and not self._is_under_way()):
            # The batch may not be out of all lists yet.
            self.kick_soon()

    def kick_soon(self) -> None:
        """Have `kick` called in the next turn of the loop, once."""
        if not self._is_kick_due:
            self._is_kick_due = True
            asyncio.get_running_loop().call_soon(self.kick)

    def kick(self) -> None:
        """Ask what there is to ask, unless that is under way; and tell of what has changed."""
        self._is_kick_due = False
        if self._is_closed:
            return
        self._tell()
        if self._task is None or self._task.done():
            self._task = self._tasks.start(self._ask_all())

    # The task.

    async def _ask_all(self) -> None:
        failures = 0
        while (request := self.machine.next_request(batches_are_under_way=self._is_under_way())) is not None:
            step = await self._ask(request)
            self._tell()
            if step is Step.AGAIN or step is Step.ELSEWHERE:
                await asyncio.sleep(self._backoff.delay_s(failures, self._jitter))
                failures += 1
            elif step is Step.SOON:
                await asyncio.sleep(SOON_S)
            else:
                failures = 0
        self._tell()

    async def _ask(self, request: Request) -> Step:
        """Ask once, and tell the machine what came of it."""
        machine = self.machine
        coordinator = self._coordinator_of(request)
        deadline = asyncio.get_running_loop().time() + _COORDINATOR_S
        try:
            await coordinator.find(deadline)
        except KafkaError as error:
            self._last = str(error)
            return machine.on_coordinator_refused(request, error.code)
        except ClientError as error:
            self._last = str(error)
            # It is the search that may have been carried out, and not the request.
            error.may_be_done = False
            return machine.on_no_answer(request, error)
        try:
            response = await coordinator.ask(request.message, deadline, versions=request.versions)
        except ClientError as error:
            self._last = str(error)
            return machine.on_no_answer(request, error)
        self._note(response)
        step = machine.on_answer(request, response)
        if step is Step.ELSEWHERE:
            coordinator.forget(coordinator.node_id)
        return step

    def _coordinator_of(self, request: Request) -> Coordinator:
        if request.group_id is None:
            return self._coordinator
        found = self._groups.pop(request.group_id, None) or Coordinator(self._cluster, request.group_id)
        self._groups[request.group_id] = found
        if len(self._groups) > GROUPS_MAX:
            del self._groups[next(iter(self._groups))]
        return found

    def _note(self, response: Message) -> None:
        code = getattr(response, "error_code", ErrorCode.NONE)
        if code:
            self._last = str(error_for(code, type(response).__name__.removesuffix("Response")))

    # Waits.

    async def _wait_for_end(self, deadline: float, what: str) -> None:
        """Wait until the present step is over, and raise what it failed with, if it is a commit or an abort."""
        machine = self.machine
        before = machine.situation
        failure: KafkaError | ClientError | None = None

        def is_over() -> bool:
            # Asked in the moment of a change: when the caller goes on, others may have begun something else.
            nonlocal failure
            if machine.situation is before:
                return False
            failure = machine.error if machine.situation in FAILED else None
            return True

        await self.wait(is_over, deadline, what)
        if failure is not None:
            raise copy_of(failure)

    def _tell(self) -> None:
        """Wake those whose wait is over, and tell the sender."""
        for is_over, over in self._waiting:
            if not over.done() and is_over():
                over.set_result(None)
        self.on_news()

    def _see_version(self) -> None:
        self.machine.see_version(self._cluster.features.level(FEATURE))
