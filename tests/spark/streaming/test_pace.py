"""Few tasks are tried when batches are brief, and given up when they are not, for longer from time to time."""

import pytest

from barnabas_spark.streaming.pace import BRIEF_MS, PAUSE_MS, PAUSE_MS_MAX, Pace


class Query:
    """A query whose batches take as long as it is said."""

    def __init__(self) -> None:
        self.now_ms = 7
        self.pace = Pace(lambda: self.now_ms)

    def batch(self, takes_ms: int) -> bool:
        """Run a batch; return whether it had few tasks."""
        had_few = self.pace.takes_few
        self.pace.begin()
        self.now_ms += takes_ms
        self.pace.end()
        self.pace.end()  # Spark asks again and again while there is nothing to do.
        return had_few


def test_the_first_batch_has_a_task_for_each_partition_and_the_next_ones_have_few_if_it_was_brief() -> None:
    query = Query()
    assert [query.batch(BRIEF_MS), query.batch(BRIEF_MS), query.batch(1)] == [False, True, True]


def test_long_batches_never_have_few_tasks() -> None:
    query = Query()
    assert not any(query.batch(BRIEF_MS + 1) for _ in range(50))


def test_a_batch_of_few_tasks_that_is_long_ends_them_for_a_pause_that_doubles() -> None:
    query = Query()
    pauses = []
    query.batch(100)
    for _ in range(8):
        assert query.batch(BRIEF_MS + 1)
        began_ms = query.now_ms
        while not query.pace.takes_few:
            query.batch(100)
        pauses.append(query.now_ms - began_ms)
    assert pauses == [min(PAUSE_MS_MAX, PAUSE_MS << number) for number in range(8)]


def test_a_long_time_with_few_tasks_makes_the_next_pause_short_again() -> None:
    query = Query()
    query.batch(100)
    for _ in range(4):
        query.batch(BRIEF_MS + 1)
        query.now_ms += PAUSE_MS_MAX
        query.batch(100)
    query.now_ms += PAUSE_MS_MAX
    query.batch(BRIEF_MS + 1)
    query.now_ms += PAUSE_MS
    assert not query.batch(100)
    assert query.pace.takes_few


def test_waiting_between_batches_is_not_their_time() -> None:
    query = Query()
    query.batch(100)
    query.now_ms += 60_000
    assert query.batch(100)
    assert query.pace.takes_few


@pytest.mark.parametrize("asked", [1, 5])
def test_questions_before_the_first_batch_change_nothing(asked: int) -> None:
    query = Query()
    for _ in range(asked):
        query.pace.end()
    assert not query.pace.takes_few
