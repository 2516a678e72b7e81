"""Runs Apache Kafka's console tools: those that end in one JVM for all (`ToolHost`), consumers as their script does."""

import os
import shutil
import subprocess
import threading
from base64 import b64decode, b64encode
from pathlib import Path

from . import runtimes, workload
from .lines.line_programs import JAVA, LineProgram
from .workload import Sample

__all__ = ["NULL", "ConsoleConsumer", "Printed", "ToolHost", "Tools", "typed"]

TOOL_HOST = Path(__file__).resolve().parent / "tools" / "ToolHost.java"
MAIN_CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
BEFORE_COMMAND = {"kafka-features", "kafka-metadata-quorum", "kafka-transactions"}
"""Tools with commands of which each has its options; those that all have stand before it."""
NULL = "<null>"
PROCESS_LIMIT_S = 120
PRINTED = ("print.partition=true", "print.offset=true", "print.timestamp=true", "print.headers=true", "print.key=true")


class ToolHost:
    """The JVM in which tools run, one after the other; it is started for the first one. Threads may share it."""

    def __init__(self) -> None:
        self._program: LineProgram | None = None
        self._lock = threading.Lock()

    def run(self, jars: Path, main_class: str, *arguments: str, given: str = "") -> tuple[int, str, str]:
        """Run a tool to its end, and return its status, and what it wrote to its output and to its errors."""
        words = (b64encode(word.encode()).decode() for word in (given, main_class, *arguments))
        with self._lock:
            self._program = self._program or self._started(jars)
            status, out, errors = self._program.line_for(*words).split(" ")
        return int(status), b64decode(out).decode(), b64decode(errors).decode()

    @staticmethod
    def _started(jars: Path) -> LineProgram:
        if shutil.which("javac") is None:
            runtimes.leave_out("a JDK, 17 or newer: no javac on the PATH")
        (tools,) = jars.glob("kafka-tools-[0-9]*.jar")
        rest = ":".join(str(jar) for jar in sorted(jars.glob("*.jar")) if jar != tools)
        return LineProgram(*JAVA, "-cp", rest, TOOL_HOST, tools)

    def end(self) -> None:
        if self._program is not None:
            self._program.end()
            self._program = None


HOST = ToolHost()
"""For all tests of a run, which end it (`conftest`). Imported by its whole name only: pytest gives this folder another
one, and what it finds by a relative import is a second host, which nobody ends."""


class Tools:
    """The tools of one installation, against one cluster."""

    def __init__(self, jars: Path, bootstrap: str) -> None:
        self._jars = jars
        self._bootstrap = bootstrap
        # Classes as the JVM maps them into memory: with them a tool starts in half the time. An archive that does not
        # fit this JVM or these jars is ignored; what the JVM has to say about that must not be in a tool's output.
        self._archive = jars / "tools.jsa"
        self._flags: tuple[str, ...] = ("-Xshare:auto", f"-XX:SharedArchiveFile={self._archive}", "-Xlog:disable")

    def make_archive(self, topic: str) -> None:
        """Make the class archive, once for an installation, by consuming the one record in `topic`."""
        if self._archive.exists():
            return
        new = self._archive.with_suffix(f".{os.getpid()}")
        usual = self._flags
        self._flags = (f"-XX:ArchiveClassesAtExit={new}", "-Xlog:disable")
        words = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", 1)
        command = self.command("kafka-console-consumer", *words)
        subprocess.run(command, check=True, capture_output=True, timeout=PROCESS_LIMIT_S)
        new.rename(self._archive)  # another run may have been quicker: the same file
        self._flags = usual

    def command(self, tool: str, *arguments: object) -> list[str]:
        words = ["-cp", f"{self._jars}/*", MAIN_CLASSES[tool], "--bootstrap-server", self._bootstrap]
        return [*JAVA, *self._flags, *words, *map(str, arguments)]

    def run(self, tool: str, *arguments: object, given: str = "") -> str:
        """Run a tool to its end and return what it printed; `given` is what it reads."""
        words = (*map(str, arguments), "--bootstrap-server", self._bootstrap)
        if tool in BEFORE_COMMAND:
            words = (*words[-2:], *words[:-2])
        status, out, errors = HOST.run(self._jars, MAIN_CLASSES[tool], *words, given=given)
        assert status == 0, f"{tool} {arguments}: {out}{errors}"
        return out

    def run_alone(self, tool: str, *arguments: object) -> str:
        """Run a tool in a JVM of its own, for one that prints when that ends, and return what it printed."""
        command = self.command(tool, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False)
        assert done.returncode == 0, f"{tool} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def consume(self, *arguments: object) -> list["Printed"]:
        """Run kafka-console-consumer to its end and return the records that it printed."""
        properties = [word for name in PRINTED for word in ("--formatter-property", name)]
        null = ("--formatter-property", f"null.literal={NULL}")
        out = self.run("kafka-console-consumer", *properties, *null, *arguments)
        return [Printed(line) for line in out.splitlines()]


class Printed:
    """A record as kafka-console-consumer prints it, tab by tab."""

    def __init__(self, line: str) -> None:
        time, partition, offset, headers, key, value = line.split("\t")
        self.timestamp_ms = int(time.removeprefix("CreateTime:"))
        self.partition = int(partition.removeprefix("Partition:"))
        self.offset = int(offset.removeprefix("Offset:"))
        pairs = [] if headers == "NO_HEADERS" else [pair.split(":", 1) for pair in headers.split(",")]
        self.sample = Sample(_bytes(key), _bytes(value), tuple((name, _bytes(found)) for name, found in pairs))


def _bytes(text: str) -> bytes | None:
    return None if text == NULL else text.encode()


def typed(sample: Sample) -> str:
    """Return the line that makes kafka-console-producer send `sample`."""
    headers = ",".join(f"{name}:{_text(value)}" for name, value in sample.headers) or NULL
    return f"{headers}\t{_text(sample.key)}\t{_text(sample.value)}"


def _text(data: bytes | None) -> str:
    return NULL if data is None else data.decode()


class ConsoleConsumer:
    """A running kafka-console-consumer that is one member of a group; its lines arrive in `received`."""

    def __init__(self, tools: Tools, changed: threading.Condition, *arguments: object) -> None:
        words = ("--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true")
        self.received: list[tuple[int, int, bytes]] = []  # partition, offset, value
        self._changed = changed
        self._process = subprocess.Popen(
            tools.command("kafka-console-consumer", *words, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            partition, offset, value = line.rstrip("\n").split("\t")
            found = int(partition.removeprefix("Partition:")), int(offset.removeprefix("Offset:")), value.encode()
            with self._changed:
                self.received.append(found)
                self._changed.notify_all()

    def ask_to_end(self) -> None:
        # Not SIGINT: whoever is started in the background inherits that it is ignored.
        self._process.terminate()

    def end(self) -> None:
        """End it, and wait: it commits what it has printed, and leaves its group. Once is enough."""
        try:
            self.ask_to_end()
            self._process.wait(PROCESS_LIMIT_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(workload.WAIT_LIMIT_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
