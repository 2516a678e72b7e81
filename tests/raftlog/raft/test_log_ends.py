"""Samples of a log's end, beside a model that remembers when each entry was appended."""

from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.raft.log_ends import GAPS_PER_AGE, NEVER_MS, SAMPLES_KEPT, SAMPLES_MAX, LogEnds

SPACING_MS = 100
REMEMBERED_MS = 600_000


class Model:
    """Keeps everything: the moment at which each entry was appended, behind those that were there before."""

    def __init__(self, last_index: int) -> None:
        self.base_index = last_index
        self.appended_ms = list[int]()

    @property
    def last_index(self) -> int:
        return self.base_index + len(self.appended_ms)

    def reached_ms(self, index: int, now_ms: int) -> int:
        """Return until when the log held nothing behind `index`."""
        if index >= self.last_index:
            return now_ms
        return self.appended_ms[index - self.base_index] if index >= self.base_index else NEVER_MS


class Load:
    """A leader's log under appends that a test chooses."""

    def __init__(self, last_index: int = 7) -> None:
        self.now_ms = 1_000
        self.ends = LogEnds(last_index, SPACING_MS)
        self.model = Model(last_index)

    def append(self, after_ms: int, count: int = 1) -> None:
        self.now_ms += after_ms
        self.model.appended_ms += [self.now_ms] * count
        self.ends.note(self.model.last_index, self.now_ms)

    def steadily(self, every_ms: int, for_ms: int) -> None:
        for _ in range(for_ms // every_ms):
            self.append(every_ms)

    def late_ms(self, index: int) -> int:
        """Return by how much the samples understate the moment of a follower that has the log up to `index`."""
        return self.model.reached_ms(index, self.now_ms) - self.ends.reached_ms(index, self.now_ms)

    def check(self, index: int) -> None:
        true_ms = self.model.reached_ms(index, self.now_ms)
        if true_ms == NEVER_MS:
            assert self.ends.reached_ms(index, self.now_ms) == NEVER_MS
        else:
            assert 0 <= self.late_ms(index) <= SPACING_MS + (self.now_ms - true_ms) // GAPS_PER_AGE


def test_follower_that_has_all_has_it_now() -> None:
    load = Load(7)
    assert load.ends.reached_ms(7, 5_000) == 5_000
    load.append(10)
    assert load.ends.reached_ms(8, 5_000) == 5_000


def test_follower_that_lacks_an_entry_had_everything_until_that_was_appended() -> None:
    load = Load(7)
    load.append(50_000)
    assert load.ends.reached_ms(7, load.now_ms + 3) == load.now_ms
    load.append(50_000)
    assert (load.late_ms(7), load.late_ms(8)) == (0, 0)


def test_nothing_is_known_of_who_lacks_what_was_there_before() -> None:
    load = Load(7)
    load.append(10)
    assert load.ends.reached_ms(6, load.now_ms) == NEVER_MS


def test_appends_between_two_samples_count_from_the_older_one() -> None:
    load = Load(7)
    load.append(0)
    load.append(SPACING_MS - 1)
    assert len(load.ends) == 1
    assert load.ends.reached_ms(8, load.now_ms) == load.now_ms - SPACING_MS + 1
    load.append(1)
    assert len(load.ends) == 2
    assert load.late_ms(9) == 0


@given(
    st.lists(st.tuples(st.one_of(st.integers(0, 250), st.integers(0, 3_000)), st.integers(1, 4)), max_size=300),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_no_pattern_of_appends_moves_the_moment_too_late_or_far_too_early(
    appends: list[tuple[int, int]], data: st.DataObject
) -> None:
    load = Load()
    for after_ms, count in appends:
        load.append(after_ms, count)
        assert len(load.ends) < SAMPLES_MAX
    remembered = bisect_left(load.model.appended_ms, load.now_ms - REMEMBERED_MS) + load.model.base_index
    for _ in range(20):
        load.check(data.draw(st.integers(remembered, load.model.last_index)))


@pytest.mark.parametrize("every_ms", [20, 100, 101, 5_000])
def test_hours_of_steady_load_are_remembered_in_few_samples(every_ms: int) -> None:
    load = Load()
    for _ in range(3):
        load.steadily(every_ms=every_ms, for_ms=1_200_000)
        for age_ms in (0, 20, 500, 1_000, 30_000, 300_000, REMEMBERED_MS):
            load.check(bisect_left(load.model.appended_ms, load.now_ms - age_ms) + load.model.base_index)
        assert len(load.ends) < SAMPLES_MAX


@pytest.mark.parametrize("gap_ms", [200, 400, 1_000, 10_000])
def test_pairs_of_appends_are_remembered_as_long(gap_ms: int) -> None:
    """The worst that there is: of two samples that are close to each other and far from all others neither can go."""
    load = Load()
    for _ in range(20_000):
        load.append(gap_ms)
        load.append(SPACING_MS)
    load.check(bisect_left(load.model.appended_ms, load.now_ms - REMEMBERED_MS) + load.model.base_index)


def test_samples_are_left_out_as_soon_as_they_can_be_and_no_sooner() -> None:
    load = Load()
    for _ in range(SAMPLES_MAX):
        load.append(SPACING_MS)
    assert len(load.ends) < SAMPLES_KEPT
    known = range(load.model.base_index, load.model.last_index)
    kept_ms = sorted({load.ends.reached_ms(index, load.now_ms) for index in known})
    assert len(kept_ms) == len(load.ends)
    assert kept_ms[0] == load.model.appended_ms[0], "the oldest"
    for older_ms, middle_ms, newer_ms in zip(kept_ms, kept_ms[1:], kept_ms[2:], strict=False):
        allowed_ms = (load.now_ms - newer_ms) // GAPS_PER_AGE
        assert newer_ms - older_ms > allowed_ms, "the one in the middle need not be there"
        assert newer_ms - middle_ms <= max(allowed_ms, SPACING_MS)


def test_thinning_comes_once_in_many_samples() -> None:
    load = Load()
    before = 0
    thinned = 0
    for _ in range(1_000):
        load.append(SPACING_MS)
        assert len(load.ends) < SAMPLES_MAX
        thinned += len(load.ends) < before
        before = len(load.ends)
    assert 0 < thinned <= 1_000 // (SAMPLES_MAX - SAMPLES_KEPT)
