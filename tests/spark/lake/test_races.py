"""Two archivers of one topic into one table lose no row and double none, and both end."""

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from spark.lake.buckets import bucket, s3_server
from spark.lake.produced import PARTITIONS, Topic, expected_rows, file_rows, new_topic, produce
from spark.lake.sweep import FILES, ROWS, in_process, settings_for

from barnabas_spark.lake.archive import archive
from barnabas_spark.lake.formats.parquet import ParquetFormat
from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.writing import Piece, Unreadable, Written

__all__ = ["bucket", "s3_server"]

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def topic(cluster: Any) -> Topic:
    made = new_topic(cluster.bootstrap)
    produce(made, range(ROWS))
    return made


@pytest.mark.parametrize("where", ["directory", "s3"])
def test_two_archivers_end_with_every_row_once(
    where: str, topic: Topic, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    location = Location(str(tmp_path / "lake")) if where == "directory" else request.getfixturevalue("bucket")
    # Both have written the same ranges when the first of them commits, as long as both are running.
    both = threading.Barrier(2)

    def run(_: int) -> tuple[int, int]:
        settings = settings_for(topic)
        store = open_store(location)
        write = in_process(store, settings)

        def run_pieces(pieces: Sequence[Piece]) -> Sequence[Written | Unreadable]:
            written = write(pieces)
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(30)
            return written

        try:
            result = archive(
                ParquetFormat(store, Layout(partition_by=FILES.partition_by)), settings, run_pieces, wait=lambda _: None
            )
        finally:
            both.abort()
        return result.rounds, result.lost_rounds

    with ThreadPoolExecutor(2) as pool:
        (rounds, lost), (rounds_other, lost_other) = pool.map(run, range(2))
    store = open_store(location)
    table = ParquetFormat(store)
    state = table.load()
    assert state.version == rounds + rounds_other
    assert lost + lost_other >= rounds + rounds_other - 1  # each of them was contested
    assert {key.partition: [span[:2] for span in spans] for key, spans in state.spans.items()} == {
        each: [(0, ROWS // PARTITIONS)] for each in range(PARTITIONS)
    }
    for path in table.files(state):
        (tmp_path / "copy" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / path).write_bytes(store.get(path))
    assert file_rows(tmp_path / "copy", table.files(state)) == expected_rows(topic, range(ROWS))
