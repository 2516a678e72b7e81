"""Plays a short, seeded share of `scripts/torture --workload hostile`: nobody is harmed, memory stays bounded.

Nothing is timed here; only the script asserts how long callbacks and pauses are.
"""

import contextlib
import os
import subprocess
import time
from typing import Any

import pytest
from hostile.costs import CALLBACK_MS_MAX, MEMORY_MIB_MAX, PAUSE_S_MAX, Cost, Longest, longest_of
from hostile.judge import judge
from hostile.largest_requests import SHAPES, Shape, largest
from hostile.machine import Machine, Still, still_ms
from hostile.processes import Told, ToldNothingError
from hostile.scenes.table import SCENES
from machines.modules import module_command, module_environment

from barnabas_broker.server.dispatch import ELEMENTS_MAX
from barnabas_clients.protocol.registry import APIS, read_request_header
from barnabas_raftlog.errors import TooManyElementsError

LIMIT_S = 240
SHARE = (
    "nine-half-requests",
    "foreign-protocols",
    "pipelines-unread",
    "readers-that-do-not-read",
    "long-polls",
    "describe-configs-duplicates",
    "group-of-huge-members",
    "odd-group-names",
    "expressions-that-take-long",
    "headers-that-lie",
    "topics-that-cannot-be",
    "peer-garbage",
    "forged-terms",
)
WELL = {"pause_s": 0.1, "error_count": 0, "errors": []}
FINE = Cost(1, alive=True, memory_mib=90, processor_s=1.0, longest=Longest(3.0, "turn", 8.0, "turn"), missing="")


@pytest.mark.process
@pytest.mark.slow
def test_a_share_of_all_hostile_scenes_harms_nobody() -> None:
    words = ["--untimed", "--share", "0.1", "--seconds", "1", "--scenes", ",".join(SHARE)]
    command = module_command("hostile.run", *words)
    environment = module_environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(SHARE)} of {len(SHARE)} scenes, 0 beyond the limits" in done.stdout


def test_every_finding_of_a_client_has_its_scene_and_as_many_more() -> None:
    kinds = [scene.kind for scene in SCENES.values()]
    assert {"A1", "A2", "A3", "A4", "A6", "A8", "A9", "A10", "A11", "A12", "What held"} <= set(kinds)
    assert sum(kind.startswith("like ") for kind in kinds) >= 20


@pytest.mark.parametrize(
    ("cost", "complaint"),
    [
        (FINE, None),
        (FINE._replace(alive=False), "has ended"),
        (FINE._replace(memory_mib=MEMORY_MIB_MAX + 1), "513 MiB"),
        (FINE._replace(longest=Longest(CALLBACK_MS_MAX + 0.1, "turn: Metadata", 11.0, "")), "10.1 ms: turn: Metadata"),
        (
            FINE._replace(
                longest=Longest(
                    processor_ms=30.0, processor_in="turn: Metadata", wall_ms=31.0, wall_in="", still_ms=21.0
                )
            ),
            None,
        ),
        (
            FINE._replace(
                longest=Longest(
                    processor_ms=30.0, processor_in="turn: Metadata", wall_ms=31.0, wall_in="", still_ms=19.0
                )
            ),
            "30.0 ms: turn: Metadata",
        ),
        (FINE._replace(longest=None, missing="no answer"), "not measured: no answer"),
    ],
)
def test_what_a_broker_costs_is_judged_and_so_is_what_was_not_measured(cost: Cost, complaint: str | None) -> None:
    found = judge(WELL, [cost])
    assert bool(found) == (complaint is not None)
    assert complaint is None or complaint in found[0]


def test_errors_and_pauses_of_the_client_are_judged() -> None:
    assert "paused" in judge(WELL | {"pause_s": PAUSE_S_MAX + 0.01}, [])[0]
    assert not judge(WELL | {"pause_s": PAUSE_S_MAX + 0.01}, [], timed=False)
    assert "lost" in judge(WELL | {"error_count": 1, "errors": ["lost"]}, [], timed=False)[0]


@pytest.mark.parametrize("status", [{}, {"loop": None}, {"loop": {"callbacks": 0}}])
def test_a_broker_that_says_nothing_of_its_loop_was_not_measured(status: dict[str, Any]) -> None:
    found, why = longest_of(status)
    assert found is None
    assert why


