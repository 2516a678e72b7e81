"""Where partitions should go when they may use only certain brokers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.cli.commands.reassignment_plan import Place, plan_targets


def anywhere(*node_ids: int) -> dict[int, Place]:
    return {node_id: Place(f"host-{node_id}", None) for node_id in node_ids}


SIX = anywhere(*range(1, 7))


def test_what_is_where_it_may_be_stays() -> None:
    current = {"a": (1, 2, 3), "b": (3, 1, 2)}
    assert plan_targets(current, SIX) == current


def test_three_others_share_the_replicas_and_the_leaders() -> None:
    current = dict.fromkeys(range(6), (1, 2, 3))
    plan = plan_targets(current, anywhere(4, 5, 6))
    assert all(sorted(replicas) == [4, 5, 6] for replicas in plan.values())
    assert sorted(replicas[0] for replicas in plan.values()) == [4, 4, 5, 5, 6, 6]


def test_only_who_may_not_stay_is_replaced_and_the_leader_keeps_its_place() -> None:
    assert plan_targets({"a": (1, 2, 3)}, anywhere(1, 2, 4)) == {"a": (1, 2, 4)}


def test_racks_come_before_evenness() -> None:
    places = {node_id: Place(f"host-{node_id}", "y" if node_id == 4 else "x") for node_id in (1, 2, 3, 4)}
    plan = plan_targets(dict.fromkeys(range(4), (9,)), places, 2)
    assert all(4 in replicas for replicas in plan.values())


def test_hosts_come_before_racks() -> None:
    places = {1: Place("a", "x"), 2: Place("a", "y"), 3: Place("b", "x")}
    assert plan_targets({"t": (1,)}, places, 2) == {"t": (1, 3)}


def test_a_smaller_factor_drops_the_last_and_a_larger_one_adds() -> None:
    assert plan_targets({"a": (1, 2, 3)}, SIX, 2) == {"a": (1, 2)}
    assert plan_targets({"a": (1, 2)}, SIX, 3) == {"a": (1, 2, 3)}


def test_more_replicas_than_brokers_do_not_fit() -> None:
    with pytest.raises(ValueError, match="3 replicas do not fit on 2 brokers"):
        plan_targets({"a": (1, 2, 3)}, anywhere(1, 2))


brokers = st.lists(st.integers(1, 8), min_size=3, max_size=6, unique=True)
partitions = st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=3, unique=True).map(tuple), max_size=8)


@settings(max_examples=100, deadline=None)
@given(partitions, brokers, st.none() | st.integers(1, 3))
def test_a_plan_uses_the_brokers_moves_no_more_than_it_must_and_is_stable(
    replicas: list[tuple[int, ...]], ids: list[int], factor: int | None
) -> None:
    current = dict(enumerate(replicas))
    places = anywhere(*ids)
    plan = plan_targets(current, places, factor)
    for key, target in plan.items():
        wanted = factor or len(current[key])
        assert len(set(target)) == len(target) == wanted
        assert set(target) <= set(ids)
        may_stay = [node_id for node_id in current[key] if node_id in ids]
        assert len(set(target) & set(may_stay)) == min(wanted, len(may_stay))
    assert plan_targets(plan, places, factor) == plan
