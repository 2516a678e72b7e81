"""Kills a Kafka Streams application and brokers under it, and compares all results with what they must be.

The application (`Application.java`, `exactly_once_v2`) has tumbling, hopping and session windows, totals and a join;
`expected.py` computes their results from the input alone. Two instances share the work, each with standbys for the
state of the other; three brokers run beside them. While the application works, fault after fault strikes:

    instance    an instance is killed, and started again; its state comes from changelogs, or is at the standby
    renamed     likewise, with other transactional ids: what it had begun is aborted when its time is over
    paused      an instance stands still for longer than its transactions last, and is fenced
    broker      the broker that leads most partitions is killed, and started again
    both        a broker and an instance, at the same time
    brokers     all three brokers

Exit status: 1 if a result is missing, doubled or wrong, or if an instance ended by itself; otherwise 0.
"""

import argparse
import asyncio
import contextlib
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench import systems
from machines.cache import NotInstalledError
from machines.cluster_handle import ClusterHandle, cluster

from .faults import BROKER_SETTINGS, OF_APPLICATION, OF_BROKERS, Faults
from .judge import RESULTS
from .run import Run, Work

ORDERS_PER_ROUND = 600
ROUND_LIMIT_S = 120.0
SHOWN_MAX = 30


@contextlib.contextmanager
def brokers(options: argparse.Namespace) -> Iterator[tuple[str, ClusterHandle | None]]:
    """Run three brokers; yield their addresses, and how to strike them."""
    if options.against_kafka:
        with systems.kafka(synced=False) as peer:
            yield peer.address, None
        return
    settings = BROKER_SETTINGS | dict(item.split("=", 1) for item in options.settings)
    with cluster(settings=settings, keep=options.keep) as handle:
        yield handle.bootstrap, handle


def deck(options: argparse.Namespace) -> list[str]:
    """Return the faults: each as often as the others, as far as that goes, in an order that the seed chooses."""
    names = [*OF_APPLICATION, *(() if options.against_kafka else OF_BROKERS)]
    chance = random.Random(options.seed)
    chosen: list[str] = []
    while len(chosen) < options.rounds:
        chosen += chance.sample(names, len(names))
    return chosen[: options.rounds]


def run(options: argparse.Namespace, folder: Path) -> list[str]:
    """Run all rounds, say what happened, and return what is wrong."""
    work = Work.of(options.seed, (options.rounds + 1) * ORDERS_PER_ROUND)
    jars = systems.install_streams()
    with brokers(options) as (bootstrap, handle):
        stage = Run(work, bootstrap, jars, folder, options.instances, options.guarantee)
        faults = Faults(stage, handle, options.seed)
        names = deck(options)
        strikes = [faults.strike(name, number * ORDERS_PER_ROUND) for number, name in enumerate(names, 1)]
        wrong = asyncio.run(stage.run(strikes, (options.rounds + 1) * ROUND_LIMIT_S))
        if wrong and handle is not None:
            handle.keeps_files = True
    counts = Counter(name for name, _ in faults.struck)
    print(f"struck: {', '.join(f'{name} {count}' for name, count in sorted(counts.items()))}")
    results = ", ".join(f"{topic} {stage.results.count(topic):,}" for topic in RESULTS)
    print(f"{work.orders:,} orders; results: {results}")
    restored: Counter[str] = Counter()
    for instance in stage.instances:
        for life in range(1, instance.lives + 1):
            restored += instance.restored(life)
    print(f"restored from changelogs: {', '.join(f'{name} {count:,}' for name, count in sorted(restored.items()))}")
    print(f"{stage.aborted:,} transactions beside the input were aborted")
    print("every result is what it must be" if not wrong else f"{len(wrong)} are wrong")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12, help="faults; about 20 s each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--instances", type=int, default=2, help="of the application")
    parser.add_argument("--guarantee", default="exactly_once_v2", help="at_least_once must end with wrong results")
    parser.add_argument("--keep", action="store_true", help="leave the brokers' data and logs, and the application's")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--against-kafka", action="store_true", help="with brokers of Apache Kafka, which are not struck"
    )
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="streams-"))
    try:
        wrong = run(options, folder)
    except NotInstalledError as error:
        wrong = [f"Kafka Streams cannot be had: {error}"]
    for line in wrong[:SHOWN_MAX]:
        print(line, file=sys.stderr)
    if wrong or options.keep:
        print(f"left in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
