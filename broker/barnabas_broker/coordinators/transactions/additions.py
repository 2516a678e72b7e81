"""Carries out AddPartitionsToTxn for many transactions at once, as brokers ask it (version 4 and later).

The leader of a partition asks before it appends the first batch of a transaction: whether the partition is in it
(*verification*, which changes nothing), or to have it added, for clients that leave that to the broker. A broker asks
about many producers at once. So nobody is waited for long here: one that is still busy after `WAIT_MS` hears
CONCURRENT_TRANSACTIONS, and its partition's leader may ask again.

*Certain to lead.* A verification is answered from memory, and lets a batch be appended: only a coordinator that is
confirmed by a majority may. If one is not, it asks first, once for each of its partitions.

*One for all.* Partitions of one transaction are added together or not at all. If one does not exist, the others hear
OPERATION_NOT_ATTEMPTED, as in Kafka. An answer about a whole transaction stands at each of its partitions.
"""

import asyncio
from collections.abc import Callable, Container, Generator, Iterable, Sequence
from functools import partial
from itertools import repeat

from barnabas_broker.coordinators.runtime.homes import Homes
from barnabas_broker.coordinators.runtime.shard import CONFIRM_S
from barnabas_broker.replicas.partitions import Partitions
from barnabas_broker.timing.slices import Slices, taken
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas_clients.protocol.error_codes import ErrorCode

from .shard import TransactionShard
from .state_machine.adding import PLACES_MAX
from .state_machine.messages import V2, Answer, Place
from .state_machine.producers import Producer
from .table import TransactionalIdTable

__all__ = ["WAIT_MS", "Additions", "Codes", "all_alike", "existing_places", "not_attempted", "results_of"]

WAIT_MS = 100
"""Kafka's add.partitions.to.txn.retry.backoff.max.ms."""
PIECE = 500  # partitions between two yields

Topics = Iterable[AddPartitionsToTxnTopic]
Codes = Callable[[str, Sequence[int]], Iterable[ErrorCode]]
"""Returns the outcomes of some partitions of one topic, in their order."""


def existing_places(
    partitions: Partitions, topics: Topics, closed: Container[str] = ()
) -> Generator[None, None, list[Place] | None]:
    """Return the partitions that these name, each once; None if one of them does not exist, or its topic is `closed`.

    Of more than a transaction may have there are only so many that it is seen. Names are the topics' own strings: a
    thousand transactions share them.
    """
    places: dict[Place, None] = {}
    count = 0
    for topic in topics:
        hosted = None if topic.name in closed else partitions.topics.get(topic.name)
        for index in topic.partitions:
            if hosted is None or not 0 <= index < len(hosted.topic.partitions):
                return None
            if len(places) <= PLACES_MAX:
                places[hosted.topic.name, index] = None
            count += 1
            if not count % PIECE:
                yield
        count += 1
        if not count % PIECE:
            yield
    return list(places)


def results_of(topics: Topics, codes: Codes) -> Generator[None, None, list[AddPartitionsToTxnTopicResult]]:
    """Return the outcome of every partition that was named."""
    results = []
    count = 0
    for topic in topics:
        rows: list[AddPartitionsToTxnPartitionResult] = []
        for begin in range(0, len(topic.partitions), PIECE):
            piece = topic.partitions[begin : begin + PIECE]
            for index, code in zip(piece, codes(topic.name, piece), strict=True):
                rows.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
            count += len(piece)
            if count >= PIECE:
                count = 0
                yield
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=rows))
        count += 1
    return results


def all_alike(code: ErrorCode) -> Codes:
    """Return the same for all."""
    return lambda _, indexes: repeat(code, len(indexes))


def not_attempted(partitions: Partitions, closed: Container[str] = ()) -> Codes:
    """Return what is said if there are such: what is wrong with these, and of the others that nothing was done."""

    def codes(topic: str, indexes: Sequence[int]) -> Iterable[ErrorCode]:
        if topic in closed:
            return repeat(ErrorCode.TOPIC_AUTHORIZATION_FAILED, len(indexes))
        hosted = partitions.topics.get(topic)
        count = 0 if hosted is None else len(hosted.topic.partitions)
        there, absent = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return [there if 0 <= index < count else absent for index in indexes]

    return codes


class Additions:
    """See the module. One for the coordinator."""

    def __init__(self, homes: Homes[TransactionalIdTable, TransactionShard], partitions: Partitions) -> None:
        self._homes = homes
        self._partitions = partitions

    async def carry_out(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Add or verify, and answer when everything that is added has committed. Cancelled, some may be all the same.

        All transactions are begun, in their order, before any is waited for.
        """
        question = _Question(self._homes, self._partitions)
        slices = Slices()
        begun = []
        for transaction in request.transactions:
            begun.append((transaction, await question.begin(transaction)))
            await slices.yield_if_due()
        results = []
        for transaction, outcome in begun:
            codes = all_alike((await outcome).code) if isinstance(outcome, asyncio.Future) else outcome
            topics = await taken(results_of(transaction.topics, codes))
            results.append(
                AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics)
            )
            await slices.yield_if_due()
        return AddPartitionsToTxnResponse(results_by_transaction=results)


class _Question:
    """One request. `_confirmed`: whether this broker leads partitions of which it was not certain, as it was told."""

    def __init__(self, homes: Homes[TransactionalIdTable, TransactionShard], partitions: Partitions) -> None:
        self._homes = homes
        self._partitions = partitions
        self._confirmed: dict[int, ErrorCode] = {}

    async def begin(self, transaction: AddPartitionsToTxnTransaction) -> "Codes | asyncio.Future[Answer]":
        """Return the outcomes of one transaction, or who will say what they are."""
        if not transaction.transactional_id:
            return all_alike(ErrorCode.INVALID_REQUEST)
        shard = await self._certain_shard(transaction.transactional_id)
        if isinstance(shard, ErrorCode):
            return all_alike(shard)
        producer = Producer(transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only:
            return partial(_verified, shard, transaction.transactional_id, producer)
        places = await taken(existing_places(self._partitions, transaction.topics))
        if places is None:
            return not_attempted(self._partitions)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        shard.add(transaction.transactional_id, producer, places, V2, partial(_resolve, future), wait_ms=WAIT_MS)
        return future

    async def _certain_shard(self, transactional_id: str) -> TransactionShard | ErrorCode:
        """Return the shard of an id; ask a majority once for each partition that is not certain."""
        shard = self._homes.shard_of(transactional_id)
        if isinstance(shard, ErrorCode) or shard.runtime.is_certain:
            return shard
        index = shard.runtime.partition.index
        if index not in self._confirmed:
            self._confirmed[index] = await shard.runtime.confirm(CONFIRM_S)
        code = self._confirmed[index]
        return shard if code is ErrorCode.NONE else code


def _verified(
    shard: TransactionShard, transactional_id: str, producer: Producer, topic: str, indexes: Sequence[int]
) -> Iterable[ErrorCode]:
    """Return whether these are in the open transaction, at the moment at which they are answered."""
    if not shard.runtime.is_certain:
        return repeat(ErrorCode.NOT_COORDINATOR, len(indexes))
    places = [(topic, index) for index in indexes]
    codes = shard.verify(transactional_id, producer, places)
    return [codes[place] for place in places]


def _resolve(future: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)
