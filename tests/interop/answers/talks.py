"""Talks that a broker of Barnabas and one of Apache Kafka have with the same client, and what is compared of them.

A talk is a list of steps on one connection. It is held once for each *age*: at age 0 every API is asked in the lowest
version that both brokers offer, at age 1 in the next one, and so on to the highest; so all versions of all its APIs are
asked, in company that could be that of a real client. Names of groups and topics hold the age: no talk sees another's.

Whole answers are compared. Left out are only times, addresses and messages (`DROPPED`); what a broker chooses, such as
ids of members, counts as equal where it is the same one as before (`CHOSEN`).
"""

import operator
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from broker.wire_client import Wire

from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import Message

__all__ = ["Conversation", "Fields", "Peer", "Step", "Talk", "differences", "offered_by"]

Fields = Mapping[str, Any]
LIMIT_S = 20.0
DROPPED = {
    "throttle_time_ms",
    "error_message",
    "host",
    "port",
    "cluster_id",
    "transaction_start_time_ms",
    "last_timestamp_ms",
    "heartbeat_interval_ms",
    "log_append_time_ms",
    "finalized_features_epoch",
}
CHOSEN = {
    "member_id": "member",
    "leader": "member",
    "producer_id": "producer",
    "topic_id": "topic",
    "member_epoch": "epoch",
    "group_epoch": "epoch",
    "assignment_epoch": "epoch",
    "client_instance_id": "instance",
    "subscription_id": "subscription",
}
NOBODY = ("", None, 0, -1, -2, "AAAAAAAAAAAAAAAAAAAAAA==")  # the last one is 16 zeros, as they are compared
PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.REBALANCE_IN_PROGRESS,
}
"""What a broker says while it is not ready; such a step is asked again unless it is what the step expects."""


class Step(NamedTuple):
    """One request, and the first error in Kafka's answer to it when its lists are in order.

    Attributes:
        kind: The request's class.
        what: Tells it from the others of its talk.
        fields: Returns the request's fields; those that a version lacks are left out on the wire.
        code: The first error in the answer, NONE if there is none.
        since: The first version of the request in which the step is asked.
        until: The last one.
        keep: What later steps need of the answer: its name, and where it stands, with dots.
        ours: The first error in our answer where it is another one, as docs/protocol.md says; what follows is not
            compared.
        codes: The first error by version, where it is not `code`.
        but: Fields that are not compared.
    """

    kind: type[Message]
    what: str
    fields: Callable[["Talk"], Fields]
    code: ErrorCode = ErrorCode.NONE
    since: int = 0
    until: int = 99
    keep: Mapping[str, str] = {}
    ours: ErrorCode | None = None
    codes: Mapping[int, ErrorCode] = {}
    but: Collection[str] = ()

    def versions(self, offered: Mapping[int, range]) -> range:
        """Return those versions in which it is asked of a broker that offers these."""
        them = offered.get(self.kind.api_key, range(0))
        return range(max(them.start, self.since), min(them.stop, self.until + 1))


class Peer:
    """A broker, what it and the other one offer, and what has been kept of its answers."""

    def __init__(self, wire: Wire, topic: str, topic_id: bytes) -> None:
        self.wire = wire
        self.topic = topic
        self.topic_id = topic_id


class Talk:
    """A talk with one peer at one age. Attributes that answers have filled are read as `talk["member"]`."""

    def __init__(self, peer: Peer, age: int) -> None:
        self.topic = peer.topic
        self.topic_id = peer.topic_id
        self.age = age
        self._wire = peer.wire
        self._kept: dict[str, Any] = {}
        self._seen: dict[tuple[str, Any], str] = {}

    def __getitem__(self, name: str) -> Any:
        return self._kept[name]

    def name(self, what: str) -> str:
        return f"{what}-{self.age}"

    def ask(self, step: Step, version: int) -> tuple[ErrorCode, Any]:
        """Ask until the answer is none that passes; return its first error, and what of it is compared."""
        deadline = time.monotonic() + LIMIT_S
        expected = step.codes.get(version, step.code)
        while True:
            answer = self._wire.ask(step.kind(**step.fields(self)), version)
            plain = _without(step.but, msgspec.to_builtins(answer))
            code = next(_errors(_in_order(plain)), ErrorCode.NONE)
            if code == expected or code not in PASSING or time.monotonic() > deadline:
                break
            time.sleep(0.01)  # between two questions; nothing tells a client
        if code == expected:
            for name, place in step.keep.items():
                self._kept[name] = _at(answer, place)
        return code, self._compared(_in_order(plain))

    def _compared(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self._compared(inner, key) for key, inner in value.items() if key not in DROPPED}
        if isinstance(value, list):
            return [self._compared(inner, name) for inner in value]
        if name in CHOSEN and value not in NOBODY:
            kind = CHOSEN[name]
            return self._seen.setdefault((kind, value), f"{kind} {len(self._seen)}")
        return value


