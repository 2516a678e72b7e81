"""`barnabas bench` measures on a topic of its own, says what share the client has, and leaves nothing behind."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.cli.commands.bench_report import Measured, lines_of, percentile
from barnabas_broker.testing import RunningCluster
from barnabas_clients.admin.client import Admin

Typed = Callable[..., str]
MEASURED = Measured("t", 4, 1024, 2.0, 0.5, None, {"acknowledged_after": [4.0, 1.0, 3.0, 2.0], "read_after": []})


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_a_percentile_is_a_value_that_so_many_are_not_above(values: list[float], percent: float) -> None:
    values.sort()
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values) * (1 - 1e-9)
    assert sum(value < found for value in values) * 100 <= percent * len(values) * (1 + 1e-9)


def test_figures_are_told_with_the_share_of_the_client() -> None:
    assert lines_of(MEASURED, "produced") == [
        "produced 4 records of 1.0 KiB in 2.00 s: 2 records/s, 2.0 KiB/s",
        "acknowledged after: p50 2.0 ms, p95 4.0 ms, p99 4.0 ms, p99.9 4.0 ms, max 4.0 ms",
        "client: 0.50 s of processor time, 25 % of a core: the client had time left",
    ]
    assert lines_of(MEASURED._replace(client_cpu_s=1.9), "")[-1].endswith(
        "the client is the limit, the cluster may do more"
    )
    assert lines_of(MEASURED._replace(rate=2.5), "")[-1].endswith("; the rate was given: 2.5 records/s")


def test_figures_for_programs_have_their_units_in_their_names() -> None:
    found = MEASURED.as_json("produce")
    assert (found["records_per_s"], found["bytes_per_s"], found["client_cpu_percent"]) == (2.0, 2048.0, 25.0)
    assert found["acknowledged_after_ms"] == {"p50": 2.0, "p95": 4.0, "p99": 4.0, "p99.9": 4.0, "max": 4.0}
    assert found["read_after_ms"] == {}


def topics(cluster: RunningCluster) -> list[str]:
    async def names(_: Any) -> list[str]:
        async with Admin(cluster.bootstrap) as admin:
            return [view.name for view in await admin.list_topics()]

    return cluster.run(names)


@pytest.mark.slow
@pytest.mark.parametrize("words", ["produce -n 300 -s 100 -z lz4", "consume -n 300", "latency -n 50 --rate 2000"])
def test_a_scratch_topic_goes_with_its_bench(run: Typed, in_process: RunningCluster, words: str) -> None:
    out = run("bench", *words.split(), "--partitions", 2, "--json")
    found = json.loads(out.splitlines()[0])
    assert found["bench"] == words.split(maxsplit=1)[0]
    assert found["records"] in {300, 50}
    assert found["client_cpu_s"] > 0
    assert f"topic {found['topic']}: 2 partitions, 1 replica each, deleted afterwards" in out
    assert topics(in_process) == []


@pytest.mark.slow
def test_a_named_topic_is_kept_and_its_records_are_read(run: Typed) -> None:
    assert "bench-kept: 1 partition, 1 replica each, kept" in run(
        "bench", "produce", "-t", "bench-kept", "-n", 50, "-s", "8", "--partitions", 1
    )
    assert run("consume", "bench-kept", "-o", ":end", "-f", "%V ") == "8 " * 50
    assert "consumed 50 records of 8 B" in run("bench", "consume", "-t", "bench-kept", "-n", 1000)
    run("topic", "create", "bench-empty")
    assert "topic 'bench-empty' has no records to read" in run("bench", "consume", "-t", "bench-empty", status=1)
    run("topic", "delete", "bench-kept")
    run("topic", "delete", "bench-empty")


@pytest.mark.slow
def test_ctrl_c_ends_it_with_what_it_has_and_deletes_the_topic(
    run: Typed, in_process: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barnabas_broker.cli.commands import bench

    value = bench._Produce.value

    def interrupting(work: Any, number: int) -> bytes:
        if number == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return value(work, number)

    monkeypatch.setattr(bench._Produce, "value", interrupting)
    out = run("bench", "produce", "-n", 1_000_000, "--rate", 20, status=130)
    assert out.endswith("barnabas: interrupted\n")
    assert "produced " in out
    assert topics(in_process) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("produce --record-size 4", "--record-size 4: it must be from 8 B to 64 MiB"),
        ("produce --record-size big", "--record-size: 'big' is not a size: write 10GiB"),
        ("produce --acks 2", "--acks '2' is not valid"),
        ("consume --compression zst", "(did you mean 'zstd'?)"),
        ("latency --linger soon", "--linger: 'soon' is no"),
        ("latency --rate 0", "Invalid value for '--rate'"),
        ("produce --records 0", "Invalid value for '--records'"),
    ],
)
def test_a_bench_that_makes_no_sense_is_refused(run: Typed, words: str, complaint: str) -> None:
    said = run("bench", *words.split(), status=2)
    assert complaint in said
    assert said.count("\n") == 1
