"""DescribeEvents: tell what happened on this broker, to those who know the cluster's secret.

Events name groups and clients, which other clients need not know. The proof is on the connection's challenge, which is
used up by the attempt, whether it succeeds or not. Without a secret nobody is told anything here: the peer ports answer
everybody then, because they can be reached from this machine only.
"""

from collections.abc import Callable, Generator
from typing import Any

from barnabas_broker.access.client_proof import NONCE_BYTES, proof_of_asker, proof_of_broker, proves
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.describe_events import BrokerEvent, DescribeEventsRequest, DescribeEventsResponse
from barnabas_clients.protocol.error_codes import ErrorCode

__all__ = ["BYTES_MAX", "EVENTS_MAX", "handle", "refuse"]

EVENTS_MAX = 3_000
"""Events in one answer: all that a broker remembers, its own, its groups' and its transactions'."""
BYTES_MAX = 512 << 10
"""Of their texts, in UTF-8; the newest that have room are told."""
FIXED_BYTES = 16  # of an event beside its texts
REFUSALS_MS = 60_000  # between two events that tell of a wrong proof
PIECE = 100  # events between two yields
NO_CHALLENGE = "ask for a challenge first (OpenChallenge), on this connection; each is good for one question"
SECRETS_DIFFER = "the cluster secrets differ"

Event = dict[str, Any]


def handle(
    broker: BrokerContext, exchange: Exchange, request: DescribeEventsRequest
) -> Generator[None, None, DescribeEventsResponse]:
    """Check the proof; then tell the newest events that match, in order of time."""
    challenge, exchange.connection.challenge = exchange.connection.challenge, None
    if challenge is None or len(request.nonce) != NONCE_BYTES:
        return _refused(request, NO_CHALLENGE)
    secret = broker.config.cluster_secret.encode()
    given, request.proof = request.proof, b""
    question = b"".join(request.encode(exchange.version))
    if not proves(proof_of_asker(secret, challenge, request.nonce, question), given):
        _note_refusal(broker, exchange)
        return _refused(request, SECRETS_DIFFER)
    answer = DescribeEventsResponse(node_id=broker.node_id, proof=proof_of_broker(secret, challenge, request.nonce))
    yield from _fill(answer, broker, request)
    return answer


def refuse(_: DescribeEventsRequest, code: ErrorCode) -> DescribeEventsResponse:
    """Answer with `code`."""
    return DescribeEventsResponse(error_code=code)


def _refused(request: DescribeEventsRequest, text: str) -> DescribeEventsResponse:
    answer = refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    answer.error_message = text
    return answer


def _note_refusal(broker: BrokerContext, exchange: Exchange) -> None:
    """Let the operator know, and nobody drive all other events out of the history."""
    if broker.now_ms() - broker.proof_refused_ms >= REFUSALS_MS:
        broker.proof_refused_ms = broker.now_ms()
        broker.events.add("message refused", f"client {exchange.connection.peer}", SECRETS_DIFFER)


def _fill(answer: DescribeEventsResponse, broker: BrokerContext, request: DescribeEventsRequest) -> Generator[None]:
    """Take events from the newest back, as long as there is room, and turn them round."""
    known = broker.events.to_list()
    yield
    known += broker.coordinator.group_events.to_list()
    yield
    known += broker.transactions.transaction_events.to_list()
    yield
    known.sort(key=_time_of)
    room = min(max(0, request.events_max), EVENTS_MAX)
    left_bytes = BYTES_MAX
    matches = _filter(request)
    for number, event in enumerate(reversed(known), 1):
        if not number % PIECE:
            yield
        if event["time_ms"] < request.since_ms:
            break
        if not matches(event):
            continue
        texts = (event["kind"], event["group"], event["cause"])
        # Taken off also for those that have no room: nothing older is told then, be it short, so that there is no gap.
        left_bytes -= FIXED_BYTES + sum([len(text.encode()) for text in texts])
        if len(answer.events) < room and left_bytes >= 0:
            kind, subject, cause = texts
            answer.events.append(BrokerEvent(time_ms=event["time_ms"], kind=kind, subject=subject, cause=cause))
        else:
            answer.events_left_out += 1
    answer.events.reverse()


def _time_of(event: Event) -> int:
    time_ms: int = event["time_ms"]
    return time_ms


def _filter(request: DescribeEventsRequest) -> Callable[[Event], bool]:
    kind = request.kind or ""
    topic = request.topic

    def matches(event: Event) -> bool:
        if not event["kind"].startswith(kind):
            return False
        if topic is None:
            return True
        name, dash, number = event["group"].rpartition("-")
        return event["group"] == topic or (name == topic and bool(dash) and number.isdecimal())

    return matches
