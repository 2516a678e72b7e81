"""Assignors and expressions of the server do what Apache Kafka's own do, in cases that chance makes.

Its classes get the members in our order, because its own is a hash map's, and small topic ids where a hash set orders
them (if all members subscribe alike). So there are no ties that each side is free to break, and all results are equal.
"""

import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from interop.lines.line_programs import LineProgram, java_command

from barnabas_broker.coordinators.groups.consumer.assignors.built_in import assign
from barnabas_broker.coordinators.groups.consumer.assignors.roster import (
    Assigned,
    Assignment,
    MemberSubscription,
    roster_in_steps,
)
from barnabas_broker.coordinators.patterns import Pattern, PatternError
from barnabas_raftlog.steps import at_once

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SOURCE = Path(__file__).with_name("KafkaAssignors.java")
LIVES = 150
STEPS = 8

EXPRESSIONS = 6_000
PIECES = (
    *("a", "b", "-", ".", "_", "1", "A", "ü", " ", ",", r"\.", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\b", r"\B"),
    *("^", "$", r"\A", r"\z", r"\Z", r"\Q", r"\E", "*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{1,}", "{0,2}"),
    *("{,2}", "{2,1}", "{1000}", "{1001}", "(", "(?:", "(?i)", "(?i:", "(?-i)", "(?s)", "(?m)", "(?U)", "(?P<n>"),
    *("(?<n>", "(?n", "(?=", "(?!", "(?#", ")", ")", ")", "|", "|", "[", "[^", "]", "]", "[a-z]", "[^a-c]", "[b-a]"),
    *("[[:alpha:]]", "[[:^digit:]]", "[:alpha:]", "[[:foo:]]", r"\x61", r"\x{62}", r"\x", r"\101", r"\0", r"\1", r"\8"),
    *(r"\n", r"\t", r"\a", r"\f", r"\v", r"\r", r"\C", r"\e", r"\h", r"\-", r"\_", r"\ü", r"\q", "{", "}", "{a}"),
    *(r"\pL", r"\PL", r"\p{Lu}", r"\p{^Nd}", r"[\pP\d]", r"[^\PL]", r"\p{L", r"\pX", r"\p{Xx}"),
    *("\n", "\\", "&&", "()", "(|a)", r"\cA", r"\G", r"\X", r"\R", r"\N", r"\u0061"),
)
NAMES = [
    "",
    "a",
    "b",
    "ab",
    "aab",
    "a.b",
    "a-b",
    "A",
    "AB",
    "1",
    "a1",
    "_",
    "-",
    ".",
    "ü",
    "\n",
    "a\nb",
    " ",
    "{",
    "aa",
]
A_BRACE_REPEATED = re.compile(r"\{[*+?{]")

Members = dict[str, MemberSubscription]


class Kafka(LineProgram):
    """The process in which Apache Kafka's classes work."""

    def assign(self, name: str, members: Members, topics: Mapping[bytes, int]) -> Assignment:
        roster = at_once(roster_in_steps(members, topics))
        words = [
            "/".join(
                (
                    member_id,
                    members[member_id].instance_id or "-",
                    ",".join(topic_id.hex() for topic_id in sorted(members[member_id].topic_ids)) or "-",
                    _written(members[member_id].assigned),
                )
            )
            for member_id in roster.member_ids
        ]
        kind = "HOMOGENEOUS" if roster.is_of_one_kind() else "HETEROGENEOUS"
        counts = ",".join(f"{topic_id.hex()}:{count}" for topic_id, count in topics.items()) or "-"
        line = self.line_for("assign", name, kind, counts, *words)
        found: Assignment = {member_id: {} for member_id in members}
        for word in line.split():
            member_id, _, assigned = word.partition("=")
            for topic in assigned.split(",") if assigned != "-" else ():
                topic_id, *partitions = topic.split(":")
                found[member_id][bytes.fromhex(topic_id)] = tuple(map(int, partitions))
        return found

    def matches(self, expression: str, names: list[str]) -> list[bool] | None:
        """Return for each name whether it matches; None: that is no expression."""
        line = self.line_for("match", *(text.encode().hex() or "-" for text in (expression, *names)))
        return None if line == "refused" else [digit == "1" for digit in line]


def _written(assigned: Assigned) -> str:
    return (
        ",".join(
            ":".join((topic_id.hex(), *map(str, partitions)))
            for topic_id, partitions in sorted(assigned.items())
            if partitions
        )
        or "-"
    )


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    kafka = Kafka(*java_command(SOURCE))
    yield kafka
    kafka.end()


class Life:
    """One group, whose members and topics come, go and change."""

    def __init__(self, chance: random.Random, *, is_mixed: bool) -> None:
        self._chance = chance
        self._is_mixed = is_mixed
        self._count = 0
        self.members: Members = {}
        self.topics: dict[bytes, int] = {}
        for _ in range(chance.randint(1, 6)):
            self._add_topic()
        for _ in range(chance.randint(1, 8)):
            self._add_member()

    def change(self) -> None:
        """Let one thing be another."""
        chance = self._chance
        what = chance.choice(("join", "join", "leave", "return", "topic", "gone", "grow", "subscribe", "nothing"))
        someone = chance.choice(sorted(self.members))
        topic_id = chance.choice(sorted(self.topics))
        if what == "join":
            self._add_member()
        elif what == "leave" and len(self.members) > 1:
            del self.members[someone]
        elif what == "return":
            # A static member keeps its partitions under another member id.
            self.members[f"z{self._new_number()}"] = self.members.pop(someone)
        elif what == "topic" and len(self.topics) < 12:
            self._add_topic()
        elif what == "gone" and len(self.topics) > 1:
            del self.topics[topic_id]
        elif what == "grow":
            self.topics[topic_id] += chance.randint(1, 5)
        elif what == "subscribe":
            self.members[someone] = self.members[someone]._replace(topic_ids=self._some_topics())
        everything = frozenset(self.topics)
        for member_id, member in self.members.items():
            wanted = member.topic_ids & everything if self._is_mixed else everything
            self.members[member_id] = member._replace(topic_ids=wanted)

    def give(self, assignment: Assignment) -> None:
        for member_id, assigned in assignment.items():
            self.members[member_id] = self.members[member_id]._replace(assigned=assigned)

    def _new_number(self) -> int:
        self._count += 1
        return self._count

    def _add_topic(self) -> None:
        least = next(number for number in range(1, 14) if not any(one[-1] == number for one in self.topics))
        # Where a hash set orders topics, it is by these numbers; in mixed groups no hash set does.
        most = self._chance.randbytes(8) if self._is_mixed else bytes(8)
        self.topics[most + least.to_bytes(8, "big")] = self._chance.choice((1, 1, 2, 3, 5, 8, 13))

    def _add_member(self) -> None:
        number = self._new_number()
        member_id = self._chance.choice("abcdé\U0001f600\uffee") + str(number)
        instance_id = f"{self._chance.choice('xyé')}{number}" if self._chance.random() < 0.3 else None
        self.members[member_id] = MemberSubscription(self._some_topics(), instance_id)

    def _some_topics(self) -> frozenset[bytes]:
        topic_ids = sorted(self.topics)
        if not self._is_mixed:
            return frozenset(topic_ids)
        return frozenset(self._chance.sample(topic_ids, self._chance.randint(0, len(topic_ids))))


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("name", ["range", "uniform"])
def test_partitions_are_divided_as_kafka_divides_them(kafka: Kafka, name: str, is_mixed: bool) -> None:
    chance = random.Random(name)
    compared = 0
    for number in range(LIVES):
        life = Life(chance, is_mixed=is_mixed)
        for step in range(STEPS):
            ours = assign(name, life.members, life.topics)
            if is_mixed and len({member.topic_ids for member in life.members.values()}) == 1:
                break
            compared += 1
            assert ours == kafka.assign(name, life.members, life.topics), (number, step, life.members, life.topics)
            life.give(ours)
            life.change()
    assert compared >= LIVES * STEPS // 2


def compiled(expression: str) -> Pattern | str:
    """Return the pattern, or why there is none."""
    try:
        return Pattern.compile(expression)
    except PatternError as error:
        return str(error)


def test_expressions_match_what_kafkas_match(kafka: Kafka) -> None:
    """Kafka takes larger ones than we do, and refuses a brace that is repeated, though it takes one for a character."""
    chance = random.Random("expressions")
    matched = refused = 0
    for _ in range(EXPRESSIONS):
        expression = "".join(chance.choices(PIECES, k=chance.randint(1, 5)))
        names = chance.sample(NAMES, 8)
        theirs = kafka.matches(expression, names)
        pattern = compiled(expression)
        if isinstance(pattern, str):
            assert theirs is None or "too large" in pattern, expression
            refused += 1
            continue
        ours = [at_once(pattern.matching(name)) for name in names]
        assert theirs == ours or (theirs is None and A_BRACE_REPEATED.search(expression)), (expression, names)
        matched += any(ours)
    assert matched > EXPRESSIONS // 20
    assert refused > EXPRESSIONS // 4
