"""Reads the values of options: integers, flags, sizes, and JSON by partition. Pure.

Each raises `OptionError`, which names the option and says what to write.
"""

import json
import re
from collections.abc import Mapping
from typing import TypeVar

from .names import OptionError

__all__ = ["TopicPartition", "by_partition", "count", "flag", "integer", "is_int", "json_object", "one_of", "size"]

TopicPartition = tuple[str, int]
Word = TypeVar("Word", bound=str)

# As in Spark's own settings, and as memory limits are written, all units are binary.
_UNITS = {"": 0, "b": 0} | {
    f"{letter}{rest}": 10 * power for power, letter in enumerate("kmgtp", 1) for rest in ("", "b", "ib")
}


def by_partition(option: str, text: str, smallest: int, form: str) -> dict[TopicPartition, int]:
    """Read JSON that gives one integer, from `smallest` up, to each partition. `form` shows how to write it."""
    found: dict[TopicPartition, int] = {}
    for topic, values in json_object(option, text, f"write {form}").items():
        if not isinstance(values, dict):
            raise OptionError(option, f"topic {topic} has no object of partitions; write {form}")
        for partition, value in values.items():
            if not (partition.isascii() and partition.isdecimal()):
                raise OptionError(option, f"{partition!r} of topic {topic} is not a partition number; write {form}")
            if not is_int(value) or not smallest <= value < 2**63:
                raise OptionError(option, f"{value!r} of {topic}-{partition} is not possible; write {form}")
            found[topic, int(partition)] = value
    if not found:
        raise OptionError(option, f"names no partition; write {form}")
    return found


def json_object(option: str, text: str, example: str) -> dict[str, object]:
    """Read one JSON object; `example` is what the error tells to write."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(option, f"{text[:80]!r} is not JSON; {example}") from error
    if not isinstance(value, dict):
        raise OptionError(option, f"{text[:80]!r} is not a JSON object; {example}")
    return value


def is_int(value: object) -> bool:
    """Tell whether a value of JSON is an integer; `true` is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def integer(option: str, text: str, smallest: int) -> int:
    """Read an integer from `smallest` up to 2^63 - 1."""
    try:
        value = int(text)
    except ValueError:
        value = smallest - 1
    if not smallest <= value < 2**63:
        raise OptionError(option, f"{text!r} is not an integer from {smallest}")
    return value


def count(options: Mapping[str, str], option: str) -> int | None:
    """Read an integer from 1 up; None if the option is not given."""
    text = options.get(option.lower())
    return None if text is None else integer(option, text, 1)


def size(options: Mapping[str, str], option: str) -> int | None:
    """Read a size from one byte up, in bytes or with a unit (128MiB, 128m); None if the option is not given."""
    text = options.get(option.lower())
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,19})\s*([a-z]*)", text.strip().lower())
    value = int(found[1]) << _UNITS[found[2]] if found and found[2] in _UNITS else 0
    if not 0 < value < 2**63:
        raise OptionError(option, f"{text!r} is not a size from one byte; write 128MiB, or a number of bytes")
    return value


def flag(options: Mapping[str, str], option: str, *, default: bool) -> bool:
    """Read true or false, in any case and nothing else, as Spark's own sources do."""
    text = options.get(option.lower())
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise OptionError(option, f"{text!r} is neither true nor false")
    return text.lower() == "true"


def one_of(options: Mapping[str, str], option: str, first: Word, second: Word) -> Word:
    """Read one of two words, in any case; the first if the option is not given."""
    text = options.get(option.lower(), first).strip()
    for word in (first, second):
        if text.lower() == word.lower():
            return word
    raise OptionError(option, f"{text!r} is neither {first} nor {second}")
