"""Runs sarama and kafka-go, clients for Go, on Barnabas, and fails with the first thing that is not as it should be.

This is `scripts/trials/ecosystem/go-clients`. Many tools around Kafka are written with one of them. Each produces with
every codec, reads in a group of two members, and administers; sarama also writes in transactions, with offsets.
"""

import subprocess
import sys
from pathlib import Path

from machines.cache import go_program
from machines.cluster_handle import cluster

from .jars import status_of

__all__ = ["main"]

SOURCES = Path(__file__).with_name("go_clients")
CLIENTS = ("sarama", "kafka-go")
LIMIT_S = 300


def _work() -> int:
    program = go_program("go-clients", SOURCES)
    status = 0
    with cluster() as handle:
        for client in CLIENTS:
            print(client, flush=True)
            status |= subprocess.run([program, client, handle.bootstrap], timeout=LIMIT_S, check=False).returncode
    return status


def main() -> int:
    return status_of("go-clients", "a program of theirs", _work)


if __name__ == "__main__":
    sys.exit(main())
