"""Asks brokers for the largest requests that the limits allow, of every API and version.

Three brokers run with default settings. Each request is made from the declaration of its message (`largest_requests`),
in several shapes, and asked of every broker at the same time, with a well-behaved client beside. A line says for each:
bytes of the request, of the largest answer, seconds until the last of them, and the longest callback of a broker in
time of the processor, without the machine's standstills (`standstill`; as root).

Exit status: 0 if no broker ended, none had more than 512 MiB, no callback used the processor for more than 10 ms, the
client had no error and no pause above 1 s, and no answer was larger than the limits imply: twice the request (names
come back, and once more in errors), 512 bytes for each of 100,000 things, the largest fetch, a batch, and 1 MiB for the
things of this cluster. Anything that was not measured has failed.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from barnabas_broker.server.dispatch import ROUTES
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.registry import APIS, Api
from hostile.scenes.scene import at_once

from .beside import TOPIC
from .frames import Address, Wire, connect
from .largest_requests import SHAPES, Shape, answer_bytes_max, largest
from .processes import ToldNothingError, end_when_told
from .stage import FAILED, Measured, Stage, stage

ANSWER_S = 60.0


class Asked(NamedTuple):
    """One broker's answer: its size, its time, or the reason why there is none."""

    answer_bytes: int
    seconds: float
    ended: str


def ask(address: Address, frame: bytes) -> Asked:
    """Send one request and count the bytes that come back, without looking into them."""
    began = time.monotonic()
    received = 0
    wanted = -1
    head = b""
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
    """Yield the requests to ask.

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


def topic_id_of(on: Stage) -> bytes:
    """Return the id of the topic that the client beside uses."""
    with Wire(on.brokers[0]) as wire:
        found = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
    topic_id: bytes = found.topics[0].topic_id
    return topic_id


def ask_all(on: Stage, api: Api, version: int, shape: Shape, frame: bytes) -> Measured:
    """Ask all brokers at the same time, print a line, and return the costs."""

    def act() -> list[Asked]:
        answers: list[Asked] = []
        at_once([partial(lambda address: answers.append(ask(address, frame)), one) for one in on.brokers])
        return answers

    answers, found = on.measure(act)
    answer_bytes = max(one.answer_bytes for one in answers)
    if answer_bytes > answer_bytes_max(len(frame)):
        found.complaints.append(f"an answer of {answer_bytes} bytes")
    longest = max((cost.longest.own_ms for cost in found.costs if cost.longest), default=None)
    ends = sorted({one.ended for one in answers if one.ended})
    print(
        f"{api.name:26} v{version:<2} {shape.name:6} {len(frame):>11,} {answer_bytes:>11,} "
        f"{max(one.seconds for one in answers):7.2f} {'-' if longest is None else f'{longest:.1f}':>6} "
        f"{max(cost.memory_mib for cost in found.costs):5} {found.client['pause_s']:6.2f} {found.idle_ms:6.0f}  "
        f"{'; '.join([*ends, *found.complaints])}".rstrip(),
        flush=True,
    )
    return found


def run(options: argparse.Namespace) -> int:
    asked = 0
    beyond: list[str] = []
    print(f"{'API':26} {'':3} {'shape':6} {'request':>11} {'answer':>11} {'s':>7} {'ms':>6} {'MiB':>5} pause_s idle_ms")
    with stage(keep=options.keep) as on:
        topic_id = topic_id_of(on)
        try:
            for api, version, shape in chosen(options):
                frame = largest(api, version, shape, TOPIC, topic_id)
                if frame is None:
                    continue  # This shape is no other request.
                found = ask_all(on, api, version, shape, frame)
                asked += 1
                beyond += [f"{api.name} v{version} {shape.name}: {text}" for text in found.complaints]
                if found.has_ended:
                    break
            beyond += on.end()
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
