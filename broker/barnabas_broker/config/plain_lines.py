"""Reads command lines that are right in every respect, without a parser and what that loads. Pure."""

from collections.abc import Collection, Sequence

__all__ = ["plain_words"]


def plain_words(
    words: Sequence[str], options: Collection[str], flags: Collection[str] = ()
) -> list[tuple[str, str]] | None:
    """Return options and flags in order, each with its value, which is empty for a flag.

    Options are written as `--name VALUE` or `--name=VALUE`. None if anything else is there, also a value that is empty
    or begins with a dash: a parser can name the mistake, if it is one.
    """
    found = []
    rest = iter(words)
    for word in rest:
        if word in flags:
            found.append((word, ""))
            continue
        name, equals, value = word.partition("=")
        text = value if equals else next(rest, "")
        if name not in options or not text or text.startswith("-"):
            return None
        found.append((name, text))
    return found
