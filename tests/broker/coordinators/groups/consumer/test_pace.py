"""Members that hurry have appointments, and not too many of them."""

from barnabas_broker.coordinators.groups.consumer.pace import APART_MS, Pace


def test_a_few_come_as_soon_as_they_are_wanted() -> None:
    pace = Pace()
    assert [pace.interval_ms(200, 5_000, now_ms) for now_ms in range(0, 1_000, 10)] == [200] * 100


def test_many_come_one_after_the_other_and_those_that_are_too_many_when_they_would_anyway() -> None:
    pace = Pace()
    intervals = [pace.interval_ms(200, 5_000, 0) for _ in range(5_000)]
    assert intervals == sorted(intervals)
    assert intervals[:100] == [200] * 100
    assert len([one for one in intervals if one < 5_000]) == 5_000 // APART_MS
    assert intervals[-1] == 5_000


def test_in_the_long_run_they_are_so_many_in_a_second() -> None:
    pace = Pace()
    due = dict.fromkeys(range(1_000), 0)
    count = 0
    for now_ms in range(0, 20_000, 50):
        for member in [one for one, at_ms in due.items() if at_ms <= now_ms]:
            due[member] = now_ms + pace.interval_ms(200, 5_000, now_ms)
            count += now_ms >= 10_000
    assert count <= 10_000 // APART_MS + 200
