"""Two nodes' datagrams on virtual time: signs of life, silence, and noise."""

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.links.byte_counts import NO_CONNECTION, ByteCounts
from barnabas_raftlog.links.liveness import (
    DATAGRAM_BYTES_MAX,
    INTERVAL_MS,
    SENT_REMEMBERED,
    Datagram,
    PeerLiveness,
    cluster_mark,
    decode_datagram,
    encode_datagram,
)

MARK = cluster_mark("c")
HERE = 11  # incarnations
THERE = 22
NUMBERS = st.integers(0, (1 << 64) - 1)
COUNTS = st.builds(ByteCounts, st.integers(0, (1 << 32) - 1), NUMBERS, NUMBERS)
Fate = Callable[[bool], int | None]  # is it from here to there? -> delay in ms, None: lost


class Pair:
    """Two nodes that send each other a datagram per interval, through a network that `fate` decides."""

    def __init__(self) -> None:
        self.now_ms = 10_000
        self.here = PeerLiveness(1_000, self.now_ms)
        self.there = PeerLiveness(1_000, self.now_ms)
        self.here.connected(THERE, self.now_ms)
        self.there.connected(HERE, self.now_ms)
        self.flying: list[tuple[int, bool, Datagram]] = []

    def run(self, duration_ms: int, fate: Fate = lambda _: 1) -> None:
        for _ in range(duration_ms):
            self.now_ms += 1
            if self.now_ms % INTERVAL_MS == 0:
                self._send(self.here.next(1, HERE, self.now_ms), True, fate)
            if self.now_ms % INTERVAL_MS == 37:
                self._send(self.there.next(2, THERE, self.now_ms), False, fate)
            landed = [item for item in self.flying if item[0] <= self.now_ms]
            self.flying = [item for item in self.flying if item[0] > self.now_ms]
            for _, outward, datagram in landed:
                receiver, incarnation = (self.there, THERE) if outward else (self.here, HERE)
                receiver.on_datagram(datagram, incarnation, self.now_ms)

    def _send(self, datagram: Datagram, outward: bool, fate: Fate) -> None:
        delay_ms = fate(outward)
        if delay_ms is not None:
            self.flying.append((self.now_ms + delay_ms, outward, datagram))

    @property
    def fresh(self) -> tuple[bool, bool]:
        return self.here.is_fresh(self.now_ms), self.there.is_fresh(self.now_ms)


def test_two_that_hear_each_other_stay_fresh() -> None:
    pair = Pair()
    pair.run(5_000)
    assert pair.fresh == (True, True)
    assert pair.here.timeout_ms == 1_000
    assert 1 <= pair.here.rtt_ms <= 3
    assert pair.here.loss == 0


@pytest.mark.parametrize("outward_lost", [True, False])
def test_a_one_way_cut_makes_both_silent(outward_lost: bool) -> None:
    pair = Pair()
    pair.run(2_000)
    pair.run(1_300, lambda outward: None if outward == outward_lost else 1)
    assert pair.fresh == (False, False)
    pair.run(300)
    assert pair.fresh == (True, True)


def test_a_connection_counts_as_one_echo_and_no_more() -> None:
    pair = Pair()
    pair.run(999, lambda _: None)
    assert pair.fresh == (True, True)
    pair.run(1, lambda _: None)
    assert pair.fresh == (False, False)


def test_loss_is_noticed_and_survived() -> None:
    pair = Pair()
    rng = random.Random(7)
    pair.run(20_000, lambda _: None if rng.random() < 0.3 else 1)
    assert pair.fresh == (True, True)
    assert 0.1 < pair.here.loss < 0.6


def test_a_slow_network_makes_patient_and_there_is_an_end_to_patience() -> None:
    pair = Pair()
    rng = random.Random(7)
    pair.run(20_000, lambda _: rng.randrange(1, 600))
    assert pair.fresh == (True, True)
    assert pair.here.timeout_ms > 1_000
    pair.run(20_000, lambda _: 4_000)
    assert pair.here.timeout_ms <= 5_000
    pair.run(20_000)
    assert pair.here.timeout_ms == 1_000


@pytest.mark.parametrize("phase_ms", range(0, INTERVAL_MS, 10))
def test_a_cut_that_was_mended_does_not_make_slow_to_notice_the_next(phase_ms: int) -> None:
    pair = Pair()
    pair.run(5_000 + phase_ms)
    pair.run(4_000, lambda _: None)
    assert pair.fresh == (False, False)
    pair.run(300)
    assert pair.fresh == (True, True)
    assert (pair.here.timeout_ms, pair.there.timeout_ms) == (1_000, 1_000)


