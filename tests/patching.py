"""Replaces a method of one object whose class has slots."""

from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["patch_method"]


def patch_method(patch: pytest.MonkeyPatch, one: object, name: str, replacement: Callable[..., Any]) -> None:
    """Let calls of a method of `one` go to `replacement`, without `self`; those of other objects stay as they are."""
    original = getattr(type(one), name)

    def method(self: object, *args: Any, **named: Any) -> Any:
        return replacement(*args, **named) if self is one else original(self, *args, **named)

    patch.setattr(type(one), name, method)
