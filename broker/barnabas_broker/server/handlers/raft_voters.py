"""AddRaftVoter, RemoveRaftVoter: the voters of the metadata quorum are configured, and every answer says how.

`controller.quorum.voters`, the same on all nodes, names who should vote, and the controller brings the group there one
change at a time. It is what Kafka calls a static quorum (kraft.version 0), and as there these requests are checked, and
refused with UNSUPPORTED_VERSION. Kafka's UpdateRaftVoter is for its controllers' own listener; brokers do not offer it.
"""

from typing import NamedTuple

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_clients.protocol.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas_raftlog.wire.schema import NO_UUID

__all__ = ["ADD", "REMOVE"]

HOW = (
    "The voters of the metadata quorum are those of controller.quorum.voters: change it on every node, and restart them"
    " one after the other; the controller then adds and removes voters by itself."
)


class _Add(NamedTuple):
    def handle(self, broker: BrokerContext, _: Exchange, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        code, text = _fate(broker, request)
        if code == ErrorCode.UNSUPPORTED_VERSION and not request.listeners:
            code, text = ErrorCode.INVALID_REQUEST, "The new voter has no address."
        return AddRaftVoterResponse(error_code=code, error_message=in_words(text))

    def refuse(self, _: AddRaftVoterRequest, code: ErrorCode) -> AddRaftVoterResponse:
        return AddRaftVoterResponse(error_code=code)


class _Remove(NamedTuple):
    def handle(self, broker: BrokerContext, _: Exchange, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        code, text = _fate(broker, request)
        return RemoveRaftVoterResponse(error_code=code, error_message=in_words(text))

    def refuse(self, _: RemoveRaftVoterRequest, code: ErrorCode) -> RemoveRaftVoterResponse:
        return RemoveRaftVoterResponse(error_code=code)


def _fate(broker: BrokerContext, request: AddRaftVoterRequest | RemoveRaftVoterRequest) -> tuple[ErrorCode, str]:
    if request.cluster_id is not None and request.cluster_id != broker.cluster_id:
        text = f"This is cluster {broker.cluster_id}, not {request.cluster_id}."
        return ErrorCode.INCONSISTENT_CLUSTER_ID, text
    if request.voter_id < 0 or request.voter_directory_id == NO_UUID:
        return ErrorCode.INVALID_REQUEST, "A voter is a node and its directory, and both have an id."
    return ErrorCode.UNSUPPORTED_VERSION, HOW


ADD = _Add()
REMOVE = _Remove()
