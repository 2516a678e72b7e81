"""Stands in for a broker process: `stand_in.py [NODE=BEHAVIOUR ...] --config F --ready-fd N`."""

import ctypes
import os
import signal
import sys
import threading
import tomllib
from pathlib import Path


def main() -> None:
    *plans, _, config_file, _, ready_fd = sys.argv[1:]
    node_id = tomllib.loads(Path(config_file).read_text())["node"]["id"]
    behaviour = dict(plan.split("=") for plan in plans).get(str(node_id), "ready")
    fd = int(ready_fd)
    print(f"node {node_id} is {behaviour}", flush=True)  # noqa: T201 - into the broker's log
    if behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    match behaviour:
        case "dying":
            sys.exit("the disk is on fire")
        case "refusing":
            os.write(fd, b"error: the disk is not mine\n")
        case "hanging-up":
            os.close(fd)
        case "silent":
            pass
        case "interrupting":  # what a user does who sees it hang
            os.kill(os.getppid(), signal.SIGINT)
        case "dying-slowly":
            threading.Thread(target=linger, args=(fd, Path(config_file).with_name("gate"))).start()
            ctypes.CDLL(None).pthread_exit(None)
        case _:
            os.write(fd, b"re")
            os.write(fd, b"ady\n")
    while True:
        signal.pause()


def linger(fd: int, gate: Path) -> None:
    """Be what is left of a process that was killed: a thread that waits for a disk, here until `gate` is written."""
    os.mkfifo(gate)
    while Path("/proc/self/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        os.sched_yield()
    os.write(fd, b"ready\n")
    gate.read_bytes()
    os._exit(0)


main()
