"""Kills, stops and doubles what writes a stream exactly once, and compares what readers of committed records see.

scripts/trials/lake/spark-sink [--faults NAME,...] [--seed 1] [--rounds 1] [--rows 400]

Each fault strikes a batch of a stream. The next driver has other cores and divides the rows anew. In the end each row
of the source is there once, and each fault must have struck.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from machines import cluster_handle
from spark.faults.processes import PATHS, Process, until
from spark.faults.speculation import SETTINGS
from spark.faults.standalone import HOSTS, standalone
from spark.lake.produced import PARTITIONS, new_topic

from .gated import DRIVER_GATES, FLUSHED, Gates

__all__ = ["FAULTS", "Trial", "main"]

BROKERS = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
TIMEOUT_MS = 3_000
AWAY_S = 3 * TIMEOUT_MS / 1000
PATIENCE_S = 400.0


class Trial:
    """A stream that is struck, its topic, and how often each fault has struck."""

    def __init__(self, brokers: cluster_handle.ClusterHandle, folder: Path, seed: int, rows: int) -> None:
        self.brokers = brokers
        self.folder = folder
        self.rows = rows
        self.chance = random.Random(seed)
        self.topic = new_topic(brokers.bootstrap, PARTITIONS).name
        self.gates = Gates(folder / "gates")
        self.strikes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._files = 0
        self._runs = 0

    def add_batch(self) -> None:
        """Give the stream one more file, a batch."""
        source = self.folder / "source"
        source.mkdir(exist_ok=True)
        lines = "".join(f"{self._files * self.rows + number}\n" for number in range(self.rows))
        unfinished = self.folder / "unfinished"
        unfinished.write_text(lines)
        unfinished.rename(source / f"{self._files:04}.txt")
        self._files += 1

    def driver(self, master: str = "", more: Mapping[str, str] | None = None) -> Process:
        """Start a driver with other cores, and another division of the rows, than the last one had."""
        self._runs += 1
        chosen = master or f"local[{2 + self._runs % 3},4]"
        words = [sys.executable, "-m", "spark.faults.exactly_once.program"]
        words += ["--bootstrap-server", self.brokers.bootstrap, "--source", str(self.folder / "source")]
        words += ["--topic", self.topic, "--folder", str(self.folder), "--master", chosen]
        words += ["--partitions", str(self.chance.choice([3, 4, 5, 7])), "--timeout-ms", str(TIMEOUT_MS)]
        ours = {"PYTHONPATH": PATHS, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOSTS[0]}
        return Process(words, self.folder, f"run-{self._runs}", {**os.environ, **ours, **(more or {})})

    def held(self, driver: Process, gate: str) -> int:
        """Wait until a process is held at a gate, and return its id."""

        def is_there() -> bool:
            assert driver.is_alive, driver.said()[-3000:]
            return bool(self.gates.struck(gate))

        until(f"a process at {gate}", is_there, PATIENCE_S)
        found = self.gates.struck(gate)
        assert len(found) == 1, found
        (self.gates.folder / f"struck-{gate}.{found[0]}").unlink()
        return found[0]

    def finish(self) -> None:
        """Let a driver write what is left."""
        with self.driver() as last:
            last.finish(PATIENCE_S)

    def judge(self) -> None:
        """Compare the source with what another's client reads, committed records alone."""
        found = Counter(committed(self.brokers.bootstrap, self.topic))
        expected = Counter(str(number) for number in range(self._files * self.rows))
        if lost := expected - found:
            self.wrong.append(f"{sum(lost.values())} rows are lost")
        if more := found - expected:
            self.wrong.append(f"{sum(more.values())} rows are there too often")


def committed(bootstrap: str, topic: str) -> Iterable[str]:
    """Yield the values of a topic that readers of committed records see; nothing may be open."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        ended = 0
        while ended < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None, "nothing comes"
            if message.error():
                ended += 1
            else:
                yield message.value().decode()
    finally:
        consumer.close()


def kill_driver(gate: str) -> Callable[[Trial], None]:
    """Return what kills a driver, with its JVM and its tasks, at a gate."""

    def strike(trial: Trial) -> None:
        trial.gates.close(gate, "hold")
        with trial.driver() as driver:
            trial.held(driver, gate)
            driver.kill(with_children=True)
        trial.finish()

    return strike


def kill_task(trial: Trial) -> None:
    """Kill a task whose rows are stored, and of which the driver does not know; Spark tries it again."""
    trial.gates.close(FLUSHED, "hold")
    with trial.driver() as driver:
        os.kill(trial.held(driver, FLUSHED), signal.SIGKILL)
        driver.finish(PATIENCE_S)


def be_away(gate: str) -> Callable[[Trial], None]:
    """Return what stops a driver for longer than its transactions' timeout; prepared ones must outlive that."""

    def strike(trial: Trial) -> None:
        trial.gates.close(gate, "hold")
        with trial.driver() as driver:
            trial.held(driver, gate)
            os.killpg(driver.pid, signal.SIGSTOP)
            time.sleep(AWAY_S)
            os.killpg(driver.pid, signal.SIGCONT)
            trial.gates.open()
            driver.finish(PATIENCE_S)

    return strike