@pytest.mark.parametrize("read_every_ms", [0, 30, 90])
def test_a_process_that_stood_still_makes_nobody_slow_to_notice_the_next_silence(read_every_ms: int) -> None:
    """Datagrams for it wait in its socket meanwhile, and it sends between reading one and the next."""
    pair = Pair()
    place = itertools.count()
    pair.run(5_000)
    goes_on_ms = pair.now_ms + 4_000

    def wait_ms(outward: bool) -> int | None:
        return goes_on_ms - pair.now_ms + read_every_ms * next(place) if outward else None

    pair.run(4_000, wait_ms)
    assert pair.fresh == (False, False)
    for _ in range(500):
        pair.run(10)
        assert (pair.here.timeout_ms, pair.there.timeout_ms) == (1_000, 1_000)
    assert pair.fresh == (True, True)


def from_there(
    sequence: int,
    *,
    incarnation: int = THERE,
    echo_incarnation: int = HERE,
    echo_sequence: int = 5,
    accepted: ByteCounts = NO_CONNECTION,
) -> Datagram:
    return Datagram(
        node_id=2,
        incarnation=incarnation,
        sequence=sequence,
        echo_incarnation=echo_incarnation,
        echo_sequence=echo_sequence,
        echo_delay_ms=0,
        accepted=accepted,
    )


def test_another_life_is_not_heard_before_its_connection() -> None:
    pair = Pair()
    pair.run(1_000)
    stranger = from_there(10_000, incarnation=THERE + 1)
    assert not pair.here.on_datagram(stranger, HERE, pair.now_ms)
    pair.here.connected(THERE + 1, pair.now_ms)
    assert pair.here.on_datagram(stranger, HERE, pair.now_ms)


def test_a_replayed_datagram_changes_nothing() -> None:
    pair = Pair()
    pair.run(1_000)
    old = pair.there.next(2, THERE, pair.now_ms)
    assert pair.here.on_datagram(old, HERE, pair.now_ms)
    fresh_at_ms = pair.here.fresh_at_ms
    assert not pair.here.on_datagram(old, HERE, pair.now_ms + 900)
    assert pair.here.fresh_at_ms == fresh_at_ms


def test_a_sequence_that_nobody_can_have_reached_separates_nobody() -> None:
    pair = Pair()
    pair.run(1_000)
    newest = pair.there.next(2, THERE, pair.now_ms).sequence
    for ahead in (1 << 63, 1 << 32, SENT_REMEMBERED + 4):
        assert not pair.here.on_datagram(from_there(newest + ahead), HERE, pair.now_ms)
    pair.run(5_000)
    assert pair.fresh == (True, True)
    assert pair.here.loss < 0.01
    assert not pair.here.is_not_understood(pair.now_ms)


@pytest.mark.parametrize("absent_ms", [5_000, 60_000, 3_600_000])
def test_a_peer_that_was_cut_off_may_be_ahead_by_what_it_has_sent_meanwhile(absent_ms: int) -> None:
    pair = Pair()
    pair.run(1_000)
    for _ in range(0, absent_ms, INTERVAL_MS):
        pair.now_ms += INTERVAL_MS
        pair.there.next(2, THERE, pair.now_ms)
    pair.run(500)
    assert pair.fresh == (True, True)


@pytest.mark.parametrize("sequence", [1, 77, 1 << 50])
def test_the_first_of_a_link_counts_only_if_it_names_the_connection_that_we_dialled(sequence: int) -> None:
    pair = Pair()
    pair.here.connected(THERE, pair.now_ms, 4711)
    for mark in (0, 4712):
        strange = from_there(sequence, accepted=ByteCounts(mark, 1, 1))
        assert not pair.here.on_datagram(strange, HERE, pair.now_ms)
    first = from_there(sequence, accepted=ByteCounts(4711, 1, 1))
    assert pair.here.on_datagram(first, HERE, pair.now_ms)
    assert pair.here.on_datagram(from_there(sequence + 1), HERE, pair.now_ms)


def test_who_is_not_understood_for_a_timeout_counts_from_its_next_connection_on() -> None:
    pair = Pair()
    pair.here.on_datagram(from_there(1 << 63), HERE, pair.now_ms)  # the first: nothing speaks against it
    pair.run(1_000)
    assert not pair.here.is_not_understood(pair.now_ms)
    pair.run(200)
    assert pair.here.is_not_understood(pair.now_ms)
    assert pair.fresh == (False, False)
    pair.here.connected(THERE, pair.now_ms)
    assert not pair.here.is_not_understood(pair.now_ms)
    pair.run(1_500)
    assert pair.fresh == (True, True)


