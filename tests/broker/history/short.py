"""Histories in a few words a line, for the tests of the rules."""

import json

from barnabas_broker.history import decode
from barnabas_broker.history.events import Event

__all__ = ["history"]

T = "t-0"
SHORT = {
    "invoke": "invoked",
    "ack": "acknowledged",
    "read": "consumed",
    "high": "high_watermark",
    "start": "log_start",
    "ask": "committed_asked",
    "told": "committed",
    "assign": "assigned",
    "promise": "partition",
    "offset": "offset_sent",
    "own": "owner",
}
FIELDS = {
    "invoke": ("producer", "sequence", "digest"),
    "ack": ("producer", "sequence", "offset"),
    "failed": ("producer", "sequence"),
    "unknown": ("producer", "sequence"),
    "position": ("consumer", "offset"),
    "end": ("consumer", "offset"),
    "read": ("consumer", "offset", "producer", "sequence", "digest"),
    "high": ("observer", "offset"),
    "start": ("offset",),
    "commit_invoked": ("offset",),
    "commit_acknowledged": ("offset",),
    "commit_reset": ("offset",),
    "ask": ("reader",),
    "told": ("reader", "offset"),
    "assign": ("generation", "member"),
    "begun": ("transaction",),
    "ending": ("transaction", "commit"),
    "ended": ("transaction", "outcome"),
    "offset": ("transaction", "start", "offset"),
    "own": ("subject", "epoch", "owner"),
    "consumer": ("consumer", "read_committed"),
}
WITHOUT_PARTITION = {"begun", "ending", "ended", "own", "consumer", "assign"}
OF_GROUPS = {"commit_invoked", "commit_acknowledged", "commit_reset", "ask", "told", "assign", "offset"}
NUMBERS = {"sequence", "offset", "generation", "start", "epoch"}
FLAGS = {"commit", "read_committed", "stable"}


def history(text: str) -> list[Event]:
    """Read a history in short: `invoke p 0`, `ack p 0 @5`, `position c 0`, `read c 5 p 0`, `end c 6`, ...

    `name=value` stands for any other field.
    """
    return [_event(line.split()) for line in text.strip().splitlines()]


def _event(words: list[str]) -> Event:
    """Spell one line out: the first word is the type, or short for it."""
    kind, *rest = words
    fields: dict[str, object] = {"type": SHORT.get(kind, kind)}
    if kind not in WITHOUT_PARTITION:
        fields["partition"] = T
    if kind in OF_GROUPS:
        fields["group"] = "g"
    if kind == "assign":
        fields["partitions"] = [T]
    elif kind == "promise":
        return decode(json.dumps({**fields, rest[0]: rest[1] == "yes"}), 1)
    elif kind == "retries":
        return decode(json.dumps({"type": "producer", "producer": rest[0], "idempotent": False}), 1)
    fields |= {name: _value(name, word) for name, _, word in (word.partition("=") for word in rest if "=" in word)}
    for name, word in zip(FIELDS[kind], (word for word in rest if "=" not in word), strict=False):
        if word not in {"-", "none"}:
            fields[name] = _value(name, word)
        elif name == "producer":
            fields[name] = None
    return decode(json.dumps(fields), 1)


def _value(name: str, word: str) -> object:
    if name in NUMBERS:
        return int(word.removeprefix("@"))
    if name in FLAGS:
        return word == "yes"
    return word * 16 if name == "digest" else word
