"""Members that hurry have appointments, and not too many of them; new groups wait while a crowd comes."""

from barnabas_broker.coordinators.groups.consumer.pace import (
    CROWD,
    CROWD_FACTOR,
    CROWD_MS,
    HURRIED_APART_MS,
    SETTLED_APART_MS,
    Gathering,
    Pace,
)


def test_a_few_come_as_soon_as_they_are_wanted() -> None:
    pace = Pace(HURRIED_APART_MS)
    assert [pace.interval_ms(200, 5_000, now_ms) for now_ms in range(0, 1_000, 10)] == [200] * 100


def test_many_come_one_after_the_other_and_those_that_are_too_many_when_they_would_anyway() -> None:
    pace = Pace(HURRIED_APART_MS)
    intervals = [pace.interval_ms(200, 5_000, 0) for _ in range(5_000)]
    assert intervals == sorted(intervals)
    assert intervals[:100] == [200] * 100
    assert len([one for one in intervals if one < 5_000]) == 5_000 // HURRIED_APART_MS
    assert intervals[-1] == 5_000


def test_in_the_long_run_they_are_so_many_in_a_second() -> None:
    pace = Pace(HURRIED_APART_MS)
    due = dict.fromkeys(range(1_000), 0)
    count = 0
    for now_ms in range(0, 20_000, 50):
        for member in [one for one, at_ms in due.items() if at_ms <= now_ms]:
            due[member] = now_ms + pace.interval_ms(200, 5_000, now_ms)
            count += now_ms >= 10_000
    assert count <= 10_000 // HURRIED_APART_MS + 200


def test_few_members_of_settled_groups_come_soon_and_many_share_what_a_broker_bears() -> None:
    for count, wanted_ms in ((4, 500), (100, 500), (400, 2_000), (800, 4_000), (2_000, 5_000)):
        pace = Pace(SETTLED_APART_MS)
        due = {member: 3 * member for member in range(count)}
        intervals: list[int] = []
        for now_ms in range(0, 60_000, 10):
            for member in [one for one, at_ms in due.items() if at_ms <= now_ms]:
                interval_ms = pace.interval_ms(500, 5_000, now_ms)
                due[member] = now_ms + interval_ms
                if now_ms >= 30_000:
                    intervals.append(interval_ms)
        assert 0.8 * wanted_ms <= min(intervals) <= max(intervals) <= max(500, 1.2 * wanted_ms)
        assert len(intervals) <= max(30_000 // SETTLED_APART_MS, 30_000 * count // 5_000) + count


def test_a_few_new_groups_wait_for_as_long_as_one_alone() -> None:
    gathering = Gathering()
    for now_ms in range(0, 5_000, CROWD_MS // (CROWD - 2)):
        gathering.come(now_ms)
        assert gathering.until_ms(now_ms, 200) == now_ms + 200


def test_in_a_crowd_they_wait_until_it_has_come_but_not_for_ever() -> None:
    gathering = Gathering()
    for now_ms in range(0, 800, 5):
        gathering.come(now_ms)
    assert gathering.until_ms(0, 200) == 795 + CROWD_MS
    assert gathering.until_ms(700, 200) == 795 + CROWD_MS
    for now_ms in range(800, 3_000, 5):
        gathering.come(now_ms)
    assert gathering.until_ms(0, 200) == CROWD_FACTOR * 200
    assert gathering.until_ms(0, 0) == 0
    # It has passed when the next one comes.
    gathering.come(4_000)
    assert gathering.until_ms(4_000, 200) == 4_200
