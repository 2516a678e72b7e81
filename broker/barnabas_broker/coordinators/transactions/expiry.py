"""Aborts transactions that are open for too long, and forgets transactional ids that are no longer used.

Both are rounds over all ids of this broker, a few milliseconds at a time, at an interval of their own: so a transaction
ends at most so much later than its timeout says, also one that has outlived it while there was no coordinator.

*This broker stood still.* What it did not hear meanwhile proves nothing: the client may have ended its transaction, and
another broker may lead. Then it first asks whether it leads still, and the next round looks; by then it has heard
whoever waits.
"""

from collections.abc import Callable

from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_broker.timing.slices import Slices

from .hosted_transaction import HostedTransaction
from .shard import TransactionShard

__all__ = ["Expiry"]


class Expiry:
    """See the module. Its rounds are called one of each kind at a time (`timing.rounds`)."""

    def __init__(self, shards: Callable[[], list[TransactionShard]]) -> None:
        self._shards = shards

    async def abort_round(self) -> None:
        """Look at every open transaction of this broker once."""
        await self._look(lambda shard: shard.open, TransactionShard.time_out)

    async def expire_round(self) -> None:
        """Look at every transactional id of this broker once."""
        await self._look(lambda shard: shard.ids, TransactionShard.expire)

    async def _look(
        self,
        ids_of: Callable[[TransactionShard], dict[str, HostedTransaction]],
        look: Callable[[TransactionShard, HostedTransaction], None],
    ) -> None:
        slices = Slices()
        for shard in self._shards():
            if shard.runtime.state is ShardState.ACTIVE and not shard.runtime.is_certain:
                shard.runtime.recover()
            for hosted in list(ids_of(shard).values()):
                if not shard.runtime.is_certain:
                    break
                look(shard, hosted)
                await slices.yield_if_due()
