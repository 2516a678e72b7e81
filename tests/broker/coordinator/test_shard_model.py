"""A shard against a plain list of what was said: under way, committed, cut or lost, a replay says the same."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.coordinator_replay import Replay
from barnabas_broker.coordinator_shard import Shard, ShardState
from barnabas_broker.coordinator_upkeep import Upkeep
from barnabas_broker.groups.messages import Effects, GroupConfig, SavedGroup
from barnabas_broker.groups.records import CommittedOffset, GroupKey, OffsetKey
from barnabas_broker.partition import Partition
from barnabas_broker.partition_host import PendingAppend
from barnabas_broker.timers import Timers
from barnabas_broker.waiting import CommitWaiters
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import BatchHeader, ControlKind, control_frame, parse_header, stamp

Name = OffsetKey | GroupKey
GROUPS = ("g", "h")
KEYS = [OffsetKey(group_id, "t", index) for group_id in GROUPS for index in range(3)]


class Log:
    """Entries in a list; what lies before a start that was committed is gone at once, to the last entry."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.first_index, self.last_index, self.log_end_offset, self.size_bytes = 1, 0, 0, 0

    def put(self, term: int, frame: bytes | bytearray) -> int:
        self.last_index += 1
        self.entries.append(Entry(self.last_index, term, frame))
        self.log_end_offset += max(0, parse_header(frame).record_count)
        return self.last_index

    def term_at(self, index: int) -> int | None:
        return next((entry.term for entry in self.entries if entry.index == index), None)

    async def replay(self, from_index: int) -> AsyncIterator[Entry]:
        index = from_index
        while (index := max(index, self.first_index)) <= self.last_index:
            yield next(entry for entry in self.entries if entry.index == index)
            index += 1

    def drop_before(self, offset: int) -> None:
        while self.entries and parse_header(self.entries[0].frame).end_offset <= offset:
            self.first_index = self.entries.pop(0).index + 1

    def truncate_from(self, index: int) -> None:
        self.entries = [entry for entry in self.entries if entry.index < index]
        self.last_index = index - 1
        ends = [parse_header(entry.frame).end_offset for entry in self.entries]
        self.log_end_offset = max(ends, default=0)


class FakePartition:
    """A leader whose entries commit when the test says so."""

    def __init__(self) -> None:
        self.log, self.term, self.message_bytes_max = Log(), 1, 1 << 20
        self.producers = self  # Its commit index is all that anybody asks for.
        self.commit_index = 0
        self.waiters: CommitWaiters[PendingAppend] = CommitWaiters()
        self.starts: dict[int, int] = {}
        self.shard: Shard | None = None

    def append(self, header: BatchHeader, frame: bytearray) -> tuple[int, int]:
        offset = self.log.log_end_offset
        stamp(frame, offset, self.term)
        return offset, self.log.put(self.term, frame)

    def wait_for(self, index: int, waiter: PendingAppend) -> bool:
        if index <= self.commit_index:
            return False
        self.waiters.add(index, waiter)
        return True

    def drop_before(self, offset: int) -> int:
        frame = control_frame(self.log.log_end_offset, self.term, ControlKind.PREFIX_TRUNCATION)
        index = self.log.put(self.term, frame)
        self.starts[index] = offset
        return index

    def commit(self, count: int) -> None:
        self.commit_index = min(self.commit_index + count, self.log.last_index)
        if self.shard is not None and self.commit_index:
            self.shard.on_committed(self.commit_index)
        for index in [index for index in self.starts if index <= self.commit_index]:
            self.log.drop_before(self.starts.pop(index))
        for waiter in self.waiters.take_committed(self.commit_index):
            waiter.on_committed()

    def lose(self) -> None:
        self.log.truncate_from(self.commit_index + 1)
        self.starts.clear()
        self.term += 1
        for waiter in self.waiters.take_all():
            waiter.on_failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Host:
    """What a shard needs of its broker; nothing happens by itself."""

    def __init__(self) -> None:
        self.timers, self.group_config = Timers(lambda: 0), GroupConfig()
        self.tasks: list[asyncio.Task[None]] = []

    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 1_000

    def tell(self, kind: str, subject: str, cause: str) -> None: ...
    def tell_group(self, kind: str, group_id: str, cause: str) -> None: ...
    def compact(self, shard: Shard) -> None: ...

    def fail(self, error: BaseException) -> None:
        raise error

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(coroutine))


