"""Runs seeded histories of a transactional producer among failing brokers: a block is whole in the log, or not there.

What the producer says of a block is compared with what the coordinator has decided.
"""

import asyncio
from typing import Any, NamedTuple

import pytest
from clients.producer.test_sender_histories import Chaos

from barnabas_clients import KafkaError, Producer
from barnabas_clients.errors import ClientError
from barnabas_clients.producer.transaction import GroupOffsets
from barnabas_clients.producer.transactions.requests import GroupMember
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.txn_offset_commit import TxnOffsetCommitRequest
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .stage import LOST, SERVED, TransactionStage

SEEDS = range(40)
BLOCKS = 10
TROUBLE = (
    *(LOST, SERVED, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    *(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT),
)
APIS = (InitProducerIdRequest, EndTxnRequest, TxnOffsetCommitRequest, FindCoordinatorRequest)


class BlockError(Exception):
    """What an application's block fails with."""


class Block(NamedTuple):
    """What was put into a transaction, and what was said of it: None, or the exception that came out."""

    tags: set[Any]
    told: BaseException | None

    @property
    def may_be_committed(self) -> bool:
        if isinstance(self.told, ClientError | KafkaError):
            return self.told.may_be_done is not False
        return isinstance(self.told, asyncio.CancelledError)


class Life:
    """A producer, its application, and what goes wrong for them."""

    def __init__(self, seed: int, level: int) -> None:
        self.stage = TransactionStage(seed, brokers=2, partitions=3, level=level)
        self.chance = self.stage.world.chance("application")
        self.chaos = Chaos(self.stage)
        if level == 1:
            # There a commit that comes late ends the next transaction (KIP-890 tells of it): T1.
            self.chaos.kinds = [kind for kind in self.chaos.kinds if kind not in {"stall", "cut"}]
        self.blocks: list[Block] = []

    def offsets_to_send(self, offsets: Any = None) -> GroupOffsets:
        at = {TopicPartition("in", 0): OffsetAndMetadata(len(self.blocks))}
        return GroupOffsets(GroupMember("g", 3, "m"), at, lambda: None)

    async def work(self) -> None:
        chance = self.chance
        settings: dict[str, Any] = {
            "delivery_timeout_s": chance.choice([2, 10, 60]),
            "request_timeout_s": chance.choice([1.5, 10]),
            "batch_bytes": chance.choice([100, 1_000]),
            "timeout_s": 30,
            "buffer_bytes": 100_000,
        }
        async with self.stage.transactional_producer(**settings) as producer:
            for number in range(BLOCKS):
                if number == BLOCKS - 1:
                    self.calm()
                    # Pauses, and what is late, have an end.
                    await asyncio.sleep(60)
                await self.block(producer, is_last=number == BLOCKS - 1)
        assert self.blocks[-1].told is None, self.blocks[-1].told
        metrics = producer.metrics()
        assert (metrics.buffered_batches, metrics.buffered_bytes) == (0, 0)

    def calm(self) -> None:
        self.chaos.stop()
        self.stage.trouble.clear()

    async def block(self, producer: Producer, *, is_last: bool) -> None:
        tags: set[Any] = set()
        task = asyncio.create_task(self.transact(producer, tags, is_last=is_last))
        if self.chance.random() < 0.3 and not is_last:
            asyncio.get_running_loop().call_later(self.chance.choice([0, 0.002, 0.02, 0.2, 3]), task.cancel)
        began = asyncio.get_running_loop().time()
        await asyncio.wait({task})
        # The beginning, offsets, the commit, and the abort after it.
        assert asyncio.get_running_loop().time() - began < 100
        told: BaseException | None = asyncio.CancelledError() if task.cancelled() else task.exception()
        assert isinstance(told, ClientError | KafkaError | BlockError | asyncio.CancelledError | None), repr(told)
        self.blocks.append(Block(tags, told))

    async def transact(self, producer: Producer, tags: set[Any], *, is_last: bool) -> None:
        chance = self.chance
        async with producer.transaction() as transaction:
            for number in range(chance.randint(0, 6)):
                value = b"%d-%d" % (len(self.blocks), number)
                _ = await producer.send("t", value, partition=chance.randrange(3), timestamp_ms=0)
                tags.add(value)
                if is_last:
                    continue
                if chance.random() < 0.3:
                    self.chaos.strike()
                if chance.random() < 0.3:
                    self.stage.answer(chance.choice(APIS), chance.choice(TROUBLE))
                await asyncio.sleep(chance.choice([0, 0.001, 0.01, 1]))
            if chance.random() < 0.4:
                tags.add(("offset", "", len(self.blocks)))
                await transaction.send_offsets(self)
            if chance.random() < 0.2 and not is_last:
                raise BlockError

    def check(self) -> None:
        committed = self.stage.committed
        for number, block in enumerate(self.blocks):
            found = [tags for tags in committed if tags & block.tags]
            if block.told is None:
                assert found == ([block.tags] if block.tags else []), (number, block, found)
            elif block.may_be_committed:
                assert found in ([], [block.tags]), (number, block, found)
            else:
                assert found == [], (number, block, found)
        said = {tag for block in self.blocks for tag in block.tags}
        assert not set().union(*committed) - said
        for log in self.stage.logs:
            assert all(log.transactional)
            assert len(set(log.values)) == len(log.values), log.values


def history(seed: int, level: int) -> None:
    life = Life(seed, level)
    life.stage.run(life.work(), within_s=3_600)
    life.check()


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_are_whole_or_not_there(seed: int, level: int) -> None:
    history(seed, level)
