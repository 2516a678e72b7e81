"""Groups of the project's own consumers while their coordinators are killed.

The long runs of the same are `scripts/trials/group-rounds` and `scripts/trials/group-scale`.
"""

from collections.abc import Iterator

import pytest
from machines import cluster_handle
from trials.groups import rounds, scale, watch

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[cluster_handle.ClusterHandle]:
    with cluster_handle.cluster() as brokers:
        yield brokers


def test_a_busy_group_outlives_its_coordinators(own_cluster: cluster_handle.ClusterHandle) -> None:
    pauses, wrong = rounds.rounds(own_cluster, 2, 3, "cooperative-sticky", 200)
    assert len(pauses) == 2
    assert not wrong


def test_a_group_whose_coordinator_assigns_outlives_it() -> None:
    with cluster_handle.cluster(settings={"unstable.api.versions.enable": "true"}) as brokers:
        pauses, wrong = rounds.rounds(brokers, 1, 3, "uniform", 200, "consumer")
    assert len(pauses) == 1
    assert not wrong


def test_many_groups_hold_through_a_coordinators_death(own_cluster: cluster_handle.ClusterHandle) -> None:
    assert not scale.many_groups(own_cluster, 40, 1, 0.5)


def test_a_large_group_holds_through_its_coordinators_death(own_cluster: cluster_handle.ClusterHandle) -> None:
    assert not scale.large_group(own_cluster, 12, 24, 1, 0.5)


def handed(member: str, generation: int, partition: int, first: int, last: int, at: float) -> watch.Line:
    line = {"what": "handed", "group": "g", "member": member, "generation": generation, "at": at}
    return line | {"handed": {str(partition): [first, last]}}


def committed(partition: int, offset: int, at: float) -> watch.Line:
    return {"what": "committed", "group": "g", "member": "a", "committed": {str(partition): offset}, "at": at}


def test_the_checks_see_two_owners() -> None:
    alone = [handed("a", 1, 0, 0, 4, 1.0), handed("a", 1, 1, 0, 4, 1.0), handed("b", 2, 0, 5, 9, 2.0)]
    assert not watch.check_owners(alone)
    assert watch.check_owners([*alone, handed("b", 1, 1, 5, 9, 1.5)]), "two in one generation"
    assert watch.check_owners([*alone, handed("a", 1, 0, 5, 9, 3.0)]), "the old owner after the new one"


def test_the_checks_see_a_commit_go_back() -> None:
    lines = [committed(0, 5, at=1.0), committed(0, 9, at=2.0)]
    seen = [watch.Observation(0, 5, began=1.5), watch.Observation(0, 9, began=1.6)]
    assert not watch.check_commits(lines, [*seen, watch.Observation(0, 9, began=2.5)])
    assert watch.check_commits(lines, [*seen, watch.Observation(0, 5, began=2.5)])


def test_the_checks_see_a_gap_and_count_what_came_twice() -> None:
    lines = [handed("a", 1, 0, 0, 4, 1.0), handed("a", 1, 0, 3, 6, 2.0)]
    assert watch.check_whole(lines, {0: 7}) == ([], 2)
    assert watch.check_whole(lines, {0: 8})[0], "the end is missing"
    assert watch.check_whole([*lines, handed("b", 2, 0, 8, 9, 3.0)], {0: 10})[0], "7 is missing"


def took(what: str, member: str, at: float, *partitions: int) -> watch.Line:
    return {"what": what, "group": "g", "member": member, "partitions": list(partitions), "at": at}


def test_the_checks_see_a_partition_that_two_have_at_the_same_time() -> None:
    begins = [took("assigned", "a", 1.0, 0, 1), took("assigned", "b", 3.0, 0)]
    assert watch.check_spans(begins, {})
    for ended in (took("revoked", "a", 2.0, 0), took("lost", "a", 4.0, 0), took("died", "a", 4.0)):
        assert not watch.check_spans([*begins, ended], {}), ended["what"]
    assert watch.check_spans([*begins, took("revoked", "a", 4.0, 0)], {})
    assert not watch.check_spans([*begins, took("revoked", "a", 4.0, 0)], {("g", "a"): [(2.0, 3.5)]}), "it stood still"
    assert watch.check_spans([*begins, took("revoked", "a", 4.0, 0)], {("g", "a"): [(1.2, 1.5)]}), "and knew again"
