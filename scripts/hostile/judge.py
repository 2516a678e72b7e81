"""The verdict on brokers' costs and on the well-behaved client's fate. Pure."""

from collections.abc import Sequence

from .costs import PAUSE_S_MAX, Cost

__all__ = ["judge"]


def judge(client: dict[str, object], costs: Sequence[Cost], *, timed: bool = True) -> list[str]:
    """Return all that is beyond the limits."""
    found = [text for cost in costs for text in cost.complaints()]
    if not timed:
        found = [text for text in found if "callback" not in text]
    pause_s = client["pause_s"]
    assert isinstance(pause_s, float | int)
    if timed and pause_s > PAUSE_S_MAX:
        found.append(f"the client paused for {pause_s:.2f} s")
    if client["error_count"]:
        errors = client["errors"]
        assert isinstance(errors, list)
        found.append(f"the client had {client['error_count']} errors: {errors[0]}")
    return found
