"""Clients whose EndTxn comes once more, late: while the next transaction is open.

With `transaction.version` 2 it has an epoch of before and must do nothing. With version 1 it may end the transaction
that is open, and `struck` says which findings that explains.
"""

from collections.abc import Callable
from typing import NamedTuple

from barnabas_clients import ClientError, KafkaError
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from sim.cluster.clients.client import Trouble
from sim.cluster.transactions.clients import RECORDS_A_TRANSACTION, Transacting
from sim.cluster.transactions.telling import Aborting, Outcome, Telling

from .prepared import FENCED, coordinator_of
from .side import Side, Surroundings

__all__ = ["LateEnds"]

FEEDERS = 2
LATE = 0.35  # of transactions that follow another one
GOES_ON = 0.5  # with sending, behind a late end
VERSIONS = {1: range(5), 2: range(5, 6)}
"""Of EndTxn, by the level of transactions."""


class _End(NamedTuple):
    """What was asked for a transaction before."""

    producer_id: int
    epoch: int
    is_commit: bool


class _LateFeeder(Transacting):
    """A feeder whose requests come late."""

    async def _live(self, name: str, goes_on: Callable[[], bool]) -> None:
        rng = self.client.rng
        async with self.producer() as producer:
            telling = Telling(self.ledger, producer, name)
            before: _End | None = None
            while goes_on():
                words = list[Outcome]()
                producer_id = epoch = -1
                try:
                    async with telling.transaction(words) as (transaction, _):
                        for _ in range(rng.randrange(1, RECORDS_A_TRANSACTION)):
                            await telling.send(transaction, rng.choice(self.partitions))
                        _, producer_id, epoch = producer.transaction_owner
                        if before is not None and rng.random() < LATE:
                            await telling.settle()
                            await self._come_late(before)
                            if rng.random() < GOES_ON:
                                await telling.send(transaction, rng.choice(self.partitions))
                        await self.disturb(words)
                except Aborting:
                    before = _End(producer_id, epoch, is_commit=False)
                except (ClientError, KafkaError) as error:
                    if error.fenced or not error.abortable:
                        return
                    before = None
                else:
                    before = _End(producer_id, epoch, is_commit=True)
                await self.client.pause(20, 200)

    async def _come_late(self, end: _End) -> None:
        client = self.client
        struck = self.ledger.struck
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=end.producer_id,
            producer_epoch=end.epoch,
            committed=end.is_commit,
        )
        try:
            node_id = await coordinator_of(client, self.transactional_id)
            struck.on_late(client.name, is_commit=end.is_commit)
            answer = await client.ask(node_id, request, versions=VERSIONS[struck.level])
        except Trouble as trouble:
            client.world.note(client.name, f"late: {trouble}")
            return
        code = ErrorCode(answer.error_code)
        client.world.note(client.name, f"a late end, commit: {end.is_commit}, is answered {code.name}")
        client.world.counts["late ends"] += 1
        client.world.counts["late ends fenced"] += code in FENCED


class LateEnds(Side):
    """The part of a run in which the ends of transactions come late."""

    topic = "late"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, 1 + around.world.seed // 3 % 2)

    def begin(self) -> None:
        self.feed(_LateFeeder, FEEDERS)
