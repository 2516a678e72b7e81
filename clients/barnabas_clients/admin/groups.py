"""Administers consumer groups and their offsets: functions over a `Cluster`.

The coordinator of a group, the leader of one partition of the offsets topic, knows it. A list of all groups is the sum
of the lists of all brokers. There is one request for each group, `AT_ONCE` at a time, each with retries of its own, so
that a coordinator that moves holds nothing else up.

Positions can be changed from outside only while a group has no members: a member would not hear of the change, and its
next commit would undo it. Brokers refuse it, and to make that clear the refusal is a `NonEmptyGroupError` here.

Cancellation, for all of them: the change may happen nevertheless, and nothing is left behind here.

Not here: share groups, which have messages of their own. `list_groups` shows them if the broker has them. Describing
them raises GROUP_ID_NOT_FOUND. Groups of KIP-848 are described as all others are (`consumer_groups`).
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from barnabas_clients.assignors.subscription import decode_assignment
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError
from barnabas_clients.groups.coordinator import Coordinator, commit_offsets, delete_offsets, fetch_offsets
from barnabas_clients.protocol.delete_groups import DeleteGroupsRequest
from barnabas_clients.protocol.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest
from barnabas_clients.protocol.errors import ErrorCode, NonEmptyGroupError, UnknownMemberIdError, error_for
from barnabas_clients.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_raftlog.errors import MalformedMessageError

from .consumer_groups import find_consumers
from .offset_resets import OffsetChange, ResetTo, planned
from .offsets import left_s, list_offsets
from .topics import known_topics
from .values import GroupDescription, GroupListing, GroupMember, OffsetSpec, PartitionLag

__all__ = [
    "ATTEMPT_TIMEOUT_S",
    "alter_group_offsets",
    "delete_group_offsets",
    "delete_groups",
    "describe_groups",
    "each",
    "group_lag",
    "group_offsets",
    "list_groups",
    "reset_group_offsets",
]

AT_ONCE = 16
# A coordinator answers all of this from memory. One that does not answer is stopped or cut off.
ATTEMPT_TIMEOUT_S = 5.0
CONSUMER_PROTOCOL = "consumer"
CLASSIC_TYPE = "classic"

K = TypeVar("K")
T = TypeVar("T")


async def list_groups(
    cluster: Cluster, timeout_s: float, *, states: Iterable[str] = (), types: Iterable[str] = ()
) -> list[GroupListing]:
    """Return every group of the cluster, sorted by id; with `states` and `types`, those in one, and of one, of them.

    Raises:
        DeadlineExceededError: a broker of the cluster did not answer, so its groups would be missing.
    """
    wanted = tuple(states)
    wanted_types = tuple(types)

    async def attempt(deadline: float) -> list[GroupListing]:
        # Every attempt asks all brokers: the groups of one that failed go to others, which may have answered before.
        answers = await each(
            cluster.view.brokers, lambda node_id: ask_groups(cluster, node_id, wanted, wanted_types, deadline)
        )
        # Two brokers may have named a group that moved meanwhile.
        return sorted({row.group_id: row for rows in answers.values() for row in rows}.values())

    return await cluster.retry("listing groups", timeout_s, attempt)


async def ask_groups(
    cluster: Cluster, node_id: int, states: Sequence[str], types: Sequence[str], deadline: float
) -> list[GroupListing]:
    """Ask one broker once for the groups that it coordinates. Groups of brokers older than types (3.7) are classic.

    Raises:
        KafkaError: it refuses, or has not loaded them yet. ClientError: it does not answer.
    """
    response: ListGroupsResponse = await cluster.ask_broker(
        node_id,
        ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types)),
        min(left_s(deadline), ATTEMPT_TIMEOUT_S),
    )
    if response.error_code:
        raise error_for(response.error_code, f"groups of broker {node_id}")
    return [
        GroupListing(
            group_id=row.group_id,
            protocol_type=row.protocol_type,
            state=row.group_state,
            type=row.group_type,
            coordinator_id=node_id,
        )
        for row in response.groups
        if not types or (row.group_type or CLASSIC_TYPE) in types
    ]


async def describe_groups(
    cluster: Cluster, group_ids: Collection[str], timeout_s: float
) -> dict[str, GroupDescription]:
    """Return the state and the members of groups.

    Raises:
        GroupIdNotFoundError: one of them does not exist, or is of a kind that has messages of its own.
    """

    async def describe(group_id: str) -> GroupDescription:
        coordinator = Coordinator(cluster, group_id)

        async def attempt(deadline: float) -> GroupDescription:
            response = await coordinator.ask(DescribeGroupsRequest(groups=(group_id,)), deadline)
            for row in response.groups:
                if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND or row.group_state == "Dead":
                    consumers = await find_consumers(coordinator, group_id, deadline)
                    if consumers is not None:
                        return consumers
                coordinator.judge(row.error_code, row.error_message or group_id)
                # Before version 6 there is no error for it.
                if row.group_state == "Dead":
                    raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
                return described(row, coordinator.node_id)
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer about group {group_id}")

        return await coordinator.retry("description", timeout_s, attempt)

    return await each(group_ids, describe)


async def delete_groups(cluster: Cluster, group_ids: Collection[str], timeout_s: float) -> None:
    """Delete groups without members, with their committed offsets.

    Raises:
        NonEmptyGroupError: one has members; others may be gone.
        GroupIdNotFoundError: one does not exist; others may be gone.
    """

    async def delete(group_id: str) -> None:
        coordinator = Coordinator(cluster, group_id)
        may_be_done = False

        async def attempt(deadline: float) -> None:
            nonlocal may_be_done
            try:
                response = await coordinator.ask(DeleteGroupsRequest(groups_names=(group_id,)), deadline)
            except ClientError as error:
                may_be_done |= error.may_be_done
                raise
            for row in response.results:
                # An attempt whose answer was lost may have deleted it.
                if not (row.error_code == ErrorCode.GROUP_ID_NOT_FOUND and may_be_done):
                    told = f"{group_id}: {row.error_message}" if row.error_message else group_id
                    coordinator.judge(row.error_code, told)

        await coordinator.retry("deletion", timeout_s, attempt)

    await each(group_ids, delete)


async def group_offsets(
    cluster: Cluster,
    group_id: str,
    timeout_s: float,
    partitions: Collection[TopicPartition] | None = None,
    *,
    is_stable: bool = True,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that a group has committed, of `partitions` or of all. Those without are left out.

    A group that does not exist has committed nothing. `is_stable`: wait for the ends of transactions with them.
    """
    return await fetch_offsets(Coordinator(cluster, group_id), partitions, timeout_s, is_stable=is_stable)


