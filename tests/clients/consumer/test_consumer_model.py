"""A whole consumer agrees with a naive account of its records, whatever happens.

The account knows the log, the records that each call returned, and every commit that reached the broker. Its rules:

* from each place where reading began, every record that can be read is returned once, in order, none left out;
* nothing is committed that was not returned, and nothing for the application that is still in its hands;
* a record that cannot be read is reported, is passed only by a seek, and takes no earlier record with it.

Everything runs in virtual time (virtual.py), so a run that fails fails again.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from clients.fake_broker import FakeBroker
from clients.fake_log import FakeLog
from clients.groups.storing_coordinator import StoringCoordinator
from clients.virtual import run_virtually, serving_virtually
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_clients import (
    CommitFailedError,
    Consumer,
    ConsumerRecord,
    CorruptRecordsError,
    KafkaError,
    TopicPartition,
)
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.fetch import FetchRequest, FetchResponse
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_raftlog.records.builder import NewRecord, build_batch, write_header
from barnabas_raftlog.records.header import CONTROL

PARTITIONS = 3
READS = ("get_many", "anext", "batches")
QUIET_ROUNDS = 400


class Account:
    """The records in the log, those that were returned, and the offsets that may be committed."""

    def __init__(self) -> None:
        self.readable: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.damaged: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.starts = [0] * PARTITIONS
        self.settled: list[set[int]] = [set() for _ in range(PARTITIONS)]
        """Returned, or passed by a seek."""
        self.place = [0] * PARTITIONS
        self.in_hand: dict[int, int] = {}
        """The first record of a partition that the application holds."""
        self.committed: dict[int, int] = {}

    def begins(self, partitions: frozenset[TopicPartition]) -> None:
        for _, number in partitions:
            self.place[number] = self.committed.get(number, 0)

    def returns(self, records: list[ConsumerRecord]) -> None:
        for record in records:
            number, offset = record.partition, record.offset
            assert offset in self.readable[number], f"{record}: no such record"
            assert offset >= self.place[number], f"{record} was returned before"
            # Records that were deleted meanwhile may be left out.
            left_out = range(max(self.place[number], min(self.starts[number], offset)), offset)
            assert self.readable[number].isdisjoint(left_out), f"before {record} records were left out"
            assert self.damaged[number].isdisjoint(left_out), f"before {record} damage was passed without a word"
            self.place[number] = offset + 1
            self.settled[number].add(offset)
            self.in_hand.setdefault(number, offset)

    def sought(self, number: int, offset: int) -> None:
        self.settled[number].update(range(self.place[number], offset))
        self.place[number] = offset
        self.in_hand.pop(number, None)

    def commits(self, number: int, offset: int) -> None:
        meant = {one for one in self.readable[number] | self.damaged[number] if self.starts[number] <= one < offset}
        assert meant <= self.settled[number], (
            f"{offset} of {number} is committed, {meant - self.settled[number]} was not returned"
        )
        assert offset <= self.in_hand.get(number, offset), (
            f"{offset} of {number} is committed and in the application's hands"
        )
        self.committed[number] = offset

    def is_drained(self) -> bool:
        return all(
            {one for one in readable if one >= start} <= settled
            for readable, start, settled in zip(self.readable, self.starts, self.settled, strict=True)
        )


class Application:
    """One consumer after the other, and everything that is done to it. The methods are what a run is made of."""

    def __init__(self, broker: FakeBroker, assignor: str) -> None:
        self.assignor = assignor
        self.account = Account()
        self.log = FakeLog(broker, partitions=PARTITIONS)
        self.coordinator = StoringCoordinator(broker, partitions=PARTITIONS, on_commit=self.account.commits)
        self.bootstrap = f"127.0.0.1:{broker.port}"
        self.refusals: list[tuple[int, int]] = []
        self.log.twist = self.refuse_some
        self.consumer = self.make()

    def make(self) -> Consumer:
        async def on_assigned(_: Consumer, partitions: frozenset[TopicPartition]) -> None:
            self.account.begins(partitions)

        return Consumer(
            self.bootstrap,
            topics=["t"],
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_s=0.05,
            heartbeat_interval_s=0.1,
            assignors=[self.assignor],
            fetch_max_wait_s=0.02,
            metadata_max_age_s=0.5,
            on_assigned=on_assigned,
        )

    # Answers.

    async def append(self, number: int, count: int) -> None:
        self.account.readable[number].update(self.add(number, count))

    async def damage(self, number: int, count: int) -> None:
        self.account.damaged[number].update(self.add(number, count, is_damaged=True))

    async def mark(self, number: int, count: int) -> None:
        """Offsets without records: what transactions' markers take, and what compaction leaves."""
        self.add(number, count, attributes=CONTROL)

    def add(self, number: int, count: int, *, attributes: int = 0, is_damaged: bool = False) -> range:
        first = self.log.end(number)
        batch = build_batch([NewRecord(None, b"v", 1)] * count)
        write_header(
            batch, attributes=attributes, record_count=count, base_timestamp=1, max_timestamp=1, base_offset=first
        )
        batch[-1] ^= is_damaged
        self.log.append_batch(bytes(batch), number)
        return range(first, first + count)

    async def trim(self, number: int, share: int) -> None:
        self.account.starts[number] = self.log.starts[number] = max(
            self.log.starts[number], self.log.end(number) * share // 4
        )

    async def refuse(self, number: int, code: int) -> None:
        self.refusals.append((number, code))

    def refuse_some(self, _: FetchRequest, response: FetchResponse) -> None:
        for topic in response.responses:
            for row in topic.partitions:
                for refusal in [one for one in self.refusals if one[0] == row.partition_index]:
                    self.refusals.remove(refusal)
                    row.error_code = refusal[1]
                    row.records = None

    async def rebalance(self) -> None:
        await self.coordinator.rebalance()

    async def expel(self) -> None:
        """Let the coordinator have forgotten the member: its partitions are lost, and nothing of them can be stored."""
        self.coordinator.refuse(HeartbeatRequest, ErrorCode.UNKNOWN_MEMBER_ID)

    async def hide(self, ms: int) -> None:
        """Let metadata lack the topic for a while, as a broker's does that has not heard of it."""
        self.coordinator.cluster.errors["t"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await self.wait(ms)
        del self.coordinator.cluster.errors["t"]

    async def wait(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    # Calls of the application.

    async def read(self, way: str, records_max: int, ms: float) -> None:
        """Ask for records, for so long; what cannot be read is passed."""
        self.account.in_hand.clear()
        ways: dict[str, Callable[[], Any]] = {
            "get_many": lambda: self.consumer.get_many(records_max, ms / 1000),
            "anext": self.consumer.__anext__,
            "batches": self.consumer.batches(records_max).__anext__,
        }
        try:
            async with asyncio.timeout(ms / 1000 + 0.01):
                found = await ways[way]()
        except TimeoutError:
            return
        except CorruptRecordsError as error:
            await self.seek(error.partition.partition, error.next_offset)
        except KafkaError:
            for partition in self.consumer.assignment:
                await self.seek(partition.partition, self.account.place[partition.partition])
        else:
            if isinstance(found, dict):
                found = [record for records in found.values() for record in records]
            self.account.returns([found] if isinstance(found, ConsumerRecord) else list(found))

    async def interrupt(self, way: str, us: int) -> None:
        """Ask in a task that is cancelled in the middle; what it returned nevertheless was returned."""
        task = asyncio.ensure_future(self.read(way, 4, 1_000))
        await asyncio.sleep(us / 1e6)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    async def commit(self) -> None:
        self.account.in_hand.clear()
        try:
            await self.consumer.commit(timeout_s=5)
        except CommitFailedError:
            return

    async def seek(self, number: int, offset: int) -> None:
        partition = TopicPartition("t", number)
        if partition in self.consumer.assignment:
            await self.consumer.seek(partition, offset)
            self.account.sought(number, offset)

    async def go_back(self, number: int, count: int) -> None:
        await self.seek(number, max(self.account.starts[number], self.account.place[number] - count))

    async def pause(self, number: int) -> None:
        if TopicPartition("t", number) in self.consumer.assignment:
            self.consumer.pause(TopicPartition("t", number))

    async def resume(self) -> None:
        self.consumer.resume(*self.consumer.paused)

    async def reopen(self, how: str) -> None:
        """End this consumer, and begin anew with another."""
        if how == "with":
            self.account.in_hand.clear()
            await self.consumer.__aexit__(None)
        elif how == "close":
            await self.consumer.close()
        else:
            await self.consumer.__aexit__(RuntimeError)
        self.account.in_hand.clear()
        self.consumer = self.make()
        await self.consumer.__aenter__()

    async def drain(self) -> None:
        """Read to the end; then everything must have been returned, and be committed."""
        await self.resume()
        for turn in range(QUIET_ROUNDS):
            if self.account.is_drained():
                break
            await self.read(READS[turn % 3], 5, 50)
            # A rebalance that was in the way has paused partitions come back as others.
        assert self.account.is_drained(), "something cannot be read"


numbers = st.integers(0, PARTITIONS - 1)
counts = st.integers(1, 6)
steps = st.one_of(
    st.tuples(st.just("append"), numbers, counts),
    st.tuples(st.just("append"), numbers, counts),
    st.tuples(st.just("damage"), numbers, counts),
    st.tuples(st.just("mark"), numbers, counts),
    st.tuples(st.just("trim"), numbers, st.integers(1, 4)),
    st.tuples(
        st.just("refuse"),
        numbers,
        st.sampled_from(
            [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR]
        ),
    ),
    st.tuples(st.just("rebalance")),
    st.tuples(st.just("expel")),
    st.tuples(st.just("hide"), st.sampled_from([1, 300, 2_000])),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 200])),
    st.tuples(st.just("read"), st.sampled_from(READS), st.integers(1, 12), st.sampled_from([0, 1, 30, 300])),
    st.tuples(st.just("read"), st.sampled_from(READS), st.integers(1, 12), st.sampled_from([0, 1, 30, 300])),
    st.tuples(st.just("interrupt"), st.sampled_from(READS), st.sampled_from([0, 50, 500, 5_000, 60_000])),
    st.tuples(st.just("commit")),
    st.tuples(st.just("go_back"), numbers, st.integers(0, 5)),
    st.tuples(st.just("pause"), numbers),
    st.tuples(st.just("resume")),
    st.tuples(st.just("reopen"), st.sampled_from(["with", "close", "crash"])),
)


