"""The seams: modules, the tests that drive each, and the mistakes that make no difference.

`harmless.txt` is written as `tests/sim/harmless.txt` is: a reason in a line of its own, and under it, indented, the
names that `sim.operators` gives the mutants.
"""

import random
from pathlib import Path

from sim.harmless import read_reasons
from sim.operators import mutants_of

from .copies import ROOT

__all__ = ["AT_LEAST", "HARMLESS", "SEAMS", "all_mutants", "draw", "file_and_tests"]

AT_LEAST = 5
"""Mutants of each seam in a draw."""

CLIENTS = "clients/barnabas_clients"
LINKS = "raftlog/barnabas_raftlog/links"
MULTIRAFT = "raftlog/barnabas_raftlog/multiraft"
COORDINATORS = "broker/barnabas_broker/coordinators"
HANDLERS = "broker/barnabas_broker/server/handlers"
SEAMS: dict[str, tuple[str, tuple[str, ...]]] = {  # name: files, and the tests that drive them, nearest first
    "sender": (f"{CLIENTS}/producer/sender.py", ("tests/clients/producer", "tests/clients/live")),
    "fetcher": (
        f"{CLIENTS}/consumer/fetcher.py",
        ("tests/clients/consumer/test_fetching.py", "tests/clients/consumer", "tests/clients"),
    ),
    "runtime": (
        f"{COORDINATORS}/runtime/*.py",
        ("tests/broker/coordinators/runtime", "tests/broker/coordinators/groups"),
    ),
    "shard": (f"{COORDINATORS}/groups/shard.py", ("tests/broker/coordinators/groups",)),
    "links": (f"{LINKS}/links.py", ("tests/raftlog/links", "tests/raftlog/multiraft", "tests/metadata_quorum")),
    "outbox": (f"{MULTIRAFT}/outbox.py", ("tests/raftlog/multiraft",)),
    "promises": (f"{MULTIRAFT}/promises.py", ("tests/raftlog/multiraft",)),
    "handlers": (f"{HANDLERS}/*.py", ("tests/broker", "tests/clients/live")),
}
HARMLESS = read_reasons(Path(__file__).with_name("harmless.txt"))


def all_mutants(seam: str) -> list[str]:
    """Return the name of every mutant of a seam; a name begins with its module's."""
    return [
        name
        for path in sorted(ROOT.glob(SEAMS[seam][0]))
        if path.stem != "__init__"
        for name in mutants_of(path.stem, path.read_text())
    ]


def draw(seed: int, count: int) -> dict[str, list[str]]:
    """Choose `count` mutants, `AT_LEAST` of each seam, the same ones for the same seed and sources."""
    rng = random.Random(seed)
    chosen = {seam: rng.sample(all_mutants(seam), AT_LEAST) for seam in SEAMS}
    left = [(seam, name) for seam in SEAMS for name in all_mutants(seam) if name not in chosen[seam]]
    for seam, name in rng.sample(left, max(0, count - AT_LEAST * len(SEAMS))):
        chosen[seam].append(name)
    return chosen


def file_and_tests(seam: str, name: str) -> tuple[Path, tuple[str, ...]]:
    """Return the file that a mutant is in, and the tests that should notice it."""
    pattern, tests = SEAMS[seam]
    return (ROOT / pattern).with_name(f"{name.partition('.')[0]}.py"), tests
