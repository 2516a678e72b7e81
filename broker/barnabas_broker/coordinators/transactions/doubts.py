"""Ends transactions whose markers a partition in page-cache mode has lost, as their coordinators say.

Such a partition comes back shorter after a loss of power, if all who had the end of its log have lost it. A marker may
be gone that the coordinator was told of, and the data before it be there: nobody would ever send the marker again, and
readers of committed records would wait for ever. So whoever begins to lead such a partition *doubts* what is open there
(`Partition.doubts`), and asks.

*Every new leader asks*, not only one that was elected without a majority that had surely kept everything. That would be
known to that leader alone, and if it failed before it had asked, to nobody. It costs one question for many
transactions, at a change of leaders, in partitions in page-cache mode that have a transaction open.

*All coordinators* are asked, since the producer's transactional id is not known. One that knows the producer says that
the transaction is under way, and all stays as it is; or how it has ended: then this leader appends the marker, which a
coordinator may do as well. If nobody knows the producer, and all partitions of `__transaction_state` were looked
through, the id has expired or the data came from another cluster: the transaction is aborted.

Limits: one task for the broker, while anything is in doubt; `ROWS_MAX` transactions in a question, and one question at
a time. What has no answer yet is asked again, after `AGAIN_MS` at first and `AGAIN_MS_MAX` at last.

Not here: what is in doubt, and what that holds up (`partition.partition`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice

from barnabas_broker.coordinators.runtime.shard_host import ShardHost
from barnabas_broker.partition.partition import NotEnoughReplicasError, Partition
from barnabas_broker.partition.producer_state import CoordinatorFencedError, InvalidProducerEpochError
from barnabas_broker.partition.transactions import OpenTransaction
from barnabas_broker.timing.deadlines import Deadline
from barnabas_broker.timing.slices import Slices
from barnabas_raftlog.errors import BarnabasError, NotLeaderError, StorageFailedError
from barnabas_raftlog.records.markers import EndMarker

from .asking import Coordinators
from .outcome_messages import METHOD, VERSION, EndedTransaction, OpenTransactionRow, OutcomesRequest, OutcomesResponse
from .state_machine.outcomes import Outcome

__all__ = ["AGAIN_MS", "AGAIN_MS_MAX", "ROWS_MAX", "Doubts"]

ROWS_MAX = 1_000
CALL_S = 5.0
AGAIN_MS = 100
AGAIN_MS_MAX = 2_000

Row = tuple[Partition, OpenTransaction]
_WORDS = {True: "committed", False: "aborted"}


class Doubts:
    """See the module. Owned by the loop.

    Args:
        node_id: This node.
        host: Its clocks, deadlines, tasks, and events.
        coordinators: Knows who they are.
        call: Asks another node (`NodeLinks.call`).
        ask_here: Asks this node's coordinator.
    """

    def __init__(
        self,
        node_id: int,
        host: ShardHost,
        coordinators: Coordinators,
        call: Callable[[int, str, bytes, float], Awaitable[bytes]],
        ask_here: Callable[[OutcomesRequest], Awaitable[OutcomesResponse]],
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._coordinators = coordinators
        self._call = call
        self._ask_here = ask_here
        self._partitions: dict[Partition, None] = {}
        self._is_working = False
        self._again: Deadline[Callable[[], None]] | None = None
        self._failures = 0

    def note(self, partition: Partition) -> None:
        """Have what is in doubt in a partition asked about; it has begun to lead."""
        self._partitions[partition] = None
        self._failures = 0
        if self._again is not None:
            self._host.timers.cancel(self._again)
            self._again = None
        self._work_soon()

    def _work_soon(self) -> None:
        self._again = None
        if not self._is_working:
            self._is_working = True
            self._host.spawn(self._work())

    async def _work(self) -> None:
        """Go once through all that is in doubt, in questions of `ROWS_MAX`; again later, if that did not end it."""
        slices = Slices()
        partitions, self._partitions = self._partitions, {}
        rows = list[Row]()
        for partition in partitions:
            rows += [(partition, doubt) for doubt in partition.doubts]
            await slices.yield_if_due()
        asked = iter(rows)
        while question := list(islice(asked, ROWS_MAX)):
            await self._ask_about(question, slices)
        self._is_working = False
        # In their order, and behind those that have come meanwhile.
        self._partitions |= {partition: None for partition in partitions if partition.doubts}
        if self._partitions:
            self._again = self._host.timers.add(min(AGAIN_MS << self._failures, AGAIN_MS_MAX), self._work_soon)
            self._failures = min(self._failures + 1, 10)

    async def _ask_about(self, rows: list[Row], slices: Slices) -> None:
        request = OutcomesRequest(
            rows=[
                OpenTransactionRow(
                    producer_id=doubt.producer_id,
                    producer_epoch=doubt.epoch,
                    topic=partition.topic_name,
                    partition=partition.index,
                )
                for partition, doubt in rows
            ]
        )
        count, coordinators = self._coordinators.find_all()
        answers = await asyncio.gather(*(self._ask(node_id, request) for node_id in coordinators))
        known: dict[int, EndedTransaction] = {}
        missing = set(range(count))
        for answer in answers:
            missing.difference_update(answer.coordinated)
            for ended in answer.ended:
                known[ended.row] = ended
            await slices.yield_if_due()
        has_asked_all = bool(count) and not missing
        for number, (partition, doubt) in enumerate(rows):
            if number in known or has_asked_all:
                self._conclude(partition, doubt, known.get(number))
            await slices.yield_if_due()

    async def _ask(self, node_id: int, request: OutcomesRequest) -> OutcomesResponse:
        """Return what a node knows; nothing if it does not answer."""
        try:
            if node_id == self._node_id:
                async with asyncio.timeout(CALL_S):
                    return await self._ask_here(request)
            return OutcomesResponse.decode(
                await self._call(node_id, METHOD, request.to_bytes(VERSION), CALL_S), VERSION
            )
        except (BarnabasError, TimeoutError):
            return OutcomesResponse()

    def _conclude(self, partition: Partition, doubt: OpenTransaction, ended: EndedTransaction | None) -> None:
        """Let a transaction be, or end it. If that cannot be done now, it stays in doubt."""
        if ended is not None and ended.outcome == Outcome.OPEN:
            partition.dismiss_doubt(doubt)
            return
        is_commit = ended is not None and ended.outcome == Outcome.COMMIT
        epoch = doubt.epoch if ended is None else ended.marker_epoch
        coordinator_epoch = -1 if ended is None else ended.coordinator_epoch
        marker = EndMarker(doubt.producer_id, epoch, is_commit, coordinator_epoch)
        about = f"producer {doubt.producer_id}, epoch {doubt.epoch}, from offset {doubt.first_offset} on"
        try:
            is_ended = partition.end_doubt(doubt, marker)
        except (NotLeaderError, NotEnoughReplicasError, StorageFailedError):
            return
        except (InvalidProducerEpochError, CoordinatorFencedError) as error:
            # Nothing that is asked again would change that. An operator can end it.
            partition.dismiss_doubt(doubt)
            self._host.tell("lost marker refused", str(partition), f"{about}: {error}")
            return
        if is_ended:
            outcome = "aborted, because no coordinator knows it" if ended is None else _WORDS[is_commit]
            self._host.tell("lost marker replaced", str(partition), f"{about}: {outcome}")
