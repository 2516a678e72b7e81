"""Names the transactions of a sink. Pure.

`<sink>/driver` is the driver's, and whoever takes it fences the driver before. `<sink>/<partition>/<attempt>` is that
of one attempt of a task. An attempt is named by the driver's producer id and epoch and by Spark's number of it, so no
two attempts ever make the same id. Else an attempt that was believed dead, and asks for its producer id only now, would
abort what another one has prepared under the same id, perhaps after it was decided to be committed. Later attempts may
go on with an id that is vacant, which they do not ask for (vacancies.py).

`<sink>/<partition>/ticket` never has a transaction: attempts of a partition draw numbers from it.
"""

import re

__all__ = ["attempt_id", "driver_id", "is_of_attempt", "partition_of", "ticket_id"]

_DRIVER = "driver"
_TICKET = "ticket"
_is_rest_of_attempt = re.compile(r"/([0-9]+)/[0-9]+\.[0-9]+\.[0-9]+").fullmatch


def driver_id(sink: str) -> str:
    """Return the transactional id of a sink's driver."""
    return f"{sink}/{_DRIVER}"


def attempt_id(sink: str, partition: int, driver: tuple[int, int], attempt: int) -> str:
    """Return the transactional id of one attempt of a task, begun under a driver's producer id and epoch."""
    return f"{sink}/{partition}/{driver[0]}.{driver[1]}.{attempt}"


def ticket_id(sink: str, partition: int) -> str:
    """Return the transactional id from which attempts of a partition draw numbers."""
    return f"{sink}/{partition}/{_TICKET}"


def is_of_attempt(sink: str, transactional_id: str) -> bool:
    """Say whether an id is that of some attempt of a sink."""
    return _rest(sink, transactional_id) is not None


def partition_of(sink: str, transactional_id: str) -> int:
    """Return the number of Spark's partition whose attempts have an id.

    Raises:
        ValueError: it is not that of an attempt of this sink.
    """
    found = _rest(sink, transactional_id)
    if found is None:
        raise ValueError(f"{transactional_id!r} is not the id of an attempt of sink {sink!r}")
    return int(found[1])


def _rest(sink: str, transactional_id: str) -> re.Match[str] | None:
    if not transactional_id.startswith(f"{sink}/"):
        return None
    return _is_rest_of_attempt(transactional_id.removeprefix(sink))
