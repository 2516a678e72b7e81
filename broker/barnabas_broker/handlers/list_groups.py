"""ListGroups: the groups that this broker coordinates. A client that wants all asks every broker."""

from collections.abc import Generator

from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext
from barnabas_broker.hosted_group import HostedGroup
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

__all__ = ["handle", "refuse"]

CLASSIC = "classic"
PIECE = 100  # groups between two yields


def handle(broker: BrokerContext, _: Exchange, request: ListGroupsRequest) -> Generator[None, None, ListGroupsResponse]:
    """Answer now; while a partition is being read the list would be wrong, and the answer says so."""
    coordinator = broker.coordinator
    if coordinator.is_loading:
        return refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    # Kafka compares both without regard to case, and lets a name that means nothing match nothing.
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    response = ListGroupsResponse()
    if types and CLASSIC not in types:
        return response
    for shard in list(coordinator.active_shards()):
        for number, (group_id, hosted) in enumerate(list(shard.groups.items())):
            if not number % PIECE:
                yield
            if not states or hosted.group.state.value.lower() in states:
                response.groups.append(_listed(group_id, hosted))
    return response


def refuse(_: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    """Answer with `code` and no groups."""
    return ListGroupsResponse(error_code=code)


def _listed(group_id: str, hosted: HostedGroup) -> ListedGroup:
    group = hosted.group
    kind, state = group.protocol_type or "", group.state.value
    return ListedGroup(group_id=group_id, protocol_type=kind, group_state=state, group_type=CLASSIC)
