"""The witness of two replicas: where it is, which partitions get one, and during moves."""

from collections import Counter
from collections.abc import Collection, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_metadata_quorum.controller.commands import ControlledShutdown, NewPartitions, NewTopic, RefusalReason
from barnabas_metadata_quorum.controller.placement import PLACED_AT_ONCE, Candidate
from barnabas_metadata_quorum.controller.witnesses import next_witness
from barnabas_metadata_quorum.controller.witnesses import place_witnesses as place_witnesses_in_steps
from barnabas_metadata_quorum.image.image import BrokerLoad, Image, PartitionPlacement
from barnabas_metadata_quorum.image.records import NOBODY, PartitionMoved, TopicCreated
from barnabas_metadata_quorum.image.snapshots import Snapshot, decode_snapshot, encode_snapshot
from barnabas_raftlog.steps import at_once

from .test_controller import Controller
from .test_placement import brokers, clusters, place
from .test_reassignments import cancel, finish, move, partition_of
from .test_topic_growth import grow


def place_witnesses(
    assignments: Sequence[Sequence[int]], candidates: Sequence[Candidate], observers: Collection[int] = ()
) -> tuple[int, ...]:
    return at_once(place_witnesses_in_steps(assignments, candidates, observers))


def controller_with(*replicas: int, count: int = 5, racks: tuple[str | None, ...] = (None,)) -> Controller:
    """Brokers 0 to `count` - 1, and a topic t of one partition on `replicas`."""
    controller = Controller()
    for node_id in range(count):
        controller.join(node_id, rack=racks[node_id % len(racks)])
    assert controller.create(NewTopic("t", assignments={0: replicas}))[0].error is None
    return controller


def stop(controller: Controller, node_id: int) -> None:
    controller.ask(ControlledShutdown(node_id, controller.image.brokers[node_id].epoch, True))


def after_a_snapshot(image: Image) -> Image:
    return decode_snapshot(encode_snapshot(Snapshot(1, 1, image))).image


# ---------------------------------------------------------------------------------------------- new partitions


def test_many_witnesses_are_placed_in_pieces() -> None:
    steps = place_witnesses_in_steps(10_000 * [(0, 1)], brokers(3))
    assert len(list(steps)) == 10_000 // PLACED_AT_ONCE


@settings(max_examples=60, deadline=None)
@given(clusters(st.booleans()), st.integers(1, 20), st.integers(1, 4))
def test_a_witness_is_on_a_broker_and_if_possible_a_rack_of_its_own(
    candidates: list[Candidate], partitions: int, replication_factor: int
) -> None:
    available = [candidate for candidate in candidates if candidate.available]
    if replication_factor > len(candidates) or len(available) <= replication_factor // 2:
        return
    placed = place(partitions, replication_factor, candidates)
    witnesses = place_witnesses(placed, candidates)
    rack_of = {candidate.node_id: candidate.rack for candidate in candidates}
    if replication_factor != 2 or len(available) < 3:
        assert witnesses == ()
        return
    for replicas, witness in zip(placed, witnesses, strict=True):
        able = {candidate.node_id for candidate in available} - set(replicas)
        taken = {rack_of[node_id] for node_id in replicas}
        assert witness in able
        assert rack_of[witness] not in taken or all(rack_of[node_id] in taken for node_id in able)
    assert place_witnesses(placed, candidates[::-1]) == witnesses


def test_a_witness_is_on_a_host_of_its_own_rather_than_in_a_rack_of_its_own() -> None:
    hosts = {1: "a", 2: "b", 3: "a", 4: "c"}
    candidates = [
        Candidate(node_id=node, rack="y" if node == 3 else "x", available=True, replicas=0, leaders=0, host=host)
        for node, host in hosts.items()
    ]
    assert place_witnesses([(1, 2)], candidates) == (4,)
    assert next_witness((1, 2), (1, 2), (), candidates) == 4
    assert place_witnesses([(1, 2)], candidates[:3]) == (3,), "there is no other host"


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 9), st.integers(1, 40))
def test_witnesses_of_one_topic_are_even(count: int, partitions: int) -> None:
    held = Counter(place_witnesses(place(partitions, 2, brokers(count)), brokers(count)))
    # One after the other and never moved again, so not perfectly: the last ones may find the emptiest brokers taken.
    assert max(held.values()) - min(held[node_id] for node_id in range(count)) <= 2


def test_witnesses_of_many_small_topics_are_even() -> None:
    controller = Controller(4)
    controller.create(*(NewTopic(f"topic-{number}", 1, 2) for number in range(100)))
    assert set(controller.image.loads.values()) == {BrokerLoad(50, 25, 25)}
    controller.delete(*(f"topic-{number}" for number in range(100)))
    assert controller.image.loads == {}


