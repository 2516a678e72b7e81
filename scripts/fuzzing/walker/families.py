"""The functions of the record walker that are compared: a line for each family.

To add one: its name, where the compiled module is and where its twin is, and a function that calls either of them with
a damaged batch and returns what is to be the same. Errors that are declared are compared by kind and text, so `act`
lets them out; all other errors are findings.
"""

import re
from collections.abc import Callable, Hashable
from importlib import import_module
from typing import Any, NamedTuple

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.walker.faults import Walked

from .damage import Damaged

__all__ = ["FAMILIES", "Family", "Refused", "outcome", "place_of"]

WALKER = "barnabas_raftlog.records.walker"


class Family(NamedTuple):
    """Functions that are compiled and have a twin. `act` calls those of a module, and returns what is compared."""

    name: str
    compiled: str
    pure: str
    act: Callable[[Any, Damaged], object]
    declared: tuple[type[Exception], ...] = (CorruptBatchError,)

    def twins(self) -> tuple[Any, Any]:
        """Return both modules, the compiled one first.

        Raises:
            ImportError: the compiled one is not there.
        """
        return import_module(self.compiled), import_module(self.pure)


class Refused(NamedTuple):
    """A declared error that came out."""

    kind: str
    text: str


def outcome(family: Family, module: Any, batch: Damaged) -> object:
    """Return what a family makes of a batch: a value, or the declared error."""
    try:
        return family.act(module, batch)
    except family.declared as error:
        return Refused(type(error).__name__, str(error))


def place_of(found: object) -> Hashable:
    """Return where a walk has ended, roughly: two batches with the same place teach the same."""
    if isinstance(found, Walked):
        return found.fault, min(found.record, 3), min(found.null_keys, 1)
    return re.sub(r"-?\d+", "n", found.text) if isinstance(found, Refused) else type(found).__name__


def _check(walker: Any, batch: Damaged) -> Walked:
    found: Walked = walker.check(
        batch.body, batch.records, batch.base_timestamp, batch.last_delta, is_dense=batch.is_dense
    )
    return found


FAMILIES: dict[str, Family] = {
    family.name: family for family in (Family("check", f"{WALKER}.compiled.check", f"{WALKER}.pure.check", _check),)
}
