"""The well-behaved of a crowd follow leaders, at a rate that brokers keep up with. Nothing is timed."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hostile import crowd
from hostile import load as load_module
from hostile.load import VERSION, Load

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from barnabas_clients.protocol.registry import encode_response


class Broker:
    """Answers every produce with the same code, and counts them."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code
        self.count = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with one, one.makefile("rb") as requests:
            while head := requests.read(4):
                request = requests.read(int.from_bytes(head, "big"))
                self.count += 1
                result = PartitionProduceResponse(index=0, error_code=self.code, base_offset=0)
                answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[result])])
                one.sendall(b"".join(encode_response(0, VERSION, int.from_bytes(request[4:8], "big"), answer)))


class Leaders:
    """Says at first that the old one leads, and after a look that the new one does."""

    def __init__(self, old: Broker, new: Broker) -> None:
        self.now = {0: old.address}
        self.looks = 0
        self._next = {0: new.address}

    def look(self) -> None:
        self.now = self._next
        self.looks += 1


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    old = Broker(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    new = Broker(ErrorCode.NONE)
    yield old, new
    old.close()
    new.close()


def test_requests_go_to_the_next_leader_and_count_from_when_they_were_due(
    brokers: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = brokers
    monkeypatch.setattr(load_module, "Leaders", lambda *_: Leaders(old, new))
    load = Load([], "t", 3)
    found = load.open(200.0, 0.1)
    load.close()
    assert (found["offered"], found["answered"], found["errors"]) == (20, 20, {})
    assert found["share_min"] == 1.0
    assert found["followed"] >= 3
    assert old.count >= 3
    assert new.count == 20


def test_a_leader_that_takes_requests_again_gets_them_again(
    brokers: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = brokers
    leaders = Leaders(old, old)
    monkeypatch.setattr(load_module, "Leaders", lambda *_: leaders)
    load = Load([], "t", 1)
    look = leaders.look

    def mended() -> None:
        look()
        old.code = ErrorCode.NONE

    monkeypatch.setattr(leaders, "look", mended)
    found = load.open(100.0, 0.05)
    load.close()
    assert (found["answered"], found["errors"]) == (5, {})


class Told:
    """A load that keeps up with less than 700 a second."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, word: str, limit_s: float) -> dict[str, Any]:
        kind = word.split(maxsplit=1)[0]
        rate = float(word.split()[1])
        self.asked.append(kind)
        if kind == "closed":
            return {"per_s": 1_000.0}
        p99_ms = 300.0 if rate < 700 else 5_000.0
        return {"offered": 100, "answered": 100, "errors": {}, "p50_ms": 10.0, "p99_ms": p99_ms, "processor": 0.1}


def test_what_the_machine_carries_is_the_highest_rate_that_is_kept_up_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "SETTLES_S", 0)
    told = Told()
    assert crowd.carried(told) == pytest.approx(640.0)  # type: ignore[arg-type]
    assert told.asked == ["closed", "open", "open", "open"]
