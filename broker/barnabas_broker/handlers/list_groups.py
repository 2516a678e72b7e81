"""ListGroups: the groups that this broker coordinates. A client that wants all asks every broker."""

from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

__all__ = ["handle", "refuse"]

CLASSIC = "classic"


def handle(broker: BrokerContext, _: Exchange, request: ListGroupsRequest) -> ListGroupsResponse:
    """Answer now; while a partition is being read the list would be wrong, and the answer says so."""
    coordinator = broker.coordinator
    if coordinator.is_loading:
        return refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    # Kafka compares both without regard to case, and lets a name that means nothing match nothing.
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    if types and CLASSIC not in types:
        return ListGroupsResponse()
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group_id,
                protocol_type=hosted.group.protocol_type or "",
                group_state=hosted.group.state.value,
                group_type=CLASSIC,
            )
            for shard in coordinator.active_shards()
            for group_id, hosted in shard.groups.items()
            if not states or hosted.group.state.value.lower() in states
        ]
    )


def refuse(_: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    """Answer with `code` and no groups."""
    return ListGroupsResponse(error_code=code)
