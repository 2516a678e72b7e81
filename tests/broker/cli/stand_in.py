"""A broker process that only starts and stops, as told: `stand_in.py [NODE=BEHAVIOUR ...] --config F --ready-fd N`."""

import os
import signal
import sys
import tomllib
from pathlib import Path


def main() -> None:
    *plans, _, config_file, _, ready_fd = sys.argv[1:]
    node_id = tomllib.loads(Path(config_file).read_text())["node"]["id"]
    behaviour = dict(plan.split("=") for plan in plans).get(str(node_id), "ready")
    fd = int(ready_fd)
    print(f"node {node_id} is {behaviour}", flush=True)
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
        case _:
            os.write(fd, b"re")
            os.write(fd, b"ady\n")
    while True:
        signal.pause()


main()
