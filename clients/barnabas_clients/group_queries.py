"""What groups there are, and what is in them: listing, describing, deleting. Functions over a `Cluster`.

A group is known to its coordinator only. So a list is asked of every broker; a description or a deletion of each
group's own coordinator, all at the same time, at most `AT_ONCE` of them.

Not here: offsets of a group (coordinator_client.py); groups of the newer protocol (KIP-848), beyond their names.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

from barnabas_raftlog.errors import MalformedMessageError

from .assignors import decode_assignment, decode_subscription
from .connections import Cluster
from .coordinator_client import GROUP_LANE, Coordinator
from .protocol.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from .protocol.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from .protocol.errors import ErrorCode, error_for
from .protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from .topic_partition import TopicPartition

__all__ = [
    "GroupDescription",
    "GroupListing",
    "GroupMemberDescription",
    "delete_groups",
    "describe_groups",
    "list_groups",
]

AT_ONCE = 32
CONSUMER_PROTOCOL_TYPE = "consumer"
LIST_TIMEOUT_S = 5.0

T = TypeVar("T")


class GroupListing(NamedTuple):
    """One group. `state` is as Kafka spells it, "" if the broker is too old to say; `group_type` too ("classic")."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupMemberDescription(NamedTuple):
    """One member. Topics and partitions are None when the member's bytes are not those of a consumer."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str] | None
    partitions: frozenset[TopicPartition] | None


class GroupDescription(NamedTuple):
    """One group. A group that does not exist is in state "Dead"; `assignor` is "" unless the state is "Stable"."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator_id: int
    members: tuple[GroupMemberDescription, ...]


async def list_groups(
    cluster: Cluster, timeout_s: float, *, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """Return the groups of all brokers, sorted by id; `states` and `types` filter, as Kafka spells them.

    Raises:
        KafkaError: listing is not allowed.
        DeadlineExceededError: some broker did not answer within `timeout_s`, so the list would have been incomplete.
    """
    found: dict[str, GroupListing] = {}
    answered: set[int] = set()
    request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))

    async def ask(node_id: int, deadline: float) -> None:
        limit_s = max(0.0, min(deadline - _now(), LIST_TIMEOUT_S))
        response: ListGroupsResponse = await cluster.ask_broker(node_id, request, limit_s, GROUP_LANE)
        if response.error_code:
            raise error_for(response.error_code, f"groups of broker {node_id}")
        for row in response.groups:
            found[row.group_id] = GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type)
        answered.add(node_id)

    async def attempt(deadline: float) -> None:
        missing = [node_id for node_id in sorted(cluster.view.brokers) if node_id not in answered]
        await _each(missing, lambda node_id: ask(node_id, deadline))

    await cluster.refresh(timeout_s=timeout_s)
    await cluster.retry("listing groups", timeout_s, attempt)
    return [group for _, group in sorted(found.items())]


async def describe_groups(
    cluster: Cluster, group_ids: Collection[str], timeout_s: float
) -> dict[str, GroupDescription]:
    """Return what is in each group.

    Raises:
        KafkaError: a group may not be described. DeadlineExceededError: a coordinator did not answer in time.
    """

    async def describe(group_id: str) -> GroupDescription:
        coordinator = Coordinator(cluster, group_id)

        async def attempt(deadline: float) -> GroupDescription:
            request = DescribeGroupsRequest(groups=(group_id,))
            response: DescribeGroupsResponse = await coordinator.ask(request, deadline)
            (row,) = response.groups
            if row.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                coordinator.judge(row.error_code)
            assert coordinator.node_id is not None
            return _description(row, coordinator.node_id)

        return await coordinator.retry("description", timeout_s, attempt)

    rows = await _each(sorted(set(group_ids)), describe)
    return {row.group_id: row for row in rows}


async def delete_groups(cluster: Cluster, group_ids: Collection[str], timeout_s: float) -> None:
    """Delete groups that have no members, with their offsets.

    Raises:
        KafkaError: the first refusal (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND); others may be gone.
        DeadlineExceededError: a coordinator did not answer in time; the groups may be gone.
    """

    async def delete(group_id: str) -> None:
        coordinator = Coordinator(cluster, group_id)
        may_be_done = False

        async def attempt(deadline: float) -> None:
            nonlocal may_be_done
            asked_before, may_be_done = may_be_done, True
            response: DeleteGroupsResponse = await coordinator.ask(
                DeleteGroupsRequest(groups_names=(group_id,)), deadline
            )
            (row,) = response.results
            # An earlier attempt, whose answer was lost, may have done it.
            if not (asked_before and row.error_code == ErrorCode.GROUP_ID_NOT_FOUND):
                coordinator.judge(row.error_code)

        await coordinator.retry("deletion", timeout_s, attempt)

    await _each(sorted(set(group_ids)), delete)


async def _each(keys: Sequence[str] | Sequence[int], ask: Callable[..., Awaitable[T]]) -> list[T]:
    """Call `ask` for every key, `AT_ONCE` at a time; of failures the first key's is raised, at the end."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def in_turn(key: str | int) -> T:
        async with turns:
            return await ask(key)

    results = await asyncio.gather(*(in_turn(key) for key in keys), return_exceptions=True)
    values: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        values.append(result)
    return values


def _description(row: DescribedGroup, node_id: int) -> GroupDescription:
    is_consumer = row.protocol_type == CONSUMER_PROTOCOL_TYPE
    return GroupDescription(
        row.group_id,
        row.group_state or "Dead",
        row.protocol_type,
        row.protocol_data,
        node_id,
        tuple(_member(member, is_consumer=is_consumer) for member in row.members),
    )


def _member(row: DescribedGroupMember, *, is_consumer: bool) -> GroupMemberDescription:
    topics = partitions = None
    if is_consumer and row.member_metadata:
        try:
            topics = decode_subscription(row.member_metadata).topics
            partitions = decode_assignment(row.member_assignment)
        except MalformedMessageError:
            # One member that writes something else must not hide the others.
            topics = partitions = None
    return GroupMemberDescription(
        row.member_id, row.group_instance_id, row.client_id, row.client_host, topics, partitions
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
