"""A membership that a test can wait for."""

import asyncio
from typing import Any

from barnabas_clients.errors import ClientClosedError, DeadlineExceededError
from barnabas_clients.groups.session import GroupSession

__all__ = ["SettledSession"]


class SettledSession(GroupSession):
    """A session that tells when it has settled: `wait_stable`."""

    def __init__(self, *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self._changed = asyncio.Event()

    async def wait_stable(self, timeout_s: float) -> None:
        """Return once the member is in a generation, its assignment is taken over, and no rebalance is known of.

        Raises:
            DeadlineExceededError: not within `timeout_s`. ClientClosedError: the session has ended.
            BaseException: the session's `failure`.
        """
        group_id = self._settings.group_id
        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_stable():
                    self._raise_failure()
                    if self._task is None or self._task.done():
                        raise ClientClosedError(f"group {group_id}: the session has ended")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            situation = self._member.situation.name
            raise DeadlineExceededError(f"group {group_id}: {situation} after {timeout_s:g} s") from error

    def _note(self) -> None:
        super()._note()
        self._changed.set()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        super()._ended(task)
        self._changed.set()
