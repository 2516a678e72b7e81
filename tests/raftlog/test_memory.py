"""Memory that is about to be filled."""

import resource

import pytest

from barnabas_raftlog.memory import LARGE_BYTES, unfilled


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