def test_who_observes_a_topic_is_not_its_witness() -> None:
    assert place_witnesses([(0, 1)], brokers(4), observers=(2,)) == (3,)
    assert place_witnesses([(0, 1)], brokers(3), observers=(2,)) == ()


def test_a_topic_without_a_third_broker_has_no_witness_and_says_so() -> None:
    controller = Controller(3)
    stop(controller, 1)
    (created,) = controller.create(NewTopic("t", 2, 2))
    assert partition_of(controller.image).witness == NOBODY
    assert "no third broker for a witness" in created.warning


def test_an_assignment_by_hand_gets_a_witness_where_it_has_two_replicas() -> None:
    controller = controller_with(3, 1)
    partition = partition_of(controller.image)
    assert (partition.replicas, partition.witness, partition.voters) == ((3, 1), 0, (3, 1, 0))
    assert partition.founders is not None
    assert partition.founders.witness == 0
    assert set(partition.founders.directories) == {0, 1, 3}
    # Also if one of the two is down: with its witness the other one is a majority now.
    stop(controller, 3)
    controller.create(NewTopic("half", assignments={0: (3, 1), 1: (1, 3)}))
    (created,) = [record for record in controller.records if isinstance(record, TopicCreated)]
    assert NOBODY not in created.witnesses
    for replicas in ((1,), (0, 1, 2), (0, 1, 2, 3)):
        assert partition_of(controller_with(*replicas).image).witness == NOBODY


def test_new_partitions_get_witnesses_that_even_out_those_that_are_there() -> None:
    controller = controller_with(0, 1, count=4)
    assert [fate.error for fate in grow(controller, NewPartitions("t", 8))] == [None]
    topic = controller.image.topic_named("t")
    assert topic is not None
    held = Counter(partition.witness for partition in topic.partitions)
    assert set(held.values()) == {2}
    assert after_a_snapshot(controller.image).topics == controller.image.topics


# ------------------------------------------------------------------------------------------------------- moves


def test_a_move_keeps_its_witness_where_that_still_is_a_third_broker() -> None:
    controller = controller_with(0, 1)
    assert partition_of(controller.image).witness == 2
    move(controller, 1, 3)
    moving = partition_of(controller.image)
    assert (moving.witness, moving.former_witnesses, moving.hosts) == (2, (), (1, 3, 0, 2))
    finish(controller)
    assert partition_of(controller.image) == PartitionPlacement(
        replicas=(1, 3), move=None, witness=2, founders=None, epoch=moving.epoch + 1
    )


def test_a_witness_that_becomes_a_replica_is_replaced_and_keeps_what_it_has_until_the_end() -> None:
    controller = controller_with(0, 1, count=3)
    move(controller, 1, 2)
    moving = partition_of(controller.image)
    assert (moving.replicas, moving.witness, moving.former_witnesses) == ((1, 2, 0), 0, (2,))
    assert moving.hosts == (1, 2, 0)
    assert after_a_snapshot(controller.image).topics == controller.image.topics
    finish(controller)
    moved = partition_of(controller.image)
    assert (moved.replicas, moved.witness, moved.former_witnesses, moved.hosts) == ((1, 2), 0, (), (1, 2, 0))


def test_a_third_replica_replaces_the_witness_and_two_of_three_get_one() -> None:
    controller = controller_with(0, 1, count=4)
    move(controller, 0, 1, 3)
    moving = partition_of(controller.image)
    assert (moving.witness, moving.former_witnesses, moving.hosts) == (NOBODY, (2,), (0, 1, 3, 2))
    finish(controller)
    assert partition_of(controller.image).hosts == (0, 1, 3)
    move(controller, 0, 3)
    # Not broker 1, which would have to leave before it could come back as the witness.
    assert partition_of(controller.image).witness == 2
    finish(controller)
    assert partition_of(controller.image).hosts == (0, 3, 2)


def test_of_three_brokers_the_replica_that_goes_comes_back_as_the_witness() -> None:
    controller = controller_with(0, 1, 2, count=3)
    move(controller, 0, 1)
    moving = partition_of(controller.image)
    assert (moving.replicas, moving.witness, moving.hosts) == ((0, 1, 2), 2, (0, 1, 2))
    finish(controller)
    assert partition_of(controller.image).hosts == (0, 1, 2)


def test_calling_a_move_off_returns_to_the_witness_of_before() -> None:
    controller = controller_with(0, 1)
    move(controller, 1, 2)
    assert partition_of(controller.image).witness == 3
    move(controller, 2, 3)
    assert partition_of(controller.image).former_witnesses == (2, 3)
    assert cancel(controller).error is None
    back = partition_of(controller.image)
    assert (back.target, back.witness, back.former_witnesses) == ((0, 1), 2, (3, 4))
    assert set(back.hosts) == {0, 1, 2, 3, 4}
    finish(controller)
    assert partition_of(controller.image).hosts == (0, 1, 2)


