"""A process that goes before all others on one processor, and says when even it was not woken: the machine stood still.

A virtual machine that its host does not run for 30 ms charges them to whatever ran when it stopped: in the accounts of
the kernel they are processor time of that thread, and a callback of a broker that was in the midst of 3 ms seems to
have used 33. Nothing in the machine can hold up a process of the real-time class for long, so where this one, bound to
one processor, is woken late, it was the host.

`take` on its standard input prints as JSON how long that was at most in each of the last ten seconds of the monotonic
clock, by their number; a broker counts its callbacks by the same (`LoopMeter`). Sleep is part of what is measured, so
it is up to `INTERVAL_S` too little, and never too much; what is below `NOTED_S` is not counted. Whoever may not have
the real-time class says nothing, and nothing is excused. The end of the input ends it.
"""

import contextlib
import json
import os
import select
import sys
import time
from collections import Counter

from barnabas_raftlog.loop_meter import SLOT_NS

INTERVAL_S = 0.004
NOTED_S = 0.005  # Less is no standstill: interrupts, and what the kernel does for others.
KEPT_SLOTS = 60


def main() -> None:
    os.sched_setaffinity(0, {int(sys.argv[1])})
    is_first = False
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))
        is_first = True
    slots = Counter[int]()
    print("ready", flush=True)
    while True:
        began = time.monotonic()
        readable, _, _ = select.select([sys.stdin], [], [], INTERVAL_S)
        late_s = time.monotonic() - began - INTERVAL_S
        if is_first and late_s > NOTED_S:
            slot = time.monotonic_ns() // SLOT_NS
            slots[slot] = max(slots[slot], round(late_s * 1_000_000))
            if len(slots) > KEPT_SLOTS:
                del slots[min(slots)]
        if readable:
            if sys.stdin.readline().strip() != "take":
                return
            print(json.dumps({str(slot): late_us / 1000 for slot, late_us in slots.items()}), flush=True)


if __name__ == "__main__":
    main()
