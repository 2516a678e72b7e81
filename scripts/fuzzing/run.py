"""Sends mutated bytes and lying values to real brokers, by a seed, and keeps failures.

    scripts/fuzz --seed 7 --frames 1000000     frames of clients: each API and version, half of them well-formed
    scripts/fuzz --peers 10000                 so many of each kind of frame and datagram between nodes
    scripts/fuzz --atheris all --seconds 3600  the decoders by themselves, led by coverage
    scripts/fuzz --walker 1000000              damaged batches, to the compiled record walker and to its twin in Python
    scripts/fuzz --walker 1000000 --sanitizer  the same, with the compiled one under an address sanitizer
    scripts/fuzz --replay FILE                 the findings of an earlier run, once more

Exit status: 0 nothing was wrong, 1 something was.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from machines import cluster_handle

from barnabas_clients import Admin

from . import client_run, peer_run
from .client_run import Outcome, Plan
from .decoders import corpus, search
from .decoders.targets import TARGETS
from .failures import load
from .frames import PAIRS, name_of
from .janitor import Janitor
from .neighbour import Noticed
from .walker import comparing
from .walker.sanitizing import sanitized_run
from .watch import SETTINGS

REQUIRED_MAX = 1_000
SHOWN = 20
ALL = "all"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Send bytes and values that nobody should to real brokers.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--frames", type=int, default=1_000_000, metavar="N", help="frames of clients (default 1,000,000)"
    )
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="brokers for the frames of clients")
    parser.add_argument("--peers", type=int, metavar="N", help="frames and datagrams between nodes, of each kind")
    parser.add_argument("--atheris", choices=(*TARGETS, ALL), metavar="TARGET", help=f"{', '.join(TARGETS)}, or {ALL}")
    parser.add_argument("--seconds", type=int, default=300, metavar="N", help="time for each target (default 300)")
    parser.add_argument(
        "--keep-corpus", action="store_true", help="write the findings of the search into tests/fuzzing"
    )
    parser.add_argument("--walker", type=int, metavar="N", help="damaged batches for both twins of the record walker")
    parser.add_argument("--sanitizer", action="store_true", help="compile the walker with an address sanitizer")
    parser.add_argument(
        "--pure-every", type=int, default=1, metavar="N", help="give the twin in Python each N. batch only (default 1)"
    )
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures.jsonl"), metavar="FILE")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="send the findings of an earlier run once more")
    parser.add_argument("--keep", action="store_true", help="leave the brokers' files")
    return parser.parse_args()


def table(outcome: Outcome) -> None:
    """Print how often each API and version was sent, was answered, and reached its handler."""
    print(f"{'API and version':34} {'lies sent':>9} {'answered':>9} {'bytes sent':>10} {'answered':>9} {'handled':>9}")
    sent = outcome.lanes.sent
    answered = outcome.lanes.answered
    for key, version in PAIRS:
        lies = (key, version, True)
        other = (key, version, False)
        name = name_of(key, version)
        numbers = f"{sent[lies]:9} {answered[lies]:9} {sent[other]:10} {answered[other]:9}"
        print(f"{name:34} {numbers} {outcome.reached.get(name, 0):9}")
    print(f"{sum(sent.values())} frames over {outcome.lanes.connections} connections")
    beside(outcome.noticed, outcome.resident)


def beside(noticed: Noticed, resident: list[dict[int, int]]) -> None:
    for node_id in resident[-1] if resident else ():
        series = " ".join(str(found.get(node_id, 0) >> 20) for found in resident)
        print(f"broker {node_id}: MiB in memory after each round: {series}")
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


def replayed(path: Path, cluster: cluster_handle.ClusterHandle) -> list[str]:
    async def prepared() -> dict[str, bytes]:
        async with Admin(cluster.bootstrap) as admin:
            janitor = Janitor(admin)
            await janitor.prepare()
            return janitor.names.topic_ids

    topic_ids = asyncio.run(prepared())
    return client_run.replay([kept.with_ids(topic_ids) for kept in load(path)], cluster)


def clients(options: argparse.Namespace) -> int:
    with cluster_handle.cluster(options.brokers, SETTINGS, keep=options.keep) as cluster:
        if options.replay is not None:
            return verdict(replayed(options.replay, cluster))
        required = min(REQUIRED_MAX, options.frames // 1_000)
        outcome = client_run.run(Plan(options.seed, options.frames, required, options.failures), cluster)
    table(outcome)
    status = verdict(outcome.problems + outcome.waits)
    if outcome.lanes.failures:
        print(f"once more: scripts/fuzz --replay {options.failures}")
    return status


def peers(options: argparse.Namespace) -> int:
    with cluster_handle.cluster(peer_run.BROKERS, peer_run.settings(), keep=options.keep) as cluster:
        outcome = peer_run.run(options.seed, options.peers, cluster)
    for kind, count in sorted(outcome.sent.items()):
        print(f"{kind:40} {count:9}")
    print(f"{sum(outcome.sent.values())} frames and datagrams over {outcome.connections} connections")
    beside(outcome.noticed, outcome.resident)
    return verdict(outcome.problems)


def decoders(options: argparse.Namespace) -> int:
    problems = []
    for target in TARGETS if options.atheris == ALL else (options.atheris,):
        found = search.search(target, options.seconds, options.seed)
        print(f"{target}: {found.executed} inputs; {len(found.inputs)} worth keeping")
        if found.broke:
            print("\n".join(found.said[-40:]))
            problems += [f"{target}: {data.hex() or 'no input was left'}" for data in found.broke]
        elif options.keep_corpus:
            corpus.save(target, found.inputs)
    return verdict(problems)


def walker(options: argparse.Namespace) -> int:
    if options.sanitizer:
        done = sanitized_run(options.walker, options.seed, options.pure_every)
        print(done.stdout + done.stderr, end="")
        return done.returncode
    words = ["--count", str(options.walker), "--seed", str(options.seed), "--pure-every", str(options.pure_every)]
    return comparing.main([*words, *(["--keep-corpus"] if options.keep_corpus else [])])


def main() -> int:
    options = parsed()
    if options.walker is not None:
        return walker(options)
    began = time.monotonic()
    act = decoders if options.atheris is not None else peers if options.peers is not None else clients
    status = act(options)
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
