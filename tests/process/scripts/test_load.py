"""The load of torture goes on behind a fatal error of its library, and says what it was waiting for."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as LibraryProducer
from trials import load

FATAL = KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "desynchronized", fatal=True))


def in_a_callback(cause: BaseException) -> SystemError:
    error = SystemError("returned a result with an exception set")
    error.__cause__ = cause
    return error


class Library:
    """A producer of the library whose polls raise what they are given."""

    made = 0

    def __init__(self, _: dict[str, Any]) -> None:
        type(self).made += 1
        self.raised: list[BaseException] = []

    def produce(self, *_: Any, **__: Any) -> None: ...

    def purge(self) -> None: ...

    def poll(self, _: float) -> int:
        if self.raised:
            raise self.raised.pop()
        return 0

    def flush(self, timeout_s: float) -> int:
        return self.poll(timeout_s)


@pytest.fixture
def producing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[load.Producing]:
    monkeypatch.setattr(load, "Producer", Library)
    monkeypatch.setattr(Library, "made", 0)
    with closing(load.Recorder(tmp_path / "history")) as recorder:
        yield load.Producing(recorder, "nowhere", "p", 1, 1_000_000)


@pytest.mark.parametrize("error", [FATAL, in_a_callback(FATAL)], ids=["alone", "beside a delivery"])
def test_a_fatal_error_begins_another_life(producing: load.Producing, error: BaseException) -> None:
    library: Any = producing._producer
    library.raised.append(error)
    producing.work()
    producing.work()
    assert (producing.lost_lives, Library.made) == (1, 2)
    library = producing._producer
    library.raised.append(error)
    producing.close()
    assert not producing._undecided, "the fate of all that it had is told"


def test_a_mistake_of_a_callback_is_none(producing: load.Producing) -> None:
    library: Any = producing._producer
    library.raised.append(in_a_callback(ValueError("ours")))
    with pytest.raises(SystemError):
        producing.work()


def test_a_producer_that_does_not_end_says_what_it_waits_for() -> None:
    statistics = ["{}"]
    assert load.what_waits(statistics[0]) == ""
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "enable.idempotence": True,
        "message.timeout.ms": 0,
        "statistics.interval.ms": 1,
        "log_level": 0,
        "error_cb": lambda _: None,
        "stats_cb": statistics.append,
    }
    producer = LibraryProducer(settings)
    producer.produce(load.TOPIC, b"x", partition=0)
    while len(statistics) < 3:
        producer.poll(0.1)
    assert "'idemp_state': " in load.what_waits(statistics[-1])
    assert "'msgq_cnt': 1" in load.what_waits(statistics[-1])
    producer.purge()
