"""Rows go where Kafka's own producer would send them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas_clients.producer.partitioner import murmur2, partition_of
from barnabas_spark.writing.partitioning import RUN_BYTES_MIN, Keys, hashes, spread

KEYS = st.lists(
    st.none()
    | st.binary(max_size=13)
    | st.integers(0, 300).map(lambda size: bytes(range(256)) * 2 if size > 256 else bytes(range(size))),
    max_size=80,
)

ROW = st.tuples(st.none() | st.binary(max_size=6), st.integers(-1, 4), st.integers(1, 40_000))


def keys_of(keys: list[bytes | None]) -> Keys:
    """Lay keys out as Arrow does, with bytes around them that belong to none."""
    data = b"before" + b"".join(key or b"" for key in keys) + b"behind"
    sizes = np.array([-1 if key is None else len(key) for key in keys], np.int64)
    ends = np.cumsum(np.maximum(sizes, 0))
    return Keys(np.frombuffer(data, np.uint8), ends - np.maximum(sizes, 0) + 6, sizes)


@pytest.mark.slow
@given(KEYS)
@example([b"k" * size for size in range(300)])
@example([b"\xff" * 9] * 100)
@example([])
def test_every_key_has_the_hash_of_the_client(keys: list[bytes | None]) -> None:
    found = hashes(keys_of(keys))
    assert [int(one) for one, key in zip(found, keys, strict=True) if key is not None] == [
        murmur2(key) for key in keys if key is not None
    ]


def test_keys_that_end_with_the_buffer_are_read_to_their_end() -> None:
    for size in range(9):
        keys = Keys(np.frombuffer(b"k" * size + b"", np.uint8), np.zeros(40, np.int64), np.full(40, size))
        assert set(hashes(keys).tolist()) == {murmur2(b"k" * size)}


@pytest.mark.slow
@given(
    st.lists(ROW, min_size=1, max_size=60),
    st.integers(1, 7),
    st.integers(1, 100_000),
    st.integers(0, 2**31),
)
def test_named_partitions_come_first_then_keys_then_runs_in_turn(
    rows: list[tuple[bytes | None, int, int]], partition_count: int, run_bytes_max: int, turn: int
) -> None:
    keys = [key for key, _, _ in rows]
    named = np.array([partition for _, partition, _ in rows], np.int64)
    sizes = np.array([size for _, _, size in rows], np.int64)
    partitions, next_turn = spread(keys_of(keys), named, sizes, partition_count, run_bytes_max, turn)
    before = 0
    loose = [size for key, wanted, size in rows if wanted < 0 and key is None]
    run_bytes = min(max(sum(loose) // partition_count, RUN_BYTES_MIN), run_bytes_max)
    for (key, wanted, size), partition in zip(rows, partitions.tolist(), strict=True):
        if wanted >= 0:
            assert partition == wanted
        elif key is not None:
            assert partition == partition_of(key, partition_count)
        else:
            assert partition == (turn + before // run_bytes) % partition_count
            before += size
    if not loose:
        assert next_turn == turn


def test_many_rows_without_a_key_fill_batches_of_one_partition_after_the_other() -> None:
    sizes = np.full(1_000, 1_000)
    partitions, turn = spread(None, None, sizes, 3, 100_000, 5)
    assert partitions.tolist() == [(2 + row // 100) % 3 for row in range(1_000)]
    assert turn == (5 + 10) % 3


def test_few_rows_without_a_key_are_spread_over_all_partitions_but_no_thinner_than_a_batch() -> None:
    sizes = np.full(100, RUN_BYTES_MIN // 10)
    partitions, _ = spread(None, None, sizes, 5, 1 << 20, 0)
    assert max(np.bincount(partitions, minlength=5)) - min(np.bincount(partitions, minlength=5)) <= 1
    partitions, turn = spread(None, None, sizes[:9], 5, 1 << 20, 0)
    assert set(partitions.tolist()) == {0}
    assert turn == 1
