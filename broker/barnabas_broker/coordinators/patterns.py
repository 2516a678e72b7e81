r"""Matches names with regular expressions that clients send, in a time that grows with the name and no faster. Pure.

Python's own `re` tries one way after the other, so thirty characters of a client's can hold the loop for hours. Here
all ways are gone at once: an expression is a graph of nodes (Thompson's construction), the nodes that are reached are a
state, and states that follow on a character are remembered (a lazy automaton, as in RE2, which Kafka uses). What is
done on each character is bounded by `NODES_MAX`, and long matches yield in between.

The syntax is RE2's: alternatives, groups, `* + ? {n,m}` also as lazy ones, classes with ranges and `[:alpha:]` and the
like, `. ^ $ \A \z \b \B`, `\d \s \w` and their opposites (ASCII, as in RE2), `\pL` and `\p{Lu}` for the general
categories of Unicode, `\Q..\E`, `\x`, octal and control escapes, the flags `i m s U`. A pattern matches whole names.
Refused, as there: references, look-around, possessive repetition, more than a thousand repetitions. Refused, though RE2
knows it: `\p` for scripts and `\C`, nesting beyond `DEPTH_MAX`, and what makes more than `NODES_MAX` nodes or is longer
than `CHARACTERS_MAX`.

Source: R. Cox, "Regular Expression Matching Can Be Simple And Fast" (2007).
"""

import re
from bisect import bisect_right
from collections.abc import Generator, Iterable
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias
from unicodedata import category

__all__ = ["CHARACTERS_MAX", "NODES_MAX", "Pattern", "PatternError"]

CHARACTERS_MAX = 1_000
NODES_MAX = 1_100
DEPTH_MAX = 100
REPEATED_MAX = 1_000
STATES_MAX = 1_000  # of them that are remembered
STEPS_MAX = 10_000  # on characters, likewise
HELD_MAX = 100_000  # nodes in those states: 6 MB
WORK = 2_000
"""Nodes that are looked at, or characters that are passed, between two yields, and one state more: 2 ms at most."""
PATTERN_BYTES = 2_000
CHARACTER_BYTES = 100  # those of a class, as one of its ranges
NODE_BYTES = 350
LAST = 0x10FFFF


class PatternError(ValueError):
    """It is no regular expression, or one that is not supported; the text says why."""


class Edge(IntEnum):
    """What is on one side of a position: nothing, the end of a line, a character of a word, another one."""

    NOTHING = 0
    LINE = 1
    WORD = 2
    OTHER = 3


class Place(IntEnum):
    """What must be so at a position."""

    BEGIN = 0
    END = 1
    LINE_BEGIN = 2
    LINE_END = 3
    WORD_EDGE = 4
    NO_WORD_EDGE = 5


Ranges: TypeAlias = list[tuple[int, int]]
"""Code points, ends included."""


class Property(NamedTuple):
    """Characters of a general category, whose name may be its first letter only; or all others."""

    name: str
    is_negated: bool

    def has(self, variants: Iterable[str]) -> bool:
        """Tell whether a character, of which these are the variants, is one of them."""
        of = [category(one) for one in variants if len(one) == 1]
        return any(one.startswith(self.name) and one != NOT_ASSIGNED for one in of) != self.is_negated


class Chars:
    """A set of characters."""

    __slots__ = ("_ends", "_is_negated", "_properties", "_starts", "folds")

    def __init__(
        self,
        ranges: Iterable[tuple[int, int]],
        properties: Iterable[Property] = (),
        *,
        is_negated: bool = False,
        folds: bool = False,
    ) -> None:
        merged: Ranges = []
        for start, end in sorted(ranges):
            if merged and start <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        self._starts = [start for start, _ in merged]
        self._ends = [end for _, end in merged]
        self._properties = tuple(properties)
        self._is_negated = is_negated
        self.folds = folds

    def has(self, character: str) -> bool:
        variants = {character, character.lower(), character.upper()} if self.folds else (character,)
        found = any(len(one) == 1 and self._lists(ord(one)) for one in variants)
        return (found or any(one.has(variants) for one in self._properties)) != self._is_negated

    def _lists(self, point: int) -> bool:
        number = bisect_right(self._starts, point) - 1
        return number >= 0 and point <= self._ends[number]


