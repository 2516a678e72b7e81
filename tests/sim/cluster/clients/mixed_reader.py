"""A client that reads all partitions with one request to each leader, and falls behind.

Its limits are so small that not everything fits. The newest records are in a broker's memory, the first ones must be
read from its disk. Kafka's rule (KIP-74) is that the first partition of a request that has anything brings one batch at
least, of any size; and clients put a partition behind the others when it has brought something. So none stands still
for more than a turn of all.
"""

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from sim.cluster.judges.availability import Availability
from sim.cluster.judges.history import ClientHistory, Partition

from .client import Trouble, WireClient
from .workload import Reader

__all__ = ["MixedReader"]

AGAIN = 0.04  # the chance that one partition is read from its beginning once more
REQUEST_BYTES = (1, 20_000, 1 << 20)
PARTITION_BYTES = (1, 1_000, 1 << 20)
WAIT_MS = 300


class MixedReader:
    """Goes on for as long as the run lasts."""

    def __init__(
        self, client: WireClient, history: ClientHistory, availability: Availability, partitions: list[Partition]
    ) -> None:
        self.client = client
        self.availability = availability
        self._history = history
        self._order = [Reader(client, history, availability, partition) for partition in partitions]
        self._draw_limits()
        self._stood_still = dict[Partition, tuple[int, int]]()  # so many fetches in a row, the first at

    def _draw_limits(self) -> None:
        rng = self.client.rng
        self._request_bytes = rng.choice(REQUEST_BYTES)
        self._partition_bytes = rng.choice(PARTITION_BYTES)

    async def run(self) -> None:
        rng = self.client.rng
        while True:
            try:
                await self._fetch()
            except Trouble as trouble:
                self.client.world.note(self.client.name, f"fetch: {trouble}")
                for reader in self._order:
                    self.client.forget_leader(*reader.partition)
                self._stood_still.clear()
                await self.client.pause()
            await self.client.pause(20, 120)  # or it would only read old records
            if rng.random() < AGAIN:
                self._draw_limits()
                self._begin_again(rng.choice(self._order))

    def _begin_again(self, reader: Reader) -> None:
        reader.position = self._history.deleted.get(reader.partition, 0)
        self._history.judge.positioned(self.client.name, reader.partition, reader.position)

    async def _fetch(self) -> None:
        """Ask the leader of the first partition for everything that it leads."""
        client = self.client
        leader, _ = await client.leader_of(*self._order[0].partition)
        topic = self._order[0].partition[0]
        asked = list[Reader]()
        wanted = list[FetchPartition]()
        for reader in self._order:
            index = reader.partition[1]
            found, epoch = client.leaders.get(reader.partition, (leader, -1))
            if found == leader:
                asked.append(reader)
                wanted.append(
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=epoch,
                        fetch_offset=reader.position,
                        partition_max_bytes=self._partition_bytes,
                    )
                )
        topics = [FetchTopic(topic=topic, topic_id=client.topic_ids[topic], partitions=wanted)]
        request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=self._request_bytes, topics=topics)
        sent_us = client.world.now_us
        try:
            answer = await client.ask(leader, request)
        except Trouble as trouble:
            self.availability.on_unanswered("fetch answered", asked[0].partition, sent_us, trouble)
            raise
        if answer.error_code != ErrorCode.NONE:
            raise Trouble(ErrorCode(answer.error_code).name)
        client.world.counts["fetches of many"] += len(asked) > 1
        told = {data.partition_index: data for topic in answer.responses for data in topic.partitions}
        for reader in asked:
            data = told.get(reader.partition[1])
            if data is not None and reader.is_below_start(data):
                await reader.go_to_start()
            elif data is not None:
                self._take(reader, data, sent_us, len(asked))
        # Partitions of other leaders come to their turn, too.
        self._order.sort(key=lambda reader: reader in asked)

    def _take(self, reader: Reader, data: PartitionData, sent_us: int, asked: int) -> None:
        before = reader.position
        try:
            reader.take(data, is_leader=False)
        except Trouble:
            self.client.forget_leader(*reader.partition)
            self._stood_still.pop(reader.partition, None)
            return
        if reader.position > before:
            self._order.remove(reader)
            self._order.append(reader)
        if reader.position > before or before >= data.high_watermark:
            self._stood_still.pop(reader.partition, None)
            return
        fetches, since_us = self._stood_still.get(reader.partition, (0, sent_us))
        self._stood_still[reader.partition] = fetches + 1, since_us
        # By then it was the first of those that had something, whichever other leaders changed meanwhile.
        if fetches >= asked:
            self.availability.on_stood_still(reader.partition, fetches + 1, since_us)
            del self._stood_still[reader.partition]  # It may not have been owed when it began to stand still.
