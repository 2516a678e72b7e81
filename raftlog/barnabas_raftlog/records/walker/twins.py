"""Chooses the compiled walker, or its twin in Python where that is missing. Pure.

The answers are the same; only the speed is not. The compiled one is missing where the package was installed without a C
compiler.
"""

from typing import TYPE_CHECKING

__all__ = ["IS_COMPILED", "StreamCheck", "check", "misfits"]


def _is_compiled() -> bool:
    try:
        from .compiled import check  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


IS_COMPILED = _is_compiled()
"""True if the compiled walker does the work."""

if TYPE_CHECKING or not IS_COMPILED:
    from .pure.check import check
    from .pure.misfits import misfits
    from .pure.stream import StreamCheck
else:
    from .compiled.check import check
    from .compiled.misfits import misfits
    from .compiled.stream import StreamCheck
