"""Answers the leaders of partitions how transactions stand that are open there (`doubts`).

The leaders know producer ids only, and a coordinator has no index of those: it looks through all of its ids, in slices.
That is a round over a table for a question about many transactions, and questions are rare: a leader of a partition in
page-cache mode asks when it begins to lead.

*Certain to lead.* What is answered ends transactions, so only a coordinator that a majority has confirmed answers, and
a partition counts as looked through only if it is certain of that afterwards, too.
"""

from collections.abc import Callable

from barnabas_broker.coordinators.runtime.shard import CONFIRM_S, ShardState
from barnabas_broker.timing.slices import Slices
from barnabas_clients.protocol.error_codes import ErrorCode

from .outcome_messages import EndedTransaction, OutcomesRequest, OutcomesResponse
from .shard import TransactionShard
from .state_machine.producers import Producer

__all__ = ["Outcomes"]


class Outcomes:
    """See the module. `shards`: those of this broker that serve."""

    def __init__(self, shards: Callable[[], list[TransactionShard]]) -> None:
        self._shards = shards

    async def answer(self, request: OutcomesRequest) -> OutcomesResponse:
        """Say what this broker knows of these transactions, and for which partitions of its log that is all."""
        rows: dict[int, list[int]] = {}
        for number, row in enumerate(request.rows):
            rows.setdefault(row.producer_id, []).append(number)
        slices = Slices()
        coordinated = list[int]()
        ended = list[EndedTransaction]()
        for shard in self._shards():
            found = await self._look_through(shard, request, rows, slices)
            if found is not None:
                coordinated.append(shard.runtime.partition.index)
                ended += found
        return OutcomesResponse(coordinated=coordinated, ended=ended)

    async def _look_through(
        self, shard: TransactionShard, request: OutcomesRequest, rows: dict[int, list[int]], slices: Slices
    ) -> list[EndedTransaction] | None:
        """Return what one shard knows; None if it is not certain to lead."""
        runtime = shard.runtime
        if not runtime.is_certain and await runtime.confirm(CONFIRM_S) is not ErrorCode.NONE:
            return None
        found = list[EndedTransaction]()
        for hosted in list(shard.ids.values()):
            saved = hosted.transaction.saved
            if saved is not None:
                numbers = rows.get(saved.producer.producer_id, [])
                # A producer id that another one has followed is among what is kept, if it is of interest at all.
                for kept in saved.outcomes:
                    if kept.producer_id != saved.producer.producer_id:
                        numbers = numbers + rows.get(kept.producer_id, [])
                for number in numbers:
                    row = request.rows[number]
                    producer = Producer(row.producer_id, row.producer_epoch)
                    outcome, epoch = hosted.transaction.outcome(producer, (row.topic, row.partition))
                    found.append(
                        EndedTransaction(
                            row=number, outcome=outcome, marker_epoch=epoch, coordinator_epoch=runtime.term
                        )
                    )
            await slices.yield_if_due()
        return found if runtime.state is ShardState.ACTIVE and runtime.is_certain else None
