"""Values at the edges of a message's fields: extremes, nulls, duplicates, names of nobody.

The declarations of the messages say what a field is (`layout_of`), its name says what it is about. So that requests
get past the first check of a handler, most of their values are plausible; how many lie is drawn for each message.
"""

import random
from collections import deque
from typing import Any

from barnabas_raftlog.wire.layout import Array, Blob, Fixed, Kind, Nested, RecordSet, Text, layout_of
from barnabas_raftlog.wire.schema import NO_UUID, Message

from .batches import lying_batch

__all__ = ["Names", "lying_request"]

LEARNED_MAX = 64
TEXT_MAX = 32_767
BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "q": 64}
ODD_TEXTS = ("", " ", ".", "..", "\0", "\x1b[31m", "a" * 249, "a" * 250, "é" * 120, "fuzz/\n", "*", "-1", "\U0001f600")
CONFIGS = ("retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "compression.type", "flush.mode")
CONFIG_VALUES = ("-1", "0", "1", "delete", "compact", "1048588", "9223372036854775807", "producer", "nonsense")
PROTOCOLS = ("consumer", "range", "roundrobin", "sticky", "cooperative-sticky")
FEW = (0, 0, 1, 1, 1, 2, 3)
MILLISECONDS = (0, 1, 20, 100, 6_000, 10_000)
SOON = (0, 1, 20)
LIKELY: tuple[tuple[str, tuple[int, ...]], ...] = (  # a part of a field's name, and its honest values
    ("_ms", MILLISECONDS),
    ("timeout", MILLISECONDS),
    ("bytes", (0, 1, 1_000, 1 << 20)),
    ("acks", (-1, -1, 1, 0)),
    ("epoch", (-1, -1, 0, 1, 2)),
    ("generation_id", (-1, -1, 0, 1, 2)),
    ("replica_id", (-1, -1, -1, 0, 1)),
    ("resource_type", (2, 2, 2, 4)),
    ("replication_factor", (-1, 1)),
    ("num_partitions", (-1, 1, 2, 3)),
    ("count", (-1, 1, 2, 3, 4)),
    ("offset", (-2, -1, 0, 0, 1, 5)),
    ("timestamp", (-2, -1, 0, 0, 1, 5)),
)
SUBSCRIPTION = b"\0\0\0\0\0\0\xff\xff\xff\xff"  # of nothing


class Names:
    """Names and ids that requests are about, of things that exist or could. Ids of answers are remembered, too."""

    def __init__(self, topics: tuple[str, ...], groups: tuple[str, ...], topic_ids: dict[str, bytes]) -> None:
        self.topics = topics
        self.groups = groups
        self.topic_ids = dict(topic_ids)
        self.members: deque[str] = deque(maxlen=LEARNED_MAX)
        self.producer_ids: deque[int] = deque([0, 1], maxlen=LEARNED_MAX)

    def learn(self, answer: Message) -> None:
        """Remember ids that a broker has given out."""
        member_id = getattr(answer, "member_id", None)
        producer_id = getattr(answer, "producer_id", None)
        if type(member_id) is str and 0 < len(member_id) < TEXT_MAX:
            self.members.append(member_id)
        if type(producer_id) is int and producer_id >= 0:
            self.producer_ids.append(producer_id)


def lying_request(kind: type[Message], version: int, names: Names, chance: random.Random) -> Message:
    """Return a request that its declaration allows and whose values lie: none of them, some, or all."""
    lies = _Lies(names, chance, version)
    request: Message = lies.struct(kind, kind.__name__)
    return request


class _Lies:
    """One request in the making; `_share` of its values lie."""

    def __init__(self, names: Names, chance: random.Random, version: int) -> None:
        self._names = names
        self._chance = chance
        self._version = version
        self._share = chance.choice((0.0, 0.05, 0.2, 0.5, 1.0))
        self._left = 200  # elements of all arrays together: requests are many, so they are small

    def struct(self, struct: type[Any], path: str) -> Any:
        values = {}
        for field in layout_of(struct, self._version):
            is_left_out = field.tag is not None and self._chance.random() < 0.5
            if not is_left_out:
                values[field.name] = self._value(field.kind, f"{path}.{field.name}", nullable=field.nullable)
        return struct(**values)

    def _value(self, kind: Kind, path: str, *, nullable: bool) -> Any:
        lies = self._chance.random() < self._share
        if nullable and self._chance.random() < 0.15:
            return None
        match kind:
            case Fixed(code):
                return self._fixed(code, path, lies=lies)
            case Text():
                return self._odd_text() if lies else self._text(path)
            case Blob():
                return self._chance.randbytes(self._chance.choice((0, 1, 20, 300))) if lies else SUBSCRIPTION
            case RecordSet():
                return lying_batch(self._chance, self._names.producer_ids)
            case Nested(struct):
                return self.struct(struct, path)
            case Array(element):
                return self._array(element, path, lies=lies)

    def _fixed(self, code: str, path: str, *, lies: bool) -> Any:
        if code == "?":
            return self._chance.random() < 0.3
        if code == "16s":
            return self._uuid(lies=lies)
        if code == "d":
            return self._chance.choice((0.0, -1.0, float("inf"), float("nan"), 1e308))
        return self._edge(code) if lies else self._number(code, path)

    def _array(self, element: Kind, path: str, *, lies: bool) -> Any:
        chance = self._chance
        count = min(chance.choice((0, 2, 3, 20, 60)) if lies else chance.choice((0, 1, 1, 1, 2)), self._left)
        self._left -= count
        values = [self._value(element, path, nullable=False) for _ in range(count)]
        if values and lies:
            values += values[: chance.randrange(3)]  # the same thing twice
        return values if isinstance(element, Nested) else tuple(values)

    def _number(self, code: str, path: str) -> int:
        """Return an honest client's value for it."""
        name = path.rpartition(".")[2]
        if name == "producer_id":
            return self._chance.choice(self._names.producer_ids)
        is_wait = "max_wait" in name or (name == "timeout_ms" and "Produce" not in path)
        likely = SOON if is_wait else next((some for part, some in LIKELY if part in name), FEW)
        return min(self._chance.choice(likely), (1 << (BITS[code] - 1)) - 1)

    def _edge(self, code: str) -> int:
        bits = BITS[code]
        chance = self._chance
        if code == "H":
            return chance.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF))
        top = 1 << (bits - 1)
        edges = (-top, -top + 1, -2, -1, 0, 1, top - 1, top - 2, top >> 1, chance.randrange(-top, top))
        return chance.choice(edges)

    def _uuid(self, *, lies: bool) -> bytes:
        known = list(self._names.topic_ids.values())
        if known and not lies:
            return self._chance.choice(known)
        return self._chance.choice((NO_UUID, b"\xff" * 16, bytes(15) + b"\1", self._chance.randbytes(16)))

    def _text(self, path: str) -> str:
        """Return an honest client's value for it."""
        name = path.rpartition(".")[2]
        chance = self._chance
        names = self._names
        if "config" in path.lower() and name in {"name", "config_name", "configuration_keys"}:
            return chance.choice(CONFIGS)
        if name == "value":
            return chance.choice(CONFIG_VALUES)
        if "group_instance" in name:
            return f"static-{chance.randrange(4)}"
        if "member" in name:
            return chance.choice(("", *names.members))
        if "protocol" in name or "Protocol" in path or "protocol" in path:
            return chance.choice(PROTOCOLS)
        if "group" in name or name in {"key", "coordinator_keys"}:
            return chance.choice(names.groups)
        if "software" in name:
            return "fuzz-1.0"
        if "topic" in name or name in {"name", "resource_name"}:
            return chance.choice(names.topics)
        return chance.choice(("", "client", *names.topics[:1]))

    def _odd_text(self) -> str:
        if self._chance.random() < 0.02:
            return "x" * self._chance.choice((TEXT_MAX, TEXT_MAX - 1, 10_000))
        return self._chance.choice((*ODD_TEXTS, *self._names.topics, *self._names.groups))