def test_asking_for_the_replicas_that_are_there_replaces_a_witness_that_is_lost() -> None:
    controller = controller_with(0, 1)
    move(controller, 0, 1)
    assert controller.records == ()  # It is well where it is.
    stop(controller, 2)
    assert move(controller, 0, 1).error is None
    moving = partition_of(controller.image)
    assert (moving.replicas, moving.target, moving.witness, moving.former_witnesses) == ((0, 1), (0, 1), 3, (2,))
    assert moving.move is not None
    assert cancel(controller).error is RefusalReason.NO_REASSIGNMENT_IN_PROGRESS
    # The new one is lost, too, before it has come.
    stop(controller, 3)
    move(controller, 0, 1)
    assert partition_of(controller.image).former_witnesses == (2, 3)
    finish(controller)
    assert partition_of(controller.image).hosts == (0, 1, 4)


def test_a_topic_that_was_created_on_two_brokers_gets_a_witness_when_it_is_asked_for() -> None:
    controller = controller_with(0, 1, count=2)
    move(controller, 0, 1)
    assert controller.records == ()
    controller.join(2)
    assert partition_of(controller.image).witness == NOBODY
    move(controller, 1, 0)
    moving = partition_of(controller.image)
    assert (moving.target, moving.witness, moving.former_witnesses) == ((1, 0), 2, ())
    finish(controller)
    assert partition_of(controller.image).hosts == (1, 0, 2)


def test_a_witness_whose_broker_is_down_stays_where_there_is_no_other() -> None:
    controller = controller_with(0, 1, count=3)
    stop(controller, 2)
    move(controller, 0, 1)
    assert controller.records == ()


def test_a_witness_goes_to_a_rack_of_its_own_as_soon_as_somebody_asks() -> None:
    controller = controller_with(0, 1, count=3, racks=("a", "b", "a"))
    assert partition_of(controller.image).witness == 2
    controller.join(3, rack="c")
    move(controller, 0, 1)
    assert partition_of(controller.image).witness == 3


@settings(max_examples=60, deadline=None)
@given(clusters(st.booleans()), st.data())
def test_the_next_witness_is_never_a_replica_and_never_worse_than_the_one_that_is_there(
    candidates: list[Candidate], data: st.DataObject
) -> None:
    ids = [candidate.node_id for candidate in candidates]
    target = data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True))
    replicas = data.draw(st.sets(st.sampled_from(ids)))
    known = data.draw(st.lists(st.sampled_from(ids), max_size=2, unique=True))
    observers = data.draw(st.sets(st.sampled_from(ids), max_size=2))
    witness = next_witness(target, replicas, known, candidates, observers)
    able = {one.node_id: one for one in candidates if one.available}
    able = {node_id: one for node_id, one in able.items() if node_id not in target and node_id not in observers}
    if len(target) != 2:
        assert witness == NOBODY
    elif not able:
        assert witness == NOBODY or witness in set(known) - set(target) - observers
    else:
        racks = {one.rack for one in candidates if one.node_id in target}
        alone = {node_id for node_id, one in able.items() if one.rack not in racks}
        best = alone or able.keys()
        assert witness in best
        still = [node_id for node_id in known if node_id in best]
        assert not still or witness == still[0]


@pytest.mark.parametrize("count", [3, 4, 6])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_whoever_may_still_vote_keeps_what_it_has(count: int, data: st.DataObject) -> None:
    """Model the group: every host since the end of the last move may be a member."""
    targets = st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True)
    controller = controller_with(*data.draw(targets), count=count)
    members = set(partition_of(controller.image).hosts)
    for target in data.draw(st.lists(targets | st.just("finish") | st.none(), max_size=8)):
        if isinstance(target, list):
            assert move(controller, *target).error is None
        elif target is None:
            cancel(controller)
        elif finish(controller):
            members = set(partition_of(controller.image).voters)
        partition = partition_of(controller.image)
        members |= {*partition.target, partition.witness} - {NOBODY}
        if partition.move is None:
            assert members == set(partition.hosts)
        assert members <= set(partition.hosts)
        assert (partition.witness != NOBODY) == (len(partition.target) == 2)
        assert partition.witness not in partition.target
        assert after_a_snapshot(controller.image).topics == controller.image.topics
        assert after_a_snapshot(controller.image).loads == controller.image.loads
        assert all(isinstance(record, PartitionMoved) for record in controller.records)
