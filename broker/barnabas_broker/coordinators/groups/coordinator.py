"""Finds the shard that has a group, and keeps everything that the shards share.

Every broker computes a group's partition from its id (`state_machine.location`); the leader of that partition is the
group's coordinator (`coordinators.runtime.homes`).

A topic that is deleted takes its offsets with it: the shards write tombstones when the image says so. If nobody led a
shard's partition then, the next round of upkeep finds them.

Limits: one task for each group whose answers or record take long, one for upkeep, one that asks the controller; the
memory of groups by `state_machine.room`. One entry in the node's heap of deadlines per group, and one per parked
request.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.coordinators.room import Room
from barnabas_broker.coordinators.runtime.catching_up import catch_up
from barnabas_broker.coordinators.runtime.contracts import Done
from barnabas_broker.coordinators.runtime.coordinator import CoordinatorRuntime
from barnabas_broker.coordinators.runtime.homes import Homes
from barnabas_broker.coordinators.runtime.shard import ShardRuntime, ShardState
from barnabas_broker.coordinators.runtime.shard_host import ShardHost
from barnabas_broker.replicas.partitions import Partitions
from barnabas_broker.status.events import EventHistory
from barnabas_broker.timing.rounds import Rounds
from barnabas_broker.timing.timers import Timers
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.image.image import Image, topic_changes
from barnabas_metadata_quorum.resource_configs import group_key
from barnabas_metadata_quorum.service import MetadataService
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.records.markers import EndMarker

from .consumer.assignors.built_in import assign_in_steps
from .consumer.pace import HURRIED_APART_MS, SETTLED_APART_MS, Gathering, Pace
from .consumers import ConsumerSettings
from .expiry import Expiry
from .group_configs import changed_groups, config_of, consumer_config
from .group_topics import GroupTopics
from .shard import GroupShard
from .shard_topics import ShardTopics
from .state_machine.location import OFFSETS_TOPIC, offsets_topic, partition_for
from .state_machine.messages import GroupConfig
from .table import GroupTable

__all__ = ["GroupCoordinator"]

ASK_AGAIN_S = 0.5
TEXT_MAX = 1_000
"""Characters of a name or a reason that the history keeps: both are a client's, and a thousand events are kept."""


