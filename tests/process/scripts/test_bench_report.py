"""The report of a comparison: medians, ratios in the right direction, costs, and a page."""

import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from bench.loads.load import Load, LoadFailedError, Measured, run
from bench.loads.workloads import GROUPS, WORKLOADS
from bench.measures import against as against_bench
from bench.measures.quick import verdict
from bench.report import Header, Row, Sample, Samples, page_of, rows_of

ROOT = Path(__file__).resolve().parent.parent.parent
HEADER = Header(commit="abc", date="2026-01-01", machine="2 cores", versions={"kafka": "1"}, settings={"rounds": "2"})


def sample(system: str, number: int, **metrics: float) -> Sample:
    return Sample(
        system=system,
        mode="synced",
        round=number,
        workload="1 <KiB>",
        measured=Measured("produce", metrics, 3.0, {1: 4.0, 2: 1.0, 3: 2.0}),
    )


def test_medians_and_ratios_are_over_all_rounds() -> None:
    values = {"barnabas": [10.0, 30.0, 20.0], "kafka": [5.0, 10.0, 40.0], "nats": [40.0]}
    row = Row(mode="synced", workload="1 KiB", phase="produce", metric="mb_s", values=values)
    assert row.medians == {"barnabas": 20.0, "kafka": 10.0, "nats": 40.0}
    assert (row.ratio("kafka"), row.ratio("nats")) == (2.0, 0.5)


def test_where_less_is_better_the_ratio_is_turned_round() -> None:
    row = Row(
        mode="synced",
        workload="1,000 records/s",
        phase="latency",
        metric="p99_ms",
        values={"barnabas": [2.0], "kafka": [10.0]},
    )
    assert row.ratio("kafka") == 5.0
    assert row.ratio("nats") is None


def test_processor_time_is_told_per_gigabyte() -> None:
    [row] = [
        row
        for row in rows_of(Samples(HEADER, [sample("barnabas", 1, bytes=2e9, mb_s=100.0)]))
        if row.metric == "most_busy_broker_cpu_s_gb"
    ]
    assert row.values == {"barnabas": [2.0]}


def test_processor_time_of_requests_leaves_the_kernels_out() -> None:
    spent = {1: 9.0, 2: 8.0, 3: 8.0}
    own = {1: 6.0, 2: 4.0, 3: 5.0}
    tiny = Measured(
        phase="tiny",
        metrics={"requests": 1e5, "requests_s": 1e4},
        client_cpu_s=3.0,
        broker_cpu_s=spent,
        broker_user_s=own,
    )
    rows = rows_of(
        Samples(HEADER, [Sample(system="barnabas", mode="synced", round=1, workload="requests", measured=tiny)])
    )
    told = {row.metric: row.values["barnabas"] for row in rows}
    assert told == {"requests_s": [1e4], "most_busy_broker_user_us": [60.0], "least_busy_broker_user_us": [40.0]}


def test_samples_are_kept_as_they_are(tmp_path: Path) -> None:
    samples = Samples(HEADER, [sample("barnabas", 1, mb_s=1.5), sample("kafka", 2, mb_s=1.0)])
    samples.save(tmp_path)
    assert Samples.load(tmp_path) == samples


def test_the_page_says_what_was_not_measured_and_escapes_names() -> None:
    page = page_of(HEADER, rows_of(Samples(HEADER, [sample("barnabas", 1, mb_s=1.5)])), {})
    assert "1 &lt;KiB&gt;" in page
    assert "not measured" in page


def test_every_workload_is_in_a_group_and_has_a_name_of_its_own() -> None:
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)
    assert {workload.group for workload in WORKLOADS} == set(GROUPS)


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        ([10.0, 11.0, 12.0], None, "nothing"),
        ([10.0, 11.0, 12.0], [10.5, 11.5, 12.5], "within"),
        ([10.0, 11.0, 12.0], [14.0, 15.0, 16.0], "SLOWER by 27%"),
        ([10.0, 11.0, 12.0], [8.0, 8.5, 9.0], "faster by 29%"),
        ([10.0, 10.1, 10.2], [10.5, 10.6, 10.7], "within"),
    ],
)
def test_only_what_lies_beyond_the_noise_is_a_verdict(now: list[float], before: list[float] | None, said: str) -> None:
    assert verdict(now, before).startswith(said)


@pytest.mark.parametrize(
    ("metric", "now", "before", "said"),
    [
        ("mb_s", [90.0, 91.0, 92.0], [100.0, 101.0, 102.0], "SLOWER"),
        ("mb_s", [90.0, 91.0, 92.0], [80.0, 100.0, 120.0], "within"),
        ("mb_s", [96.0, 97.0, 98.0], [100.0, 100.0, 100.0], "within"),
        ("mb_s", [110.0, 120.0, 130.0], [100.0, 101.0, 102.0], "better"),
        ("p99_ms", [3.0, 3.1, 3.2], [2.0, 2.1, 2.2], "SLOWER"),
        ("p99_ms", [1.0, 1.1, 1.2], [2.0, 2.1, 2.2], "better"),
        ("rss_mib", [82.0], [], "not measured"),
    ],
)
def test_a_commit_is_slower_only_beyond_the_range_of_the_others_rounds(
    metric: str, now: list[float], before: list[float], said: str
) -> None:
    values = {name: found for name, found in (("barnabas", now), ("before", before)) if found}
    assert against_bench.verdict(
        Row(mode="synced", workload="1 KiB", phase="produce", metric=metric, values=values)
    ).startswith(said)


def test_the_files_of_a_commit_are_taken_out_of_git_whole_and_once(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    cache = tmp_path / "cache"
    (repository / "folder").mkdir(parents=True)
    (repository / "folder" / "file").write_text("committed")
    who = ("-c", "user.name=n", "-c", "user.email=e")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "one")):
        subprocess.run(("git", *words), cwd=repository, check=True)
    (repository / "folder" / "file").write_text("changed")
    tree = against_bench.tree_of("HEAD", repository, cache)
    assert (tree / "folder" / "file").read_text() == "committed"
    (tree / "mark").touch()
    assert against_bench.tree_of("HEAD", repository, cache) == tree
    assert (tree / "mark").exists()
    with pytest.raises(ValueError, match="nonesuch is not a commit"):
        against_bench.tree_of("nonesuch", repository, cache)


GENERATOR = """
import sys
from bench.loads.load import phase
with phase("one") as metrics:
    metrics["n"] = 1.0
print("kill 3", flush=True)
with phase("two"):
    if "fail" in sys.argv[1]:
        raise SystemExit("no more")
"""


def start(load: Load, killed: list[int]) -> list[Measured]:
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r})\n{GENERATOR}",
    ]
    calls = count(1)

    def user_and_system_s(_: int) -> tuple[float, float]:
        number = next(calls)
        return float(number), 10.0 * number

    return run(command, load, user_and_system_s, lambda: {1: 1}, killed.append)


def test_a_generator_goes_through_its_phases_and_may_have_a_node_killed() -> None:
    killed = list[int]()
    measured = start(Load(kind="x"), killed)
    assert [(one.phase, one.metrics) for one in measured] == [("one", {"n": 1.0}), ("two", {})]
    # Looked at before and after each phase: the client, then the broker.
    for one in measured:
        assert (one.client_cpu_s, one.broker_cpu_s, one.broker_user_s) == (22.0, {1: 22.0}, {1: 2.0})
    assert killed == [3]


def test_a_generator_that_fails_says_why() -> None:
    with pytest.raises(LoadFailedError, match="no more"):
        start(Load(kind="fail"), [])
