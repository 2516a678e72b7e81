"""Whole brokers whose batches are checked in threads: the judges of histories see nothing of it."""

from typing import Any

import pytest

from barnabas_broker.partition.checks import check_at_once, is_surely_short
from barnabas_broker.server.handlers import produce

from .scenario import run_seed

SEED = 12  # of the quicker ones


@pytest.mark.slow
def test_order_and_promises_hold_while_two_of_three_batches_are_checked_in_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent_to_threads = 0

    def is_slow(header: Any) -> bool:
        return bool(header.crc % 3)

    def at_once(header: Any, frame: memoryview, *rest: Any) -> Any:
        nonlocal sent_to_threads
        sent_to_threads += is_slow(header)
        return None if is_slow(header) else check_at_once(header, frame, *rest)

    def is_short(header: Any, frame: memoryview, rules: Any) -> bool:
        return not is_slow(header) and is_surely_short(header, frame, rules)

    monkeypatch.setattr(produce, "check_at_once", at_once)
    monkeypatch.setattr(produce, "is_surely_short", is_short)
    run_seed(SEED)
    assert sent_to_threads > 50