def test_what_was_before_a_scene_is_not_of_it() -> None:
    def slot(number: int, processor_ms: float, wall_ms: float) -> dict[str, Any]:
        return {
            "slot": number,
            "processor": {
                "longest_ms": processor_ms,
                "in": f"processor {number}",
                "ended_ms": number * 10_000 + 100.0,
                "lasted_ms": 50.0,
            },
            "wall": {"longest_ms": wall_ms, "in": f"wall {number}"},
        }

    status = {"loop": {"callbacks": 9, "slots": [slot(7, 40.0, 50.0), slot(8, 3.0, 30.0), slot(10, 9.0, 20.0)]}}
    most = [[], [Still(70_085.0, 35.0)]]
    half = [[Still(70_110.0, 30.0)]]
    assert longest_of(status, stills=most)[0] == Longest(9.0, "processor 10", 50.0, "wall 7")
    assert longest_of(status, stills=half)[0] == Longest(
        processor_ms=40.0, processor_in="processor 7", wall_ms=50.0, wall_in="wall 7", still_ms=20.0
    )
    assert longest_of(status)[0] == Longest(40.0, "processor 7", 50.0, "wall 7")
    assert longest_of(status, 8)[0] == Longest(9.0, "processor 10", 30.0, "wall 8")
    assert longest_of(status, 11)[0] is None, "it is not measured, then"


def test_a_process_is_asked_by_one_that_has_many_descriptors_open() -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            for end in os.pipe():
                stack.callback(os.close, end)
        with Told("idle") as idle:
            assert idle.ask()["stall_s"] >= 0


def test_a_process_that_does_not_begin_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Told] = []
    end = Told.end

    def noted(told: Told) -> None:
        end(told)
        ended.append(told)

    monkeypatch.setattr(Told, "end", noted)
    with pytest.raises(ToldNothingError):
        Told("no-such-module")
    assert [told.process.returncode is not None for told in ended] == [True]


@pytest.mark.parametrize(
    ("stills", "shared_ms"),
    [
        ([], 0.0),
        ([[], [Still(100.0, 7.0)]], 0.0),
        ([[Still(105.0, 7.0)]], 5.0),
        ([[Still(115.0, 7.0), Still(125.0, 8.0)], [Still(119.0, 9.0)]], 10.0),
        ([[Still(115.0, 7.0)], [Still(119.0, 9.0)]], 9.0),
        ([[Still(200.0, 150.0)]], 20.0),
        ([[Still(140.0, 19.0)]], 0.0),
    ],
)
def test_of_a_standstill_counts_what_a_callback_shares_with_it(stills: list[list[Still]], shared_ms: float) -> None:
    assert still_ms(stills, 120.0, 20.0) == shared_ms


def test_the_machine_is_watched_and_says_when_it_stood_still() -> None:
    began_ms = time.monotonic() * 1000
    with Machine() as machine:
        kept = machine.take()
    assert kept.idle_ms >= 0
    ended_ms = time.monotonic() * 1000
    assert len(kept.stills) == len(os.sched_getaffinity(0))
    assert all(began_ms < one.ended_ms < ended_ms and one.lasted_ms > 0 for still in kept.stills for one in still)


def shape(name: str) -> Shape:
    return next(one for one in SHAPES if one.name == name)


@pytest.mark.parametrize(
    ("key", "version", "form"),
    [(3, 12, "wide"), (1, 11, "deep"), (1, 17, "wide"), (9, 8, "middle"), (42, 2, "wide"), (32, 1, "deep")],
)
def test_the_largest_requests_name_as_much_as_they_may(key: int, version: int, form: str) -> None:
    frame = largest(APIS[key], version, shape(form), "t", bytes(16))
    assert frame is not None
    header = read_request_header(frame[4:])
    body = bytearray(frame[4:])
    decode = APIS[key].request.decode_in_steps
    for _ in decode(body, version, header.body_position, elements_max=ELEMENTS_MAX):
        pass
    with pytest.raises(TooManyElementsError):
        for _ in decode(body, version, header.body_position, elements_max=ELEMENTS_MAX * 99 // 100):
            pass


def test_a_shape_that_a_message_does_not_have_is_no_request() -> None:
    assert largest(APIS[12], 3, shape("wide"), "t", bytes(16)) is None
    assert largest(APIS[42], 2, shape("deep"), "t", bytes(16)) is None