def _without(names: Collection[str], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(names, inner) for key, inner in value.items() if key not in names}
    if isinstance(value, list):
        return [_without(names, inner) for inner in value]
    return value


def _in_order(value: Any) -> Any:
    """Return an answer with its lists in an order that does not depend on what a broker chooses."""
    if isinstance(value, dict):
        return {name: _in_order(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return sorted(map(_in_order, value), key=_sorting)
    return value


def _sorting(value: Any) -> str:
    if isinstance(value, dict):
        return repr({key: inner for key, inner in value.items() if key not in DROPPED | CHOSEN.keys()})
    return repr(value)


def _errors(value: Any) -> Iterator[ErrorCode]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name.endswith("error_code"):
                if inner:
                    yield ErrorCode(inner)
            else:
                yield from _errors(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _errors(inner)


def _at(answer: Any, place: str) -> Any:
    for part in place.split("."):
        answer = answer[int(part)] if part.isdecimal() else operator.attrgetter(part)(answer)
    return answer


def offered_by(wire: Wire) -> dict[int, range]:
    """Return the versions that a broker offers, by API."""
    answer = wire.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    return {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}


class Conversation(NamedTuple):
    """The steps of a talk, and the first age at which it makes sense."""

    name: str
    steps: tuple[Step, ...]
    from_age: int = 0

    def ages(self, offered: Mapping[int, range]) -> range:
        """Return the ages at which to hold it, between brokers that both offer these versions."""
        return range(self.from_age, max(len(offered.get(step.kind.api_key, ())) for step in self.steps))

    def versions(self, offered: Mapping[int, range]) -> set[tuple[int, int]]:
        """Return the APIs, and the versions, that are asked in it."""
        ages = self.ages(offered)
        return {
            (step.kind.api_key, version)
            for step in self.steps
            for version in step.versions(offered)
            if version >= min(offered[step.kind.api_key].start + ages.start, offered[step.kind.api_key].stop - 1)
        }


def differences(talk: Conversation, peers: tuple[Peer, Peer], offered: Mapping[int, range], age: int) -> list[Any]:
    """Hold a talk with Kafka and with us, and return where an answer is not the one that it must be.

    `peers`: Kafka and we. `offered`: what both offer.
    """
    theirs, ours = (Talk(peer, age) for peer in peers)
    found = list[Any]()
    for step in talk.steps:
        them = offered[step.kind.api_key]
        version = min(them.start + age, them.stop - 1)
        if version not in step.versions(offered):
            continue
        code, answer = theirs.ask(step, version)
        our_code, our_answer = ours.ask(step, version)
        expected = step.codes.get(version, step.code)
        if (code, our_code) != (expected, expected if step.ours is None else step.ours):
            found.append((step.kind.__name__, version, step.what, code.name, our_code.name))
        elif step.ours is None and answer != our_answer:
            told = ", ".join(_apart(answer, our_answer))
            found.append((step.kind.__name__, version, step.what, told))
    return found


def _apart(theirs: Any, ours: Any, place: str = "") -> Iterator[str]:
    """Yield where two answers differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs:
            yield from _apart(theirs[name], ours[name], f"{place}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, pair in enumerate(zip(theirs, ours, strict=True)):
            yield from _apart(*pair, f"{place}.{index}")
    elif theirs != ours:
        yield f"{place}: {theirs} / {ours}"