class Story:
    """One shard after the other over one log, and the list of what each entry was meant to say."""

    def __init__(self) -> None:
        self.host, self.partition = Host(), FakePartition()
        self.said: list[tuple[int, Name, object]] = []
        self.upkeep = Upkeep(self.host, cast("Any", None), list, self.host.spawn, 1, 1)
        self.shard = self.next_shard(Replay())
        self.number = 0

    def next_shard(self, replay: Replay) -> Shard:
        self.partition.shard = shard = Shard(self.host, cast("Partition", self.partition), replay)
        return shard

    def truth(self) -> dict[Name, object]:
        """Return what is committed."""
        found: dict[Name, object] = {}
        for index, name, value in self.said:
            if index <= self.partition.commit_index:
                found.pop(name, None)
                if value is not None:
                    found[name] = value
        return found

    def note(self, act: Callable[[], object], said: dict[Name, object]) -> None:
        act()
        self.said += [(self.partition.log.last_index, name, value) for name, value in said.items()]

    def write(self, key: OffsetKey, is_tombstone: bool) -> None:
        self.number += 1
        self.shard.make_group(key.group_id)
        value = None if is_tombstone else CommittedOffset(self.number, -1, "", 1_000)
        self.note(lambda: self.shard.write_offsets([(key, value)], None), {key: value})

    def save(self, group_id: str) -> None:
        self.number += 1
        hosted = self.shard.make_group(group_id)
        assert hosted is not None
        saved = SavedGroup("consumer", self.number, None, None, -1, ())
        said: dict[Name, object] = {GroupKey(group_id): saved._replace(current_state_timestamp_ms=1_000)}
        self.note(lambda: self.shard.carry_out(hosted, Effects(save=saved)), said)

    def remove(self, group_id: str) -> None:
        hosted = self.shard.group(group_id)
        if hosted is not None:
            said: dict[Name, object] = {
                OffsetKey(group_id, *place): None for place in self.shard.offsets.of_group(group_id)
            }
            if self.shard.saved(group_id) is not None or hosted.saves:
                said[GroupKey(group_id)] = None
            self.note(lambda: self.shard.remove_group(hosted), said)

    def compact(self) -> None:
        if not self.shard.is_compacting:
            self.shard.is_compacting = True
            self.host.spawn(self.upkeep.compact(self.shard))

    async def lose(self) -> None:
        """Another node leads for a moment; then this one again, with what it kept."""
        replay = self.shard.to_replay()
        self.shard.end(ErrorCode.NOT_COORDINATOR)
        self.partition.lose()
        self.said = [one for one in self.said if one[0] <= self.partition.commit_index]
        await asyncio.gather(*self.host.tasks)
        self.host.tasks.clear()
        self.shard = self.next_shard(replay)
        await self.shard.load()

    async def check(self) -> None:
        truth = self.truth()
        offsets = {name: value for name, value in truth.items() if isinstance(name, OffsetKey)}
        groups = {name.group_id: value for name, value in truth.items() if isinstance(name, GroupKey)}
        assert {key: self.shard.offsets.get(key) for key in self.shard.offsets.keys()} == offsets  # noqa: SIM118
        replay = Replay()
        log = cast("Any", self.partition.log)
        await replay.advance(log, self.partition.commit_index, lambda: True)
        assert {key: replay.offsets.get(key) for key in replay.offsets.keys()} == offsets  # noqa: SIM118
        assert {group_id: saved for group_id, (saved, _) in replay.saved.items()} == groups


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(KEYS), st.booleans()),
        st.tuples(st.just("save"), st.sampled_from(GROUPS)),
        st.tuples(st.just("remove"), st.sampled_from(GROUPS)),
        st.tuples(st.just("commit"), st.integers(1, 5)),
        st.tuples(st.just("compact")),
        st.tuples(st.just("lose")),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_a_replay_says_what_was_committed_whatever_happens(taken: list[tuple[Any, ...]]) -> None:
    async def tell() -> None:
        story = Story()
        await story.shard.load()
        for name, *arguments in taken:
            if name == "lose":
                await story.lose()
            elif name == "commit":
                story.partition.commit(*arguments)
            else:
                getattr(story, name)(*arguments)
            # Let what waits take one step.
            await asyncio.sleep(0)
            await story.check()
        while any(not task.done() for task in story.host.tasks):
            story.partition.commit(1)
            await asyncio.sleep(0)
            await story.check()
        story.partition.commit(1_000)
        await story.check()
        await story.lose()
        await story.check()
        assert story.shard.state is ShardState.ACTIVE
        story.host.timers.close()

    asyncio.run(tell())