FETCHED_APART = (("append", 0, 5), ("wait", 30), ("mark", 0, 3), ("wait", 30))


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=40), st.sampled_from(["range", "cooperative-sticky"]))
# A partition that cannot be read, behind records of another one and behind records of its own.
@example([("append", 0, 5), ("damage", 1, 1), ("append", 1, 2), ("read", "get_many", 12, 300)] * 2, "range")
@example([("append", 0, 5), ("damage", 0, 1), ("append", 0, 2), ("read", "get_many", 12, 300)], "range")
# Offsets without records, fetched behind records that are in the application's hands.
@example([("wait", 200), *FETCHED_APART, ("read", "get_many", 9, 0), ("wait", 200)], "range")
@example([("append", 0, 5), ("read", "batches", 5, 300), ("mark", 0, 3), ("wait", 200), ("reopen", "crash")], "range")
def test_every_record_is_returned_once_and_none_is_committed_before(run: list[tuple[Any, ...]], assignor: str) -> None:
    async def main() -> None:
        broker = FakeBroker()
        async with serving_virtually(broker):
            application = Application(broker, assignor)
            await application.consumer.__aenter__()
            try:
                for name, *arguments in run:
                    await getattr(application, name)(*arguments)
                await application.drain()
            finally:
                await application.consumer.__aexit__(RuntimeError)

    run_virtually(main())
