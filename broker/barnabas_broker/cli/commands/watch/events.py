"""`barnabas cluster events`: what happened on all brokers and why, in order of time."""

import os
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from barnabas_broker.access.client_proof import NONCE_BYTES, Challenge, proof_of_asker, proof_of_broker, proves
from barnabas_broker.cli.addresses import endpoints_of
from barnabas_broker.cli.errors import CommandError
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.output import complain, say, say_json_lines
from barnabas_broker.cli.times import readable, timestamp_ms
from barnabas_broker.local_cluster.client_port import ClientPort, ClientPortError
from barnabas_clients.cluster.bootstrap import Endpoint
from barnabas_clients.protocol.describe_events import BrokerEvent, DescribeEventsRequest, DescribeEventsResponse
from barnabas_clients.protocol.describe_health import BrokerState
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.open_challenge import OpenChallengeRequest
from barnabas_raftlog.errors import BarnabasError

from .asking import answers_of, health_of
from .secrets import known_of

__all__ = ["Wanted", "events"]

AWAY = {BrokerState.SILENT, BrokerState.MISSING}


class Wanted(NamedTuple):
    """Which events: of a topic, of kinds that begin so, since then, and the newest so many of all brokers together."""

    topic: str | None
    kind: str | None
    since: str | None
    limit: int


class _Told(NamedTuple):
    time_ms: int
    node_id: int
    event: BrokerEvent


def events(
    bootstrap: str | None, data: Path | None, config: Path | None, wanted: Wanted, timeout_s: float, *, as_json: bool
) -> int:
    """Ask every broker that is there; 1 if one of them has not told. `bootstrap` None: as the files say."""
    if wanted.topic is not None:
        check_topic_names([wanted.topic])
    since_ms = -1 if wanted.since is None else timestamp_ms(wanted.since, time.time_ns() // 1_000_000)
    known = known_of(data, config)
    health = health_of(endpoints_of(bootstrap or known.bootstrap), timeout_s, topics_max=0)
    there = {
        (broker.host, broker.port): broker.node_id
        for broker in health.brokers
        if broker.host is not None and broker.state not in AWAY
    }
    question = DescribeEventsRequest(
        topic=wanted.topic, kind=wanted.kind, since_ms=since_ms, events_max=min(wanted.limit, 2**31 - 1)
    )
    answers = answers_of(there, partial(_ask, known.secret.encode(), question, timeout_s), timeout_s)
    told, status = _gathered(there, answers)
    for broker in health.brokers:
        if broker.host is None and broker.state not in AWAY:
            complain(f"broker {broker.node_id} tells nothing: it has no listener of the name of the one that was asked")
            status = 1
    told.sort(key=lambda each: (each.time_ms, each.node_id))
    told = told[-wanted.limit :]
    if as_json:
        say_json_lines(
            {
                "time_ms": at_ms,
                "broker": node_id,
                "kind": event.kind,
                "subject": event.subject,
                "cause": event.cause,
            }
            for at_ms, node_id, event in told
        )
    elif told:
        say(
            *[
                f"{readable(at_ms)}  broker {node_id}  {event.subject}: {event.kind}: {event.cause}"
                for at_ms, node_id, event in told
            ]
        )
    else:
        complain("no event matches")
    return status


def _gathered(
    there: dict[Endpoint, int], answers: dict[Endpoint, DescribeEventsResponse | BarnabasError]
) -> tuple[list[_Told], int]:
    """Return what was told, and the exit status; complain about brokers that have told nothing, or not all."""
    told: list[_Told] = []
    silent: dict[int, str] = {}
    for endpoint, node_id in there.items():
        answer = answers.get(endpoint)
        if not isinstance(answer, DescribeEventsResponse):
            silent[node_id] = "no answer in time" if answer is None else str(answer)
            continue
        if answer.events_left_out:
            complain(f"broker {node_id} leaves out {answer.events_left_out} older events: narrow them down")
        told += [_Told(event.time_ms, node_id, event) for event in answer.events]
    if silent and len(silent) == len(there):
        raise CommandError("; ".join(dict.fromkeys(silent.values())))
    for node_id, reason in silent.items():
        complain(f"broker {node_id} tells nothing: {reason}")
    return told, 1 if silent else 0


def _ask(
    secret: bytes, question: DescribeEventsRequest, timeout_s: float, endpoint: Endpoint
) -> DescribeEventsResponse:
    """Prove that we know the secret, have the broker prove the same, and return what it tells."""
    with ClientPort(*endpoint, timeout_s) as port:
        opened = port.ask(OpenChallengeRequest())
        _check(opened.error_code, opened.error_message)
        challenge = Challenge(opened.cluster_id, opened.node_id, opened.nonce)
        if len(challenge.nonce) != NONCE_BYTES:
            raise ClientPortError("the challenge is not valid")
        request = DescribeEventsRequest(
            nonce=os.urandom(NONCE_BYTES),
            topic=question.topic,
            kind=question.kind,
            since_ms=question.since_ms,
            events_max=question.events_max,
        )
        request.proof = proof_of_asker(secret, challenge, request.nonce, request.to_bytes(0))
        answer: DescribeEventsResponse = port.ask(request)
    _check(answer.error_code, answer.error_message)
    if not proves(proof_of_broker(secret, challenge, request.nonce), answer.proof):
        raise ClientPortError("the broker that answered does not know the cluster's secret")
    return answer


def _check(code: int, text: str | None) -> None:
    if code != ErrorCode.NONE:
        raise ClientPortError(text or ErrorCode(code).name)
