"""OffsetDelete: forget a group's positions in some partitions, unless its members subscribe to the topic."""

from collections.abc import Container
from functools import partial

from barnabas_broker.coordinators.groups.shard import Change, GroupShard
from barnabas_broker.coordinators.groups.state_machine.records import OffsetKey
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_broker.coordinators.runtime.contracts import Done
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.slices import Slices, taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from .group_routing import certain_shard, has_outcome

__all__ = ["handle", "refuse"]

PIECE = 300  # partitions between two looks at the clock


async def handle(broker: BrokerContext, _: Exchange, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Check each partition, then delete what may be deleted, and answer when that cannot come back."""
    if not request.group_id:
        return refuse(request, ErrorCode.INVALID_GROUP_ID)
    shard = await certain_shard(broker, request.group_id)
    if isinstance(shard, ErrorCode):
        return refuse(request, shard)
    subscribed: Container[str] | None
    hosted = shard.group(request.group_id)
    consumers = shard.consumers.hosted(request.group_id)
    if consumers is not None:
        subscribed = consumers.group.subscribed()
    elif hosted is None:
        return refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
    else:
        subscribed = await taken(hosted.group.topics_in_steps())
        if hosted.group.state is not GroupState.EMPTY and subscribed is None:
            return refuse(request, ErrorCode.NON_EMPTY_GROUP)
    deletion = _Deletion(shard, request.group_id)
    response = OffsetDeleteResponse()
    slices = Slices()
    for topic in request.topics:
        known = broker.partitions.topics.get(topic.name)
        results = []
        for asked in topic.partitions:
            result = OffsetDeleteResponsePartition(partition_index=asked.partition_index)
            if known is None or not 0 <= asked.partition_index < len(known.topic.partitions):
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed and topic.name in subscribed:
                result.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                deletion.add(topic.name, result)
            results.append(result)
            if not len(results) % PIECE:
                deletion.write()
                await slices.yield_if_due()
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
        await slices.yield_if_due()
    await deletion.finish()
    return response


class _Deletion:
    """The deletions of one request: the tombstones of a piece, and how many pieces are on their way."""

    def __init__(self, shard: GroupShard, group_id: str) -> None:
        self._shard = shard
        self._group_id = group_id
        self._changes: list[Change] = []
        self._results: list[OffsetDeleteResponsePartition] = []
        self._open: dict[int, list[OffsetDeleteResponsePartition]] = {}
        self._count = 0
        self._told: Done | None = None

    def add(self, topic: str, result: OffsetDeleteResponsePartition) -> None:
        key = OffsetKey(self._group_id, topic, result.partition_index)
        shard = self._shard
        if shard.offsets.get(key) is not None or key in shard.under_way or shard.staging.is_pending(key):
            self._changes.append((key, None))
            self._results.append(result)

    def write(self) -> None:
        """Append what was added since the last time."""
        if self._changes:
            self._count += 1
            self._open[self._count] = self._results
            changes, self._changes = self._changes, []
            self._results = []
            self._shard.write_offsets(changes, partial(self._done, self._count))

    async def finish(self) -> None:
        """Append the rest, and return when the fate of every piece is known."""
        self.write()
        if self._open:
            code = await has_outcome(self._wait)
            for results in self._open.values():
                for result in results:
                    result.error_code = code

    def _wait(self, told: Done) -> None:
        self._told = told

    def _done(self, number: int, error: ErrorCode) -> None:
        for result in self._open.pop(number):
            result.error_code = error
        if not self._open and self._told is not None:
            self._told(ErrorCode.NONE)


def refuse(_: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    """Answer with `code` for everything."""
    return OffsetDeleteResponse(error_code=code)
