"""The server's assignors give every partition to one subscriber, evenly, and move no more than that takes.

`tests/interop/groups/test_group_assignors.py` compares them with Kafka's.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steps import outcome

from barnabas_broker.coordinators.groups.consumer.assignors import balance, ranges, roster, uniform
from barnabas_broker.coordinators.groups.consumer.assignors.balance import SHARED_MAX
from barnabas_broker.coordinators.groups.consumer.assignors.built_in import ASSIGNORS, DEFAULT, assign, assign_in_steps
from barnabas_broker.coordinators.groups.consumer.assignors.roster import (
    WORK,
    Assignment,
    MemberSubscription,
    Roster,
    in_order,
    roster_in_steps,
    topic_order,
)
from barnabas_raftlog.steps import at_once

Members = dict[str, MemberSubscription]
Topics = dict[bytes, int]

A, B, C, D = (letter * 16 for letter in (b"a", b"b", b"c", b"d"))
TOPICS = [A, B, C, D, b"\xff" * 16]
NAMES = st.sampled_from(sorted(ASSIGNORS))
SIZES = st.integers(0, 9)


def member(*topic_ids: bytes, instance_id: str | None = None, **assigned: tuple[int, ...]) -> MemberSubscription:
    """A member that holds partitions of the topics with these letters."""
    held = {letter.encode() * 16: partitions for letter, partitions in assigned.items()}
    return MemberSubscription(frozenset(topic_ids), instance_id, held)


@st.composite
def groups(draw: st.DrawFn, *, is_of_one_kind: bool = False) -> tuple[Members, Topics]:
    """A group whose members hold anything: of topics that are gone, beyond the end, the same as another."""
    topics = {topic_id: draw(SIZES) for topic_id in TOPICS if draw(st.booleans())}
    subsets = st.frozensets(st.sampled_from(TOPICS), max_size=5)
    everything = draw(subsets)
    members = {}
    for number in range(draw(st.integers(1, 7))):
        held = {
            topic_id: tuple(draw(st.frozensets(st.integers(0, 10), max_size=5)))
            for topic_id in draw(st.frozensets(st.sampled_from(TOPICS), max_size=3))
        }
        instance_id = draw(st.sampled_from([None, f"i{number}", f"y{9 - number}"]))
        members[f"m{number}"] = MemberSubscription(everything if is_of_one_kind else draw(subsets), instance_id, held)
    return members, topics


def given_to(members: Members, assignment: Assignment) -> Members:
    """The group, when everybody has what was assigned."""
    return {
        member_id: one._replace(assigned=assignment.get(member_id, one.assigned)) for member_id, one in members.items()
    }


def settled(name: str, members: Members, topics: Topics) -> Members:
    return given_to(members, assign(name, members, topics))


def pairs(assigned: Mapping[bytes, tuple[int, ...]]) -> set[tuple[bytes, int]]:
    return {(topic_id, partition) for topic_id, partitions in assigned.items() for partition in partitions}


def size(assigned: Mapping[bytes, tuple[int, ...]]) -> int:
    return sum(map(len, assigned.values()))


@settings(max_examples=150)
@given(NAMES, groups())
def test_every_partition_has_one_owner_among_its_subscribers(name: str, group: tuple[Members, Topics]) -> None:
    members, topics = group
    assignment = assign(name, members, topics)
    assert assignment.keys() == members.keys()
    owners = Counter(pair for assigned in assignment.values() for pair in pairs(assigned))
    subscribed = {topic_id for one in members.values() for topic_id in one.topic_ids} & topics.keys()
    assert owners == Counter((topic_id, number) for topic_id in subscribed for number in range(topics[topic_id]))
    for member_id, assigned in assignment.items():
        assert assigned.keys() <= members[member_id].topic_ids
        assert all(partitions == tuple(sorted(partitions)) != () for partitions in assigned.values())


@settings(max_examples=150)
@given(NAMES, groups(), st.randoms())
def test_the_order_of_dictionaries_and_sets_does_not_matter(
    name: str, group: tuple[Members, Topics], chance: random.Random
) -> None:
    members, topics = group
    wanted = assign(name, members, topics)

    def shuffled(mapping: Mapping[Any, Any], change: Callable[[Any], Any] = lambda value: value) -> dict[Any, Any]:
        items = list(mapping.items())
        chance.shuffle(items)
        return {key: change(value) for key, value in items}

    def another(one: MemberSubscription) -> MemberSubscription:
        topic_ids = list(one.topic_ids)
        chance.shuffle(topic_ids)
        held = shuffled(one.assigned, lambda some: tuple(chance.sample(some, len(some))))
        return one._replace(topic_ids=frozenset(topic_ids), assigned=held)

    assert assign(name, shuffled(members, another), shuffled(topics)) == wanted


@settings(max_examples=150)
@given(NAMES, groups())
def test_what_has_not_changed_does_not_move(name: str, group: tuple[Members, Topics]) -> None:
    members, topics = group
    before = assign(name, members, topics)
    assert assign(name, given_to(members, before), topics) == before


@settings(max_examples=150)
@given(groups(is_of_one_kind=True))
def test_members_that_subscribe_alike_differ_by_one_partition_at_most(group: tuple[Members, Topics]) -> None:
    sizes = [size(assigned) for assigned in assign("uniform", *group).values()]
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=150)
@given(groups())
def test_no_topic_could_be_shared_more_evenly(group: tuple[Members, Topics]) -> None:
    """Nobody could give a partition to another subscriber of its topic, and still have more."""
    members, topics = group
    assignment = assign("uniform", members, topics)
    for assigned in assignment.values():
        for topic_id in assigned:
            least = min(size(assignment[other]) for other, one in members.items() if topic_id in one.topic_ids)
            assert size(assigned) - least <= 1


@settings(max_examples=100)
@given(groups(is_of_one_kind=True), st.data())
def test_of_one_that_leaves_only_its_partitions_move(group: tuple[Members, Topics], data: st.DataObject) -> None:
    members, topics = group
    members = settled("uniform", members, topics)
    if len(members) > 1:
        left = data.draw(st.sampled_from(sorted(members)))
        del members[left]
        for member_id, assigned in assign("uniform", members, topics).items():
            assert pairs(assigned) >= pairs(members[member_id].assigned)  # type: ignore[arg-type]


@settings(max_examples=100)
@given(groups(is_of_one_kind=True))
def test_one_that_joins_gets_its_share_and_nobody_else_more(group: tuple[Members, Topics]) -> None:
    members, topics = group
    members = settled("uniform", members, topics)
    topic_ids = next(iter(members.values())).topic_ids
    after = assign("uniform", members | {"m3x": MemberSubscription(topic_ids)}, topics)
    for member_id, one in members.items():
        assert pairs(after[member_id]) <= pairs(one.assigned)  # type: ignore[arg-type]


@settings(max_examples=100)
@given(groups(is_of_one_kind=True))
def test_what_is_kept_is_all_that_balance_lets_be_kept(group: tuple[Members, Topics]) -> None:
    """Whoever loses a partition that it alone holds gets none for it."""
    members, topics = group
    assignment = assign("uniform", members, topics)
    holders: dict[tuple[bytes, int], str] = {}
    for member_id in at_once(roster_in_steps(members, topics)).member_ids:
        for pair in sorted(pairs(members[member_id].assigned)):  # type: ignore[arg-type]
            if pair[0] in members[member_id].topic_ids and pair[1] < topics.get(pair[0], 0):
                holders.setdefault(pair, member_id)
    owners = {pair: member_id for member_id, assigned in assignment.items() for pair in pairs(assigned)}
    held = Counter(holders.values())
    for pair, holder in holders.items():
        if owners[pair] != holder:
            assert size(assignment[holder]) <= held[holder]


def by_hand(members: Members, topics: Topics) -> Assignment:
    """What `range` says, in the shortest way."""
    order = sorted(members, key=lambda one: (members[one].instance_id is None, members[one].instance_id or "", one))
    assignment: Assignment = {member_id: {} for member_id in members}
    for topic_id, count in topics.items():
        subscribed = [member_id for member_id in order if topic_id in members[member_id].topic_ids]
        left = list(range(count))
        for number, member_id in enumerate(subscribed):
            share = count // len(subscribed) + (number < count % len(subscribed))
            if share:
                assignment[member_id][topic_id] = tuple(left[:share])
            left = left[share:]
    return assignment


@settings(max_examples=150)
@given(groups())
def test_ranges_are_what_they_are_by_hand(group: tuple[Members, Topics]) -> None:
    assert assign("range", *group) == by_hand(*group)


def test_ranges_of_topics_with_equally_many_partitions_are_alike() -> None:
    members = {"m1": member(A, B), "m2": member(A, B), "m3": member(A, B)}
    assignment = assign("range", members, {A: 7, B: 7})
    assert assignment == {
        "m1": {A: (0, 1, 2), B: (0, 1, 2)},
        "m2": {A: (3, 4), B: (3, 4)},
        "m3": {A: (5, 6), B: (5, 6)},
    }


def test_a_static_member_gets_its_range_back_under_another_member_id() -> None:
    members = {"m2": member(A, instance_id="i1"), "m1": member(A, instance_id="i2"), "m0": member(A)}
    before = assign("range", members, {A: 6})
    members["m9"] = members.pop("m2")
    after = assign("range", members, {A: 6})
    assert before["m2"] == after["m9"] == {A: (0, 1)}
    assert before["m1"] == after["m1"] == {A: (2, 3)}


def test_texts_and_ids_are_ordered_as_java_orders_them() -> None:
    """By code units a character beyond the first 65,536 comes before U+FFEE; an id with the highest bit is negative."""
    members = {"\uffee": member(A), "\U0001f600": member(A)}
    assert assign("range", members, {A: 1}) == {"\uffee": {}, "\U0001f600": {A: (0,)}}
    assert sorted([A, b"\xff" * 16, bytes(8) + b"\xff" * 8, bytes(16)], key=topic_order) == [
        b"\xff" * 16,
        bytes(8) + b"\xff" * 8,
        bytes(16),
        A,
    ]


@pytest.mark.parametrize(
    ("members", "topics", "wanted"),
    [
        pytest.param(
            {"m1": member(A, B), "m2": member(A, B)},
            {A: 3, B: 2},
            {"m1": {A: (0, 1)}, "m2": {A: (2,), B: (0, 1)}},
            id="whoever has to is last to get one more",
        ),
        pytest.param(
            {"m1": member(A, a=(0,)), "m2": member(A, a=(1, 2)), "m3": member(A)},
            {A: 4},
            {"m1": {A: (0,)}, "m2": {A: (1, 2)}, "m3": {A: (3,)}},
            id="whoever has one more keeps it",
        ),
        pytest.param(
            {"m1": member(A, a=(0, 1, 2, 3)), "m2": member(A)},
            {A: 4},
            {"m1": {A: (0, 1)}, "m2": {A: (2, 3)}},
            id="who has too much keeps the first",
        ),
        pytest.param(
            {"m1": member(A, B, a=(0, 1), c=(0, 1)), "m2": member(A, B, a=(1, 2, 9))},
            {A: 3, B: 1},
            {"m1": {A: (0, 1)}, "m2": {A: (2,), B: (0,)}},
            id="what is not there, or another's, counts for nothing",
        ),
        pytest.param({"m1": member(A), "m2": member(A)}, {}, {"m1": {}, "m2": {}}, id="no topic exists"),
        pytest.param({"m1": member(), "m2": member()}, {A: 1}, {"m1": {}, "m2": {}}, id="nobody subscribes"),
        pytest.param({}, {A: 1}, {}, id="nobody is there"),
        pytest.param({"m1": member(A), "m2": member(A, B)}, {A: 2}, {"m1": {A: (0,)}, "m2": {A: (1,)}}, id="alike"),
        pytest.param(
            {"m1": member(A, B), "m2": member(B)},
            {A: 3, B: 6},
            {"m1": {A: (0, 1, 2), B: (4,)}, "m2": {B: (0, 1, 2, 3, 5)}},
            id="whose choice is least is first",
        ),
        pytest.param(
            {
                "m1": member(A, a=(0, 1, 2)),
                "m2": member(A, B, a=(3,), b=(0,)),
                "m3": member(A, B, C, a=(4, 5), b=(1, 2, 3), c=(0, 1, 2, 3)),
            },
            {A: 6, B: 4, C: 4},
            {"m1": {A: (0, 1, 2, 5)}, "m2": {A: (3,), B: (0, 1, 2, 3)}, "m3": {A: (4,), C: (0, 1, 2, 3)}},
            id="who has most gives the last to who has least",
        ),
    ],
)
def test_uniform(members: Members, topics: Topics, wanted: Assignment) -> None:
    assert assign("uniform", members, topics) == wanted


def test_where_subscriptions_overlap_it_may_end_one_step_before_the_best() -> None:
    """No topic sees a difference of more than one; Kafka's ends there, too."""
    members = {
        "m1": member(A, a=tuple(range(9))),
        "m2": member(A, B, a=(9, 10, 11, 12, 13), b=(0, 1, 2, 3, 4)),
        "m3": member(B, b=tuple(range(5, 16))),
    }
    sizes = [size(assigned) for assigned in assign("uniform", members, {A: 14, B: 16}).values()]
    assert sizes == [9, 10, 11]


