"""Plants mistakes of coordinators, markers and last stable offsets in brokers, and sees that torture notices each.

Each mutant is a copy of the checkout with one mistake; a few rounds of `torture --workload txn` must fail there, of the
faults that bring it to light. What noticed it is printed. A checker that is content with one of these would be content
with any broker.

Exit status: 0 all of them were noticed; 1 not; 2 this computer cannot do it. Needs root.
"""

import argparse
import os
import subprocess
import sys
import time
from typing import NamedTuple

from machines.machines import MissingError, missing
from machines.modules import module_command
from seams.copies import ROOT, Copy, copy_of_checkout

from trials.trial import FAILED, cannot

__all__ = ["MUTANTS", "Mutant"]

LIMIT_S = 600
KILLS = "kill-leader,kill-any"
SIGNS = ("line ", "HUNG", "txn-in-")


class Mutant(NamedTuple):
    """One mistake: in `file`, below `broker/barnabas_broker`, `line` (which is there once) is replaced by `instead`."""

    what: str
    file: str
    line: str
    instead: str
    faults: str = KILLS


MUTANTS = [
    Mutant(
        "readers of committed records read to the high watermark",
        "server/handlers/fetch.py",
        "return partition.last_stable_offset if self.is_committed else partition.high_watermark",
        "return partition.high_watermark",
    ),
    Mutant(
        "every marker says that its transaction is committed",
        "coordinators/transactions/markers.py",
        "transaction_result=owed.is_commit,",
        "transaction_result=True,",
    ),
    Mutant(
        "a new coordinator does not send the markers that the last one owed",
        "coordinators/transactions/shard.py",
        "            if hosted.transaction.state.is_prepared:\n",
        "            if False:\n",
    ),
    Mutant(
        "an end is answered when it was decided, before it has committed",
        "coordinators/transactions/shard.py",
        "        error = self.runtime.append(\n",
        "        if ask is not None and transition.event is TransactionEvent.END:\n"
        "            ask.give(transition.answer)\n"
        "        error = self.runtime.append(\n",
        "cut-leader-both-ways,cut-leader-unheard,power-cut-leader,kill-leader",
    ),
    Mutant(
        "aborted transactions that began before a fetch are not told",
        "partition/aborted_index.py",
        "if one[1] < end_offset]",
        "if start_offset <= one[1] < end_offset]",
    ),
    Mutant(
        "who takes over a transactional id gets the epoch of the last owner",
        "coordinators/transactions/state_machine/initializing.py",
        "        owner = successor\n",
        "        owner = owner if given == NOBODY else successor\n",
    ),
    Mutant(
        "offsets of a transaction count although it was aborted",
        "coordinators/groups/table.py",
        "ENDED_STEP, is_commit=marker.is_commit)\n        if marker.is_commit:",
        "ENDED_STEP, is_commit=True)\n        if True:",
    ),
]


def judge(copy: Copy, mutant: Mutant, rounds: int, seed: int) -> str | None:
    """Return the first sign that torture has noticed the mistake; None if it has not."""
    file = f"broker/barnabas_broker/{mutant.file}"
    source = (ROOT / file).read_text()
    assert source.count(mutant.line) == 1, f"the mutant no longer fits {file}; write it anew"
    words = ["--rounds", rounds, "--seed", seed, "--faults", mutant.faults, "--limit", 60]
    folders = ("scripts", "raftlog", "clients", "metadata_quorum", "broker", "spark")
    path = os.pathsep.join(str(copy.folder / name) for name in folders)
    with copy.changed(file, source.replace(mutant.line, mutant.instead)):
        done = subprocess.run(
            module_command("trials.transactions.rounds", *words),
            env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=copy.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    if done.returncode == 0:
        return None
    signs = [line for line in done.stderr.splitlines() if line.startswith(SIGNS)]
    if done.returncode != FAILED or not signs:
        raise RuntimeError(f"status {done.returncode}: {done.stderr[-2_000:]}")
    return signs[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="at most, of each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="those in whose description this stands")
    options = parser.parse_args()
    if lacks := missing():  # the rounds themselves enter namespaces of their own
        return cannot("txn-mutants", MissingError(", ".join(lacks)))
    unnoticed = 0
    with copy_of_checkout() as copy:
        for mutant in [one for one in MUTANTS if options.only in one.what]:
            began = time.monotonic()
            said = judge(copy, mutant, options.rounds, options.seed)
            unnoticed += said is None
            print(
                f"{time.monotonic() - began:4.0f} s  {mutant.what}\n        {said or 'NOTICED BY NOTHING'}", flush=True
            )
    return FAILED if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