async def alter_group_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float
) -> None:
    """Set positions of a group without members. A group that does not exist is created.

    Raises:
        NonEmptyGroupError: it has members.
        KafkaError: a position was refused, for example because its partition does not exist; others may be stored.
    """
    try:
        await commit_offsets(Coordinator(cluster, group_id), offsets, timeout_s)
    except UnknownMemberIdError as error:
        raise _has_members(group_id) from error


async def delete_group_offsets(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition], timeout_s: float
) -> None:
    """Forget positions of a group. Nothing happens to partitions without one.

    Raises:
        KafkaError: GROUP_SUBSCRIBED_TO_TOPIC if members read the topic, GROUP_ID_NOT_FOUND; others may be gone.
    """
    await delete_offsets(Coordinator(cluster, group_id), partitions, timeout_s)


async def reset_group_offsets(
    cluster: Cluster,
    group_id: str,
    target: ResetTo,
    timeout_s: float,
    *,
    partitions: Collection[TopicPartition] | None = None,
    topics: Collection[str] | None = None,
    dry_run: bool = False,
) -> dict[TopicPartition, OffsetChange]:
    """Move a group's positions. Return the changes, or with `dry_run` those that would be made.

    Args:
        cluster: the cluster of the group.
        group_id: the group. It may be new if partitions or topics are named.
        target: the new positions. offset_resets.py has the rules for the ends of a log.
        timeout_s: the deadline of the whole call.
        partitions: the partitions to move.
        topics: move all partitions of these. With neither, all partitions where the group has committed.
        dry_run: look up, plan and change nothing.

    Raises:
        GroupIdNotFoundError: no partition is named, and the group has committed nothing.
        NonEmptyGroupError: it has members. A dry run does not care.
        UnknownTopicOrPartitionError: a partition does not exist.
        ValueError: a shift of a partition without a committed offset.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    committed = await group_offsets(cluster, group_id, timeout_s)
    if partitions is None and topics is None:
        if not committed:
            members = (await describe_groups(cluster, [group_id], left_s(deadline)))[group_id].members
            if members and not dry_run:
                raise _has_members(group_id)
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id}: it has committed nothing; name topics")
        partitions = committed
    chosen = await _chosen_partitions(cluster, partitions or (), topics or (), deadline)
    starts = await list_offsets(cluster, dict.fromkeys(chosen, int(OffsetSpec.EARLIEST)), left_s(deadline))
    ends = await list_offsets(cluster, dict.fromkeys(chosen, int(OffsetSpec.LATEST)), left_s(deadline))
    at_ms = target.timestamp_ms(int(time.time() * 1000))
    at_time = {}
    if at_ms is not None:
        found = await list_offsets(cluster, dict.fromkeys(chosen, at_ms), left_s(deadline))
        at_time = {partition: listed.offset for partition, listed in found.items()}
    plan = planned(
        target,
        # Records may be deleted between the two requests.
        {key: (min(starts[key].offset, ends[key].offset), ends[key].offset) for key in chosen},
        {partition: position.offset for partition, position in committed.items()},
        at_time,
    )
    if not dry_run:
        positions = {partition: OffsetAndMetadata(change.after) for partition, change in plan.items()}
        await alter_group_offsets(cluster, group_id, positions, left_s(deadline))
    return plan


async def _chosen_partitions(
    cluster: Cluster, partitions: Collection[TopicPartition], topics: Collection[str], deadline: float
) -> set[TopicPartition]:
    """Return these partitions, which must exist, and all those of these topics."""
    chosen = set(partitions)
    names = sorted({topic for topic, _ in chosen} | set(topics))
    for view in await known_topics(cluster, names, left_s(deadline)):
        if view.name in topics:
            chosen |= {TopicPartition(view.name, number) for number in view.partitions}
        for partition in sorted(chosen):
            if partition.topic == view.name and partition.partition not in view.partitions:
                raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
    return chosen


async def group_lag(cluster: Cluster, group_id: str, timeout_s: float) -> dict[TopicPartition, PartitionLag]:
    """Return the position of a group in every partition in which it has committed, or that a member reads.

    Raises:
        GroupIdNotFoundError: there is no such group.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    description = (await describe_groups(cluster, [group_id], timeout_s))[group_id]
    return await lag_of(cluster, description, left_s(deadline))