def test_the_first_of_the_assignors_is_that_of_groups_that_name_none() -> None:
    assert next(iter(ASSIGNORS)) == DEFAULT == "uniform"
    with pytest.raises(KeyError):
        assign("sticky", {}, {})


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces are a tenth of what they are, so that a smaller group shows them."""
    for module in (balance, ranges, roster, uniform):
        monkeypatch.setattr(module, "WORK", WORK // 10)


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("kinds", [1, 3, 50])
@pytest.mark.parametrize("name", ["range", "uniform"])
def test_a_large_group_is_divided_in_pieces(name: str, kinds: int) -> None:
    chance = random.Random(kinds)
    topics = {number.to_bytes(16, "big"): 20 for number in range(100)}
    ids = sorted(topics)
    subsets = [frozenset(ids if kinds == 1 else chance.sample(ids, 50)) for _ in range(kinds)]
    members = {f"m{number}": MemberSubscription(subsets[number % kinds]) for number in range(200)}
    before, pieces = outcome(assign_in_steps(name, members, topics))
    assert pieces >= 2_000 // (WORK // 10)
    again, pieces = outcome(assign_in_steps(name, given_to(members, before), topics))
    assert again == before
    assert pieces >= 2_000 // (WORK // 10)


def test_what_is_sorted_in_pieces_is_sorted() -> None:
    chance = random.Random(1)
    numbers = [chance.randrange(10_000) for _ in range(3 * WORK)]
    found, pieces = outcome(in_order(numbers, lambda number: -number))
    assert found == sorted(numbers, reverse=True)
    assert pieces > 3
    assert at_once(in_order([], abs)) == []


def test_lists_of_subscribers_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def subscribers(self: Roster, kinds: tuple[int, ...]) -> list[int]:
        made.append(kinds)
        return sorted(one for kind in kinds for one in self.kinds[kind])

    monkeypatch.setattr(Roster, "subscribers", subscribers)
    members = {"m1": member(A, B, C), "m2": member(A, B), "m3": member(A, B)}
    wanted = assign("uniform", members, {A: 8, B: 8, C: 9})
    assert made == [(0, 1)]
    made.clear()
    monkeypatch.setattr(balance, "SHARED_MAX", 2)
    assert assign("uniform", members, {A: 8, B: 8, C: 9}) == wanted
    assert len(made) > 1
    assert SHARED_MAX == 1_000_000
