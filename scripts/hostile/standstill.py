"""A process that goes before all others on one processor, and reports standstills.

A virtual machine that its host does not run for 30 ms charges them to the thread that ran when it stopped: in the
accounts of the kernel they are processor time of that thread, and a callback of a broker that was in the midst of 3 ms
seems to have used 33. Nothing in the machine can hold up a process of the real-time class for long. So if this one,
bound to one processor, is woken late, it was the host.

`take` on its standard input prints as JSON every such time (`late`: its end, in milliseconds of the monotonic clock,
which a broker's `LoopMeter` uses, too, and its length). Sleep is part of the measure, so it is up to `INTERVAL_S` too
little, and never too much; anything below `NOTED_S` is not counted. A process that may not have the real-time class
reports nothing, and nothing is excused. The end of the input ends it.
"""

import contextlib
import json
import os
import select
import sys
import time
from collections import deque

INTERVAL_S = 0.004
NOTED_S = 0.002  # Less is no standstill: interrupts, and the kernel's work for others.
KEPT = 10_000


def main() -> None:
    os.sched_setaffinity(0, {int(sys.argv[1])})
    is_first = False
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))
        is_first = True
    late = deque[tuple[float, float]](maxlen=KEPT)
    print("ready", flush=True)
    while True:
        began_s = time.monotonic()
        readable, _, _ = select.select([sys.stdin], [], [], INTERVAL_S)
        ended_s = time.monotonic()
        late_s = ended_s - began_s - INTERVAL_S
        if is_first and late_s > NOTED_S:
            late.append((ended_s * 1000, late_s * 1000))
        if readable:
            if sys.stdin.readline().strip() != "take":
                return
            print(json.dumps({"late": list(late)}), flush=True)


if __name__ == "__main__":
    main()
