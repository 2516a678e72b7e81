"""Makes a flame graph of one broker under a load of the comparison.

Three brokers are started and warmed, then one of them (which leads a third of the partitions and follows the rest) is
sampled while the load runs. Width is time in which a thread held the interpreter's lock: the cost of Python. System
calls release it, and are seen by their surroundings only. Threads are roots of their own.
"""

import argparse
import re
import signal
import subprocess
import sys
from pathlib import Path

from bench import systems
from bench.loads.load import LoadFailedError
from bench.loads.workloads import WORKLOADS

from .compare import WARM, put_on

PROFILER = Path(sys.executable).with_name("py-spy")
SAMPLES_S = 250
LONGEST_S = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="^1 KiB$", help="workloads whose names have this (a regular expression)")
    parser.add_argument("--mode", choices=("page-cache", "synced"), default="page-cache", help="durability")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="where the SVG goes")
    options = parser.parse_args()
    chosen = [one for one in WORKLOADS if re.search(options.match, one.name)]
    if not chosen:
        parser.error(f"no workload has {options.match!r} in its name")
    options.out.mkdir(parents=True, exist_ok=True)
    for workload in chosen:
        name = "-".join(re.findall(r"[a-z0-9]+", f"{workload.name} {options.mode}".lower()))
        target = options.out / f"{name}.svg"
        with systems.barnabas(synced=options.mode == "synced") as running:
            put_on("barnabas", running, WARM["barnabas"])
            words = [str(PROFILER), "record", "--pid", str(running.pids[1]), "--threads", "--gil"]
            words += ["--rate", str(SAMPLES_S), "--duration", str(LONGEST_S)]
            words += ["--format", "flamegraph", "--output", str(target)]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as profiler:
                try:
                    put_on("barnabas", running, workload.load)
                except LoadFailedError as error:
                    print(f"{workload.name} failed: {error}", file=sys.stderr)
                    return 1
                finally:
                    profiler.send_signal(signal.SIGINT)  # It writes its samples so far.
                said = profiler.communicate()[0].strip().splitlines()
            if profiler.returncode or not target.exists():
                print(f"no flame graph: {said[-1] if said else profiler.returncode}", file=sys.stderr)
                return 1
        # The command line that it names would be this machine's.
        target.write_text(re.sub(r"[^>]*py-spy record[^<]*", name, target.read_text()))
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