class Repeated(NamedTuple):
    """`end` None: without end."""

    what: "Tree"
    begin: int
    end: int | None


class Either(NamedTuple):
    ways: "list[Tree]"


class Row(NamedTuple):
    """One after the other; no items match nothing, the empty text."""

    items: "list[Tree]"


Tree: TypeAlias = Chars | Place | Repeated | Either | Row


class Flags(NamedTuple):
    folds: bool = False
    by_line: bool = False
    dot_is_all: bool = False


NEWLINE: Final = (10, 10)
DIGIT: Final = [(48, 57)]
SPACE: Final = [(9, 10), (12, 13), (32, 32)]
LOWER: Final = [(97, 122)]
UPPER: Final = [(65, 90)]
WORD_RANGES: Final = [*DIGIT, *UPPER, (95, 95), *LOWER]
_FURTHER: Final = {"L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps", "C": "cfos"}
CATEGORIES: Final = {letter + more for letter, further in _FURTHER.items() for more in ("", *further)}
NOT_ASSIGNED: Final = "Cn"
PERL: Final = {"d": DIGIT, "s": SPACE, "w": WORD_RANGES}
POSIX: Final = {
    "alnum": [*DIGIT, *UPPER, *LOWER],
    "alpha": [*UPPER, *LOWER],
    "ascii": [(0, 127)],
    "blank": [(9, 9), (32, 32)],
    "cntrl": [(0, 31), (127, 127)],
    "digit": DIGIT,
    "graph": [(33, 126)],
    "lower": LOWER,
    "print": [(32, 126)],
    "punct": [(33, 47), (58, 64), (91, 96), (123, 126)],
    "space": [(9, 13), (32, 32)],
    "upper": UPPER,
    "word": WORD_RANGES,
    "xdigit": [*DIGIT, (65, 70), (97, 102)],
}
CONTROL: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
PLACES: Final = {"A": Place.BEGIN, "z": Place.END, "b": Place.WORD_EDGE, "B": Place.NO_WORD_EDGE}


_TIMES: Final = re.compile(r"\{([0-9]{1,5})(,([0-9]{0,5}))?\}")


