"""The half of `Consumer` that is about places: where it stands, where it should go, where the logs begin and end."""

from collections.abc import Iterable, Mapping

from barnabas_clients.admin.offsets import ListedOffset, list_offsets
from barnabas_clients.arguments import shown, whole_number
from barnabas_clients.errors import DeadlineExceededError
from barnabas_clients.place_arguments import partitions_of, timestamps_of
from barnabas_clients.topic_partition import TopicPartition

from .core import ConsumerCore
from .decoder import CorruptRecordsError
from .settings import EARLIEST, LATEST

__all__ = ["Positions"]


class Positions:
    """Positions of the partitions read. "Without names" means: of every partition read."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core

    async def position(self, partition: TopicPartition, *, timeout_s: float | None = None) -> int:
        """Return the offset of the next record to be handed out, waiting until it is known.

        Raises:
            NotAssignedError: the partition is not read. NoOffsetError: there is no position.
            DeadlineExceededError: it could not be found out in time; says why.
        """
        return await self._position(partition, self._core.limit(timeout_s))

    async def _position(self, partition: TopicPartition, limit_s: float) -> int:
        deadline = self._core.now() + limit_s
        while True:
            self._core.check_open()
            queue = self._core.queue(partition)
            self._core.reader.settle()
            if queue.position >= 0:
                return queue.position
            if queue.failure is not None:
                raise queue.failure.with_traceback(None)
            if self._core.now() >= deadline:
                raise DeadlineExceededError(f"no position of {partition} within {limit_s:g} s: {queue.reason}")
            await self._core.reader.wait_news(deadline)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`; a commit from now on says so too. Never waits.

        Raises:
            NotAssignedError: the partition is not read. ValueError: the offset is negative.
        """
        offset = whole_number("offset", offset, 0)
        queue = self._core.queue(partition)
        self._core.reader.forget(queue)
        queue.begin_at(offset)
        self._core.reader.wake()
        self._core.fetcher.pump()

    async def skip(self, error: CorruptRecordsError) -> None:
        """Go on behind a batch that cannot be read, of which nobody is handed anything then. Never waits.

        As a seek to `error.next_offset`: a commit from now on says that you have finished with the batch.

        Raises:
            NotAssignedError: the partition is not read any more. TypeError: it is another error.
        """
        if not isinstance(error, CorruptRecordsError):
            raise TypeError(f"error is {shown(error)}; it must be a CorruptRecordsError")
        await self.seek(error.partition, error.next_offset)

    async def seek_to_time(
        self, timestamp_ms: int, *partitions: TopicPartition, timeout_s: float | None = None
    ) -> None:
        """Go to the first record at or after `timestamp_ms`, or the end; without names, in every partition read."""
        timestamp_ms, limit_s = whole_number("timestamp_ms", timestamp_ms, 0), self._core.limit(timeout_s)
        chosen = self._chosen(partitions)
        deadline = self._core.now() + limit_s
        found = await self._list(dict.fromkeys(chosen, timestamp_ms), limit_s)
        late = [partition for partition in chosen if found[partition].offset < 0]
        ends = await self._list(dict.fromkeys(late, LATEST), self._left_s(deadline))
        await self._seek_all({**found, **ends})

    async def seek_to_beginning(self, *partitions: TopicPartition, timeout_s: float | None = None) -> None:
        """Go to the first record that is there; without names, in every partition read."""
        await self._seek_to(EARLIEST, partitions, timeout_s)

    async def seek_to_end(self, *partitions: TopicPartition, timeout_s: float | None = None) -> None:
        """Go behind the last record that can be read now; without names, in every partition read."""
        await self._seek_to(LATEST, partitions, timeout_s)

    async def begin_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return where the log of each partition starts, whether it is read by this consumer or not."""
        return await self._ends(EARLIEST, partitions, timeout_s)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset behind the last record that can be read of each partition."""
        return await self._ends(LATEST, partitions, timeout_s)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Return the first record at or after a time in each partition; None where all are older."""
        wanted, limit_s = timestamps_of("timestamps_ms", timestamps_ms, low=0), self._core.limit(timeout_s)
        found = await self._list(wanted, limit_s)
        return {partition: place if place.offset >= 0 else None for partition, place in found.items()}

    async def lag(self, *, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """Return how far the position of each partition read is from its end, counted in offsets.

        Offsets of markers and of compacted records count too. A partition that leaves meanwhile is left out.

        Raises:
            NoOffsetError: a partition has no position. DeadlineExceededError: not everything was told in time.
        """
        deadline = self._core.deadline(timeout_s)
        self._core.check_open()
        positions = {}
        for partition in sorted(self._core.fetcher.queues):
            if partition in self._core.fetcher.queues:
                positions[partition] = await self._position(partition, self._left_s(deadline))
        ends = await self._ends(LATEST, list(positions), self._left_s(deadline))
        return {
            partition: max(0, ends[partition] - position)
            for partition, position in positions.items()
            if partition in self._core.fetcher.queues
        }

    def _chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions named, all of them if none is, and see that they are read."""
        named = partitions_of("partitions", partitions)
        self._core.check_open()
        chosen = sorted(named) or sorted(self._core.fetcher.queues)
        for partition in chosen:
            self._core.queue(partition)
        return chosen

    async def _seek_to(self, end: int, partitions: Iterable[TopicPartition], timeout_s: float | None) -> None:
        limit_s = self._core.limit(timeout_s)
        await self._seek_all(await self._list(dict.fromkeys(self._chosen(partitions), end), limit_s))

    async def _seek_all(self, found: Mapping[TopicPartition, ListedOffset]) -> None:
        for partition, place in found.items():
            await self.seek(partition, place.offset)

    async def _ends(
        self, end: int, partitions: Iterable[TopicPartition], timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        named, limit_s = partitions_of("partitions", partitions), self._core.limit(timeout_s)
        self._core.check_open()
        found = await self._list(dict.fromkeys(named, end), limit_s)
        return {partition: place.offset for partition, place in found.items()}

    def _left_s(self, deadline: float) -> float:
        return max(0.0, deadline - self._core.now())

    async def _list(self, wanted: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, ListedOffset]:
        if not wanted:
            return {}
        read_committed = self._core.settings.fetch.read_committed
        return await list_offsets(self._core.cluster, wanted, timeout_s, read_committed=read_committed)
