"""Keeps the producers of a worker process open, from task to task.

A producer has connections and a producer id, which take a few round trips to get. A task of a stream may last no longer
than these.
"""

from barnabas_clients.producer.producer import Producer
from barnabas_spark.clusters import forget, kept, task_client_id
from barnabas_spark.options.writes import WriteOptions

__all__ = ["OpenProducer", "close_producer", "producer_for"]

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


def _key(options: WriteOptions) -> WriteOptions:
    """Return the options without those that concern a single write."""
    return options._replace(topic=None, ignored=(), batch_bytes=0, ignores_keys=False)


def _new_producer(options: WriteOptions) -> Producer:
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
    )
