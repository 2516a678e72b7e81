"""Chooses the compiled walker, or its twin in Python where that is missing. Pure.

The answers are the same; only the speed is not. The compiled one is missing where the package was installed without a C
compiler.
"""

from typing import TYPE_CHECKING

__all__ = [
    "IS_COMPILED",
    "KEY_BYTES",
    "LACK",
    "KeyTable",
    "OpenRecords",
    "StreamCheck",
    "TimeSearch",
    "check",
    "misfits",
    "murmur2",
    "partition_of",
    "skip_records",
    "squeeze",
    "take_records",
]


def _lack() -> str:
    try:
        from .compiled import check  # noqa: F401, PLC0415
    except ImportError as error:
        reason = "" if "cannot import name" in str(error) else f" ({error})"
        return (
            f"the compiled record walker is missing{reason}: records are read in Python, which takes longer "
            f'("The record walker" in docs/install.md tells how to get it)'
        )
    return ""


LACK = _lack()
"""What this installation lacks, in a line for people; "" if it lacks nothing."""
IS_COMPILED = not LACK
"""True if the compiled walker does the work."""

if TYPE_CHECKING or not IS_COMPILED:
    from .pure.building import OpenRecords, murmur2, partition_of
    from .pure.check import check
    from .pure.keys import KEY_BYTES, KeyTable, squeeze
    from .pure.misfits import misfits
    from .pure.records import skip_records, take_records
    from .pure.stream import StreamCheck
    from .pure.timestamps import TimeSearch
else:
    from .compiled.building import OpenRecords, murmur2, partition_of
    from .compiled.check import check
    from .compiled.keys import KEY_BYTES, KeyTable, squeeze
    from .compiled.misfits import misfits
    from .compiled.records import skip_records, take_records
    from .compiled.stream import StreamCheck
    from .compiled.timestamps import TimeSearch
