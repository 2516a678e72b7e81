"""Surveys many topics or groups with a few requests to each broker: functions over a `Cluster`.

A list of a thousand topics or groups with their sizes or lags must not cost a thousand requests, and one broker that is
down must not cost the whole list. So every broker gets one request of each kind about all that it leads, holds or
coordinates (`GROUPS_AT_ONCE` groups in one), all brokers at the same time. What a broker does not say is missing in the
answer, and `silent` says which broker that was, and why. A leader that has moved meanwhile is looked for once more.

Not here: what must be complete or fail. `list_offsets`, `describe_log_dirs` and `group_lag` retry until their deadline.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.protocol.list_offsets import ListOffsetsResponse
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .consumer_groups import CONSUMER_TYPE, described_consumers
from .groups import ask_groups, described
from .log_dirs import ask_log_dirs
from .offsets import left_s, offsets_in, offsets_request
from .values import (
    GroupDescription,
    GroupListing,
    GroupsSurvey,
    GroupSurvey,
    OffsetSpec,
    PartitionLag,
    ReachableGroups,
    TopicsSurvey,
)

__all__ = ["reachable_groups", "survey_groups", "survey_topics"]

GROUPS_AT_ONCE = 100
# Brokers answer from memory. One that needs longer is stopped or cut off, and what it knows is left out.
ATTEMPT_TIMEOUT_S = 5.0
ROUNDS = 2

Positions = dict[TopicPartition, int]
Silent = dict[int, str]


async def survey_topics(cluster: Cluster, names: Collection[str], timeout_s: float) -> TopicsSurvey:
    """Return the positions and sizes of topics, as far as brokers tell them within `timeout_s`.

    Topics that the metadata does not have are left out. The requests: one of three kinds to each broker.
    """
    deadline = _soon(timeout_s)
    if unknown := [name for name in names if name not in cluster.view.topics]:
        await cluster.refresh(unknown, timeout_s=left_s(deadline))
    topics = [cluster.view.topics[name] for name in names if name in cluster.view.topics]
    keys = {TopicPartition(topic.name, number) for topic in topics for number in topic.partitions}
    holders = {node_id for topic in topics for view in topic.partitions.values() for node_id in view.replicas}
    # A broker says everything that it holds in a shorter request than one that names most of it.
    named = keys if len(topics) < len(cluster.view.topics) else None
    silent: Silent = {}
    starts, ends, sizes = await asyncio.gather(
        _positions(cluster, keys, OffsetSpec.EARLIEST, deadline, silent),
        _positions(cluster, keys, OffsetSpec.LATEST, deadline, silent),
        _sizes(cluster, holders, named, deadline, silent),
    )
    # Records may be deleted between the two requests.
    offsets = {key: (min(starts[key], ends[key]), ends[key]) for key in sorted(starts.keys() & ends.keys())}
    return TopicsSurvey(offsets, sizes, dict(sorted(silent.items())))


async def reachable_groups(
    cluster: Cluster, timeout_s: float, *, states: Iterable[str] = (), types: Iterable[str] = ()
) -> ReachableGroups:
    """Return the groups that brokers tell of within `timeout_s`. One that cannot be reached is not asked again.

    A coordinator that is still loading its groups is asked until it has them.
    """
    deadline = _soon(timeout_s)
    wanted = tuple(states)
    wanted_types = tuple(types)
    found: dict[str, GroupListing] = {}
    silent: Silent = {}

    async def ask(node_id: int) -> None:
        async def attempt(until: float) -> list[GroupListing]:
            try:
                return await ask_groups(cluster, node_id, wanted, wanted_types, until)
            except ClientError as error:
                silent[node_id] = str(error)
                return []

        try:
            rows = await cluster.retry(f"groups of broker {node_id}", left_s(deadline), attempt)
        except (ClientError, KafkaError) as error:
            silent[node_id] = str(error)
        else:
            # Two brokers may have named a group that moved meanwhile.
            found.update({row.group_id: row for row in rows})

    await asyncio.gather(*map(ask, sorted(cluster.view.brokers)))
    return ReachableGroups([row for _, row in sorted(found.items())], dict(sorted(silent.items())))


async def survey_groups(
    cluster: Cluster, listings: Sequence[GroupListing], timeout_s: float, *, with_lags: bool
) -> GroupsSurvey:
    """Return the members of groups, and with `with_lags` their lags, as far as brokers tell them within `timeout_s`.

    Positions in many groups at once can be asked for since Apache Kafka 3.0; from older brokers there are no lags.
    """
    deadline = _soon(timeout_s)
    silent: Silent = {}
    if with_lags:
        # Positions may come with the ids of their topics, whatever topics these are.
        await cluster.refresh(None, timeout_s=left_s(deadline))
    consumers = {row.group_id for row in listings if row.type == CONSUMER_TYPE}
    by_coordinator: dict[int, list[str]] = {}
    for row in listings:
        by_coordinator.setdefault(row.coordinator_id, []).append(row.group_id)
    answers = await asyncio.gather(
        *(
            _of_coordinator(cluster, *one, consumers, deadline, silent, with_lags)
            for one in sorted(by_coordinator.items())
        )
    )
    descriptions = {group_id: one for found, _ in answers for group_id, one in found.items()}
    committed = {group_id: one for _, found in answers for group_id, one in found.items()}
    readers = {
        group_id: {key: member for member in one.members for key in member.assignment or ()}
        for group_id, one in descriptions.items()
    }
    keys = {key for group_id, found in committed.items() for key in found.keys() | readers.get(group_id, {}).keys()}
    there = {key for key in keys if _exists(cluster, key)}
    ends = await _positions(cluster, there, OffsetSpec.LATEST, deadline, silent)
    unknown = there - ends.keys()
    groups = {}
    for row in listings:
        lags = None
        if row.group_id in committed:
            read, positions = readers.get(row.group_id, {}), committed[row.group_id]
            wanted = sorted(read.keys() | positions.keys())
            if unknown.isdisjoint(wanted):
                lags = {key: PartitionLag(positions.get(key), ends.get(key), read.get(key)) for key in wanted}
        groups[row.group_id] = GroupSurvey(descriptions.get(row.group_id), lags)
    return GroupsSurvey(groups, dict(sorted(silent.items())))


def _soon(timeout_s: float) -> float:
    return asyncio.get_running_loop().time() + min(timeout_s, ATTEMPT_TIMEOUT_S)


def _exists(cluster: Cluster, key: TopicPartition) -> bool:
    topic = cluster.view.topics.get(key.topic)
    return topic is not None and key.partition in topic.partitions


async def _positions(
    cluster: Cluster, keys: Iterable[TopicPartition], spec: OffsetSpec, deadline: float, silent: Silent
) -> Positions:
    """Ask each leader for one position of the partitions that it leads; a second time about those that have moved."""
    found: Positions = {}
    left = set(keys)

    async def ask(node_id: int, led: Sequence[TopicPartition]) -> bool:
        request = offsets_request(cluster.view, dict.fromkeys(led, int(spec)), read_committed=False)
        try:
            response: ListOffsetsResponse = await cluster.ask_broker(node_id, request, left_s(deadline))
        except (ClientError, KafkaError) as error:
            silent[node_id] = str(error)
            return False
        answers = offsets_in(response)
        found.update({key: row.offset for key in led if not isinstance(row := answers.get(key), KafkaError | None)})
        return len(found.keys() & set(led)) < len(led)

    for number in range(ROUNDS):
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in sorted(left):
            leader = cluster.view.leader(*key)
            if leader is not None and leader.node_id not in silent:
                by_leader.setdefault(leader.node_id, []).append(key)
        moved = await asyncio.gather(*(ask(node_id, led) for node_id, led in sorted(by_leader.items())))
        left -= found.keys()
        if not any(moved) or number == ROUNDS - 1:
            break
        try:
            await cluster.refresh({key.topic for key in left}, timeout_s=left_s(deadline))
        except (ClientError, KafkaError):
            break
        left = {key for key in left if _exists(cluster, key)}
    return found


async def _sizes(
    cluster: Cluster,
    holders: Collection[int],
    named: Collection[TopicPartition] | None,
    deadline: float,
    silent: Silent,
) -> dict[int, dict[TopicPartition, int]]:
    async def ask(node_id: int) -> dict[TopicPartition, int] | None:
        try:
            directories = await ask_log_dirs(cluster, node_id, deadline, named)
        except (ClientError, KafkaError) as error:
            silent[node_id] = str(error)
            return None
        if broken := [one.error for one in directories if one.error is not None]:
            silent[node_id] = str(broken[0])
        rows = [(key, row) for one in directories for key, row in one.replicas.items() if not row.is_future]
        return {key: row.size_bytes for key, row in rows}

    node_ids = sorted(holders)
    answers = await asyncio.gather(*map(ask, node_ids))
    return {node_id: sizes for node_id, sizes in zip(node_ids, answers, strict=True) if sizes is not None}


async def _of_coordinator(
    cluster: Cluster,
    node_id: int,
    group_ids: Sequence[str],
    consumers: Collection[str],
    deadline: float,
    silent: Silent,
    with_lags: bool,
) -> tuple[dict[str, GroupDescription], dict[str, dict[TopicPartition, OffsetAndMetadata]]]:
    """Ask one coordinator about its groups, some at a time; nothing more after a question that it did not answer."""
    descriptions: dict[str, GroupDescription] = {}
    committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for first in range(0, len(group_ids), GROUPS_AT_ONCE):
        some = group_ids[first : first + GROUPS_AT_ONCE]
        try:
            response: DescribeGroupsResponse = await cluster.ask_broker(
                node_id, DescribeGroupsRequest(groups=tuple(some)), left_s(deadline)
            )
            descriptions |= {
                row.group_id: described(row, node_id)
                for row in response.groups
                if not row.error_code and row.group_state != "Dead"
            }
            others = [group_id for group_id in some if group_id in consumers and group_id not in descriptions]
            if others:
                told: ConsumerGroupDescribeResponse = await cluster.ask_broker(
                    node_id, ConsumerGroupDescribeRequest(group_ids=others), left_s(deadline)
                )
                descriptions |= described_consumers(told, node_id)
            if with_lags:
                wanted = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in some]
                fetched: OffsetFetchResponse = await cluster.ask_broker(
                    node_id, OffsetFetchRequest(groups=wanted, topics=None), left_s(deadline)
                )
                committed |= {row.group_id: _stored(cluster, row) for row in fetched.groups if not row.error_code}
        except (ClientError, KafkaError) as error:
            silent[node_id] = str(error)
            break
    return descriptions, committed


def _stored(cluster: Cluster, row: OffsetFetchResponseGroup) -> dict[TopicPartition, OffsetAndMetadata]:
    stored = {}
    for topic in row.topics:
        known = cluster.view.topics_by_id.get(topic.topic_id)
        # A topic that is gone has no name any more, and its positions are of no use.
        if name := topic.name or (known.name if known else ""):
            for part in topic.partitions:
                if not part.error_code and part.committed_offset >= 0:
                    stored[TopicPartition(name, part.partition_index)] = OffsetAndMetadata(part.committed_offset)
    return stored
