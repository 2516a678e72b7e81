"""Background tasks are kept, told of when they fail, and ended together."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas_raftlog.tasks import Tasks, failure_of

Run = Callable[[Coroutine[Any, Any, None]], None]


class Told(list[BaseException]):
    """The failures that an owner of tasks heard of."""


async def fails(error: BaseException) -> None:
    raise error


def test_a_failure_is_told_once_and_the_task_forgotten(run: Run) -> None:
    async def main() -> None:
        told = Told()
        tasks, error = Tasks(told.append), ValueError("no")
        await asyncio.wait([tasks.start(fails(error))])
        await asyncio.sleep(0)
        assert told == [error]
        assert len(tasks) == 0

    run(main())


def test_a_task_that_returns_or_is_cancelled_has_not_failed(run: Run) -> None:
    async def main() -> None:
        told = Told()
        tasks = Tasks(told.append)
        done, waiting = tasks.start(asyncio.sleep(0, "done")), tasks.start(asyncio.Event().wait())
        assert await done == "done"
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(0)
        assert told == []
        assert failure_of(waiting) is None
        assert len(tasks) == 0

    run(main())


def test_who_asks_for_the_end_of_a_task_judges_it_alone(run: Run) -> None:
    async def main() -> None:
        told, ended = Told(), list[BaseException | None]()
        tasks, error = Tasks(told.append), ValueError("no")
        await asyncio.wait([tasks.start(fails(error), lambda task: ended.append(failure_of(task)))])
        await asyncio.sleep(0)
        assert ended == [error]
        assert told == []
        assert len(tasks) == 0

    run(main())


def test_a_task_is_forgotten_before_its_failure_is_told(run: Run) -> None:
    async def main() -> None:
        counts = list[int]()
        tasks = Tasks(lambda _: counts.append(len(tasks)))
        await asyncio.wait([tasks.start(fails(ValueError()))])
        await asyncio.sleep(0)
        assert counts == [0]

    run(main())


def test_tasks_live_though_nobody_else_refers_to_them(run: Run) -> None:
    async def main() -> None:
        reached = asyncio.Event()

        async def wait_and_say() -> None:
            await asyncio.get_running_loop().create_future()

        tasks = Tasks(lambda _: reached.set())
        tasks.spawn(wait_and_say())
        await asyncio.sleep(0)
        gc.collect()
        assert len(tasks) == 1
        await tasks.close()
        assert not reached.is_set()

    run(main())


def test_close_waits_for_all_and_leaves_out_the_one_that_closes(run: Run) -> None:
    async def main() -> None:
        ended = list[str]()

        async def lingers() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append("lingering")

        async def closes() -> None:
            await tasks.close()
            ended.append("closing")

        tasks = Tasks(ended.append)  # type: ignore[arg-type]  # nothing fails here
        tasks.spawn(lingers())
        await asyncio.sleep(0)
        await tasks.start(closes())
        assert ended == ["lingering", "closing"]
        await tasks.close()
        await asyncio.sleep(0)
        assert len(tasks) == 0

    run(main())


@pytest.mark.parametrize("cancelled", [True, False])
def test_failure_of_a_future(run: Run, cancelled: bool) -> None:
    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel() if cancelled else future.set_exception(OSError())
        assert isinstance(failure_of(future), OSError) is not cancelled

    run(main())
