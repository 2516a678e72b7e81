"""Each assignor keeps its promises for any group."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_clients.assignors.assignor import Assignment, Assignor, RebalanceProtocol, Subscription, in_member_order
from barnabas_clients.assignors.balance import Claim, balance, owners_by_claim
from barnabas_clients.assignors.built_in import ASSIGNORS, COOPERATIVE_STICKY, RANGE, ROUND_ROBIN, STICKY
from barnabas_clients.topic_partition import TopicPartition

TOPICS = ("a", "b", "c", "d")
Counts = dict[str, int]
Members = dict[str, Subscription]
MODEST = settings(max_examples=30, deadline=None)

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7), max_size=4)
wishes = st.frozensets(st.sampled_from(TOPICS), max_size=4)
names = st.integers(0, 9).map("m{}".format)
groups = st.dictionaries(names, wishes.map(Subscription), min_size=1, max_size=6)
alike = st.builds(
    lambda ids, topics: dict.fromkeys(sorted(ids), Subscription(topics)),
    st.frozensets(names, min_size=1, max_size=6),
    wishes,
)


def partitions(assignment: Assignment) -> list[TopicPartition]:
    return [partition for mine in assignment.values() for partition in mine]


def wanted(partition_counts: Counts, members: Mapping[str, Subscription]) -> set[TopicPartition]:
    topics = {topic for subscription in members.values() for topic in subscription.topics}
    return {TopicPartition(topic, number) for topic in topics for number in range(partition_counts.get(topic, 0))}


def loads(assignment: Assignment) -> list[int]:
    return sorted(len(mine) for mine in assignment.values())


def evenest(partition_counts: Counts, members: Members) -> list[int]:
    """The naive model: give partitions out, and move any one along any path as long as that makes it more even."""
    mine: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    for partition in sorted(wanted(partition_counts, members)):
        takers = [member_id for member_id in members if partition.topic in members[member_id].topics]
        mine[takers[0]].add(partition)
    while any(_improve(mine, members, giver) for giver in members):
        pass
    return sorted(len(held) for held in mine.values())


def _improve(mine: dict[str, set[TopicPartition]], members: Members, giver: str) -> bool:
    paths: dict[str, list[tuple[str, TopicPartition]]] = {giver: []}
    grown = True
    while grown:
        grown = False
        for source, path in list(paths.items()):
            for partition in sorted(mine[source]):
                for target in members:
                    if target not in paths and partition.topic in members[target].topics:
                        paths[target] = [*path, (source, partition)]
                        grown = True
    for target, path in paths.items():
        if len(mine[target]) <= len(mine[giver]) - 2:
            takers = [*(source for source, _ in path[1:]), target]
            for (source, partition), taker in zip(path, takers, strict=True):
                mine[source].remove(partition)
                mine[taker].add(partition)
            return True
    return False


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@MODEST
@given(counts, groups)
def test_everything_wanted_is_given_once_and_only_to_those_who_want_it(
    assignor: Assignor, partition_counts: Counts, members: Members
) -> None:
    assignment = assignor.assign(partition_counts, members)
    assert assignment.keys() == members.keys()
    given_away = partitions(assignment)
    assert len(given_away) == len(set(given_away))
    assert set(given_away) == wanted(partition_counts, members)
    assert all(
        partition.topic in members[member_id].topics for member_id, mine in assignment.items() for partition in mine
    )
    assert assignment == assignor.assign(dict(reversed(partition_counts.items())), dict(reversed(members.items())))


@pytest.mark.parametrize("assignor", [ROUND_ROBIN, STICKY, COOPERATIVE_STICKY], ids=lambda assignor: assignor.name)
@MODEST
@given(counts, alike)
def test_equal_members_get_as_much_as_each_other(
    assignor: Assignor, partition_counts: Counts, members: Members
) -> None:
    found = loads(assignor.assign(partition_counts, members))
    assert found[-1] - found[0] <= 1


@MODEST
@given(counts, alike)
def test_range_gives_the_same_partitions_of_topics_that_are_alike(partition_counts: Counts, members: Members) -> None:
    assignment = RANGE.assign(partition_counts, members)
    for mine in assignment.values():
        held = {topic: [number for name, number in mine if name == topic] for topic in partition_counts}
        for one in partition_counts:
            for other in partition_counts:
                is_wanted = all(topic in next(iter(members.values())).topics for topic in (one, other))
                if is_wanted and partition_counts[one] == partition_counts[other]:
                    assert held[one] == held[other]


@MODEST
@given(counts, groups)
def test_sticky_is_as_even_as_can_be(partition_counts: Counts, members: Members) -> None:
    assert loads(STICKY.assign(partition_counts, members)) == evenest(partition_counts, members)


@MODEST
@given(st.data(), counts, alike)
def test_sticky_moves_as_little_as_can_be(data: st.DataObject, partition_counts: Counts, members: Members) -> None:
    everything = sorted(wanted(partition_counts, members))
    owners = {partition: data.draw(st.sampled_from([*sorted(members), None])) for partition in everything}
    claims = {
        member_id: Claim(frozenset(partition for partition, owner in owners.items() if owner == member_id), 1)
        for member_id in members
    }
    assignment = balance(partition_counts, members, claims)
    moved = sum(
        owners[partition] not in (member_id, None) for member_id, mine in assignment.items() for partition in mine
    )
    # Only what is above everybody's share has to go; of those who may have one more, the first to hold it do.
    least, odd = divmod(len(everything), len(members))
    held = sorted((len(claim.partitions) for claim in claims.values()), reverse=True)
    assert moved == sum(max(0, count - least - (place < odd)) for place, count in enumerate(held))


@MODEST
@given(counts, groups, groups)
def test_sticky_leaves_what_is_settled_alone(partition_counts: Counts, members: Members, others: Members) -> None:
    before = STICKY.assign(partition_counts, members)
    told = {
        member_id: subscription._replace(user_data=STICKY.user_data(before[member_id], 5))
        for member_id, subscription in members.items()
    }
    assert STICKY.assign(partition_counts, told) == before
    assert STICKY.assign(partition_counts, told | others).keys() == told.keys() | others.keys()


@MODEST
@given(counts, groups, groups, st.integers(1, 3))
def test_cooperative_rebalances_never_share_a_partition_and_come_to_rest(
    partition_counts: Counts, members: Members, changed: Members, generation_id: int
) -> None:
    owned = {
        member_id: frozenset(mine) for member_id, mine in COOPERATIVE_STICKY.assign(partition_counts, members).items()
    }
    told = changed
    assignment = Assignment()
    for round_ in range(3):
        told = {
            member_id: subscription._replace(
                owned=frozenset(
                    partition for partition in owned.get(member_id, ()) if partition.topic in subscription.topics
                ),
                generation_id=generation_id + round_ if member_id in owned else -1,
            )
            for member_id, subscription in changed.items()
        }
        assignment = COOPERATIVE_STICKY.assign(partition_counts, told)
        for member_id, mine in assignment.items():
            others = (told[other].owned for other in told if other != member_id)
            assert not frozenset(mine) & frozenset[TopicPartition]().union(*others)
        owned = {member_id: frozenset(mine) for member_id, mine in assignment.items()}
    # The first takes away, the second gives, the third has nothing to do.
    assert all(told[member_id].owned == mine for member_id, mine in owned.items())
    assert set(partitions(assignment)) == wanted(partition_counts, changed)
    assert loads(assignment) == evenest(partition_counts, changed)


def test_the_newer_claim_counts_and_of_two_in_one_generation_none() -> None:
    everything = frozenset(TopicPartition("a", number) for number in range(2))
    members = dict.fromkeys(("m1", "m2"), Subscription(frozenset("a")))
    newer = {"m1": Claim(everything, 3), "m2": Claim(everything, 2)}
    assert balance({"a": 2}, members, newer) == {"m1": [("a", 0)], "m2": [("a", 1)]}
    same = {"m1": Claim(everything, 3), "m2": Claim(everything, 3)}
    assert owners_by_claim({"a": 2}, members, same) == {}
    assert balance({"a": 2}, members, same) == {"m1": [("a", 0)], "m2": [("a", 1)]}


def test_a_stale_holder_does_not_take_a_partition_from_its_owner() -> None:
    everything = frozenset({TopicPartition("a", 0)})
    members = {
        "m1": Subscription(frozenset("a"), owned=everything, generation_id=2),
        "m2": Subscription(frozenset("a"), owned=everything, generation_id=3),
    }
    assert COOPERATIVE_STICKY.assign({"a": 1}, members) == {"m1": [], "m2": [("a", 0)]}


def test_static_members_come_first_and_keep_their_place() -> None:
    members = {
        "z": Subscription(frozenset("a"), group_instance_id="1"),
        "b": Subscription(frozenset("a")),
        "a": Subscription(frozenset("a"), group_instance_id="2"),
    }
    assert in_member_order(members) == ["z", "a", "b"]
    assert RANGE.assign({"a": 3}, members) == {"z": [("a", 0)], "a": [("a", 1)], "b": [("a", 2)]}


def test_user_data_that_nobody_can_read_is_no_claim() -> None:
    members = {"m1": Subscription(frozenset("a"), b"\0\0\0\x07nonsense"), "m2": Subscription(frozenset("a"))}
    assert loads(STICKY.assign({"a": 4}, members)) == [2, 2]


def test_a_hundred_members_over_ten_thousand_partitions_are_quick_enough_to_test() -> None:
    members = {f"m{number:03}": Subscription(frozenset({"a"})) for number in range(100)}
    claims = {"m000": Claim(frozenset(TopicPartition("a", number) for number in range(10_000)), 1)}
    assert loads(balance({"a": 10_000}, members, claims)) == [100] * 100


def test_protocols_are_kafkas() -> None:
    eager, cooperative = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
    assert {name: assignor.protocols for name, assignor in ASSIGNORS.items()} == {
        "range": {eager},
        "roundrobin": {eager},
        "sticky": {eager},
        "cooperative-sticky": {eager, cooperative},
    }
