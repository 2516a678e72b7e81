"""Mutated frames and lying values against real brokers, by a seed; what must not happen is kept and can be repeated.

    scripts/fuzz --seed 7 --frames 1000000      frames of clients: each API and version, half of them well-formed
    scripts/fuzz --replay FILE                  what an earlier run has found, once more

Exit status: 0 nothing was wrong, 1 something was.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

import cluster_handle
from fuzzing import client_run
from fuzzing.client_run import Outcome, Plan
from fuzzing.failures import load
from fuzzing.frames import PAIRS, name_of
from fuzzing.janitor import Janitor

from barnabas_clients import Admin

REQUIRED_MAX = 1_000
SHOWN = 20


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Frames that nobody should send, against real brokers.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--frames", type=int, default=1_000_000, metavar="N", help="of clients (default 1,000,000)")
    parser.add_argument("--brokers", type=int, default=1, metavar="N")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures.jsonl"), metavar="FILE")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="send what an earlier run has kept, once more")
    parser.add_argument("--keep", action="store_true", help="leave the brokers' files")
    return parser.parse_args()


def table(outcome: Outcome) -> None:
    """Print how often each API and version was sent, was answered, and reached its handler."""
    print(f"{'API and version':34} {'lies sent':>9} {'answered':>9} {'bytes sent':>10} {'answered':>9} {'handled':>9}")
    sent, answered = outcome.lanes.sent, outcome.lanes.answered
    for key, version in PAIRS:
        lies, other = (key, version, True), (key, version, False)
        name = name_of(key, version)
        numbers = f"{sent[lies]:9} {answered[lies]:9} {sent[other]:10} {answered[other]:9}"
        print(f"{name:34} {numbers} {outcome.reached.get(name, 0):9}")
    print(f"{sum(sent.values())} frames over {outcome.lanes.connections} connections")
    for node_id in outcome.resident[-1] if outcome.resident else ():
        series = " ".join(str(found.get(node_id, 0) >> 20) for found in outcome.resident)
        print(f"broker {node_id}: MiB in memory after each round: {series}")
    noticed = outcome.noticed
    print(
        f"the neighbour: {noticed.acked} records acknowledged, {noticed.consumed} consumed, "
        f"{noticed.beats} heartbeats, the longest pause {noticed.pause_s:.3f} s "
        f"(the broker's loop never ran for more than {noticed.busy_s:.3f} s of one)"
    )


def verdict(problems: list[str]) -> int:
    for problem in problems[:SHOWN]:
        print(f"WRONG: {problem}")
    if len(problems) > SHOWN:
        print(f"and {len(problems) - SHOWN} more")
    print("nothing was wrong" if not problems else f"{len(problems)} things were wrong")
    return 1 if problems else 0


def replayed(path: Path, cluster: cluster_handle.Cluster) -> list[str]:
    async def prepared() -> dict[str, bytes]:
        async with Admin(cluster.bootstrap) as admin:
            janitor = Janitor(admin)
            await janitor.prepare()
            return janitor.names.topic_ids

    topic_ids = asyncio.run(prepared())
    return client_run.replay([kept.with_ids(topic_ids) for kept in load(path)], cluster)


def main() -> int:
    options = parsed()
    with cluster_handle.cluster(options.brokers, keep=options.keep) as cluster:
        if options.replay is not None:
            return verdict(replayed(options.replay, cluster))
        required = min(REQUIRED_MAX, options.frames // 1_000)
        began = time.monotonic()
        outcome = client_run.run(Plan(options.seed, options.frames, required, options.failures), cluster)
        table(outcome)
        print(f"seed {options.seed}, {time.monotonic() - began:.0f} s")
        status = verdict(outcome.problems)
        if outcome.lanes.failures:
            print(f"once more: scripts/fuzz --replay {options.failures}")
    return status


if __name__ == "__main__":
    sys.exit(main())
