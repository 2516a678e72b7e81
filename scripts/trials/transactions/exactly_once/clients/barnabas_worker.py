"""The worker of this project's client: the recipe of docs/consumer.md, "Exactly once, from topic to topic"."""

import asyncio
import sys

from barnabas_clients import (
    ClientError,
    CommitFailedError,
    Consumer,
    ConsumerRecord,
    KafkaError,
    Producer,
    TopicPartition,
)

from .diary import Diary, Job, Taken, read_job

__all__: list[str] = []

RECORDS_MAX = 100
Found = dict[TopicPartition, list[ConsumerRecord]]


async def work(job: Job, over: asyncio.Event) -> None:
    """Work until it is over, or the clients say that they cannot go on."""
    diary = Diary(job)

    async def assigned(_: Consumer, places: frozenset[TopicPartition]) -> None:
        if places:
            diary.begin_anywhere(*(place.partition for place in places))

    async with (
        Producer(job.bootstrap, transactional_id=job.name, transaction_timeout_s=10.0, linger_s=0.0) as producer,
        Consumer(
            job.bootstrap,
            topics=[job.input],
            group_id=job.group,
            client_id=job.life,
            auto_offset_reset="earliest",
            auto_commit=False,
            read_committed=True,
            session_timeout_s=6.0,
            heartbeat_interval_s=0.5,
            on_assigned=assigned,
        ) as consumer,
    ):
        while not over.is_set():
            batches = await consumer.get_many(RECORDS_MAX, 0.3)
            if not batches:
                continue
            try:
                await copy(job, producer, consumer, batches, diary)
            except (ClientError, KafkaError) as error:
                if error.fenced or not (error.abortable or isinstance(error, CommitFailedError)):
                    raise
                print(f"again: {type(error).__name__}: {error}", flush=True)
                await consumer.seek_to_committed()
                diary.begin_anywhere()


async def copy(job: Job, producer: Producer, consumer: Consumer, batches: Found, diary: Diary) -> None:
    """Work off some records in one transaction, and tell it; raises as that does."""
    diary.begin()
    outcome = "aborted"  # as long as nobody has asked for the commit
    try:
        async with producer.transaction() as transaction:
            sent = []
            for place, records in batches.items():
                for record in records:
                    number, value = diary.take(Taken(place.partition, record.offset, record.value or b""))
                    delivery = await producer.send(job.output, value, partition=place.partition)
                    sent.append((place.partition, number, delivery))
            await producer.flush()
            for partition, number, delivery in sent:
                offset = (await delivery).offset
                diary.acknowledge(partition, number, None if offset < 0 else offset)
            for place, end in consumer.offsets_to_send().offsets.items():
                # Of partitions without new records the place where they stand is stored, too.
                start = batches[place][0].offset if place in batches else end.offset
                diary.send_offset(place.partition, start, end.offset)
            if not job.careless:
                await transaction.send_offsets(consumer)
            diary.ask_for_end(commit=True)
            outcome = "unknown"
        outcome = "committed"
        if job.careless:
            await consumer.commit()
    except (ClientError, KafkaError) as error:
        if outcome == "unknown" and error.may_be_done is False:
            outcome = "aborted"
        raise
    finally:
        diary.end(outcome)


async def main() -> None:
    job = read_job()
    over = asyncio.Event()
    # Nothing more is ever written: readable means that it was closed.
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)
    await work(job, over)


if __name__ == "__main__":
    asyncio.run(main())
