"""Memory that is about to be filled, and memory that is given back."""

import platform
import resource
import subprocess
import sys

import pytest

from barnabas_raftlog.memory import LARGE_BYTES, give_back, keep_freed, resident_bytes, unfilled


@pytest.mark.parametrize("size", [0, 1, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 3 << 20])
def test_it_is_an_ordinary_bytearray(size: int) -> None:
    data = unfilled(size)
    assert type(data) is bytearray
    assert len(data) == size
    data[:] = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert data.count(7) == size // 256
    del data[size // 2 :]
    data += b"end"
    assert len(data) == size // 2 + 3
    assert data.endswith(b"end")


def test_a_claim_without_bytes_costs_no_memory() -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    claims = [unfilled(1 << 28) for _ in range(8)]
    assert sum(map(len, claims)) == 2 << 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 << 10


def test_what_was_freed_goes_back() -> None:
    freed = []
    kept = []
    for _ in range(2_000):
        freed.append(b"x" * 50_000)
        kept.append(b"x" * 2_000)  # behind it, so that the C library cannot just let go of its heap's end
    full = resident_bytes()
    freed.clear()
    is_glibc = platform.libc_ver()[0] == "glibc"
    assert give_back() == is_glibc
    if is_glibc:
        left = resident_bytes()
        assert full is not None
        assert left is not None
        assert full - left > 50 << 20
    assert len(kept) == 2_000


FREES_ITS_HEAP = """
import sys
from barnabas_raftlog.memory import give_back, keep_freed, resident_bytes, spare_bytes
if sys.argv[1] == "keep":
    assert keep_freed()
before, spare = resident_bytes(), spare_bytes()
freed = [b"x" * 50_000 for _ in range(2_000)]
print(spare_bytes() - spare)
freed.clear()
print(resident_bytes() - before, spare_bytes() - spare)
give_back()
print(resident_bytes() - before, spare_bytes() - spare)
"""


def test_what_was_freed_stays_until_it_is_given_back() -> None:
    if platform.libc_ver()[0] != "glibc":
        assert not keep_freed(), "other C libraries have no such option"
        return

    def left_bytes(what: str) -> list[int]:
        command = [sys.executable, "-c", FREES_ITS_HEAP, what]
        return [int(text) for text in subprocess.run(command, capture_output=True, check=True).stdout.split()]

    most = 10 << 20
    for what, is_kept in (("as it is", False), ("keep", True)):
        spare_in_use, kept, spare, given_back, spare_at_last = left_bytes(what)
        assert max(spare_in_use, given_back, spare_at_last) < most
        assert (kept > 90 << 20) == (spare > 90 << 20) == is_kept
