"""Compares 4,500 connections that behave, beside 500 that misbehave and without them.

First the machine's capacity is measured, with all 4,500 connections, beside the process that loads it. Its bound is the
rate of answers if each has a produce request of 1 KiB (acks=all) under way all the time; but then thousands share a
drive, a write and a frame, and requests that come one by one cost more. So from there on the rate is lowered until the
brokers keep up with a fixed one: all answered, 99 of 100 within a second. Half of that is offered from then on. Then
two runs of the same length: the *control*, in which the hostile traffic goes to a sink, a process that reads and
forgets it; and the *crowd*, in which the same traffic, by the same seed, goes to the brokers. Latencies are compared,
each from when its request was due. Connections go after leaders that move.

Exit status: 0 if the 99th percentile in the crowd is at most twice that of the control, and each of the 4,500 had
at least 95 % of its offers, without an error; 1 otherwise; 2 if a generator of load used more than 0.8 of a
processor, and so may have measured itself, or if the control had errors or less than its rate.
"""

import argparse
import sys
import time
from typing import Any, NamedTuple

from machines import cluster_handle

from hostile.scenes.scene import Attack

from .costs import BrokerCosts
from .machine import Machine
from .processes import Told, end_when_told

TOPIC = "crowd"
PARTITIONS = 6
RATIO_MAX = 2.0
SHARE_MIN = 0.95
BUSY_MAX = 0.8
CLOSED_S = 20.0
PROBE_S = 20.0
LOWER = 0.8
KEEPS_UP_MS = 1_000.0
KEEPS_UP_SHARE = 0.99
RATE_MIN = 50.0
SETTLES_S = 5.0
FAILED = 1
SELF_MEASURED = 2


def carried(load: Told) -> float:
    """Return the highest rate that the brokers keep up with, to a fifth."""
    rate: float = load.ask(f"closed {CLOSED_S}", limit_s=CLOSED_S + 60)["per_s"]
    print(f"with a request of each under way all the time: {rate:.0f} requests a second", flush=True)
    while rate > RATE_MIN:
        time.sleep(SETTLES_S)
        found = load.ask(f"open {rate} {PROBE_S}", limit_s=PROBE_S * 3 + 60)
        print(
            f"at {rate:.0f} a second: {found['answered']} of {found['offered']} answered, p50 {found['p50_ms']} ms, "
            f"p99 {found['p99_ms']} ms; the load used {found['processor']:.2f} of a processor",
            flush=True,
        )
        is_answered = found["answered"] >= KEEPS_UP_SHARE * found["offered"] and not found["errors"]
        if is_answered and found["p99_ms"] <= KEEPS_UP_MS:
            return rate
        rate *= LOWER
    return rate


class Measured(NamedTuple):
    """The costs of the brokers under a load, and the watch for standstills of the machine."""

    costs: BrokerCosts
    machine: Machine


def measure(
    options: argparse.Namespace, load: Told, rate: float, name: str, ports: list[int], beside: Measured
) -> dict[str, Any]:
    """Offer the load for as long as asked, with hostile traffic to these ports; print and return its fate."""
    seconds = options.minutes * 60
    beside.costs.begin()
    with Told("misbehave", TOPIC, options.hostile, f"{options.seed}", *ports) as hostile:
        found = load.ask(f"open {rate} {seconds}", limit_s=seconds * 2 + 120)
        hurt = hostile.ask("end")
    print(
        f"{name}: {found['answered']} of {found['offered']} answered, p50 {found['p50_ms']} ms, "
        f"p99 {found['p99_ms']} ms, longest {found['longest_ms']} ms\n"
        f"  the least of a connection {found['share_min']:.3f}, {found['below_95']} of them below {SHARE_MIN}; errors "
        f"{found['errors'] or 0}; {found['followed']} times after a leader that moved; the load used "
        f"{found['processor']:.2f} of a processor\n"
        f"  hostile: {hurt['opened']} connections, {hurt['sent_bytes'] >> 20} MiB, "
        f"{hurt['processor']:.2f} of a processor"
    )
    for cost in beside.costs.take(beside.machine.take().stills):
        print(f"  {cost}")
    sys.stdout.flush()
    return found | {"hostile_processor": hurt["processor"]}


def verdict(control: dict[str, Any], crowd: dict[str, Any]) -> int:
    """Print the verdict, and return the exit status."""
    ratio = crowd["p99_ms"] / max(control["p99_ms"], 0.01)
    print(f"\np99 {ratio:.2f} times that of the control (at most {RATIO_MAX})")
    print(f"the least that a connection had of its rate: {crowd['share_min']:.3f} (at least {SHARE_MIN})")
    busy = max(run[name] for run in (control, crowd) for name in ("processor", "hostile_processor"))
    if busy > BUSY_MAX:
        print(f"a generator of load used {busy:.2f} of a processor: this measured the generator")
        return SELF_MEASURED
    if control["share_min"] < SHARE_MIN or control["errors"]:
        print("the control did not get its own rate: the machine does not carry today what it carried at first")
        return SELF_MEASURED
    holds = ratio <= RATIO_MAX and crowd["share_min"] >= SHARE_MIN and not crowd["errors"]
    return 0 if holds else FAILED


def run(options: argparse.Namespace) -> int:
    with (
        cluster_handle.cluster(keep=options.keep) as cluster,
        Told("sink", cluster.brokers) as sink,
        Machine() as machine,
    ):
        ports = [cluster.port + number for number in range(cluster.brokers)]
        Attack([("127.0.0.1", port) for port in ports], []).create(TOPIC, PARTITIONS)
        beside = Measured(BrokerCosts(cluster.data), machine)
        with Told("load", TOPIC, options.connections, *ports, limit_s=120) as load:
            rate = options.rate or carried(load) / 2
            print(
                f"{options.connections} connections: {rate:.0f} requests a second are offered, "
                f"{rate / options.connections:.3f} by each",
                flush=True,
            )
            time.sleep(SETTLES_S)
            control = measure(options, load, rate, "control", sink.ask()["ports"], beside)
            crowd = measure(options, load, rate, "crowd", ports, beside)
    return verdict(control, crowd)


def main() -> int:
    end_when_told()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="length of the control, and of the crowd")
    parser.add_argument("--connections", type=int, default=4_500)
    parser.add_argument("--hostile", type=int, default=500)
    parser.add_argument(
        "--rate", type=float, default=0.0, help="requests a second (default: half of the machine's capacity)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the brokers' logs and disks")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
