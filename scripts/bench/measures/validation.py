"""Measures what it costs a broker to look into batches: `record.validation=framing` beside `none`.

Three brokers are started once, with the page cache's durability. In every round each kind of batch is produced to a new
topic of six partitions and three replicas, acks=all, with the one setting and with the other, in turn; the first broker
leads all partitions. The batches were made before (`bench.loads.batch_load`), so the load is the same and is cheap.

"MB/s" is of values. "CPU" is the leader's processor time for each MB of them; of compressed batches it is shown and not
judged, because decompression is what it is.
"""

import argparse
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import msgspec
from machines.modules import module_command
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from bench import systems
from bench.loads.load import Load, LoadFailedError, Measured, run

from .idle import user_and_system_s

__all__ = ["Kind", "broken"]

SETTINGS = ("framing", "none")
LEADER = 1
RATE_MIN = 0.95
CPU_MAX = 1.05
TARGET_BYTES = 500_000_000  # of values, for large batches
BATCHES = 15_000  # of one record


class Kind(NamedTuple):
    """The batches of a measurement."""

    record_bytes: int
    batch_records: int
    compression: str

    def __str__(self) -> str:
        size = "1 KiB" if self.record_bytes == 1024 else f"{self.record_bytes} B"
        return f"{size}, {self.batch_records:,} a batch, {self.compression}"

    def load(self, share: float) -> Load:
        large = TARGET_BYTES // self.record_bytes
        records = int((large if self.batch_records > 1 else BATCHES) * share)
        return Load(
            kind="batches",
            records=max(records, self.batch_records),
            record_bytes=self.record_bytes,
            batch_records=self.batch_records,
            compression=self.compression,
            led_by=LEADER,
            in_flight=16,
        )


KINDS = [Kind(size, count, codec) for codec in ("none", "lz4", "zstd") for size in (1024, 100) for count in (1000, 1)]


class Figures(NamedTuple):
    """One measurement: MB of values a second, and the leader's processor time for each, in milliseconds."""

    mb_s: float
    cpu_ms: float


Samples = dict[tuple[Kind, str], list[Figures]]


def measure(running: systems.Running, load: Load) -> Figures:
    measured: list[Measured] = run(
        module_command("bench.loads.batch_load"), load, user_and_system_s, lambda: running.pids, running.kill
    )
    found = measured[0]
    megabytes = found.metrics["bytes"] / 1e6
    return Figures(found.metrics["mb_s"], found.broker_cpu_s[LEADER] / megabytes * 1e3)


def medians(samples: Samples, kind: Kind, setting: str) -> Figures:
    found = samples[kind, setting]
    return Figures(*(statistics.median(column) for column in zip(*found, strict=True)))


def broken(kind: Kind, on: Figures, off: Figures) -> str:
    """Return which limits two medians break; "" if they hold."""
    said = []
    if on.mb_s < RATE_MIN * off.mb_s:
        said.append(f"MB/s below {RATE_MIN}x")
    if kind.compression == "none" and on.cpu_ms > CPU_MAX * off.cpu_ms:
        said.append(f"CPU above {CPU_MAX}x")
    return ", ".join(said)


def table_of(samples: Samples, rounds: int) -> tuple[Table, int]:
    """Return the table, and how many kinds break a limit."""
    table = Table(title=f"produce with record.validation=framing beside none: medians of {rounds} rounds")
    for heading in ("batches", "MB/s", "none", "ratio", "least to most", "CPU ms/MB", "none", "ratio", "limits"):
        table.add_column(heading, justify="left" if heading in {"batches", "limits"} else "right")
    count = 0
    for kind in dict.fromkeys(kind for kind, _ in samples):
        on, off = (medians(samples, kind, setting) for setting in SETTINGS)
        ratios = [
            one.mb_s / other.mb_s for one, other in zip(samples[kind, "framing"], samples[kind, "none"], strict=True)
        ]
        verdict = broken(kind, on, off)
        count += bool(verdict)
        table.add_row(
            str(kind),
            f"{on.mb_s:,.1f}",
            f"{off.mb_s:,.1f}",
            f"{on.mb_s / off.mb_s:.3f}",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
            f"{on.cpu_ms:.2f}",
            f"{off.cpu_ms:.2f}",
            f"{on.cpu_ms / off.cpu_ms:.3f}",
            verdict or "hold",
        )
    return table, count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of records")
    parser.add_argument("--only", default="none,lz4,zstd", help="codecs, comma separated")
    parser.add_argument("--replicas", type=int, default=3, help="of each partition")
    parser.add_argument("--json", type=Path, help="write the samples to this file")
    options = parser.parse_args()
    console = Console(width=150)
    kinds = [kind for kind in KINDS if kind.compression in options.only.split(",")]
    samples: Samples = defaultdict(list)
    with systems.barnabas(synced=False) as running:
        for number in range(options.rounds + 1):
            for kind in kinds:
                load = replace(kind.load(options.share), address=running.address, replicas=options.replicas)
                for setting in SETTINGS if number % 2 else reversed(SETTINGS):
                    try:
                        found = measure(running, replace(load, configs={"record.validation": setting}))
                    except LoadFailedError as error:
                        console.print(f"{kind}, {setting}: failed: {error}")
                        return 2
                    if number:  # the first round warms everything
                        samples[kind, setting].append(found)
            console.print(f"round {number} of {options.rounds} is over")
    table, count = table_of(samples, options.rounds)
    console.print(table)
    if options.json:
        raw = [
            {"batches": str(kind), "validation": setting, **one._asdict()}
            for (kind, setting), found in samples.items()
            for one in found
        ]
        options.json.write_bytes(msgspec.json.encode(raw))
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
