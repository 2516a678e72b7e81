"""A process that does nothing, and reports how late the machine wakes it.

It asks to be woken every few milliseconds. `take` on its standard input prints its latest waking since the last time,
as JSON; the end of the input ends it.
"""

import json
import select
import sys
import time

INTERVAL_S = 0.005


def main() -> None:
    longest_s = 0.0
    print("ready", flush=True)
    while True:
        began = time.monotonic()
        readable, _, _ = select.select([sys.stdin], [], [], INTERVAL_S)
        longest_s = max(longest_s, time.monotonic() - began - INTERVAL_S)
        if readable:
            if sys.stdin.readline().strip() != "take":
                return
            print(json.dumps({"stall_s": round(longest_s, 4)}), flush=True)
            longest_s = 0.0


if __name__ == "__main__":
    main()
