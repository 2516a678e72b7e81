"""The Spark benchmark without Spark: percentiles, verdicts, turns that alternate, and the shares of a load."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from bench.measures import spark as spark_bench
from bench.pipeline import samples
from bench.pipeline.lines import Line, Pause, at_least, at_most, latencies_of, noise_of, not_above, pauses_of
from bench.pipeline.load import TURN, turns
from bench.pipeline.processor_time import Spent, processor_s, spent_of, tree_s
from bench.pipeline.stage import Timed, alternate
from hypothesis import given
from hypothesis import strategies as st


def line(ours: list[float], theirs: list[float], **more: object) -> Line:
    return Line("part", "what", "page-cache", "unit", ours, theirs, **more)  # type: ignore[arg-type]


def test_a_line_compares_medians() -> None:
    assert line([1.0, 30.0, 20.0], [5.0, 10.0, 90.0]).ratio == 2.0


@pytest.mark.parametrize(
    ("ours", "limit", "verdict"),
    [
        ([20.0], at_least(2.0), "holds"),
        ([19.9], at_least(2.0), "BROKEN"),
        ([12.0], at_most(1.2), "holds"),
        ([12.1], at_most(1.2), "BROKEN"),
        ([2.0], not_above(2.0), "holds"),
        ([2.1], not_above(2.0), "BROKEN"),
        ([2.1], None, ""),
    ],
)
def test_a_limit_itself_still_holds(ours: list[float], limit: object, verdict: str) -> None:
    assert line(ours, [10.0], limit=limit).verdict == verdict


def test_of_two_limits_one_has_to_hold() -> None:
    broken, holding = line([1.0], [1.0], limit=at_least(4.0)), line([1.0], [1.0], limit=at_least(0.8))
    assert broken._replace(instead=holding).verdict == "the other holds"
    assert holding._replace(instead=broken).verdict == "holds"
    assert broken._replace(instead=broken).verdict == "BROKEN"


def test_every_figure_is_kept_with_its_limit(tmp_path: Path) -> None:
    lines = [line([8.0, 9.0], [2.0, 2.0], limit=at_least(4.0)), line([1.0], [])]
    kept = json.loads(samples.save(tmp_path / "out", {"rounds": 2}, lines).read_text())
    assert kept["settings"] == {"rounds": "2"}
    first, second = kept["lines"]
    assert (first["ours"], first["theirs"], first["limit"], first["verdict"]) == ([8, 9], [2, 2], ">= 4x", "holds")
    assert (second["ratio"], second["verdict"]) == (None, "")


def test_a_ratio_that_cannot_be_taken_breaks_its_limit() -> None:
    assert line([1.0], [], limit=at_most(1.2)).verdict == "BROKEN"
    assert line([1.0], [0.0], limit=at_most(1.2)).verdict == "BROKEN"


def test_latencies_are_those_of_records_of_the_measured_time() -> None:
    arrivals = [(0, 9_000), *((1_000 + number, 1_000 + number + number) for number in range(100)), (1_100, 99_000)]
    found = latencies_of(arrivals, 1_000, 1_100)
    assert found == (50.0, 99.0, 100)


def test_latencies_of_nothing_are_an_error() -> None:
    with pytest.raises(ValueError, match="no record"):
        latencies_of([(5, 6)], 10, 20)


@given(st.lists(st.integers(0, 10_000), min_size=1), st.randoms())
def test_half_of_the_latencies_are_at_most_the_median(latencies: list[int], chance: object) -> None:
    arrivals = [(number, number + latency) for number, latency in enumerate(latencies)]
    chance.shuffle(arrivals)  # type: ignore[attr-defined]
    found = latencies_of(arrivals, 0, len(latencies))
    assert 2 * sum(one <= found.p50_ms for one in latencies) >= len(latencies)
    assert 2 * sum(one >= found.p50_ms for one in latencies) >= len(latencies) - 1
    assert found.p50_ms <= found.p99_ms <= max(latencies)


def test_noise_is_the_range_of_one_round_to_the_next() -> None:
    assert noise_of([10.0, 20.0, 5.0]) == "0.25 to 2.00"
    assert not noise_of([10.0])


def test_the_order_of_sides_alternates() -> None:
    order = list[str]()

    def side(name: str) -> dict[str, float]:
        order.append(name)
        return {"seconds": float(len(order))}

    found = alternate({"a": lambda: side("a"), "b": lambda: side("b")}, 3, lambda _: None)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert [answer["seconds"] for answer in found["a"]] == [1.0, 4.0, 5.0]


@given(st.lists(st.integers(1, 99), min_size=1, max_size=12), st.integers(0, 20_000))
def test_every_record_of_a_load_goes_out_in_its_share(shares: list[int], records: int) -> None:
    found = Counter[int]()
    for partition, count in turns(shares, records):
        assert 0 < count <= TURN
        found[partition] += count
    assert found.total() == records
    for partition, share in enumerate(shares[1:], 1):
        assert found[partition] == records * share // sum(shares)


def test_sizes_are_those_of_the_command_line() -> None:
    parse = spark_bench.arguments().parse_args
    assert spark_bench.sizes_of(parse([])).rounds == 5
    connector = spark_bench.sizes_of(parse([]), is_connector=True)
    assert (connector.rounds, connector.stream_s) == (7, 120.0)
    asked = spark_bench.sizes_of(parse(["connector", "--rounds", "2", "--seconds", "9"]), is_connector=True)
    assert (asked.rounds, asked.stream_s) == (2, 9.0)
    assert spark_bench.sizes_of(parse(["--quick"])).rounds == 1


def test_the_table_shows_medians_ratio_limit_and_verdict() -> None:
    table = spark_bench.table_of([line([1.0, 2.0, 3.0, 5.0], [1.0], limit=at_least(3.0))])
    cells = [next(iter(column.cells)) for column in table.columns]
    assert cells[4:12] == ["2.50", "1.00 to 5.00", "1.00", "1.00 to 1.00", "2.50", ">= 3x", "", "BROKEN"]


def test_the_times_of_a_process_are_found_behind_any_name() -> None:
    assert spent_of("7 (a) (S 1 2) R 3 7 7 0 -1 0 0 0 0 0 100 50 25 25 20 0", 100) == Spent(3, 2.0)


def test_the_time_of_a_process_is_that_of_all_below_it() -> None:
    processes = {1: Spent(0, 1.0), 2: Spent(1, 2.0), 3: Spent(2, 4.0), 4: Spent(1, 8.0), 5: Spent(99, 16.0)}
    assert [tree_s(pid, processes) for pid in (1, 2, 4, 5, 6)] == [15.0, 6.0, 8.0, 16.0, 0.0]


def test_this_process_has_used_some_time() -> None:
    assert processor_s(os.getpid()) > 0


def test_rates_and_costs_come_from_the_rounds_of_a_side() -> None:
    ours, theirs = Timed([1.0, 2.0, 4.0], [3.0, 1.0, 2.0]), Timed([2.0], [5.0])
    assert ours.rates(8) == [8.0, 4.0, 2.0]
    assert ours.cost_beside(theirs) == "Spark's processor time: 2.00 s, and 5.00"


def test_pauses_are_told_apart() -> None:
    punctual = [(sent, sent + 10) for sent in range(1_000, 11_000, 100)]
    assert pauses_of(punctual, 1_000, 11_000) == []
    late = {sent: 3_500 - sent + 1_000 for sent in range(2_000, 3_500, 100)} | {9_000: 1_001, 9_100: 1_000}
    arrivals = [(sent, sent + late.get(sent, 10)) for sent, _ in punctual]
    found = pauses_of(arrivals, 1_000, 11_000)
    assert found == [Pause(1.0, 1.4, 15, 2_500), Pause(8.0, 0.0, 1, 1_001)]
    assert found[0].text == "15 records of 1.4 s, from second 1.0 on, came up to 2,500 ms late"
    assert pauses_of(arrivals, 4_000, 9_000) == [], "only records of the time that is measured"
    assert pauses_of([(10_999, 20_000)], 1_000, 11_000) == [Pause(9.999, 0.0, 1, 9_001)]
