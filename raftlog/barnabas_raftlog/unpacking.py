"""Names the exceptions of msgspec for bytes that cannot be read. Pure.

It raises `MsgspecError`. Text that is not UTF-8 raises `UnicodeDecodeError` all the same, and arrays within arrays, a
few thousand deep in a field that nobody knows, `RecursionError`. A reader of bytes from outside catches all three.
"""

import msgspec

__all__ = ["UNREADABLE"]

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
