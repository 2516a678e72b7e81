r"""Makes text that somebody else chose fit for one line of a log or terminal. Pure.

Text from clients and peers may stand in front of a person: group ids, client ids, names of software, reasons; and a
terminal obeys it. `printable` leaves letters of all scripts, digits, punctuation, symbols and spaces alone, and spells
out in ASCII the characters that are not for eyes: control characters (a newline is `\n`, the escape `\x1b`), the
separators of lines and paragraphs, changes of the direction of text, other characters without a shape, and halves of
surrogate pairs. The two joiners (U+200C, U+200D) stay: Persian, the scripts of India and emoji are written with them.

The result may be given to `printable` again and stays as it is, so a function that hands text on need not know whether
that was done before. The price: a backslash is not escaped, and a name that really contains `\n` looks like one with a
newline. JSON output tells them apart: it carries text as it is.
"""

import re

__all__ = ["CHARACTERS_MAX", "printable", "printable_json"]

CHARACTERS_MAX = 2_000
"""More than any name or reason needs; names in Kafka's protocol may have 32,767."""

_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str, characters_max: int | None = CHARACTERS_MAX) -> str:
    """Return `text` as it may stand in a line: no longer than `characters_max`, if that is not None (32 at least)."""
    if characters_max is None:
        return _UNPRINTABLE.sub(_escape, text)
    assert characters_max >= 32
    escaped = _UNPRINTABLE.sub(_escape, text[: characters_max + 1])
    if len(escaped) <= characters_max:
        return escaped
    rest = f"... ({len(text)} characters)"
    return escaped[: characters_max - len(rest)] + rest


def printable_json(line: str) -> str:
    """Return JSON that means the same, without those characters: an escape in a string is the character itself."""
    import json  # noqa: PLC0415 - clients need only `printable`, and it takes a millisecond to load

    return _UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], line)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if code < 0x80:
        return _SHORT.get(character) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
