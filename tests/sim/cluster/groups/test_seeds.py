"""A share of the seeds of groups. `scripts/sim --groups` runs the others."""

from collections import Counter

import pytest
from machines.hash_seeds import printed_under

from sim.cluster.judges.coverage import OUTCOMES, judge_groups, judge_strength
from sim.cluster.judges.strikes import FAULTS, GROUPS
from sim.cluster.scenario import run_choice
from sim.cluster.swarm import grouped

SEEDS = (0, 6, 9, 12)
WANTS_ANOTHER_TOPIC = 1284  # a classic member that was thrown out
SESSIONS_BEGIN_ANEW = 3460  # another broker coordinates while the last members of a converted group are missed
COMMON = ("group joins", "group leaves", "group members dead", "group patterns changed", "group coordinators dead")


@pytest.mark.slow
def test_nothing_promised_is_broken_and_groups_settle() -> None:
    seen = Counter[str]()
    for seed in (*SEEDS, WANTS_ANOTHER_TOPIC, SESSIONS_BEGIN_ANEW):
        seen.update(run_choice(grouped(seed)).world.counts)
    for key in (*COMMON, "group FENCED_MEMBER_EPOCH", "groups held against their records", "group logs read"):
        assert seen[key] > 0, f"no {key}"
    assert seen["group positions asked"] > 200


@pytest.mark.slow
def test_same_seed_same_story_whatever_the_hash_seed() -> None:
    code = (
        "from sim.cluster.scenario import run_choice\nfrom sim.cluster.swarm import grouped\n"
        "print(run_choice(grouped(9)).digest)"
    )
    assert len(printed_under((0, 1), code)) == 1


def test_many_runs_with_few_strikes_are_too_weak_and_few_are_not_judged() -> None:
    struck = dict.fromkeys((FAULTS | GROUPS).values(), 100)
    assert not judge_groups([struck, *[{}] * 4_999])
    for name, key in GROUPS.items():
        (complaint,) = judge_groups([struck | {key: 99}, *[{}] * 4_999])
        assert name in complaint
    assert not judge_groups([{}] * 999)


def test_few_runs_are_judged_if_so_many_strikes_are_asked_for() -> None:
    struck = dict.fromkeys((FAULTS | GROUPS).values(), 7)
    assert not judge_groups([struck], 7)
    (complaint,) = judge_groups([struck | {"groups gone back": 6}], 7)
    assert "group gone back: 6 times in 1 seeds, and 7 are asked for" in complaint
    assert len(judge_strength([{}], 1)) == len(FAULTS | GROUPS) + len(OUTCOMES)
