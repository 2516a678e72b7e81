"""ListGroups: name the groups that this broker coordinates. A client that wants all asks every broker."""

from collections.abc import Generator, Iterable, Sequence

from barnabas_broker.coordinators.groups.consumer.saved import ASSIGNING, RECONCILING
from barnabas_broker.coordinators.groups.hosted_group import HostedGroup
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

__all__ = ["handle", "refuse"]

CLASSIC, CONSUMER = "classic", "consumer"
STATES = frozenset((*(state.value for state in GroupState), ASSIGNING, RECONCILING))
PIECE = 100  # groups, or names of a filter, between two yields


def handle(broker: BrokerContext, _: Exchange, request: ListGroupsRequest) -> Generator[None, None, ListGroupsResponse]:
    """Answer now; while a partition is being read the list would be wrong, and the answer says so."""
    coordinator = broker.coordinator
    if coordinator.is_loading:
        return refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = yield from _meant(request.states_filter, STATES)
    types = yield from _meant(request.types_filter, (CLASSIC, CONSUMER))
    response = ListGroupsResponse()
    for shard in list(coordinator.active_shards()):
        classic = list(shard.groups.items()) if CLASSIC in types else []
        for number, (group_id, hosted) in enumerate(classic):
            if not number % PIECE:
                yield
            if hosted.group.state.value in states:
                response.groups.append(_listed(group_id, hosted))
        consumers = shard.consumers.all_saved() if CONSUMER in types else []
        for number, saved in enumerate(consumers):
            if not number % PIECE:
                yield
            if saved.state in states:
                row = ListedGroup(
                    group_id=saved.group_id, protocol_type=CONSUMER, group_state=saved.state, group_type=CONSUMER
                )
                response.groups.append(row)
    return response


def _meant(names: Sequence[str], known: Iterable[str]) -> Generator[None, None, set[str]]:
    """Return those of `known` that a filter lets through: all of them if it names nothing.

    Kafka compares without regard to case, and an unknown name matches nothing.
    """
    by_name = {name.lower(): name for name in known}
    if not names:
        return set(by_name.values())
    found = set()
    longest = max(map(len, by_name))
    for number, name in enumerate(names, 1):
        if len(name) <= longest and name.lower() in by_name:
            found.add(by_name[name.lower()])
        if not number % PIECE:
            yield
    return found


def refuse(_: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    """Answer with `code` and no groups."""
    return ListGroupsResponse(error_code=code)


def _listed(group_id: str, hosted: HostedGroup) -> ListedGroup:
    group = hosted.group
    kind = group.protocol_type or ""
    state = group.state.value
    return ListedGroup(group_id=group_id, protocol_type=kind, group_state=state, group_type=CLASSIC)
