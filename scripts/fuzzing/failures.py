"""Keeps the failures of a run, a JSON line each, to send them again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["Failure", "Kept", "keep", "load"]

KEPT_MAX = 50


class Failure(NamedTuple):
    """A failure and the frames that led to it, the last one most likely."""

    what: str
    frames: tuple[bytes, ...]


class Kept(NamedTuple):
    """A failure of an earlier run. `topic_ids` had the names there: another cluster draws others."""

    what: str
    seed: int
    topic_ids: dict[str, bytes]
    frames: tuple[bytes, ...]

    def with_ids(self, topic_ids: Mapping[str, bytes]) -> tuple[bytes, ...]:
        """Return the frames with the ids that the same topics have now."""
        frames = []
        for frame in self.frames:
            changed = frame
            for name, topic_id in self.topic_ids.items():
                changed = changed.replace(topic_id, topic_ids.get(name, topic_id))
            frames.append(changed)
        return tuple(frames)


def keep(path: Path, seed: int, topic_ids: Mapping[str, bytes], failures: list[Failure]) -> None:
    """Write the failures of one run; the first ones, if they are many."""
    ids = {name: topic_id.hex() for name, topic_id in topic_ids.items()}
    with path.open("w", encoding="utf-8") as out:
        for failure in failures[:KEPT_MAX]:
            frames = [frame.hex() for frame in failure.frames]
            out.write(json.dumps({"what": failure.what, "seed": seed, "topic_ids": ids, "frames": frames}) + "\n")


def load(path: Path) -> list[Kept]:
    """Read a file of `keep`."""
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        ids = {name: bytes.fromhex(text) for name, text in found["topic_ids"].items()}
        frames = tuple(bytes.fromhex(text) for text in found["frames"])
        kept.append(Kept(found["what"], found["seed"], ids, frames))
    return kept
