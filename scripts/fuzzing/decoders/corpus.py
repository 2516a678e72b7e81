"""Inputs worth keeping: a file for each target, a line of hexadecimal digits each.

They are as few and as short as still go through every line, in every order of two, that any of a run's inputs goes
through. The generated decoders count by version, so a corpus has an input for each at least.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["FOLDER", "kept", "minimised", "save"]

FOLDER = Path(__file__).parents[3] / "tests" / "fuzzing" / "corpus"
COUNT_MAX = 500
BYTES_MAX = 200 << 10
INPUT_BYTES_MAX = 4 << 10


def kept(target: str) -> list[bytes]:
    """Return the corpus of a target; nothing if there is none."""
    path = FOLDER / f"{target}.txt"
    return [bytes.fromhex(line) for line in path.read_text(encoding="ascii").splitlines()] if path.exists() else []


def save(target: str, inputs: Iterable[bytes]) -> None:
    """Write the corpus of a target."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{target}.txt").write_text("".join(f"{data.hex()}\n" for data in inputs), encoding="ascii")


def minimised(target: Callable[[bytes], None], inputs: Iterable[bytes]) -> list[bytes]:
    """Return those inputs, the shortest first, that go where none before them goes."""
    seen: set[tuple[str, int, int]] = set()
    chosen: list[bytes] = []
    left = BYTES_MAX
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        if len(data) > min(INPUT_BYTES_MAX, left) or len(chosen) == COUNT_MAX:
            break
        steps = _steps(target, data)
        if not steps <= seen:
            seen |= steps
            chosen.append(data)
            left -= len(data)
    return chosen


def _steps(target: Callable[[bytes], None], data: bytes) -> set[tuple[str, int, int]]:
    """Return the pairs of lines that follow each other in our code when the target gets this input."""
    found: set[tuple[str, int, int]] = set()
    lasts: dict[int, int] = {}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if "barnabas_" not in name and not name.startswith("<"):
            return None
        key = id(frame)
        if event == "line":
            found.add((name, lasts.get(key, 0), frame.f_lineno))
            lasts[key] = frame.f_lineno
        elif event == "return":
            lasts.pop(key, None)
        return trace

    sys.settrace(trace)
    try:
        target(data)
    finally:
        sys.settrace(None)
    return found
