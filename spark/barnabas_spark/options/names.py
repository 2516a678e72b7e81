"""Checks the names of options. Pure.

Names and meanings are those of Spark's own Kafka source and sink, so that a job moves by changing the format's name.
Case does not matter in names, as in Spark. Every option is of one of five kinds, and no other passes:

* *used*;
* *without effect* here, though right elsewhere, such as buffer sizes of the Java client: accepted, and reported as a
  warning;
* *refused* because Spark's Kafka source, which decides these itself, refuses it too;
* *refused* because it asks for something that is not built yet, security above all: to ignore it would be dangerous;
* *unknown*: refused, with the nearest known name, because it is most often misspelt.

An error names the option as Spark's documentation spells it.
"""

import difflib
from collections.abc import Mapping
from typing import NamedTuple

from barnabas_raftlog.errors import BarnabasError

__all__ = ["REFUSED_BY_SPARK", "Names", "OptionError", "without_copies"]

REFUSED_BY_SPARK = {
    "kafka.auto.offset.reset": "startingOffsets says where to begin",
    "kafka.key.deserializer": "keys are binary; cast them in the query",
    "kafka.value.deserializer": "values are binary; cast them in the query",
    "kafka.key.serializer": "keys are binary",
    "kafka.value.serializer": "values are binary",
    "kafka.enable.auto.commit": "the source commits no offsets",
    "kafka.interceptor.classes": "records are handed over as they are stored",
}
_NOT_BUILT = ("kafka.ssl.", "kafka.sasl.")
# Spark repeats each option of a table in a catalog with this prefix.
_COPY = "option."


class OptionError(BarnabasError, ValueError):
    """An option that is missing, unknown, refused, or has an impossible value. `option` is its name."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option
        self.reason = reason


class Names(NamedTuple):
    """The options of one use. `refused` and `elsewhere` say why, or what to write instead; names as documented."""

    used: tuple[str, ...]
    without_effect: tuple[str, ...] = ()
    refused: Mapping[str, str] = REFUSED_BY_SPARK
    elsewhere: Mapping[str, str] = {}

    def check(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names without effect, in order. `options` has lower-case names.

        Raises:
            OptionError: names the first option that may not be given.
        """
        known = {name.lower(): name for name in (*self.used, *self.without_effect, *self.refused, *self.elsewhere)}
        for key in sorted(options):
            name = known.get(key)
            if key.startswith(_NOT_BUILT):
                raise OptionError(key, "connections are plaintext so far; TLS and SASL are not supported yet")
            if name is None:
                near = difflib.get_close_matches(key, known, n=1)
                raise OptionError(key, f"is not known{f'; did you mean {known[near[0]]}?' if near else ''}")
            if name in self.refused:
                raise OptionError(name, f"may not be set, as in Spark's Kafka source: {self.refused[name]}")
            if name in self.elsewhere:
                raise OptionError(name, self.elsewhere[name])
        ignored = {name.lower() for name in self.without_effect}
        return tuple(known[key] for key in sorted(options) if key in ignored)


def without_copies(given: Mapping[str, str]) -> dict[str, str]:
    """Return options with names in lower case. Of a table in a catalog only those that were given as its options.

    Spark repeats these with a prefix, and adds properties of the table that are no options.
    """
    options = {name.lower(): str(value) for name, value in given.items()}
    copied = {name.removeprefix(_COPY) for name in options if name.startswith(_COPY)} & options.keys()
    return {name: value for name, value in options.items() if not copied or name in copied}
