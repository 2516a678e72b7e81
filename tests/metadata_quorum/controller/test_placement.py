"""Placement keeps replicas apart, spreads them over racks, and is even."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_metadata_quorum.controller.commands import RefusalReason, Refused
from barnabas_metadata_quorum.controller.placement import PLACED_AT_ONCE, Candidate
from barnabas_metadata_quorum.controller.placement import place as place_in_steps
from barnabas_raftlog.steps import at_once

racks = st.sampled_from([None, "a", "b", "c"])


def place(partitions: int, replication_factor: int, candidates: Sequence[Candidate]) -> tuple[tuple[int, ...], ...]:
    return at_once(place_in_steps(partitions, replication_factor, candidates))


@st.composite
def clusters(draw: st.DrawFn, availability: st.SearchStrategy[bool]) -> list[Candidate]:
    node_ids = draw(st.lists(st.integers(0, 99), min_size=1, max_size=9, unique=True))
    load = st.integers(0, 20)
    return [
        Candidate(
            node_id=node_id, rack=draw(racks), available=draw(availability), replicas=draw(load), leaders=draw(load)
        )
        for node_id in node_ids
    ]


def brokers(count: int, *rack_names: str | None) -> list[Candidate]:
    names = rack_names or (None,)
    return [
        Candidate(node_id=node_id, rack=names[node_id % len(names)], available=True, replicas=0, leaders=0)
        for node_id in range(count)
    ]


@settings(max_examples=50)
@given(clusters(st.booleans()), st.integers(1, 30), st.integers(1, 10))
def test_replicas_are_on_different_brokers_and_led_by_one_that_is_up(
    candidates: list[Candidate], partitions: int, replication_factor: int
) -> None:
    available = {candidate.node_id for candidate in candidates if candidate.available}
    if replication_factor > len(candidates) or len(available) <= replication_factor // 2:
        with pytest.raises(Refused) as caught:
            place(partitions, replication_factor, candidates)
        assert caught.value.reason is RefusalReason.INVALID_REPLICATION_FACTOR
        return
    placed = place(partitions, replication_factor, candidates)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert replicas[0] in available
        assert len(available.intersection(replicas)) > replication_factor // 2
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[node_id] for node_id in available) <= 1


@settings(max_examples=50)
@given(clusters(st.just(True)), st.integers(1, 30), st.integers(1, 10))
def test_replicas_are_on_as_many_racks_as_possible(
    candidates: list[Candidate], partitions: int, replication_factor: int
) -> None:
    replication_factor = min(replication_factor, len(candidates))
    rack_of = {candidate.node_id: candidate.rack for candidate in candidates}
    for replicas in place(partitions, replication_factor, candidates):
        assert len({rack_of[node_id] for node_id in replicas}) == min(replication_factor, len(set(rack_of.values())))


@settings(max_examples=50)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 9))
def test_replicas_of_one_topic_are_even_without_racks(count: int, partitions: int, replication_factor: int) -> None:
    replication_factor = min(replication_factor, count)
    held = Counter(
        node_id for replicas in place(partitions, replication_factor, brokers(count)) for node_id in replicas
    )
    assert max(held.values()) - min(held[node_id] for node_id in range(count)) <= 1


@settings(max_examples=50)
@given(st.integers(1, 6), st.integers(1, 40))
def test_one_partition_topics_spread_their_leaders_over_all_brokers(count: int, topics: int) -> None:
    leaders = Counter[int]()
    replicas = Counter[int]()
    factor = min(3, count)
    for _ in range(topics):
        loaded = [
            Candidate(node_id=node, rack=None, available=True, replicas=replicas[node], leaders=leaders[node])
            for node in range(count)
        ]
        [placed] = place(1, factor, loaded)
        leaders[placed[0]] += 1
        replicas.update(placed)
    assert max(leaders.values()) - min(leaders[node] for node in range(count)) <= 1
    assert max(replicas.values()) - min(replicas[node] for node in range(count)) <= 1


@settings(max_examples=50)
@given(clusters(st.just(True)), st.integers(1, 10), st.integers(1, 3))
def test_the_order_of_the_brokers_does_not_matter(
    candidates: list[Candidate], partitions: int, replication_factor: int
) -> None:
    replication_factor = min(replication_factor, len(candidates))
    backwards = place(partitions, replication_factor, candidates[::-1])
    assert backwards == place(partitions, replication_factor, candidates)


def test_the_load_of_a_dead_leader_falls_on_all_the_others() -> None:
    followers = Counter(replicas[1] for replicas in place(12, 2, brokers(4)) if replicas[0] == 0)
    assert followers == {1: 1, 2: 1, 3: 1}


@settings(max_examples=50)
@given(clusters(st.just(True)), st.integers(1, 30), st.integers(1, 10), st.randoms(use_true_random=False))
def test_replicas_share_a_host_only_where_there_are_too_few(
    candidates: list[Candidate], partitions: int, replication_factor: int, rng: Random
) -> None:
    replication_factor = min(replication_factor, len(candidates))
    on_hosts = [msgspec.structs.replace(one, host=rng.choice("abcd")) for one in candidates]
    host_of = {candidate.node_id: candidate.host for candidate in on_hosts}
    for replicas in place(partitions, replication_factor, on_hosts):
        assert len({host_of[node_id] for node_id in replicas}) == min(replication_factor, len(set(host_of.values())))


def test_three_racks_hold_one_replica_each() -> None:
    candidates = brokers(6, "a", "b", "c")
    for replicas in place(12, 3, candidates):
        assert {candidates[node_id].rack for node_id in replicas} == {"a", "b", "c"}


def test_a_broker_that_is_down_gets_a_replica_only_when_it_must() -> None:
    candidates = [
        Candidate(node_id=0, rack=None, available=False, replicas=0, leaders=0),
        *(Candidate(node_id=node, rack=None, available=True, replicas=9, leaders=9) for node in (1, 2, 3)),
    ]
    assert all(0 not in replicas for replicas in place(6, 3, candidates))
    assert all(0 in replicas[1:] for replicas in place(6, 4, candidates))


@pytest.mark.parametrize(
    ("up", "down", "factor", "message"),
    [
        (2, 0, 3, "Replication factor 3 is larger than the number of brokers: 2"),
        (0, 0, 1, "Replication factor 1 is larger than the number of brokers: 0"),
        (1, 2, 3, "Replication factor 3 needs 2 brokers that are up to elect leaders; 1 of 3 are"),
    ],
)
def test_too_few_brokers_are_refused_with_the_numbers(up: int, down: int, factor: int, message: str) -> None:
    candidates = [
        Candidate(node_id=node, rack=None, available=node < up, replicas=0, leaders=0) for node in range(up + down)
    ]
    with pytest.raises(Refused) as caught:
        place(1, factor, candidates)
    assert (caught.value.reason, str(caught.value)) == (RefusalReason.INVALID_REPLICATION_FACTOR, message)


def test_many_partitions_are_placed_in_pieces() -> None:
    assert len(list(place_in_steps(10_000, 3, brokers(3)))) == 10_000 // PLACED_AT_ONCE
