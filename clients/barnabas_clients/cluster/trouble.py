"""Knows what a client waits for, and where nobody answered, to tell people why nothing happens. Pure."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from .bootstrap import Endpoint, shown_endpoint

__all__ = ["NO_BROKER", "Trouble", "Wait", "listed"]

NO_BROKER = "no broker answers at "
"""How a text begins that says that the whole cluster cannot be reached."""

# Shorter waits are nothing that people would ask about.
LONG_S = 1.0
SHOWN_MAX = 3


class Wait:
    """Something that is tried until it succeeds: what, since when, and the latest failure."""

    def __init__(self, what: str, since_s: float) -> None:
        self.what = what
        self.since_s = since_s
        self.last = ""


class Trouble:
    """The waits under way, and the endpoints whose latest dial failed: as many as callers and known brokers."""

    def __init__(self) -> None:
        self._waits: list[Wait] = []
        self._failed: dict[Endpoint, str] = {}

    @contextmanager
    def waiting(self, what: str, now_s: float) -> Iterator[Wait]:
        """Count the block as a wait; the caller keeps its `last` failure up to date."""
        wait = Wait(what, now_s)
        self._waits.append(wait)
        try:
            yield wait
        finally:
            self._waits.remove(wait)

    def failed(self, endpoint: Endpoint, reason: str) -> None:
        self._failed[endpoint] = reason

    def reached(self, endpoint: Endpoint) -> None:
        self._failed.pop(endpoint, None)

    def forget_all_but(self, endpoints: Collection[Endpoint]) -> None:
        self._failed = {endpoint: reason for endpoint, reason in self._failed.items() if endpoint in endpoints}

    def text(self, now_s: float, unconnected: Collection[Endpoint], dialling: Collection[Endpoint]) -> str:
        """Say what is wrong in one line; "" if nothing is, or not for long.

        `unconnected` are all endpoints where a broker may be, if there is a connection to none, and `dialling` those to
        which a connection is under way.
        """
        reasons = {endpoint: self._failed[endpoint] for endpoint in unconnected if endpoint in self._failed}
        if unconnected and len(reasons) == len(unconnected):
            return f"{NO_BROKER}{listed(reasons)}: {', '.join(dict.fromkeys(reasons.values()))}"
        # In order of their beginning: the first one is the longest.
        wait = next((wait for wait in self._waits if now_s - wait.since_s >= LONG_S), None)
        if wait is None:
            return ""
        reason = wait.last or (f"no answer from {listed(dialling)} yet" if dialling else "")
        return f"{wait.what}: still waiting{f' ({reason})' if reason else ''}"


def listed(endpoints: Collection[Endpoint]) -> str:
    """Return the first few endpoints as they are written, and how many more there are."""
    names = [shown_endpoint(endpoint) for endpoint in endpoints]
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