def have_two_drivers(trial: Trial) -> None:
    """Let a second driver have the checkpoint of one that is about to decide, and let the first one go on then."""
    trial.gates.close("before-decision", "hold")
    with trial.driver() as first:
        trial.held(first, "before-decision")
        trial.finish()
        trial.gates.open()
        if first.wait(PATIENCE_S) == 0 or "another driver" not in first.said():
            trial.wrong.append(f"the first driver ended with {first.wait(0)}: {first.said()[-500:]}")


def have_a_loser(trial: Trial) -> None:
    """Hold an attempt whose rows are stored, until Spark has taken a speculative one of the same task."""
    for path in trial.gates.folder.glob("stored.*"):
        path.unlink()
    trial.gates.close(FLUSHED, "hold")
    ours = {"spark.executorEnv.PYTHONPATH": PATHS, "spark.pyspark.python": sys.executable}
    folder = Path(tempfile.mkdtemp(dir=trial.folder))
    settings = {name: value for name, value in SETTINGS.items() if "eventLog" not in name}
    with standalone(folder, settings | ours) as spark:
        with trial.driver(spark.master, {"SPARK_CONF_DIR": str(folder / "conf")}) as driver:
            trial.held(driver, FLUSHED)
            driver.finish(PATIENCE_S)
        attempts = Counter(partition for partition, _ in trial.gates.flushed())
    if max(attempts.values()) < 2:
        trial.wrong.append(f"no task has stored its rows twice: {dict(attempts)}")


FAULTS: dict[str, Callable[[Trial], None]] = {
    "task-behind-flush": kill_task,
    **{f"driver-{gate}": kill_driver(gate) for gate in DRIVER_GATES},
    "away-before-decision": be_away("before-Verify"),
    "away-behind-decision": be_away("before-End"),
    "two-drivers": have_two_drivers,
    "speculative-loser": have_a_loser,
}


def say(line: str) -> None:
    """Print a line at once: a trial takes minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", default=",".join(FAULTS), help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--rounds", type=int, default=1, help="each with the next seed, and all faults in another order"
    )
    parser.add_argument("--rows", type=int, default=400, help="of a batch")
    given = parser.parse_args(arguments)
    names = given.faults.split(",")
    if unknown := set(names) - set(FAULTS):
        parser.error(f"unknown fault {', '.join(sorted(unknown))}; write some of {', '.join(FAULTS)}")
    strikes: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="spark-sink-") as folder, cluster_handle.cluster(3, BROKERS) as brokers:
        for seed in range(given.seed, given.seed + given.rounds):
            trial = round_of(brokers, Path(folder) / str(seed), seed, names, given.rows)
            strikes += trial.strikes
            wrong += [f"seed {seed}: {one}" for one in trial.wrong]
    for name in names:
        say(f"{name}: {strikes[name]} strikes")
    wrong += [f"{name} never struck" for name in names if not strikes[name]]
    for line in wrong:
        say(f"WRONG {line}")
    say(f"{sum(strikes.values())} strikes, {len(wrong)} wrong")
    return 1 if wrong else 0


def round_of(brokers: cluster_handle.ClusterHandle, folder: Path, seed: int, names: Sequence[str], rows: int) -> Trial:
    """Have one stream struck by all faults, in an order that follows from the seed, and judge it after each."""
    folder.mkdir(parents=True)
    trial = Trial(brokers, folder, seed, rows)
    for name in trial.chance.sample(names, len(names)):
        began = time.monotonic()
        trial.add_batch()
        before = len(trial.wrong)
        FAULTS[name](trial)
        trial.judge()
        trial.strikes[name] += 1
        say(f"{name}: {'holds' if len(trial.wrong) == before else 'WRONG'}, {time.monotonic() - began:.0f} s")
    return trial


if __name__ == "__main__":
    sys.exit(main())
