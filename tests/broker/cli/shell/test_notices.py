"""A wait of more than a second is told, a shorter one is not."""

import threading

import pytest

from barnabas_broker.local_cluster import notices
from barnabas_broker.local_cluster.notices import noticed


def test_a_long_wait_is_told_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "NOTICE_S", 0.0)
    told = list[str]()
    heard = threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        heard.set()

    with noticed(tell, "waiting for the dawn"):
        assert heard.wait(60)
    assert told == ["waiting for the dawn"]


def test_a_short_wait_is_not_told_and_leaves_no_thread() -> None:
    told = list[str]()
    before = threading.active_count()
    with noticed(told.append, "waiting for the dawn"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert told == []


def test_people_are_told_after_a_second() -> None:
    assert notices.NOTICE_S == 1.0
