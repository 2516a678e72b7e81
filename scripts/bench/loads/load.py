"""The order to a load generator, for Kafka's protocol or NATS, and its answer.

A generator (`kafka_load.py`, or Go for NATS) is a process. It gets one `Load` as JSON, prepares, and goes through
*phases*, a line each way: it prints ``ready NAME`` and waits, so that the harness can look at the processor time of all
processes; the harness writes ``go``; it prints ``done {"metric": value, ...}``, and the next phase follows until the
process ends with status 0. On standard error it prints the reason of a failure.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from machines.modules import module_environment

__all__ = ["Load", "LoadFailedError", "Measured", "percentile", "phase", "run"]

PHASE_LIMIT_S = 900.0


class LoadFailedError(RuntimeError):
    """A generator has failed; the message is the last thing it said."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. `acks` "1" asks for the leader's word only; NATS always waits for a majority.

    Attributes:
        kind: The function of the generator.
        address: Bootstrap servers, or NATS URLs.
        records: Their number; a kind that goes by time takes `seconds` instead.
        led_by: The broker that should lead every partition, or 0.
        is_active: Each partition has had a record before anything is measured: its replicas have their files.
        rate: Records a second of an open loop, in which each record is timed from when it was due.
        in_flight: Requests under way at a time, of the kind "tiny".
        in_flight_mib: MiB that the producer has under way at most, in any number of requests and without idempotence;
            0 leaves it to the client: librdkafka with idempotence has five requests under way for each broker.
        batch_records: Records of each batch, of the kind "batches" (`batch_load.py`); of each transaction, of the kind
            "transactions" (`transactions_load.py`), which has as many `producers`.
        configs: Settings of the topic.
    """

    kind: str
    address: str = ""
    partitions: int = 6
    replicas: int = 3
    record_bytes: int = 1024
    records: int = 0
    acks: str = "all"
    compression: str = "none"
    led_by: int = 0
    is_active: bool = False
    rate: int = 1_000
    seconds: float = 10.0
    in_flight: int = 1
    in_flight_mib: int = 0
    consumers: int = 10
    batch_records: int = 0
    producers: int = 1
    configs: dict[str, str] = {}


class Measured(msgspec.Struct):
    """The figures of one phase, and its cost: processor seconds of the client, and of each broker by node id.

    `broker_user_s`: the part of those that was not the kernel's. Samples of before it was noted have none.
    """

    phase: str
    metrics: dict[str, float]
    client_cpu_s: float
    broker_cpu_s: dict[int, float]
    broker_user_s: dict[int, float] = {}


@contextmanager
def phase(name: str) -> Iterator[dict[str, float]]:
    """In a generator: wait for the harness, let the block be measured, and report what it put into the dict."""
    metrics = dict[str, float]()
    print("ready", name, flush=True)
    if sys.stdin.readline() != "go\n":
        raise SystemExit("the harness has gone")
    yield metrics
    print("done", msgspec.json.encode(metrics).decode(), flush=True)


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of them lie; they need not be sorted, and must not be empty."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def run(
    command: list[str],
    load: Load,
    user_and_system_s: Callable[[int], tuple[float, float]],
    brokers: Callable[[], dict[int, int]],
    kill: Callable[[int], None],
) -> list[Measured]:
    """Run a generator through all its phases.

    `brokers` returns the process of each node, now. A generator that prints ``kill N`` wants node N gone, at once.

    Raises:
        LoadFailedError: it ended with an error, or a phase took more than `PHASE_LIMIT_S`.
    """
    measured = list[Measured]()
    words = [*command, msgspec.json.encode(load).decode()]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, text=True, env=module_environment(), **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        name = ""
        before = dict[int, tuple[float, float]]()
        client_s = 0.0
        for line in process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "ready":
                name = rest
                client_s = sum(user_and_system_s(process.pid))
                before = {node: user_and_system_s(pid) for node, pid in brokers().items()}
                process.stdin.write("go\n")
                process.stdin.flush()
            elif word == "kill":
                kill(int(rest))
            elif word == "done":
                metrics = msgspec.json.decode(rest, type=dict[str, float])
                found = Measured(name, metrics, sum(user_and_system_s(process.pid)) - client_s, {})
                for node, pid in brokers().items():
                    then = before.get(node, (0.0, 0.0))
                    now = user_and_system_s(pid)
                    found.broker_user_s[node] = now[0] - then[0]
                    found.broker_cpu_s[node] = sum(now) - sum(then)
                measured.append(found)
        errors = process.stderr.read().strip().splitlines()
    if process.returncode:
        raise LoadFailedError(errors[-1] if errors else f"status {process.returncode}")
    return measured
