"""Plays scenes of hostile clients on three brokers, beside a well-behaved client.

The brokers have default settings. Each scene prints its actions and its cost: every broker's memory at its peak, the
longest callback of its loop in time of the processor and of the wall, the longest pause and the errors of the
well-behaved client, and the latest waking of an idle process on the same processors, which the machine does to
everybody. Standstills of a virtual machine count against no callback (`standstill`; as root).

Exit status: 0 if no broker ended, none had more than 512 MiB, no callback used the processor for more than 10 ms, and
the well-behaved client had no error and no pause above 1 s; 1 otherwise. Anything that was not measured has failed. If
times cannot be asserted, `--untimed` leaves callbacks and pauses out of the status, and prints them all the same.
"""

import argparse
import random
import sys
from typing import NamedTuple

from hostile.scenes.scene import Attack, Scene
from hostile.scenes.table import SCENES

from .beside import TOPIC
from .processes import ToldNothingError, end_when_told
from .stage import FAILED, Stage, stage

SETTLE_S = 1.0
SECRET = "known to three, and to no scene"  # noqa: S105 - of a cluster that lives for minutes


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


def play(one: Scene, on: Stage, options: argparse.Namespace) -> Played:
    """Play one scene and print its cost."""
    fields = {"topic": TOPIC, "share": options.share, "seconds": options.seconds}
    attack = Attack(on.brokers, on.peers, random.Random(f"{options.seed} {one.name}"), **fields)

    def act() -> str:
        try:
            return one.play(attack)
        except OSError as error:
            return f"given up: {type(error).__name__}: {error}"
        finally:
            attack.close()

    did, found = on.measure(act, settle_s=SETTLE_S * options.share)
    print(f"\n{one.name} ({one.kind}; seed {options.seed}; {found.took_s:.1f} s): {one.about}")
    print(f"  did: {did}")
    for cost in found.costs:
        print(f"  {cost}")
    client = found.client
    print(
        f"  the client: {client['acknowledged']} acknowledged, {client['consumed']} consumed, longest pause "
        f"{client['pause_s']:.2f} s, {client['error_count']} errors; an idle process was kept for "
        f"{found.idle_ms:.0f} ms at most"
    )
    for text in found.complaints:
        print(f"  BEYOND: {text}")
    sys.stdout.flush()
    return Played(one.name, found.complaints, found.has_ended)


def run(scenes: list[Scene], options: argparse.Namespace) -> int:
    played: list[Played] = []
    last: list[str] = []
    with stage(keep=options.keep, is_timed=not options.untimed, secret=SECRET if options.keyed else None) as on:
        try:
            for one in scenes:
                played.append(play(one, on, options))
                if played[-1].ended:
                    break
            else:
                last = on.end()
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
    parser.add_argument("--seconds", type=float, default=6.0, help="length of each scene that could go on for ever")
    parser.add_argument("--share", type=float, default=1.0, help="share of all counts, for a short run")
    parser.add_argument("--untimed", action="store_true", help="times are printed, and in no verdict")
    parser.add_argument("--keyed", action="store_true", help="the brokers have a cluster.secret, and no scene knows it")
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