def test_our_own_pause_is_no_time_in_which_a_peer_was_not_understood() -> None:
    pair = Pair()
    pair.run(1_000)
    old = from_there(1)
    pair.here.on_datagram(old, HERE, pair.now_ms)
    pair.now_ms += 3_000
    pair.here.forgive(pair.now_ms)
    pair.here.on_datagram(old, HERE, pair.now_ms)
    assert not pair.here.is_not_understood(pair.now_ms)


def test_one_that_counts_ends_the_doubt() -> None:
    pair = Pair()
    pair.run(1_000)
    old = from_there(1)
    for _ in range(30):
        assert not pair.here.on_datagram(old, HERE, pair.now_ms)
        assert not pair.here.is_not_understood(pair.now_ms)
        pair.run(INTERVAL_MS)


def test_an_echo_of_what_was_never_sent_proves_nothing() -> None:
    pair = Pair()
    pair.run(2_000, lambda _: None)
    for sequence, (incarnation, echoed) in enumerate([(HERE, 10_000), (HERE, 0), (HERE + 1, 3)], 1):
        datagram = from_there(sequence, echo_incarnation=incarnation, echo_sequence=echoed)
        assert pair.here.on_datagram(datagram, HERE, pair.now_ms)
    assert not pair.here.is_fresh(pair.now_ms)


def test_after_our_own_pause_a_peer_gets_time_to_answer_but_not_for_ever() -> None:
    pair = Pair()
    pair.run(2_000)
    pair.now_ms += 30_000
    assert pair.fresh == (False, False)
    pair.here.forgive(pair.now_ms)
    assert pair.here.is_fresh(pair.now_ms)
    pair.run(600, lambda _: None)
    assert not pair.here.is_fresh(pair.now_ms)


def test_forgiving_does_not_shorten_anything() -> None:
    pair = Pair()
    pair.run(2_000)
    fresh_at_ms = pair.here.fresh_at_ms
    pair.here.forgive(pair.now_ms)
    assert pair.here.fresh_at_ms == fresh_at_ms


@settings(deadline=None, max_examples=100)
@given(
    datagram=st.builds(
        Datagram,
        node_id=st.integers(0, 1 << 30),
        incarnation=NUMBERS,
        sequence=NUMBERS,
        echo_incarnation=NUMBERS,
        echo_sequence=NUMBERS,
        echo_delay_ms=st.integers(0, (1 << 31) - 1),
        dialled=COUNTS,
        accepted=COUNTS,
        is_busy=st.booleans(),
    ),
    secret=st.sampled_from([None, b"s"]),
)
def test_datagrams_survive_the_wire(datagram: Datagram, secret: bytes | None) -> None:
    data = encode_datagram(datagram, 3, MARK, secret)
    assert len(data) <= DATAGRAM_BYTES_MAX
    assert decode_datagram(data, 3, MARK, secret) == datagram
    assert decode_datagram(data, 4, MARK, secret) is None, "for somebody else"
    assert decode_datagram(data, 3, cluster_mark("other"), secret) is None
    assert decode_datagram(data, 3, MARK, b"another secret") is None
    assert decode_datagram(data, 3, MARK, b"s" if secret is None else None) is None


@settings(deadline=None, max_examples=100)
@given(data=st.binary(max_size=100), position=st.integers(0, 115), value=st.integers(1, 255))
def test_garbage_is_nothing(data: bytes, position: int, value: int) -> None:
    assert decode_datagram(data, 3, MARK, None) is None
    signed = bytearray(encode_datagram(from_there(3), 3, MARK, b"s"))
    signed[position] ^= value
    assert decode_datagram(bytes(signed), 3, MARK, b"s") is None


def test_datagram_layout_is_pinned() -> None:
    datagram = Datagram(
        node_id=1,
        incarnation=2,
        sequence=3,
        echo_incarnation=4,
        echo_sequence=5,
        echo_delay_ms=6,
        dialled=ByteCounts(9, 10, 11),
        accepted=ByteCounts(12, 13, 14),
    )
    data = encode_datagram(datagram, 7, 8, None)
    numbers = [(8, 8), (1, 4), (2, 8), (3, 8), (4, 8), (5, 8), (6, 4), (7, 8)]
    numbers += [(9, 4), (10, 8), (11, 8), (12, 4), (13, 8), (14, 8)]
    assert data.hex() == "ba5b" + "02" + "00" + b"".join(n.to_bytes(size, "big") for n, size in numbers).hex()