class GroupCoordinator(Homes[GroupTable, GroupShard]):
    """See the module. Made with the broker's context; `room` and `group_events` are of all groups of this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataService,
        partitions: Partitions,
        events: EventHistory,
        timers: Timers,
        clocks: Clocks,
        on_fatal: Callable[[BaseException], None],
        meter: LoopMeter | None = None,
    ) -> None:
        super().__init__(partitions, OFFSETS_TOPIC, partition_for)
        self.host = ShardHost(timers, clocks, events.add, on_fatal, meter or LoopMeter())
        self.room = Room(config.group_state_max_bytes)
        # Beside the broker's own: a thousand groups that start would push its elections out of the history.
        self.group_events = EventHistory(clocks.wall_ms)
        self._group_config = GroupConfig(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            size_max=config.group_max_size,
            rebalance_interval_ms=config.group_rebalance_interval_ms,
        )
        self.topics = GroupTopics(self.host.spawn, Image(config.cluster_id))
        self._unsure: list[tuple[ShardRuntime[GroupTable, GroupShard], ShardTopics]] = []
        self._is_catching_up = False
        self._metadata = metadata
        consumers = consumer_config(config)
        self._consumers = ConsumerSettings(
            consumers,
            lambda group_id: config_of(consumers, config, metadata.image.resource_configs.get(group_key(group_id), {})),
            assign_in_steps,
            self.topics,
            Pace(HURRIED_APART_MS),
            Pace(SETTLED_APART_MS),
            Gathering(),
        )
        retention_ms = config.offsets_retention_minutes * 60_000
        self.expiry = Expiry(self.host, self.tell_group, metadata, self.active_shards, retention_ms)
        self.runtime = CoordinatorRuntime(
            self.host,
            metadata,
            partitions,
            offsets_topic(config),
            make_table=GroupTable,
            make_shard=self._make_shard,
            upkeep=Rounds(timers, self.host.spawn, config.offsets_retention_check_interval_ms, self.expiry.round),
        )

    def _make_shard(self, runtime: ShardRuntime[GroupTable, GroupShard]) -> GroupShard:
        self._take_topics(self._metadata.image)
        topics = ShardTopics(self.topics)
        self._unsure.append((runtime, topics))
        if not self._is_catching_up:
            self._is_catching_up = True
            self.host.spawn(self._catch_up())
        consumers = self._consumers._replace(topics=topics)
        return GroupShard(runtime, self._group_config, self.room, self.tell_group, consumers)

    async def _catch_up(self) -> None:
        """Find out how new the image must be for each shard that has begun, with one question for as many as there are.

        Another question follows until there is an answer, or no such shard any more.
        """
        while self._unsure:
            asked, self._unsure = self._unsure, []
            try:
                version = await catch_up(self._metadata)
            except (BarnabasError, TimeoutError):
                await asyncio.sleep(ASK_AGAIN_S)
                self._unsure += [one for one in asked if one[0].state is not ShardState.ENDED]
            else:
                for _, topics in asked:
                    topics.rest_on(version)
        self._is_catching_up = False

    def end_transaction(self, index: int, marker: EndMarker, bumps_epoch: bool, done: Done) -> None:
        """End a producer's transaction in an offsets partition (`Staging.end`). `done` is called once."""
        shard = self.runtime.shard_at(index)
        if isinstance(shard, GroupShard):
            shard.staging.end(marker, done, bumps_epoch=bumps_epoch)
        else:
            done(shard)

    # Events, image and status.

    def tell_group(self, kind: str, group_id: str, cause: str) -> None:
        """Remember an event of a group."""
        self.group_events.add(kind, f"group {group_id[:TEXT_MAX]}", cause[:TEXT_MAX])

    def on_image(self, old: Image, new: Image) -> None:
        """Forget the offsets of deleted topics; tell groups what there is, and what is set for them.

        Subscribed to the metadata service.
        """
        self._take_topics(new)
        if new.resource_configs is not old.resource_configs:
            for group_id in changed_groups(old.resource_configs, new.resource_configs):
                shard = self.shard_of(group_id)
                if isinstance(shard, GroupShard):
                    shard.consumers.configure(group_id)
        deleted = topic_changes(old, new).deleted
        if deleted:
            self.expiry.forget_topics([(topic.name, topic.topic_id) for topic in deleted])

    def _take_topics(self, image: Image) -> None:
        """Tell groups which topics exist, unless the image may be older than this process.

        A broker that starts may lead before it has heard what happened while it was away. It has, when the image has
        its registration.
        """
        epoch = self._metadata.broker_epoch
        if self.topics.is_known or (epoch is not None and image.version > epoch):
            self.topics.take(image)

    def status(self) -> dict[str, Any]:
        """Return everything that an operator may ask, as plain values."""
        shards = [runtime.shard for runtime in self.runtime.shards.values()]
        states: Counter[str] = Counter()
        for shard in shards:
            states.update(hosted.group.state.value for hosted in shard.groups.values())
            states.update(hosted.group.state for hosted in shard.consumers.groups.values())
        return {
            "groups": sum(states.values()),
            "consumer_groups": sum(len(shard.consumers.groups) for shard in shards),
            "members": sum(shard.member_count for shard in shards),
            "states": dict(states),
            "offsets": sum(len(shard.offsets) for shard in shards),
            "held_bytes": self.room.held_bytes,
            "held_bytes_max": self.room.limit_bytes,
            "partitions": {index: runtime.state.value for index, runtime in sorted(self.runtime.shards.items())},
        }

    async def close(self) -> None:
        """Serve nothing any more, and end every task."""
        self.runtime.close()
        await self.host.close()
