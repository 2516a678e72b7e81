"""Names the transactions of a sink. Pure.

`<sink>/driver` is the driver's, and whoever takes it fences the driver before. `<sink>/<partition>/<attempt>` is that
of one attempt of a task. An attempt is named by the driver's producer id and epoch and by Spark's number of it, so no
two attempts ever share an id. Else an attempt that was believed dead, and asks for its producer id only now, would
abort what another one has prepared under the same id, perhaps after it was decided to be committed.
"""

import re

__all__ = ["attempt_id", "driver_id", "is_of_attempt"]

_DRIVER = "driver"


def driver_id(sink: str) -> str:
    """Return the transactional id of a sink's driver."""
    return f"{sink}/{_DRIVER}"


def attempt_id(sink: str, partition: int, driver: tuple[int, int], attempt: int) -> str:
    """Return the transactional id of one attempt of a task, begun under a driver's producer id and epoch."""
    return f"{sink}/{partition}/{driver[0]}.{driver[1]}.{attempt}"


def is_of_attempt(sink: str, transactional_id: str) -> bool:
    """Say whether an id is that of some attempt of a sink."""
    found = re.fullmatch(r"/[0-9]+/[0-9]+\.[0-9]+\.[0-9]+", transactional_id.removeprefix(sink))
    return transactional_id.startswith(f"{sink}/") and found is not None
