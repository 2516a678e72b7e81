"""The account of held bytes equals a recount, and the right connections wait."""

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.server.transient_bytes import SMALL_BYTES, TransientBytes

MAX = 10 * SMALL_BYTES
RESERVE = 4 * SMALL_BYTES


class Holder:
    """A connection from `host`."""

    def __init__(self, host: str = "a") -> None:
        self.held_bytes = 0
        self.host = host


def account(*holders: tuple[Holder, int]) -> TransientBytes:
    made = TransientBytes(MAX, RESERVE)
    for holder, count in holders:
        made.add(holder, count)
    return made


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-200_000, 200_000) | st.just("gone"))))
def test_the_account_equals_a_recount(actions: list[tuple[int, int | str]]) -> None:
    holders = [Holder(host) for host in "aabbc"]
    made = account()
    for number, count in actions:
        holder = holders[number]
        if isinstance(count, str):
            made.forget(holder)
        else:
            made.add(holder, max(count, -holder.held_bytes))
        assert made.total_bytes == sum(one.held_bytes for one in holders)
        by_host = {host: sum(one.held_bytes for one in holders if one.host == host) for host in "abc"}
        assert made._by_host == {host: count for host, count in by_host.items() if count}


def test_while_there_is_room_nobody_waits() -> None:
    greedy = Holder()
    assert not account((greedy, MAX - 1)).must_wait(greedy)


def test_in_the_reserve_those_wait_that_hold_much() -> None:
    greedy = Holder()
    small = Holder()
    made = account((greedy, MAX), (small, SMALL_BYTES))
    assert made.must_wait(greedy)
    assert not made.must_wait(small)
    assert not made.must_wait(Holder())
    made.add(small, 1)
    assert made.must_wait(small)


def test_beyond_it_everybody_waits_but_the_privileged_one() -> None:
    greedy = Holder()
    small = Holder()
    made = account((greedy, MAX + RESERVE))
    assert made.must_wait(small)
    made.privileged = small
    assert not made.must_wait(small)
    assert made.must_wait(greedy)
    made.end_privilege(greedy)
    assert not made.must_wait(small)
    made.forget(small)
    assert made.must_wait(small)


def test_what_the_privileged_one_holds_is_not_taken_from_the_others() -> None:
    greedy = Holder()
    small = Holder()
    made = account((greedy, MAX))
    made.privileged = greedy
    made.add(greedy, 10 * MAX)
    assert not made.must_wait(small)
    made.add(Holder(), MAX + RESERVE)
    assert made.must_wait(small)


def test_an_address_with_more_than_its_part_waits_unless_it_is_alone() -> None:
    many = [Holder("a") for _ in range(11)]
    made = account(*((one, SMALL_BYTES) for one in many))
    assert made.is_scarce
    assert not made.must_wait(Holder("a"))
    other = Holder("b")
    made.add(other, 1)
    assert made.must_wait(Holder("a"))
    assert not made.must_wait(other)
    assert not made.must_wait(Holder("c"))


def test_answers_shrink_with_the_room_and_never_below_a_little() -> None:
    assert account().room_for_answer() == MAX // 4
    assert account((Holder(), MAX // 2)).room_for_answer() == MAX // 8
    assert account((Holder(), MAX + RESERVE)).room_for_answer() == SMALL_BYTES
