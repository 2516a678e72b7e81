"""Repeats a change at the controller, and tells success from what an earlier attempt has done."""

from collections.abc import Callable, Sequence
from typing import Any

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import ErrorCode, error_for

from .offsets import left_s

__all__ = ["Attempts", "raise_for"]


class Attempts:
    """Remembers whether an earlier attempt of a call may have been carried out although its answer was lost."""

    def __init__(self) -> None:
        self._may_be_done = False

    async def ask(self, cluster: Cluster, request: Any, deadline: float, check: Callable[[Any], None]) -> None:
        """Ask the controller once, and check its answer."""
        try:
            response = await cluster.ask_controller(request, left_s(deadline))
        except ClientError as error:
            self._may_be_done |= error.may_be_done
            raise
        check(response)

    def check(self, rows: Sequence[tuple[int, str, str | None]], done: ErrorCode) -> None:
        """Raise for the first refusal in (code, name, message). `done` counts as success if an attempt came before."""
        for code, name, message in rows:
            # The controller's answer came too late for the broker that was asked. The order may have been in time.
            self._may_be_done |= code == ErrorCode.REQUEST_TIMED_OUT
            if not (code == done and self._may_be_done):
                raise_for(code, name, message)


def raise_for(code: int, subject: str, message: str | None) -> None:
    """Raise the `KafkaError` of a code that is not 0, with the broker's message."""
    if code:
        raise error_for(code, f"{subject}: {message}" if message else subject)
