"""Keeps the producers of a worker process open, from task to task.

A producer has connections and a producer id, which take a few round trips to get. A task of a stream may last no longer
than these.
"""

from typing import Final

from barnabas_clients.producer.producer import Producer
from barnabas_spark.clusters import forget, kept, task_client_id
from barnabas_spark.options.writes import TRANSACTION_TIMEOUT_MS, WriteOptions

from .exactly_once.decisions import Prepared, Ticket
from .exactly_once.requests import draw
from .exactly_once.vacancies import Attempt, Owner, belongs_to

__all__ = [
    "OpenProducer",
    "abort",
    "begin_attempt",
    "begin_with",
    "close_producer",
    "prepare",
    "producer_for",
]

ABORT_S: Final = 5.0

# The producer's own batches are not used. Room is handed out in pieces of this size at least.
_ROOM_BYTES = 4096


class OpenProducer:
    """A producer, and the size in bytes of batches that fit topics that have refused larger ones."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.fitting_bytes: dict[str, int] = {}

    async def close(self) -> None:
        await self.producer.close()


async def producer_for(options: WriteOptions) -> OpenProducer:
    """Return an open producer with these settings. Call it on the loop of clusters.py.

    Raises:
        ClientError: no bootstrap server answers.
    """
    key = _key(options)

    async def open_one() -> OpenProducer:
        return OpenProducer(await _new_producer(key).start())

    found: OpenProducer = await kept(key, open_one)
    return found


async def close_producer(options: WriteOptions, producer: Producer) -> None:
    """Close a producer at once: what it has not delivered yet, it does not send again."""
    forget(_key(options))
    await producer.close(0)


async def begin_attempt(options: WriteOptions, attempt: Attempt) -> tuple[OpenProducer, Ticket | None]:
    """Return a producer for one attempt, as `begin_with`, and the number that it has drawn.

    It goes on with the vacant id of its partition if that is its own, by the number.
    """
    ticket = await draw(attempt.sink, attempt.partition, options)
    vacant = attempt.vacant
    if vacant is None or ticket is None or not belongs_to(vacant, ticket):
        return await begin_with(options, attempt.transactional_id), ticket
    return await begin_with(options, vacant.transactional_id, Owner(vacant.producer_id, vacant.epoch)), ticket


async def begin_with(options: WriteOptions, transactional_id: str, owner: Owner | None = None) -> OpenProducer:
    """Return a producer of its own for one attempt, in whose transaction everything is that it sends.

    `owner` is who it is, and nobody else; None: coordinators are asked for that.

    Raises:
        ClientError, KafkaError: no bootstrap server answers, or the cluster has no transactions for us.
    """
    producer = _new_producer(_key(options), transactional_id)
    producer.prepare_all()
    if owner is not None:
        producer.begin_as(*owner)
    await producer.start()
    try:
        await producer.transaction().begin()
    except BaseException:
        await producer.close(0)
        raise
    return OpenProducer(producer)


async def prepare(options: WriteOptions, producer: Producer, ticket: Ticket | None = None) -> Prepared | None:
    """Leave the transaction open when all of it is stored, and close the producer; None if nothing is in it."""
    found = await producer.prepare(options.delivery_timeout_ms / 1000)
    await producer.close(ABORT_S)
    return None if found is None else Prepared(*found, ticket)


async def abort(producer: Producer) -> None:
    """Close the producer of an attempt that has failed, and abort its transaction if that takes no more than a moment.

    What is not aborted here the driver aborts.
    """
    await producer.close(ABORT_S)


def _key(options: WriteOptions) -> WriteOptions:
    """Return the options without those that concern a single write."""
    return options._replace(topic=None, ignored=(), batch_bytes=0, ignores_keys=False)


def _new_producer(options: WriteOptions, transactional_id: str | None = None) -> Producer:
    once = options.exactly_once
    timeout_ms = TRANSACTION_TIMEOUT_MS if once is None else once.timeout_ms
    return Producer(
        options.bootstrap_servers,
        client_id=task_client_id(),
        acks=options.acks,
        idempotent=options.is_idempotent,
        compression=options.compression,
        batch_bytes=min(_ROOM_BYTES, options.request_bytes_max),
        request_bytes_max=options.request_bytes_max,
        buffer_bytes=options.buffer_bytes,
        delivery_timeout_s=options.delivery_timeout_ms / 1000,
        request_timeout_s=options.request_timeout_ms / 1000,
        in_flight_max=options.in_flight_max,
        timeout_s=options.max_block_ms / 1000,
        transactional_id=transactional_id,
        transaction_timeout_s=timeout_ms / 1000,
    )
