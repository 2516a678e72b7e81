"""Deletes expired offsets, unused groups, and the offsets of deleted topics.

Every `offsets.retention.check.interval.ms` all groups of this broker are looked at, a few milliseconds at a time. An
offset that has outlived its use (`state_machine.offsets.expired`) gets a tombstone; a group without members and without
offsets goes with its last one, or in the next round if it had more than `LOOKED_STEP` of them. An event names
the topics, because to a consumer that comes back it looks like a loss.

*A record under way* is in use: an offset that somebody has just committed anew is not expired, though the old one is
still the committed one, and is not the deleted topic's either, if there is another topic of that name by now. A
tombstone would come behind it, and take an offset that was acknowledged. The next round looks again. So it is with one
that is pending in a transaction: it is looked at when the transaction has ended.

*Deleted topics.* The image tells of a deletion at once. Offsets that were missed then (nobody led their partition, or
they were under way) are found here by their topic's id; they go in the second round in which the id is missing from the
image. In between the controller has said how far it is, and the image was as far: a broker whose image lags, however
long it is cut off, never takes the offsets of a topic that it has not heard of yet.
"""

from collections.abc import AsyncIterator, Callable, Sequence

from barnabas_broker.coordinators.runtime.catching_up import catch_up
from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_broker.coordinators.runtime.shard_host import ShardHost
from barnabas_broker.timing.slices import Slices
from barnabas_metadata_quorum.service import MetadataService
from barnabas_raftlog.errors import BarnabasError

from .hosted_consumers import HostedConsumers
from .hosted_group import HostedGroup
from .shard import Change, GroupShard, TellGroup
from .state_machine.offsets import Membership, expired
from .state_machine.records import NO_TOPIC_ID, OffsetKey
from .state_machine.states import GroupState

__all__ = ["Expiry"]

LOOKED_STEP = 500  # offsets of a group between two looks at the clock
Place = tuple[str, int]  # topic and partition
Hosted = HostedGroup | HostedConsumers


class Expiry:
    """See the module. `round` is called by the runtime's upkeep, one round at a time."""

    def __init__(
        self,
        host: ShardHost,
        tell_group: TellGroup,
        metadata: MetadataService,
        shards: Callable[[], list[GroupShard]],
        retention_ms: int,
    ) -> None:
        self._host = host
        self._tell_group = tell_group
        self._metadata = metadata
        self._shards = shards
        self._retention_ms = retention_ms
        self._missing: set[bytes] = set()

    def forget_topics(self, topics: Sequence[tuple[str, bytes]]) -> None:
        """Delete the offsets of topics, given by name and id, that were just deleted."""
        if self._shards():
            self._host.spawn(self._forget(topics))

    async def round(self) -> None:
        """Look at every group of this broker once."""
        missing: set[bytes] = set()
        slices = Slices()
        for shard in self._shards():
            group_ids = [*shard.groups, *shard.consumers.groups]
            async for group_id, places, is_whole in self._places_of(shard, group_ids, slices):
                hosted = shard.groups.get(group_id) or shard.consumers.groups.get(group_id)
                if hosted is not None and not hosted.is_deleting:
                    self._look_at(shard, hosted, places, missing, is_whole=is_whole)
        self._missing = await self._certain(missing) if missing else missing

    async def _certain(self, missing: set[bytes]) -> set[bytes]:
        """Return those of the topics that the controller does not know either; none if it cannot be asked."""
        try:
            await catch_up(self._metadata)
        except (BarnabasError, TimeoutError):
            return set()
        return {topic_id for topic_id in missing if topic_id not in self._metadata.image.topics}

    async def _places_of(
        self, shard: GroupShard, group_ids: Sequence[str], slices: Slices
    ) -> AsyncIterator[tuple[str, list[Place], bool]]:
        """Yield the places of groups' offsets, some of one group at a time, and whether these are all that it has.

        Others run in between: an offset may be gone, and another be in its place. It ends when the shard is not served
        here any more.
        """
        for group_id in group_ids:
            places = list(shard.offsets.of_group(group_id))
            for begin in range(0, max(len(places), 1), LOOKED_STEP):
                if shard.runtime.state is not ShardState.ACTIVE:
                    return
                yield group_id, places[begin : begin + LOOKED_STEP], len(places) <= LOOKED_STEP
                await slices.yield_if_due()

    def _look_at(
        self, shard: GroupShard, hosted: Hosted, places: Sequence[Place], missing: set[bytes], *, is_whole: bool
    ) -> None:
        coming = shard.under_way.of_owner(hosted.group_id)
        known = shard.offsets.of_group(hosted.group_id)
        topics = self._metadata.image.topics
        offsets = {
            place: known[place]
            for place in places
            if place in known and not (coming and OffsetKey(hosted.group_id, *place) in coming)
        }
        pending = shard.staging.staged.of_group(hosted.group_id)
        for place in [place for place in offsets if shard.staging.is_pending(OffsetKey(hosted.group_id, *place))]:
            del offsets[place]
        gone = dict.fromkeys(expired(offsets, membership_of(hosted), self._host.wall_ms(), self._retention_ms))
        expired_count = len(gone)
        for place, value in offsets.items():
            if value.topic_id != NO_TOPIC_ID and value.topic_id not in topics:
                missing.add(value.topic_id)
                if value.topic_id in self._missing:
                    gone[place] = None
        if expired_count:
            names = ", ".join(sorted({topic for topic, _ in gone}))
            text = f"{expired_count} of {len(known)} offsets of {names}, unused for {self._retention_ms // 60_000} min"
            self._tell_group("offsets expired", hosted.group_id, text)
        if is_whole and _is_idle(hosted) and len(gone) == len(offsets) and not coming and not pending:
            shard.remove(hosted)
        elif gone:
            shard.write_offsets([(OffsetKey(hosted.group_id, *place), None) for place in gone], None)

    async def _forget(self, topics: Sequence[tuple[str, bytes]]) -> None:
        topic_ids = dict(topics)
        slices = Slices()
        for shard in self._shards():
            async for group_id, places, _ in self._places_of(shard, list(shard.offsets.group_ids()), slices):
                known = shard.offsets.of_group(group_id)
                keys = [
                    OffsetKey(group_id, topic, partition)
                    for topic, partition in places
                    if topic in topic_ids
                    and (topic, partition) in known
                    and known[topic, partition].topic_id in {NO_TOPIC_ID, topic_ids[topic]}
                ]
                changes: list[Change] = [
                    (key, None) for key in keys if key not in shard.under_way and not shard.staging.is_pending(key)
                ]
                if changes:
                    shard.write_offsets(changes, None)


def _is_idle(hosted: Hosted) -> bool:
    if isinstance(hosted, HostedConsumers):
        return not hosted.group.members
    return hosted.group.state is GroupState.EMPTY and hosted.group.deadline_ms is None and not hosted.saves


def membership_of(hosted: Hosted) -> Membership:
    """Return everything that expiry wants to know of a group.

    Of a group of KIP-848 nobody remembers since when it is empty: its offsets count from when they were committed, as
    in Kafka.
    """
    if isinstance(hosted, HostedConsumers):
        group = hosted.group
        return Membership(has_members=bool(group.members), subscribed=group.subscribed() if group.members else None)
    if hosted.group.state is not GroupState.EMPTY:
        return Membership(has_members=True, subscribed=hosted.group.topics())
    return Membership(has_members=False, empty_since_ms=hosted.changed_at_ms)
