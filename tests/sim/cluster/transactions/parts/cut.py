"""Records are deleted while their transaction is open, and then it is committed or aborted.

A topic of its own has feeders that take their time. An administrator deletes up to somewhere within an open
transaction, or up to the high watermark, and in some runs retention does the same. Nobody may miss those records, see
more of the transaction than the rest, or be held up by what is gone; the tables of every replica must go on to be those
of its log (`inside`).
"""

from barnabas_broker.history.events import LogStartSeen
from barnabas_clients.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from barnabas_clients.protocol.fetch import PartitionData
from sim.cluster.clients.client import Trouble, WireClient
from sim.cluster.judges.history import Partition
from sim.cluster.transactions.clients import Feeder
from sim.cluster.transactions.reader import CommittedReader
from sim.cluster.transactions.telling import Outcome, name_of

from .side import Side, Surroundings

__all__ = ["Cut"]

TIMEOUT_MS = 3_000
FEEDERS = 2
INTO_OPEN = 0.8  # of deletions, if anything is open


class _SlowFeeder(Feeder):
    """Has its transactions open for a while."""

    async def disturb(self, words: list[Outcome]) -> None:
        await self.client.pause(30, 500)
        await super().disturb(words)


class _CutReader(CommittedReader):
    """Tells everybody where the log begins, where that is not a client's doing."""

    def take(self, data: PartitionData, *, is_leader: bool) -> None:
        self._on_start(data.log_start_offset)
        super().take(data, is_leader=is_leader)

    def is_below_start(self, data: PartitionData) -> bool:
        return data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def begin_at(self, offset: int) -> None:
        self._on_start(offset)
        super().begin_at(offset)

    def _on_start(self, offset: int) -> None:
        if offset > self.history.deleted.get(self.partition, 0):
            self.history.on_delete_sent(self.partition, offset)
            self.ledger.tell(LogStartSeen(partition=name_of(self.partition), offset=offset))


class Cut(Side):
    """The part of a run in which records of open transactions are deleted."""

    topic = "cut"

    def __init__(self, around: Surroundings, segment_ms: int) -> None:
        super().__init__(around, 1 + around.world.seed // 3 % 2)
        self._has_retention = bool(around.service.parts.retention_ms)
        self.configs = {"segment.ms": str(segment_ms)}
        if self._has_retention:
            self.configs["retention.ms"] = str(around.service.parts.retention_ms)

    def begin(self) -> None:
        self.feed(_SlowFeeder, FEEDERS)
        client = self.around.new_client()
        client.start(self._delete(client))

    def reader(self, partition: Partition) -> CommittedReader:
        around = self.around
        kind = _CutReader if self._has_retention else CommittedReader
        return kind(around.new_client(), around.history, around.availability, partition, around.ledger)

    async def _delete(self, client: WireClient) -> None:
        """Delete records, of open transactions wherever there are any."""
        rng = client.rng
        while self.around.goes_on():
            await client.pause(100, 700)
            partition = rng.choice(self.partitions)
            offset = self._somewhere(client, partition)
            if offset is None:
                continue
            self.around.history.on_delete_sent(partition, offset)
            self.around.ledger.tell(LogStartSeen(partition=name_of(partition), offset=offset))
            try:
                code = await _delete_once(client, partition, offset)
            except Trouble as trouble:
                client.world.note(client.name, f"delete to {offset} in {name_of(partition)}: {trouble}")
                client.forget_leader(*partition)
                continue
            client.world.note(client.name, f"delete to {offset} in {name_of(partition)}: {code.name}")
            if code == ErrorCode.NONE:
                client.world.counts["deletions"] += 1
            elif code != ErrorCode.OFFSET_OUT_OF_RANGE:
                assert code in RETRIABLE, f"deletion to {offset}: {code.name}"
                client.forget_leader(*partition)

    def _somewhere(self, client: WireClient, partition: Partition) -> int | None:
        """Return an offset within a transaction that is open now, as its leader has it, or any other."""
        led = self.around.led(partition)
        if led is None or not led.high_watermark:
            return None
        rng = client.rng
        begins = [one.first_offset for one in led.state.transactions.undecided()]
        begins = [offset for offset in begins if offset < led.high_watermark]
        if begins and rng.random() < INTO_OPEN:
            begin: int = rng.choice(begins)
            return rng.randrange(begin + 1, led.high_watermark + 1)
        return rng.randrange(led.high_watermark + 1)


async def _delete_once(client: WireClient, partition: Partition, offset: int) -> ErrorCode:
    topic, index = partition
    wanted = DeleteRecordsPartition(partition_index=index, offset=offset)
    topics = [DeleteRecordsTopic(name=topic, partitions=[wanted])]
    leader, _ = await client.leader_of(topic, index)
    answer = await client.ask(leader, DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS))
    return ErrorCode(answer.topics[0].partitions[0].error_code)
