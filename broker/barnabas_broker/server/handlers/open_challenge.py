"""OpenChallenge: draw a nonce for this connection, for one proof that the asker knows the cluster's secret."""

from barnabas_broker.access.client_proof import Challenge
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.open_challenge import OpenChallengeRequest, OpenChallengeResponse

__all__ = ["handle", "refuse"]

UNKEYED = "this cluster has no cluster.secret, so nobody can prove to know it; set one on every broker"


def handle(broker: BrokerContext, exchange: Exchange, request: OpenChallengeRequest) -> OpenChallengeResponse:
    """Draw it; the one before is worth nothing any more."""
    if not broker.config.cluster_secret:
        answer = refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        answer.error_message = UNKEYED
        return answer
    # 122 of its 128 bits are chance, which comes from the node's environment.
    challenge = Challenge(broker.cluster_id, broker.node_id, broker.new_id().bytes)
    exchange.connection.challenge = challenge
    return OpenChallengeResponse(cluster_id=challenge.cluster_id, node_id=challenge.node_id, nonce=challenge.nonce)


def refuse(_: OpenChallengeRequest, code: ErrorCode) -> OpenChallengeResponse:
    """Answer with `code`."""
    return OpenChallengeResponse(error_code=code)
