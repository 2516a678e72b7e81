"""Runs the client tests, and those of other people's clients, against Apache Kafka.

The first show that the clients rely on nothing that only Barnabas does; the second that the tests which hold Barnabas
to Kafka's behaviour hold Kafka to it too. `scripts/bench/systems.py` starts the same three nodes as for a benchmark.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import systems

from machines.cache import NotInstalledError

ROOT = Path(__file__).resolve().parents[2]
SUITES = ("tests/clients/live", "tests/interop")


def main() -> int:
    # A name given goes instead of the suites; options go beside them.
    given = sys.argv[1:]
    named = [word for word in given if (ROOT / word.partition("::")[0]).exists()]
    # Asked to end, it ends its children.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with systems.kafka(synced=False) as peer, tempfile.TemporaryDirectory(prefix="bt.") as folder:
            print(f"Apache Kafka is at {peer.address}", flush=True)
            names = ("BARNABAS_TEST_BOOTSTRAP", "BARNABAS_INTEROP_BOOTSTRAP")
            settings = os.environ | dict.fromkeys(names, peer.address) | {"TMPDIR": folder}
            words = [sys.executable, "-m", "pytest", *(() if named else SUITES), *given]
            return subprocess.run(words, cwd=ROOT, env=settings, check=False).returncode
    except NotInstalledError as error:
        print(f"scripts/test-against-kafka: Apache Kafka cannot be had: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
