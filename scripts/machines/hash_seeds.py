"""Runs a story in processes that hash text differently: a simulator that depends on that tells more than one."""

import os
import subprocess
import sys
from collections.abc import Iterable

__all__ = ["printed_under"]


def printed_under(hash_seeds: Iterable[int], code: str) -> set[str]:
    """Return what `code` prints, once for each way in which it differs between the seeds."""
    printed = set[str]()
    for hash_seed in hash_seeds:
        env = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code]
        run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        printed.add(run.stdout)
    return printed
