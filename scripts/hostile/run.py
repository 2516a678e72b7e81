"""Clients that mean harm, scene after scene, on three brokers with default settings; somebody well-behaved is beside.

Each scene prints what it did and what it cost: every broker's memory at its peak, the longest callback of its loop in
time of the processor and of the wall, the longest pause and the errors of the well-behaved client, and how late an idle
process on the same processors was woken meanwhile, which is what the machine does to everybody. For how long a virtual
machine stood still counts against no callback (`hostile/standstill.py`; as root).

Exit status: 0 if no broker ended, none had more than 512 MiB, no callback used the processor for more than 10 ms, and
the well-behaved client had no error and no pause above 1 s; 1 otherwise. What was not measured has failed. Where times
cannot be asserted, `--untimed` leaves callbacks and pauses out of the status, and prints them all the same.
"""

import argparse
import random
import sys
import time
from typing import NamedTuple

from machines import cluster_handle

from hostile.scenes import arrays, batches, connections, groups, peers, reads, topics
from hostile.scenes.scene import SCENES, Attack, Scene

from .beside import TOPIC
from .costs import BrokerCosts
from .judge import judge
from .machine import Machine
from .processes import Told, ToldNothingError, end_when_told

TABLES = (
    connections,
    reads,
    arrays,
    groups,
    batches,
    topics,
    peers,
)
"""Which scenes there are is known once these are loaded."""
SETTLE_S = 1.0
CLIENT_PER_S = 50
FAILED = 1


class Played(NamedTuple):
    """One scene that is over."""

    name: str
    complaints: list[str]
    ended: bool


def choose(wanted: str | None) -> list[Scene]:
    """Return the scenes by these names, or all of them.

    Raises:
        SystemExit: one of them is none.
    """
    names = wanted.split(",") if wanted else list(SCENES)
    if unknown := [name for name in names if name not in SCENES]:
        raise SystemExit(f"hostile: no such scene: {', '.join(unknown)}; there are {', '.join(SCENES)}")
    return [SCENES[name] for name in names]


class Stage:
    """One cluster, who is beside, and the scenes that are played on it."""

    def __init__(
        self, cluster: cluster_handle.ClusterHandle, beside: Told, machine: Machine, options: argparse.Namespace
    ) -> None:
        self.options, self.beside, self.machine = options, beside, machine
        status = cluster.status()
        self.brokers = [("127.0.0.1", int(one["port"])) for one in status["brokers"]]
        self.peers = [("127.0.0.1", int(one["peer_port"])) for one in status["brokers"]]
        self.costs = BrokerCosts(cluster.data)

    def play(self, one: Scene) -> Played:
        """Play one scene and say what it cost."""
        was_forgotten = self.costs.forget() if not self.options.untimed else True
        self.costs.begin()
        self.beside.ask()
        self.machine.take()
        chance = random.Random(f"{self.options.seed} {one.name}")
        fields = {"topic": TOPIC, "share": self.options.share, "seconds": self.options.seconds}
        attack = Attack(self.brokers, self.peers, chance, **fields)
        began = time.monotonic()
        try:
            did = one.play(attack)
        except OSError as error:
            did = f"given up: {type(error).__name__}: {error}"
        finally:
            attack.close()
        took_s = time.monotonic() - began
        time.sleep(SETTLE_S * self.options.share)
        kept, client = self.machine.take(), self.beside.ask()
        costs = self.costs.take(kept.stills)
        complaints = judge(client, costs, timed=not self.options.untimed)
        if not was_forgotten:
            complaints.append("what an earlier scene cost was still remembered when it began")
        print(f"\n{one.name} ({one.kind}; seed {self.options.seed}; {took_s:.1f} s): {one.about}")
        print(f"  did: {did}")
        for cost in costs:
            print(f"  {cost}")
        print(
            f"  the client: {client['acknowledged']} acknowledged, {client['consumed']} consumed, longest pause "
            f"{client['pause_s']:.2f} s, {client['error_count']} errors; an idle process was kept for "
            f"{kept.idle_ms:.0f} ms at most"
        )
        for text in complaints:
            print(f"  BEYOND: {text}")
        sys.stdout.flush()
        return Played(one.name, complaints, any(not cost.alive for cost in costs))


def run(scenes: list[Scene], options: argparse.Namespace) -> int:
    played: list[Played] = []
    last: list[str] = []
    with (
        cluster_handle.cluster(keep=options.keep) as cluster,
        Told("beside", cluster.bootstrap, CLIENT_PER_S) as beside,
        Machine() as machine,
    ):
        stage = Stage(cluster, beside, machine, options)
        try:
            for one in scenes:
                played.append(stage.play(one))
                if played[-1].ended:
                    break
            else:
                end = beside.ask("end", limit_s=150)
                last = [f"the client at the end: {text}" for text in end["errors"]]
        except ToldNothingError as error:
            last = [str(error)]
    return conclude(played, last, len(scenes))


def conclude(played: list[Played], last: list[str], wanted: int) -> int:
    beyond = [one for one in played if one.complaints]
    print(f"\n{len(played)} of {wanted} scenes, {len(beyond)} beyond the limits")
    for one in beyond:
        print(f"  {one.name}: {'; '.join(one.complaints)}")
    for text in last:
        print(f"  {text}")
    return FAILED if beyond or last or len(played) < wanted else 0


def main() -> int:
    end_when_told()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", help="comma separated; all of them unless given")
    parser.add_argument("--list", action="store_true", help="print the scenes, and play none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each scene that could go on for ever")
    parser.add_argument("--share", type=float, default=1.0, help="of all counts, for a short run")
    parser.add_argument("--untimed", action="store_true", help="times are printed, and in no verdict")
    parser.add_argument("--keep", action="store_true", help="leave the brokers' logs and disks")
    options = parser.parse_args()
    scenes = choose(options.scenes)
    if options.list:
        for one in scenes:
            print(f"{one.name:34} {one.kind:10} {one.about}")
        return 0
    return run(scenes, options)


if __name__ == "__main__":
    sys.exit(main())
