"""The lines of the Python source files around, and the fingerprints of each file.

Two fingerprints a file: Spark hashes a whole file at once, the readers of a group hash on and on, line after line, and
keep the last hash with their position.
"""

import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["NOTHING_READ", "Expected", "Source", "chained", "hash_of"]

NOTHING_READ = bytes(32)


class Expected(NamedTuple):
    """One file: its number of lines, and their hash in each of the two ways."""

    lines: int
    sha256: str
    chain: str


class Source:
    """The files that are streamed; `expected` by the file's name."""

    def __init__(self, records: int) -> None:
        self.expected: dict[str, Expected] = {}
        self.files: list[tuple[str, list[bytes]]] = []
        self.records = 0
        self.words = 0
        self.size_bytes = 0
        seen: set[Path] = set()
        for root in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
            for path in sorted(Path(root).rglob("*.py")):
                if self.records >= records:
                    return
                if path.resolve() not in seen:
                    seen.add(path.resolve())
                    self._add(path)

    def _add(self, path: Path) -> None:
        lines = path.read_bytes().splitlines()
        if not lines:
            return
        name = str(path)
        chain = NOTHING_READ
        for line in lines:
            chain = chained(chain, line)
        self.files.append((name, lines))
        self.expected[name] = Expected(len(lines), hash_of(lines), chain.hex())
        self.records += len(lines)
        self.words += sum(len(line.split()) for line in lines)
        self.size_bytes += sum(map(len, lines))

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield lines as many writers would write them: 64 files at a time, a line of each in turn."""
        for first in range(0, len(self.files), 64):
            group = [(name.encode(), iter(lines)) for name, lines in self.files[first : first + 64]]
            while group:
                left = []
                for name, lines in group:
                    line = next(lines, None)
                    if line is not None:
                        yield name, line
                        left.append((name, lines))
                group = left


def hash_of(lines: list[bytes]) -> str:
    """Hash lines so that neither a moved line break nor a lost empty line goes unnoticed."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(b"%d:" % len(line))
        digest.update(line)
    return digest.hexdigest()


def chained(before: bytes, line: bytes) -> bytes:
    """Return the hash of everything read so far and one line more."""
    return hashlib.sha256(before + line).digest()
