"""The demonstration: what goes in is every line of the Python source files around; what comes out must be the same.

Each line is one record, keyed by its file, so that the lines of a file share a partition and keep their order.
Half-way the leader of a partition is killed with SIGKILL. At the end Spark reads everything back, and the count and
the SHA-256 of every file's lines, in the order of their offsets, are held against the files themselves.
"""

import argparse
import hashlib
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from cluster_handle import Cluster, CommandFailedError, cluster, run
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from demo_spark import SparkResult, read_back
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

TOPIC, PARTITIONS = "python-source", 6
RECORDS_DEFAULT = RECORDS_MIN = 500_000
RETURN_AFTER = 0.75  # of the records: by then the others have carried on without the killed broker for a while


class Source:
    """The files that are streamed, and what must come back of each: its number of lines and their hash."""

    def __init__(self, records: int) -> None:
        self.expected: dict[str, tuple[int, str]] = {}
        self.files: list[tuple[str, list[bytes]]] = []
        self.records = self.size_bytes = 0
        seen: set[Path] = set()
        for root in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
            for path in sorted(Path(root).rglob("*.py")):
                if self.records >= records:
                    return
                if path.resolve() not in seen:
                    seen.add(path.resolve())
                    self._add(path)

    def _add(self, path: Path) -> None:
        lines = path.read_bytes().splitlines()
        if not lines:
            return
        name = str(path)
        self.files.append((name, lines))
        self.expected[name] = (len(lines), hash_of(lines))
        self.records += len(lines)
        self.size_bytes += sum(map(len, lines))

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield lines as many writers would write them: 64 files at a time, a line of each in turn."""
        for first in range(0, len(self.files), 64):
            group = [(name.encode(), iter(lines)) for name, lines in self.files[first : first + 64]]
            while group:
                left = []
                for name, lines in group:
                    line = next(lines, None)
                    if line is not None:
                        yield name, line
                        left.append((name, lines))
                group = left


def hash_of(lines: list[bytes]) -> str:
    """Hash lines so that neither a moved line break nor a lost empty line goes unnoticed."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(b"%d:" % len(line))
        digest.update(line)
    return digest.hexdigest()


class Load:
    """Produces the source, counts what is acknowledged, and notes how long each partition waited."""

    def __init__(self, bootstrap: str, progress: Progress, total: int) -> None:
        self.acked = self.failed = 0
        self.pauses = dict.fromkeys(range(PARTITIONS), 0.0)
        self._last = dict.fromkeys(range(PARTITIONS), 0.0)
        self._progress, self._task = progress, progress.add_task("produce", total=total)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 10,
                "batch.size": 500_000,
                "queue.buffering.max.messages": 50_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,  # that a broker is gone is the point here
                "on_delivery": self._delivered,
            }
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            return
        self.acked += 1
        now, partition = time.perf_counter(), message.partition()
        if last := self._last[partition]:
            self.pauses[partition] = max(self.pauses[partition], now - last)
        self._last[partition] = now

    def send(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(TOPIC, value, key)
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def serve(self) -> None:
        """Run the delivery reports that wait, and show how far we are."""
        self._producer.poll(0)
        self._progress.update(self._task, completed=self.acked)

    def finish(self) -> int:
        """Wait for the rest; return how many records were not delivered."""
        left = int(self._producer.flush(60))
        self._progress.update(self._task, completed=self.acked)
        return left + self.failed


def leader_of(bootstrap: str, partition: int) -> int:
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=10)
    return int(metadata.topics[TOPIC].partitions[partition].leader)