class _Parser:
    """Reads one expression, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._flags = Flags()

    def parsed(self) -> Tree:
        tree = self._either()
        if self._at < len(self._text):
            raise PatternError("a ) that closes nothing")
        return tree

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _either(self) -> Tree:
        ways = [self._row()]
        while self._take("|"):
            ways.append(self._row())
        return ways[0] if len(ways) == 1 else Either(ways)

    def _row(self) -> Tree:
        items: list[Tree] = []
        while (character := self._peek()) and character not in "|)":
            if self._take("\\Q"):
                literal, _, rest = self._text[self._at :].partition("\\E")
                self._at = len(self._text) - len(rest)
                items += [self._literal(one) for one in literal[:-1]]
                if literal:
                    items.append(self._repeated(self._literal(literal[-1])))
            elif (atom := self._atom()) is not None:
                items.append(self._repeated(atom))
            elif items:
                items.append(self._repeated(items.pop()))  # Flags are nothing between a thing and its repetition.
        return Row(items)

    def _repeated(self, what: Tree) -> Tree:
        times = self._times()
        if times is None:
            return what
        self._take("?")  # As few as go, or as many: to match the whole name it is the same.
        if self._times() is not None:
            raise PatternError("a repetition of a repetition")
        return Repeated(what, *times)

    def _times(self) -> tuple[int, int | None] | None:
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return times
        found = _TIMES.match(self._text, self._at)
        if found is None:
            return None  # A brace, if it is one, like any other character.
        self._at = found.end()
        first = int(found[1])
        last = int(found[3]) if found[3] else None if found[2] else first
        if first > REPEATED_MAX or (last is not None and not first <= last <= REPEATED_MAX):
            raise PatternError(f"{found[0]} is no number of repetitions up to {REPEATED_MAX}")
        return first, last

    def _atom(self) -> Tree | None:
        """Return one thing to match; None: only flags were changed."""
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escaped()
        if character == ".":
            return Chars([] if self._flags.dot_is_all else [NEWLINE], is_negated=True)
        if character == "^":
            return Place.LINE_BEGIN if self._flags.by_line else Place.BEGIN
        if character == "$":
            return Place.LINE_END if self._flags.by_line else Place.END
        if character in "*+?":
            raise PatternError(f"{character} repeats nothing")
        if character == "{":
            self._at -= 1
            if self._times() is not None:
                raise PatternError("{ repeats nothing")
            self._at += 1
        return self._literal(character)

    def _literal(self, character: str) -> Chars:
        return Chars([(ord(character), ord(character))], folds=self._flags.folds)

    def _group(self) -> Tree | None:
        flags = self._flags
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                name, closed, _ = self._text[self._at :].partition(">")
                if not (closed and name.replace("_", "a").isalnum() and name.isascii()):
                    raise PatternError("(? without a group's name, or a look behind")
                self._at += len(name) + 1
            elif self._set_flags():
                return None  # They count to the end of the group that they stand in.
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise PatternError(f"more than {DEPTH_MAX} groups in one another")
        inside = self._either()
        if not self._take(")"):
            raise PatternError("a ( that is not closed")
        self._depth -= 1
        self._flags = flags
        return inside

    def _set_flags(self) -> bool:
        """Take in flags; True: there is nothing but flags in the parentheses."""
        is_on = True
        while (character := self._next()) not in ":)":
            if character == "-" and is_on:
                is_on = False
            elif character == "i":
                self._flags = self._flags._replace(folds=is_on)
            elif character == "m":
                self._flags = self._flags._replace(by_line=is_on)
            elif character == "s":
                self._flags = self._flags._replace(dot_is_all=is_on)
            elif character != "U":
                raise PatternError(f"(?{character} is not supported")
        return character == ")"

    def _escaped(self) -> Tree:
        character = self._next()
        if character in PLACES:
            return PLACES[character]
        if character in "pP":
            self._at -= 2
            return Chars([], [self._property()], folds=self._flags.folds)
        if character.lower() in PERL:
            return Chars(PERL[character.lower()], is_negated=character.isupper())
        point = self._point(character)
        return Chars([(point, point)], folds=self._flags.folds)

    def _point(self, character: str) -> int:
        """Return the code point that an escape stands for, of which the first character was taken."""
        if character in CONTROL:
            return CONTROL[character]
        if character == "x":
            if self._take("{"):
                digits, closed, _ = self._text[self._at :].partition("}")
                self._at += len(digits) + len(closed)
            else:
                digits = self._next() + self._next()
            if not digits or len(digits) > 8 or digits.strip("0123456789abcdefABCDEF") or int(digits, 16) > LAST:
                raise PatternError("\\x without a character's number")
            return int(digits, 16)
        if character == "0" or (character in "1234567" and self._peek() in tuple("01234567")):
            digits = character
            while len(digits) < 3 and self._peek() in tuple("01234567"):
                digits += self._next()
            return int(digits, 8)
        if not (character.isascii() and character.isalnum()):
            return ord(character)
        raise PatternError(f"\\{character} is not supported")

    def _property(self) -> Property:
        """Take in a backslash and what follows it: the name of a category, whose first letter may stand alone."""
        is_negated = self._text[self._at + 1] == "P"
        self._at += 2
        if self._take("{"):
            name, closed, _ = self._text[self._at :].partition("}")
            self._at += len(name) + len(closed)
            is_negated ^= name.startswith("^")
            name = name.removeprefix("^") if closed else ""
        else:
            name = self._next()
        if name not in CATEGORIES:
            raise PatternError(f"\\p{{{name}}} is no category of characters that is supported")
        return Property(name, is_negated)

    def _class(self) -> Chars:
        is_negated = self._take("^")
        ranges: Ranges = []
        properties: list[Property] = []
        is_first = True
        while is_first or self._peek() != "]":
            if ":]" in self._text[self._at :] and self._take("[:"):
                ranges += self._posix()
            elif self._text.startswith(("\\p", "\\P"), self._at):
                properties.append(self._property())
            elif self._peek() == "\\" and (more := self._perl()):
                ranges += more
            else:
                ranges.append(self._range())
            is_first = False
        self._at += 1
        return Chars(ranges, properties, is_negated=is_negated, folds=self._flags.folds)

    def _posix(self) -> Ranges:
        name, _, _ = self._text[self._at :].partition(":]")
        is_negated = name.startswith("^")
        known = POSIX.get(name.removeprefix("^"))
        if known is None:
            raise PatternError("[: without the name of a class")
        self._at += len(name) + 2
        return _opposite(known) if is_negated else known

    def _perl(self) -> Ranges:
        following = self._text[self._at + 1 : self._at + 2]
        known = PERL.get(following.lower(), [])
        self._at += 2 * bool(known)
        return _opposite(known) if known and following.isupper() else known

    def _range(self) -> tuple[int, int]:
        begin = self._class_point()
        following = self._text[self._at + 1 : self._at + 2]
        if self._peek() != "-" or following in {"", "]"}:
            return begin, begin
        self._at += 1
        end = self._class_point()
        if end < begin:
            raise PatternError("a range that ends before it begins")
        return begin, end

    def _class_point(self) -> int:
        character = self._next()
        return self._point(self._next()) if character == "\\" else ord(character)


def _opposite(ranges: Ranges) -> Ranges:
    found: Ranges = []
    begin = 0
    for start, end in sorted(ranges):
        if start > begin:
            found.append((begin, start - 1))
        begin = end + 1
    return [*found, (begin, LAST)]


class Node(NamedTuple):
    """One node. `what` None: goes on to `then` and `other` at once; at a Place, to `then` if that is so."""

    what: Chars | Place | None
    then: int
    other: int = -1


MATCH: Final = 0
"""The node at which the name has matched."""


class _Graph:
    """Built from the end: each part is told where to go on."""

    def __init__(self, tree: Tree) -> None:
        self.nodes = [Node(None, MATCH)]
        self.has_places = False
        self.start = self._build(tree, MATCH)

    def _add(self, node: Node) -> int:
        if len(self.nodes) >= NODES_MAX:
            raise PatternError(f"it is too large: more than {NODES_MAX} nodes")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _build(self, tree: Tree, then: int) -> int:
        if isinstance(tree, Chars | Place):
            self.has_places |= isinstance(tree, Place)
            return self._add(Node(tree, then))
        if isinstance(tree, Row):
            for item in reversed(tree.items):
                then = self._build(item, then)
            return then
        if isinstance(tree, Either):
            ways = [self._build(way, then) for way in tree.ways]
            entry = ways.pop()
            while ways:
                entry = self._add(Node(None, ways.pop(), entry))
            return entry
        return self._build_repeated(tree, then)

    def _build_repeated(self, tree: Repeated, then: int) -> int:
        entry = then
        if tree.end is None:
            entry = self._add(Node(None, then, then))
            self.nodes[entry] = Node(None, self._build(tree.what, entry), then)
        else:
            for _ in range(tree.end - tree.begin):
                entry = self._add(Node(None, self._build(tree.what, entry), then))
        for _ in range(tree.begin):
            # Of nothing a thousand times there is no node to count.
            before = entry
            entry = self._build(tree.what, entry)
            if entry == before:
                break
        return entry


class _State:
    """Nodes that are reached before what follows is known, and which state follows on a character."""

    __slots__ = ("nexts", "nodes")

    def __init__(self, nodes: frozenset[int]) -> None:
        self.nodes = nodes
        self.nexts: dict[tuple[Edge, str], _State] = {}


class Pattern:
    """One expression; `compile` makes it.

    Limits: `NODES_MAX` nodes; `STATES_MAX` states with `HELD_MAX` nodes in all of them, and `STEPS_MAX` steps from one
    to another, which are forgotten when there are more, or by `forget`.
    """

    def __init__(self, text: str, graph: _Graph) -> None:
        self.text = text
        self._nodes = graph.nodes
        self._has_places = graph.has_places
        self._first = frozenset({graph.start})
        self._states: dict[frozenset[int], _State] = {}
        self._steps = 0
        self._held = 0
        self._work = 0

    @classmethod
    def compile(cls, text: str) -> "Pattern":
        """Return the pattern of this expression, after 3 ms at most.

        Raises:
            PatternError: it is none, or one that is not supported or too large.
        """
        if len(text) > CHARACTERS_MAX:
            raise PatternError(f"it has more than {CHARACTERS_MAX} characters")
        return cls(text, _Graph(_Parser(text).parsed()))

    @property
    def node_count(self) -> int:
        return len(self._nodes)

    @property
    def held_bytes(self) -> int:
        """How much it takes, without states and steps; an upper bound."""
        return PATTERN_BYTES + CHARACTER_BYTES * len(self.text) + NODE_BYTES * len(self._nodes)

    def forget(self) -> None:
        """Let go of states and steps, which may be more than all else; what is matched next finds them again."""
        self._states = {}
        self._steps = self._held = 0

    def matching(self, name: str) -> Generator[None, None, bool]:
        """Return whether the pattern matches the whole of a name; yield between pieces of work."""
        state = self._state(self._first)
        before = Edge.NOTHING
        for character in name:
            following = state.nexts.get((before, character))
            if following is None:
                following = self._follow(state, before, character)
            state = following
            if not state.nodes:
                return False
            if self._has_places:
                before = _edge_of(character)
            self._work += 1
            if self._work >= WORK:
                self._work = 0
                yield
        return MATCH in self._closure(state.nodes, before, Edge.NOTHING)

    def _state(self, nodes: frozenset[int]) -> _State:
        state = self._states.get(nodes)
        if state is None:
            if len(self._states) >= STATES_MAX or self._steps >= STEPS_MAX or self._held >= HELD_MAX:
                self.forget()
            self._held += len(nodes)
            state = self._states[nodes] = _State(nodes)
        return state

    def _follow(self, state: _State, before: Edge, character: str) -> _State:
        reached = self._closure(state.nodes, before, _edge_of(character))
        has: dict[Chars, bool] = {}  # Repetitions of one thing share it.
        following = set()
        for number in reached:
            node = self._nodes[number]
            if isinstance(node.what, Chars):
                if node.what not in has:
                    has[node.what] = node.what.has(character)
                if has[node.what]:
                    following.add(node.then)
        found = self._state(frozenset(following))
        state.nexts[before, character] = found
        self._steps += 1
        return found

    def _closure(self, start: Iterable[int], before: Edge, after: Edge) -> set[int]:
        """Return the nodes that are reached without a character."""
        reached = set(start)
        left = list(reached)
        while left:
            node = self._nodes[left.pop()]
            if isinstance(node.what, Chars) or (node.what is not None and not _is_so(node.what, before, after)):
                continue
            for number in (node.then, node.other):
                if number >= 0 and number not in reached:
                    reached.add(number)
                    left.append(number)
        self._work += len(reached)
        return reached


def _edge_of(character: str) -> Edge:
    if character == "\n":
        return Edge.LINE
    return Edge.WORD if character.isascii() and (character.isalnum() or character == "_") else Edge.OTHER


def _is_so(place: Place, before: Edge, after: Edge) -> bool:
    match place:
        case Place.BEGIN:
            return before is Edge.NOTHING
        case Place.END:
            return after is Edge.NOTHING
        case Place.LINE_BEGIN:
            return before in {Edge.NOTHING, Edge.LINE}
        case Place.LINE_END:
            return after in {Edge.NOTHING, Edge.LINE}
        case Place.WORD_EDGE:
            return (before is Edge.WORD) != (after is Edge.WORD)
        case Place.NO_WORD_EDGE:
            return (before is Edge.WORD) == (after is Edge.WORD)
