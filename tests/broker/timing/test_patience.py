"""Clients with many slices let small ones go first; a lone one never waits."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas_broker.timing.patience import CROWDED_S, PAUSE_S_MAX, READ_S, Crowd, Patience
from barnabas_raftlog.loop_meter import LoopMeter


class Scene:
    """A patience whose pauses are noted; those end when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.crowd = Crowd()
        self.calls = 0
        self.crowd.turn_s = 100 * CROWDED_S
        self.pauses: list[tuple[float, Callable[[], None], asyncio.Handle]] = []
        self.patience = Patience(self.crowd, LoopMeter(), "slice", self._call)
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(self._loop, "call_later", self._call_later)

    def _call(self) -> None:
        self.calls += 1

    def _call_later(self, delay_s: float, call: Callable[[], None], *_: Any) -> asyncio.Handle:
        handle = asyncio.Handle(call, (), self._loop)
        self.pauses.append((delay_s, call, handle))
        return handle

    async def turn(self, reads: int = 0) -> None:
        """Let the loop turn once, with so many reads from clients that ask for little."""
        self._loop.call_soon(lambda: None)
        self.crowd.reads += reads
        await asyncio.sleep(0)


async def test_who_is_alone_goes_on_in_the_next_turn_however_many_slices_that_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    for done in range(1, 4):
        scene.patience.ask(1_000)
        assert scene.calls == done - 1, "never at once: others have a turn in between"
        await scene.turn()
        assert (scene.calls, scene.pauses) == (done, [])


@pytest.mark.parametrize(
    ("reads", "slices", "pause_s"),
    [(1, 1, 0.0), (1, 4, 16 * READ_S), (20, 3, 180 * READ_S), (20, 1_000, PAUSE_S_MAX), (20, 0, 0.0)],
)
async def test_others_go_first_for_as_long_as_they_take_times_the_square_of_the_slices(
    monkeypatch: pytest.MonkeyPatch, reads: int, slices: int, pause_s: float
) -> None:
    scene = Scene(monkeypatch)
    scene.patience.ask(slices)
    await scene.turn(reads)
    assert scene.calls == (not pause_s)
    assert [pause for pause, _, _ in scene.pauses] == pytest.approx([pause_s] if pause_s else [])
    for _, call, _ in scene.pauses:
        call()
    assert scene.calls == 1


async def test_one_that_has_had_fewer_slices_does_not_wait_for_the_pause_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    scene.patience.ask(100)
    await scene.turn(5)
    ((_, _, handle),) = scene.pauses
    scene.patience.ask(200)
    await scene.turn()
    assert (scene.calls, handle.cancelled()) == (0, False), "the first one waits for no less"
    scene.patience.ask(1)
    await scene.turn()
    assert (scene.calls, handle.cancelled(), len(scene.pauses)) == (1, True, 1)


async def test_where_turns_are_short_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.crowd.turn_s = 0.0
    scene.patience.ask(1_000)
    await scene.turn(1_000)
    assert (scene.calls, scene.pauses) == (1, [])


def test_turns_are_long_when_they_are_on_average() -> None:
    crowd = Crowd()
    crowd.note_turn(10 * CROWDED_S)
    assert crowd.pause_s(10, 10) == 0.0, "one long turn is no crowd"
    for _ in range(100):
        crowd.note_turn(2 * CROWDED_S)
    assert crowd.pause_s(10, 10) == pytest.approx(1000 * READ_S)
    assert crowd.pause_s(0, 10) == 0.0
    for _ in range(100):
        crowd.note_turn(CROWDED_S / 2)
    assert crowd.pause_s(10, 10) == 0.0
