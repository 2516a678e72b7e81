"""A verdict says what a person would: healthy, degraded, down, and why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.status.verdict import Facts, Health, judge

WELL = Facts({1: "live", 2: "running", 3: "live"}, 33, 0, 0, has_controller=True)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (WELL, "healthy: 3 brokers, 33 partitions served"),
        (WELL._replace(brokers={1: "live"}, partitions=1), "healthy: 1 broker, 1 partition served"),
        (WELL._replace(partitions=0), "healthy: 3 brokers, no partitions yet"),
        (
            WELL._replace(brokers={1: "live", 2: "stopped", 3: "live"}, under_replicated=33),
            "degraded: broker 2 is stopped; 33 of 33 partitions are served, 33 have a replica too few",
        ),
        (
            WELL._replace(brokers={1: "gone", 2: "x", 3: "x"}, partitions=3, under_replicated=1),
            "degraded: broker 1 is gone; brokers 2 and 3 are x; 3 of 3 partitions are served, 1 has a replica too few",
        ),
        (
            WELL._replace(has_controller=False),
            "degraded: there is no controller, so nothing can be created or changed; 33 of 33 partitions are served",
        ),
        (
            WELL._replace(waiting="brokers [3] are catching up"),
            "degraded: the controllers wait: brokers [3] are catching up; 33 of 33 partitions are served",
        ),
        (WELL._replace(partitions=1, without_leader=1), "down: 0 of 1 partition is served"),
        (
            WELL._replace(without_leader=4, under_replicated=2),
            "down: 29 of 33 partitions are served, 2 have a replica too few",
        ),
        (WELL._replace(is_answered=False, brokers={}), "down: no broker answers"),
        (WELL._replace(is_answered=False, brokers={4: "stopped"}), "down: broker 4 is stopped"),
    ],
)
def test_a_cluster_is_judged_in_one_line(facts: Facts, text: str) -> None:
    assert str(judge(facts)) == text


counts = st.integers(0, 100)
states = st.sampled_from(["live", "running", "stopped", "fenced"])


@given(
    st.dictionaries(st.integers(1, 9), states, min_size=1),
    counts,
    counts,
    counts,
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "x"]),
)
def test_every_verdict_has_a_reason_and_what_is_served_is_never_down(
    brokers: dict[int, str],
    partitions: int,
    unled: int,
    lacking: int,
    has_controller: bool,
    is_answered: bool,
    waiting: str,
) -> None:
    unled = min(unled, partitions)
    lacking = min(lacking, partitions - unled)
    verdict = judge(Facts(brokers, partitions, unled, lacking, has_controller, is_answered, waiting))
    assert all(verdict.reasons)
    assert verdict.reasons
    is_whole = (
        has_controller and not unled and not lacking and not waiting and set(brokers.values()) <= {"live", "running"}
    )
    assert (verdict.health == Health.DOWN) == (bool(unled) or not is_answered)
    assert (verdict.health == Health.HEALTHY) == (is_answered and is_whole)
