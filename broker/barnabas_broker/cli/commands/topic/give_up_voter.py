"""`barnabas topic give-up-voter`: let a page-cache partition go on without a lost replica.

Every node of the cluster is asked what it knows, at the same time; the addresses come from a broker's configuration,
because there may be nobody whom a client could ask. The command refuses when the lost broker answers, when anybody
leads, or when no replica would go on; it says what is given up; and does nothing unless it is told to accept that. Then
every replica that would go on is told, because only the one with the longest log can be elected.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgpack

from barnabas_broker.cli.config_files import read_config
from barnabas_broker.cli.errors import CommandError
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.output import complain, say, say_json
from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.local_cluster.notices import noticed
from barnabas_broker.replicas.lost_voters import METHOD
from barnabas_broker.status.verdict import brokers_named
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.links import admin

__all__ = ["give_up"]

Answer = dict[str, Any]


def give_up(
    topic: str, partition: int, voter: int, config_file: Path, timeout_s: float, *, accepted: bool, as_json: bool
) -> int:
    """Ask everybody; then tell those that would go on, if that was `accepted`."""
    check_topic_names([topic])
    config = read_config(config_file)
    if voter not in config.nodes:
        raise CommandError(f"there is no broker {voter}: {config_file} names {_list(config.nodes)}")
    answers = _ask(config, sorted(config.nodes), (topic, partition, voter, False), timeout_s)
    able = _able(topic, partition, voter, answers)
    if accepted:
        told = _ask(config, sorted(able), (topic, partition, voter, True), timeout_s)
        able |= {node_id: answer for node_id, answer in told.items() if isinstance(answer, dict)}
    leader = next((answer["leader"] for answer in able.values() if answer["leader"] is not None), None)
    if as_json:
        brokers = {str(node_id): answer for node_id, answer in sorted((answers | able).items())}
        found = {"topic": topic, "partition": partition, "voter": voter, "given_up": accepted, "leader": leader}
        say_json(found | {"brokers": brokers})
    elif accepted:
        say(f"told brokers {_list(sorted(able))} to go on without broker {voter} in {topic}-{partition}")
    else:
        say(*_warning(topic, partition, voter, answers))
    if not accepted:
        return 0
    if leader is None:
        refusals = "".join(
            f"; broker {node_id} refused: {known['refusal']}"
            for node_id, known in sorted(able.items())
            if known["refusal"]
        )
        raise CommandError(f"nobody leads {topic}-{partition} yet: look at `barnabas topic describe {topic}`{refusals}")
    if not as_json:
        say(f"broker {leader} leads {topic}-{partition}")
    return 0


def _able(topic: str, partition: int, voter: int, answers: Mapping[int, Answer | str]) -> dict[int, Answer]:
    """Return the nodes that would go on without the voter, and their answers.

    Raises:
        CommandError: it lives, somebody leads, or nobody would.
    """
    if isinstance(answers[voter], dict):
        raise CommandError(f"broker {voter} answers: it is not lost")
    known = {node_id: answer for node_id, answer in answers.items() if isinstance(answer, dict) and answer["hosts"]}
    if not known:
        raise CommandError(f"no broker that answers has a replica of {topic}-{partition}")
    for node_id, answer in known.items():
        if answer["leader"] is not None:
            raise CommandError(
                f"{topic}-{partition} has a leader, broker {answer['leader']}, says broker {node_id}: nothing has to be"
                " given up. To replace the lost replica use `barnabas reassign`"
            )
    able = {node_id: answer for node_id, answer in known.items() if not answer["refusal"]}
    if not able:
        reasons = "; ".join(f"broker {node_id}: {answer['refusal']}" for node_id, answer in sorted(known.items()))
        raise CommandError(f"no replica of {topic}-{partition} can go on without broker {voter}: {reasons}")
    return able


def _warning(topic: str, partition: int, voter: int, answers: Mapping[int, Answer | str]) -> list[str]:
    lines = [f"{topic}-{partition} has no leader."]
    for node_id, answer in sorted(answers.items()):
        if isinstance(answer, dict) and answer["hosts"]:
            doubt = (
                "may have forgotten what it acknowledged" if answer["may_have_forgotten"] else "has forgotten nothing"
            )
            lines.append(f"  broker {node_id}: its log ends at offset {answer['end_offset']}, it {doubt}")
        elif not isinstance(answer, dict):
            lines.append(f"  broker {node_id}: {answer}")
    return [
        *lines,
        f"Without broker {voter}, those that answer elect the one of them that has the longest log.",
        f"LOST for good is then every acknowledged record that only broker {voter} still has, also if it comes back.",
        "Nothing was done. To do it, say --accept-data-loss.",
    ]


def _ask(
    config: BrokerConfig, node_ids: Sequence[int], question: tuple[str, int, int, bool], timeout_s: float
) -> dict[int, Answer | str]:
    """Put a question to several nodes at the same time; if there is no answer, a text says why."""
    secret = config.cluster_secret.encode() if config.cluster_secret else None
    body: bytes = msgpack.packb(question)

    def ask(node_id: int) -> Answer | str:
        address = config.nodes[node_id]
        try:
            answer = msgpack.unpackb(admin.ask(address.host, address.port, METHOD, body, timeout_s, secret=secret))
        except (BarnabasError, OSError, ValueError) as error:
            return f"no answer ({error})"
        return answer if isinstance(answer, dict) else "no answer that makes sense"

    waiting = f"waiting for {brokers_named(node_ids)}; asking until {timeout_s:g} s are over"
    with noticed(complain, waiting), ThreadPoolExecutor(max_workers=len(node_ids)) as pool:
        return dict(zip(node_ids, pool.map(ask, node_ids), strict=True))


def _list(node_ids: Sequence[int] | Mapping[int, object]) -> str:
    return ", ".join(map(str, node_ids))