async def lag_of(
    cluster: Cluster, description: GroupDescription, timeout_s: float
) -> dict[TopicPartition, PartitionLag]:
    """Return the same for a group that has been described.

    It waits for no transaction: of a busy group one is always open.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    committed = await group_offsets(cluster, description.group_id, timeout_s, is_stable=False)
    readers = {partition: member for member in description.members for partition in member.assignment or ()}
    partitions = sorted(committed.keys() | readers.keys())
    view = await cluster.refresh({topic for topic, _ in partitions}, timeout_s=left_s(deadline))
    there = [
        key for key in partitions if key.topic in view.topics and key.partition in view.topics[key.topic].partitions
    ]
    ends = await list_offsets(cluster, dict.fromkeys(there, int(OffsetSpec.LATEST)), left_s(deadline))
    return {
        key: PartitionLag(committed.get(key), ends[key].offset if key in ends else None, readers.get(key))
        for key in partitions
    }


def _has_members(group_id: str) -> NonEmptyGroupError:
    return NonEmptyGroupError(f"{group_id}: it has members, whose next commit would undo this; stop them first")


def described(row: DescribedGroup, node_id: int | None) -> GroupDescription:
    return GroupDescription(
        group_id=row.group_id,
        state=row.group_state,
        protocol_type=row.protocol_type,
        assignor=row.protocol_data,
        coordinator_id=-1 if node_id is None else node_id,
        members=tuple(sorted(_member(member, row.protocol_type) for member in row.members)),
    )


def _member(row: DescribedGroupMember, protocol_type: str) -> GroupMember:
    assignment = None
    if protocol_type == CONSUMER_PROTOCOL:
        # One member that writes other bytes must not hide the others.
        with contextlib.suppress(MalformedMessageError):
            assignment = decode_assignment(row.member_assignment)
    return GroupMember(
        member_id=row.member_id,
        group_instance_id=row.group_instance_id,
        client_id=row.client_id,
        client_host=row.client_host,
        assignment=assignment,
    )


async def each(keys: Iterable[K], act: Callable[[K], Awaitable[T]]) -> dict[K, T]:
    """Return the result of `act` for each key, `AT_ONCE` at a time. The first failure stops the rest and is raised."""
    done: dict[K, T] = {}
    left = list(dict.fromkeys(keys))
    rest = iter(left)

    async def work() -> None:
        for key in rest:
            done[key] = await act(key)

    # No TaskGroup: after a failure in it, the task counts as being cancelled ever after (until Python 3.13), and then
    # every timeout in it ends with CancelledError (Python 3.11.2).
    workers = [asyncio.create_task(work()) for _ in range(min(AT_ONCE, len(left)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return {key: done[key] for key in left}
