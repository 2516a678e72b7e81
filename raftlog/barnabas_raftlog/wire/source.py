"""Holds the text of a function under construction, and the objects it refers to. Pure."""

import struct
from collections.abc import Callable
from typing import Any

__all__ = ["Source"]


class Source:
    """Lines of Python with a current indentation, fresh local names, and a namespace for `exec`."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def indent(self, header: str) -> None:
        """Open a block under `header`."""
        self.line(header)
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def fresh(self, hint: str) -> str:
        """Return a local name that nothing else uses."""
        self._names += 1
        return f"{hint}_{self._names}"

    def constant(self, hint: str, value: object) -> str:
        """Return a global name bound to `value`."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = self.fresh(hint).upper()
        self.namespace[name] = value
        return name

    def packer(self, codes: str) -> str:
        """Return a name for `struct.Struct.pack` of big-endian `codes`."""
        return self._named("pack_", codes, lambda: struct.Struct(">" + codes).pack)

    def unpacker(self, codes: str) -> str:
        """Return a name for `struct.Struct.unpack_from` of big-endian `codes`."""
        return self._named("unpack_", codes, lambda: struct.Struct(">" + codes).unpack_from)

    def _named(self, prefix: str, codes: str, make: Callable[[], object]) -> str:
        name = prefix + codes.replace("?", "o")
        if name not in self.namespace:
            self.namespace[name] = make()
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def function(self, name: str, origin: str) -> Callable[..., Any]:
        """Execute the text and return the function `name` that it defines; `origin` shows in tracebacks."""
        # The text is made of the declarations in this process alone; nothing from outside ever reaches it.
        exec(compile(self.text(), f"<codec {origin}>", "exec"), self.namespace)  # noqa: S102
        function: Callable[..., Any] = self.namespace[name]
        return function
