"""Asks several brokers at the same time, on their ports for clients.

Each is asked in a thread that does not keep the process alive: a broker that is suspended takes connections and says
nothing, and nobody should wait for it who has his answer.
"""

import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import TypeVar

from barnabas_broker.cli.output import complain
from barnabas_broker.local_cluster.client_port import ClientPort, ClientPortError, NotOursError
from barnabas_broker.local_cluster.notices import NOTICE_S
from barnabas_clients.cluster.bootstrap import Endpoint, shown_endpoint
from barnabas_clients.protocol.describe_health import BrokerState, DescribeHealthRequest, DescribeHealthResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import BarnabasError

__all__ = ["NobodyAnswersError", "answers_of", "health_of", "shown"]

SETTLE_S = 0.5  # for the others, once one has answered

T = TypeVar("T")


class NobodyAnswersError(ClientPortError):
    """None of the brokers that were asked has answered; the text has what the first of them said."""


def shown(endpoints: Iterable[Endpoint]) -> str:
    """Return addresses as one types them."""
    return ",".join(map(shown_endpoint, endpoints))


def health_of(endpoints: list[Endpoint], timeout_s: float, topics_max: int) -> DescribeHealthResponse:
    """Return what the best informed of these brokers knows: one that reaches the controller, and most of the others.

    Raises:
        NobodyAnswersError: none of them answers.
        NotOursError: those that answer are no brokers of Barnabas, so nothing is known of how they are.
    """

    def ask(endpoint: Endpoint) -> DescribeHealthResponse:
        with ClientPort(*endpoint, timeout_s) as port:
            answer: DescribeHealthResponse = port.ask(DescribeHealthRequest(topics_max=topics_max))
        if answer.error_code != ErrorCode.NONE:
            raise ClientPortError(f"{shown([endpoint])}: {ErrorCode(answer.error_code).name}")
        return answer

    answers = answers_of(endpoints, ask, timeout_s, settle_s=SETTLE_S)
    found = [answer for answer in answers.values() if isinstance(answer, DescribeHealthResponse)]
    if found:
        return max(found, key=_rank)
    reasons = [answer for answer in answers.values() if isinstance(answer, BarnabasError)]
    for reason in reasons:
        if isinstance(reason, NotOursError):
            raise reason
    if not reasons:
        raise NobodyAnswersError(f"{shown(endpoints)}: no answer within {timeout_s:g} s")
    raise NobodyAnswersError("; ".join(dict.fromkeys(map(str, reasons))))


def _rank(answer: DescribeHealthResponse) -> tuple[bool, int]:
    live = sum(broker.state == BrokerState.LIVE for broker in answer.brokers)
    return answer.controller_id >= 0, live


def answers_of(
    endpoints: Iterable[Endpoint], ask: Callable[[Endpoint], T], timeout_s: float, *, settle_s: float | None = None
) -> dict[Endpoint, T | BarnabasError]:
    """Return what `ask` returns or raises for each; those that are not heard in time are left out.

    `settle_s`: once one has answered, the others have so long, and no longer. After a second people are told whom the
    command waits for.
    """
    waiting = list(endpoints)
    answers: dict[Endpoint, T | BarnabasError] = {}
    queue: SimpleQueue[tuple[Endpoint, T | BarnabasError]] = SimpleQueue()

    def run(endpoint: Endpoint) -> None:
        try:
            queue.put((endpoint, ask(endpoint)))
        except BarnabasError as error:
            queue.put((endpoint, error))

    for endpoint in waiting:
        threading.Thread(target=run, args=(endpoint,), daemon=True).start()
    began_s = time.monotonic()
    deadline_s = began_s + timeout_s
    notice_s = began_s + NOTICE_S
    while waiting:
        try:
            endpoint, answer = queue.get(timeout=max(0.0, min(deadline_s, notice_s) - time.monotonic()))
        except Empty:
            if time.monotonic() >= deadline_s:
                break
            notice_s = deadline_s
            complain(f"waiting for {shown(waiting)} until {timeout_s:g} s are over")
            continue
        waiting.remove(endpoint)
        answers[endpoint] = answer
        if settle_s is not None and not isinstance(answer, BarnabasError):
            deadline_s = min(deadline_s, time.monotonic() + settle_s)
    return answers
