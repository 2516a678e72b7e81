"""The largest requests that the limits allow, of every API and version, to three brokers with default settings.

Each request is made from the declaration of its message (`hostile/largest.py`), in several shapes, and asked of every
broker at the same time, with a well-behaved client beside. A line says for each: bytes of the request, of the largest
answer, seconds until the last of them, and the longest callback of a broker in time of the processor, without what the
machine stood still for (`hostile/standstill.py`; as root).

Exit status: 0 if no broker ended, none had more than 512 MiB, no callback used the processor for more than 10 ms, the
client had no error and no pause above 1 s, and no answer was larger than the limits imply: twice the request (names
come back, and once more in what an error says), 512 bytes for each of 100,000 things, the largest fetch, a batch, and
1 MiB for what this cluster has. What was not measured has failed.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from machines import cluster_handle

from barnabas_broker.server.dispatch import ROUTES
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.registry import APIS, Api
from hostile.scenes.scene import at_once

from .beside import TOPIC
from .costs import BrokerCosts
from .frames import Address, Wire, connect
from .judge import judge
from .largest import SHAPES, Shape, answer_bytes_max, largest
from .machine import Machine
from .processes import Told, ToldNothingError, end_when_told

CLIENT_PER_S = 50
ANSWER_S = 60.0
FAILED = 1


class Asked(NamedTuple):
    """How one broker answered: how large, after how long, or why not."""

    answer_bytes: int
    seconds: float
    ended: str


def ask(address: Address, frame: bytes) -> Asked:
    """Send one request and count what comes back, without looking into it."""
    began = time.monotonic()
    received, wanted, head = 0, -1, b""
    try:
        with connect(address, timeout_s=ANSWER_S) as made:
            made.sendall(frame)
            while received != wanted:
                part = made.recv(1 << 20)
                if not part:
                    return Asked(received, time.monotonic() - began, "closed")
                received += len(part)
                head = (head + part)[:4]
                wanted = 4 + int.from_bytes(head, "big") if len(head) == 4 else -1
    except TimeoutError:
        return Asked(received, time.monotonic() - began, f"no answer within {ANSWER_S:.0f} s")
    except OSError as error:
        return Asked(received, time.monotonic() - began, type(error).__name__)
    return Asked(received, time.monotonic() - began, "")


def chosen(options: argparse.Namespace) -> Iterator[tuple[Api, int, Shape]]:
    """Yield what is to be asked.

    Raises:
        SystemExit: a name is none.
    """
    names = set(options.apis.split(",")) if options.apis else {APIS[key].name for key in ROUTES}
    shapes = set(options.shapes.split(",")) if options.shapes else {shape.name for shape in SHAPES}
    if unknown := (names - {api.name for api in APIS.values()}) | (shapes - {shape.name for shape in SHAPES}):
        raise SystemExit(f"largest: no such API or shape: {', '.join(sorted(unknown))}")
    for key, route in sorted(ROUTES.items()):
        if APIS[key].name in names:
            for version in range(route.served_from, route.advertised.stop):
                yield from ((APIS[key], version, shape) for shape in SHAPES if shape.name in shapes)


class Stage:
    """One cluster, and who is beside."""

    def __init__(self, cluster: cluster_handle.ClusterHandle, beside: Told, machine: Machine) -> None:
        self.beside, self.machine, self.costs = beside, machine, BrokerCosts(cluster.data)
        self.brokers = [("127.0.0.1", cluster.port + number) for number in range(cluster.brokers)]
        with Wire(self.brokers[0]) as wire:
            found = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
        self.topic_id: bytes = found.topics[0].topic_id

    def ask(self, api: Api, version: int, shape: Shape) -> list[str] | None:
        """Ask it, print a line, and return what is beyond the limits; None where this shape is no other request."""
        frame = largest(api, version, shape, TOPIC, self.topic_id)
        if frame is None:
            return None
        was_forgotten = self.costs.forget()
        self.costs.begin()
        self.beside.ask()
        self.machine.take()
        answers: list[Asked] = []
        at_once([partial(lambda address: answers.append(ask(address, frame)), one) for one in self.brokers])
        kept, client = self.machine.take(), self.beside.ask()
        costs = self.costs.take(kept.stills)
        complaints = judge(client, costs)
        if not was_forgotten:
            complaints.append("what an earlier request cost was still remembered")
        answer_bytes = max(one.answer_bytes for one in answers)
        if answer_bytes > answer_bytes_max(len(frame)):
            complaints.append(f"an answer of {answer_bytes} bytes")
        longest = max((cost.longest.own_ms for cost in costs if cost.longest), default=None)
        ends = sorted({one.ended for one in answers if one.ended})
        print(
            f"{api.name:26} v{version:<2} {shape.name:6} {len(frame):>11,} {answer_bytes:>11,} "
            f"{max(one.seconds for one in answers):7.2f} {'-' if longest is None else f'{longest:.1f}':>6} "
            f"{max(cost.memory_mib for cost in costs):5} {client['pause_s']:6.2f} {kept.idle_ms:6.0f}  "
            f"{'; '.join([*ends, *complaints])}".rstrip(),
            flush=True,
        )
        return complaints


def run(options: argparse.Namespace) -> int:
    asked, beyond = 0, list[str]()
    print(f"{'API':26} {'':3} {'shape':6} {'request':>11} {'answer':>11} {'s':>7} {'ms':>6} {'MiB':>5} pause_s idle_ms")
    with (
        cluster_handle.cluster(keep=options.keep) as cluster,
        Told("beside", cluster.bootstrap, CLIENT_PER_S) as beside,
        Machine() as machine,
    ):
        stage = Stage(cluster, beside, machine)
        try:
            for api, version, shape in chosen(options):
                complaints = stage.ask(api, version, shape)
                asked += complaints is not None
                beyond += [f"{api.name} v{version} {shape.name}: {text}" for text in complaints or ()]
                if any("has ended" in text for text in complaints or ()):
                    break
            beyond += [f"the client at the end: {text}" for text in beside.ask("end", limit_s=150)["errors"]]
        except ToldNothingError as error:
            beyond.append(str(error))
    print(f"\n{asked} requests, {len(beyond)} complaints")
    for text in beyond:
        print(f"  {text}")
    return FAILED if beyond else 0


def main() -> int:
    end_when_told()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apis", help="comma separated; all of them unless given")
    parser.add_argument("--shapes", help=f"comma separated, of {', '.join(shape.name for shape in SHAPES)}")
    parser.add_argument("--keep", action="store_true", help="leave the brokers' logs and disks")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