def produce(brokers: Cluster, source: Source, console: Console) -> dict[str, object]:
    """Stream the source in, with a leader killed half-way, and return the figures."""
    columns = (TextColumn("{task.description:>12}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
    killed = 0
    with Progress(*columns, console=console) as progress:
        load = Load(brokers.bootstrap, progress, source.records)
        began = time.perf_counter()
        for number, (key, value) in enumerate(source):
            load.send(key, value)
            if not number & 0x3FF:
                load.serve()
            if number == source.records // 2:
                killed = leader_of(brokers.bootstrap, 0)
                brokers.kill(killed)
                progress.console.print(f"killed broker {killed}, leader of {TOPIC}-0, with SIGKILL", style="bold red")
            if number == int(source.records * RETURN_AFTER):
                took = brokers.start()
                progress.console.print(f"restarted broker {killed} in {took:.1f} s", style="bold green")
        undelivered = load.finish()
        took = time.perf_counter() - began
    return {
        "killed": killed,
        "undelivered": undelivered,
        "acked": load.acked,
        "took_s": took,
        "pause_s": max(load.pauses.values()),
    }


def differences(source: Source, result: SparkResult) -> list[str]:
    """Return one line for each file whose lines did not come back once, complete and in order."""
    found = []
    for name, (count, digest) in source.expected.items():
        got_count, got_digest = result.files.get(name, (0, ""))
        if got_count != count:
            found.append(f"{name}: {got_count} lines of {count}")
        elif got_digest != digest:
            found.append(f"{name}: the lines differ or are out of order")
    found += [f"{name}: was never written" for name in result.files.keys() - source.expected.keys()]
    return found


def answer(result: SparkResult, console: Console) -> None:
    """Show what Spark found out about the code."""
    modules = Table(title="What this Python imports most (Spark, over every line)")
    modules.add_column("module")
    modules.add_column("import lines", justify="right")
    modules.add_column("files", justify="right")
    for name, lines, files in result.imports:
        modules.add_row(name, f"{lines:,}", f"{files:,}")
    packages = Table(title="Largest packages, and what their lines are")
    for heading in ("package", "lines", "comment", "blank", "longest line"):
        packages.add_column(heading, justify="left" if heading == "package" else "right")
    for name, lines, comments, blanks, longest in result.packages:
        packages.add_row(name, f"{lines:,}", f"{comments / lines:.0%}", f"{blanks / lines:.0%}", f"{longest:,}")
    console.print(modules, packages)


def closing(source: Source, figures: dict[str, object], result: SparkResult, started_s: float) -> Table:
    """Return the closing table."""
    took_s = float(str(figures["took_s"]))
    table = Table(title="Barnabas: what happened", show_header=False)
    rows = {
        "cluster of three ready after": f"{started_s:.2f} s",
        "records": f"{source.records:,} lines of {len(source.expected):,} files, {source.size_bytes / 1e6:.1f} MB",
        "produced with": "confluent-kafka, acks=all, idempotent, RF 3",
        "throughput": f"{source.size_bytes / 1e6 / took_s:.1f} MB/s, {source.records / took_s:,.0f} records/s",
        "killed with SIGKILL": f"broker {figures['killed']}, restarted under load",
        "failover pause": f"{float(str(figures['pause_s'])):.2f} s, the longest wait of any partition",
        "read back by Spark": f"{result.rows:,} rows in {result.took_s:.1f} s",
        "verified": "count and SHA-256 of every file's lines, in offset order",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--records", type=int, default=RECORDS_DEFAULT, metavar="N", help="stop after the file that reaches N lines"
    )
    options = parser.parse_args()
    if options.records < 1:
        parser.error("--records must be at least 1")
    console = Console()
    source = Source(options.records)
    if source.records < min(options.records, RECORDS_MIN):
        console.print(f"only {source.records:,} lines of Python found; {options.records:,} were asked for", style="red")
        return 1
    with cluster() as brokers:
        run(
            "topic",
            "create",
            TOPIC,
            "--partitions",
            PARTITIONS,
            "--replication-factor",
            3,
            "--bootstrap-server",
            brokers.bootstrap,
        )
        figures = produce(brokers, source, console)
        with console.status("Spark reads everything back"):
            result = read_back(brokers.bootstrap, TOPIC)
        wrong = differences(source, result)
        answer(result, console)
        console.print(closing(source, figures, result, brokers.ready_s))
    if figures["undelivered"]:
        wrong.append(f"{figures['undelivered']} records were not acknowledged")
    if result.rows != source.records:
        wrong.append(f"{result.rows} rows for {source.records} lines")
    for line in wrong[:20]:
        console.print(line, style="red")
    console.print("everything adds up" if not wrong else f"{len(wrong)} things do not add up", style="bold")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CommandFailedError as failure:
        sys.exit(f"scripts/demo: {failure}")
