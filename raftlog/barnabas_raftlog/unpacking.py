"""What comes out of msgspec when bytes cannot be read. Pure.

It says `MsgspecError`. Text that is not UTF-8 comes out as `UnicodeDecodeError` all the same, and arrays within arrays,
a few thousand deep in a field that nobody knows, as `RecursionError`. Whoever reads bytes of others catches all three.
"""

import msgspec

__all__ = ["UNREADABLE"]

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
