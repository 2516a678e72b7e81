"""What goes from the coordinator's log by itself: expired offsets, groups that nobody uses, offsets of deleted topics.

Every `offsets.retention.check.interval.ms` all groups of this broker are looked at, a few milliseconds at a time. What
has outlived its use (`groups.offsets.expired`) gets a tombstone; a group without members and without offsets goes with
its last one. An event names what went, because to a consumer that comes back it looks like a loss.

*Deleted topics.* The image tells of a deletion at once. Offsets that were missed then (nobody led their partition, or
they were under way) are found here by their topic's id; they go when the id has been missing from the image in two
rounds, so that a broker whose image lags never takes the offsets of a topic that it has not heard of yet.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from barnabas_metadata_quorum.service import MetadataService

from .coordinator_shard import Change, HostedGroup, Shard, ShardHost, ShardState, Slices
from .groups.offsets import Membership, expired
from .groups.records import NO_TOPIC_ID, OffsetKey
from .groups.states import GroupState
from .waiting import Deadline

__all__ = ["Upkeep"]


class Upkeep:
    """See the module. One round at a time; it begins when this broker first leads an offsets partition."""

    def __init__(
        self,
        host: ShardHost,
        metadata: MetadataService,
        shards: Callable[[], list[Shard]],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        interval_ms: int,
        retention_ms: int,
    ) -> None:
        self._host, self._metadata, self._shards, self._spawn = host, metadata, shards, spawn
        self._interval_ms, self._retention_ms = interval_ms, retention_ms
        self._deadline: Deadline[Callable[[], None]] | None = None
        self._is_started = False
        self._missing: set[bytes] = set()

    def start(self) -> None:
        """Begin to look, unless that has been done."""
        if not self._is_started:
            self._is_started = True
            self._schedule()

    def close(self) -> None:
        if self._deadline is not None:
            self._host.timers.cancel(self._deadline)

    def forget_topics(self, topics: Sequence[tuple[str, bytes]]) -> None:
        """Delete the offsets of topics, given by name and id, that were just deleted."""
        if self._shards():
            self._spawn(self._forget(topics))

    async def round(self) -> None:
        """Look at every group of this broker once."""
        missing: set[bytes] = set()
        for shard in self._shards():
            await self._look_through(shard, missing)
        self._missing = missing

    def _schedule(self) -> None:
        self._deadline = self._host.timers.add(self._interval_ms, self._begin)

    def _begin(self) -> None:
        self._spawn(self._run())

    async def _run(self) -> None:
        await self.round()
        self._schedule()

    async def _look_through(self, shard: Shard, missing: set[bytes]) -> None:
        slices = Slices()
        for group_id in list(shard.groups):
            hosted = shard.groups.get(group_id)
            # Others have run since the list was made.
            if shard.state is not ShardState.ACTIVE:
                return
            if hosted is not None:
                self._look_at(shard, hosted, missing)
            await slices.breathe()

    def _look_at(self, shard: Shard, hosted: HostedGroup, missing: set[bytes]) -> None:
        offsets, topics = shard.offsets.of_group(hosted.group_id), self._metadata.image.topics
        gone = dict.fromkeys(expired(offsets, membership_of(hosted), self._host.wall_ms(), self._retention_ms))
        expired_count = len(gone)
        for place, value in offsets.items():
            if value.topic_id != NO_TOPIC_ID and value.topic_id not in topics:
                missing.add(value.topic_id)
                if value.topic_id in self._missing:
                    gone[place] = None
        if expired_count:
            names = ", ".join(sorted({topic for topic, _ in gone}))
            text = (
                f"{expired_count} of {len(offsets)} offsets of {names}, unused for {self._retention_ms // 60_000} min"
            )
            self._host.tell_group("offsets expired", hosted.group_id, text)
        is_empty = hosted.group.state is GroupState.EMPTY and hosted.group.deadline_ms is None
        if is_empty and len(gone) == len(offsets) and not shard.offsets.has_under_way(hosted.group_id):
            shard.remove_group(hosted)
        elif gone:
            shard.write_offsets([(OffsetKey(hosted.group_id, *place), None) for place in gone], None)

    async def _forget(self, topics: Sequence[tuple[str, bytes]]) -> None:
        topic_ids = dict(topics)
        slices = Slices()
        for shard in self._shards():
            for group_id in list(shard.offsets.group_ids()):
                if shard.state is not ShardState.ACTIVE:
                    break
                changes: list[Change] = [
                    (OffsetKey(group_id, topic, partition), None)
                    for (topic, partition), value in shard.offsets.of_group(group_id).items()
                    if topic in topic_ids and value.topic_id in {NO_TOPIC_ID, topic_ids[topic]}
                ]
                if changes:
                    shard.write_offsets(changes, None)
                await slices.breathe()


def membership_of(hosted: HostedGroup) -> Membership:
    """Return what expiry wants to know of a group."""
    if hosted.group.state is not GroupState.EMPTY:
        return Membership(has_members=True, subscribed=hosted.group.topics())
    return Membership(
        has_members=False, empty_since_ms=None if hosted.saved is None else hosted.saved.current_state_timestamp_ms
    )
