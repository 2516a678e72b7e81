"""`barnabas cluster health`: a verdict, what is wrong, and an exit status for probes."""

from typing import Any

from barnabas_broker.cli.addresses import endpoints_of
from barnabas_broker.cli.output import print_table, say, say_json
from barnabas_broker.status.verdict import Facts, Health, Verdict, judge
from barnabas_clients.protocol.describe_health import BrokerState, DescribeHealthResponse, HealthBroker

from .asking import NobodyAnswersError, health_of

__all__ = ["health"]

TOPICS_SHOWN = 20
TOPICS_MAX = 1_000
WORDS = {
    BrokerState.LIVE: "live",
    BrokerState.STOPPING: "stopping",
    BrokerState.FENCED: "fenced",
    BrokerState.SILENT: "gone",
    BrokerState.MISSING: "missing",
}


def health(bootstrap: str, timeout_s: float, accept: str, *, as_json: bool) -> int:
    """Judge the cluster; 0 if it is as well as `accept` asks for."""
    endpoints = endpoints_of(bootstrap)
    try:
        answer = health_of(endpoints, timeout_s, TOPICS_MAX if as_json else TOPICS_SHOWN)
    except NobodyAnswersError as error:
        verdict = Verdict(Health.DOWN, (f"no broker answers ({error})",))
        if as_json:
            say_json({"health": verdict.health, "reasons": verdict.reasons})
        else:
            say(str(verdict))
        return 1
    verdict = judge(_facts(answer))
    if as_json:
        say_json(_for_json(verdict, answer))
    else:
        _show(verdict, answer)
    accepted = {Health.HEALTHY} if accept == Health.HEALTHY else {Health.HEALTHY, Health.DEGRADED}
    return 0 if verdict.health in accepted else 1


def _facts(answer: DescribeHealthResponse) -> Facts:
    return Facts(
        brokers={broker.node_id: WORDS[BrokerState(broker.state)] for broker in answer.brokers},
        partitions=answer.partitions_count,
        without_leader=answer.without_leader,
        under_replicated=answer.under_replicated,
        has_controller=answer.controller_id >= 0,
        waiting=answer.waiting,
    )


def _show(verdict: Verdict, answer: DescribeHealthResponse) -> None:
    """Print the verdict, and rows of what is wrong, and of nothing else."""
    say(str(verdict))
    if verdict.health == Health.HEALTHY:
        return
    if missing := [broker for broker in answer.brokers if broker.state != BrokerState.LIVE]:
        say("")
        rows = [
            (broker.node_id, WORDS[BrokerState(broker.state)], _seconds(broker), _address(broker), broker.rack)
            for broker in missing
        ]
        print_table(["broker", "state", "for", "address", "rack"], rows)
    if answer.topics:
        say("")
        topics = [(row.name, row.partitions, row.without_leader, row.under_replicated) for row in answer.topics]
        print_table(["topic", "partitions", "without leader", "a replica too few"], topics)
    if answer.topics_left_out:
        say(f"... and {answer.topics_left_out} more topics")


def _address(broker: HealthBroker) -> str | None:
    return None if broker.host is None else f"{broker.host}:{broker.port}"


def _seconds(broker: HealthBroker) -> str | None:
    return None if broker.state_ms < 0 else f"{broker.state_ms / 1000:.0f} s"


def _for_json(verdict: Verdict, answer: DescribeHealthResponse) -> dict[str, Any]:
    return {
        "health": verdict.health,
        "reasons": verdict.reasons,
        "cluster_id": answer.cluster_id,
        "answered_by": answer.node_id,
        "version": answer.software_version,
        "controller": answer.controller_id if answer.controller_id >= 0 else None,
        "voters": list(answer.voters),
        "waiting": answer.waiting,
        "brokers": [
            {
                "broker": broker.node_id,
                "state": WORDS[BrokerState(broker.state)],
                "state_ms": broker.state_ms if broker.state_ms >= 0 else None,
                "host": broker.host,
                "port": broker.port if broker.port >= 0 else None,
                "rack": broker.rack,
                "leaders": broker.leaders,
            }
            for broker in answer.brokers
        ],
        "topics": answer.topics_count,
        "partitions": answer.partitions_count,
        "without_leader": answer.without_leader,
        "under_replicated": answer.under_replicated,
        "lacking": [
            {
                "topic": row.name,
                "partitions": row.partitions,
                "without_leader": row.without_leader,
                "under_replicated": row.under_replicated,
            }
            for row in answer.topics
        ],
        "lacking_left_out": answer.topics_left_out,
    }
