"""By how much earlier a segment is closed (`segment.jitter.ms`)."""

from barnabas_broker.replicas.retention import jitter_ms


def test_segments_are_closed_at_times_of_their_own_within_the_jitter() -> None:
    drawn = [jitter_ms(f"t-{index} 0", 1_000) for index in range(200)]
    assert all(0 <= one < 1_000 for one in drawn)
    assert len(set(drawn)) > 150, "they are spread"
    assert min(drawn) < 100
    assert max(drawn) > 900


def test_a_segment_keeps_its_time() -> None:
    assert jitter_ms("t-0 17", 1_000) == jitter_ms("t-0 17", 1_000)
    assert jitter_ms("t-0 17", 1_000_000) != jitter_ms("t-0 18", 1_000_000)


def test_without_jitter_none_is_drawn() -> None:
    assert jitter_ms("t-0 0", 0) == 0
