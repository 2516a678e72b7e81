"""The bookkeeping of members agrees with counting anew, and subscriptions are read."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.coordinators.groups.state_machine.members import Member, Members, subscribed_topics
from barnabas_broker.coordinators.groups.state_machine.messages import JoinRequest

from .desk import Desk

NAMES = ("range", "sticky", "roundrobin")
protocols = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(lambda names: tuple((n, b"") for n in names))


def member(member_id: str, offered: tuple[tuple[str, bytes], ...], instance: str | None = None) -> Member:
    return Member(member_id, instance, ("client", "host"), (10, 20), offered)


def request(offered: tuple[tuple[str, bytes], ...]) -> JoinRequest:
    return JoinRequest(
        ticket=0,
        member_id="",
        group_instance_id=None,
        client_id="",
        client_host="",
        session_timeout_ms=10,
        rebalance_timeout_ms=20,
        protocol_type="consumer",
        protocols=offered,
        requires_known_member_id=False,
        skips_assignment=False,
        reason="",
    )


@given(
    st.lists(st.tuples(st.sampled_from(["add", "remove", "update", "join", "stop", "settle"]), protocols), max_size=40)
)
def test_members_count_as_counting_would(steps: list[tuple[str, tuple[tuple[str, bytes], ...]]]) -> None:
    members = Members()
    for number, (step, offered) in enumerate(steps):
        if step == "add" or not len(members):
            if members.supports(offered):
                members.add(member(f"m{number}", offered))
            continue
        chosen = list(members)[number % len(members)]
        if step == "remove":
            members.remove(chosen.member_id)
        elif step == "update" and members.supports(offered):
            members.update(chosen, request(offered))
        elif step == "join":
            members.start_joining(chosen, number)
        elif step == "stop":
            members.stop_joining(chosen)
        elif step == "settle":
            members.settle(chosen)
        everyone = list(members)
        assert members.joining_count == sum(one.joining for one in everyone)
        assert members.new_count == sum(one.is_new for one in everyone)
        assert (members.leader_id in members.by_id) if everyone else (members.leader_id is None)
        common = {name for name in NAMES if all(name in dict(one.protocols) for one in everyone)}
        for name in NAMES:
            assert members.supports(((name, b""),)) == (name in common)
        if everyone:
            votes = [next(name for name, _ in one.protocols if name in common) for one in everyone]
            assert members.vote() == max(votes, key=lambda name: (votes.count(name), -votes.index(name)))


def test_the_oldest_of_the_generation_succeeds_the_leader_and_a_newcomer_only_if_nobody_else_is_left() -> None:
    members = Members()
    for member_id in ("a", "b", "c"):
        members.add(member(member_id, (("range", b""),)))
    members.settle(members.by_id["c"])
    members.remove("a")
    assert members.leader_id == "c"
    members.remove("c")
    assert members.leader_id == "b"


def subscription(*topics: str, version: int = 0) -> bytes:
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1)


def test_topics_are_read_from_a_subscription_of_any_version() -> None:
    assert subscribed_topics(subscription("a", "Ümläut")) == frozenset({"a", "Ümläut"})
    assert subscribed_topics(subscription("a", version=3) + b"owned partitions and more") == frozenset({"a"})
    assert subscribed_topics(subscription()) == frozenset()


def test_what_is_no_subscription_says_nothing_of_topics() -> None:
    for data in (b"", b"\0", subscription(version=-1), subscription("abc")[:-6], struct.pack(">hi", 0, 2**31 - 1)):
        assert subscribed_topics(data) is None
    assert subscribed_topics(struct.pack(">hih", 0, 1, -1)) is None
    assert subscribed_topics(struct.pack(">hih", 0, 1, 1) + b"\xff") is None
    assert subscribed_topics(struct.pack(">hi", 0, -1)) is None


@given(st.binary(max_size=40))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    subscribed_topics(data)


def test_a_group_knows_its_topics_if_all_its_members_say_them() -> None:
    desk = Desk()
    assert desk.group.topics() is None
    desk.join(protocols=(("range", subscription("a", "b")),))
    desk.join(protocols=(("range", subscription("b", "c")),))
    assert desk.group.topics() == frozenset({"a", "b", "c"})
    desk.advance(1_000)
    assert desk.group.topics() == frozenset({"a", "b", "c"})
    desk.join("m2", protocols=(("range", b"?"),))
    assert desk.group.topics() is None
    desk.leave("m1", "m2")
    assert desk.group.topics() == frozenset()


def test_a_group_of_another_type_says_nothing_of_topics() -> None:
    desk = Desk()
    desk.join(protocol_type="connect", protocols=(("x", subscription("a")),))
    assert desk.group.topics() is None
