"""A worker thread delivers every completion, also after another one failed or was cancelled."""

import asyncio
import threading
import weakref
from functools import partial

import pytest

from barnabas_raftlog.log.machine.worker import ThreadWorker, run_in

WAIT_S = 20.0


def test_a_wait_that_was_cancelled_takes_nobody_with_it() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        complaints: list[dict[str, object]] = []
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        worker = ThreadWorker(loop, "worker")
        gate = threading.Event()
        async with asyncio.timeout(WAIT_S):
            given_up = asyncio.ensure_future(run_in(worker, gate.wait))
            patient = asyncio.ensure_future(run_in(worker, lambda: 7))
            await asyncio.sleep(0)
            given_up.cancel()
            gate.set()
            assert await patient == 7
            assert given_up.cancelled()
        worker.stop()
        assert complaints == []

    asyncio.run(main())


@pytest.mark.parametrize("where", ["job", "done"])
def test_a_mistake_is_reported_and_keeps_nothing_from_the_others(where: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        complaints: list[dict[str, object]] = []
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        worker = ThreadWorker(loop, "worker")
        finished = threading.Event()
        mistake = ValueError("a mistake")

        def fail(*_: object) -> None:
            raise mistake

        if where == "job":
            worker.submit(fail, lambda _: None)
        else:
            worker.submit(lambda: None, fail)
        answer: asyncio.Future[int] = loop.create_future()
        worker.submit(lambda: 7, answer.set_result)
        worker.submit(finished.set, lambda _: None)
        # Blocks the loop until both are completed: they are delivered together.
        assert finished.wait(WAIT_S)
        async with asyncio.timeout(WAIT_S):
            assert await answer == 7
        worker.stop()
        assert [context["exception"] for context in complaints] == [mistake]

    asyncio.run(main())


class Logs:
    """Stands for the logs and frames that a write to the journal is about."""

    def store(self) -> None: ...

    def on_stored(self, done: asyncio.Event, _: None) -> None:
        done.set()


@pytest.mark.parametrize("where", ["job", "done"])
def test_a_thread_that_has_nothing_to_do_keeps_nothing_of_its_last_job(where: str) -> None:
    """Else a log that was deleted, and all that was written with it, would stay until there is another job."""

    async def main() -> None:
        worker = ThreadWorker(asyncio.get_running_loop(), "worker")
        logs, others = Logs(), Logs()
        gone = weakref.ref(logs)
        done = asyncio.Event()
        job, told = (logs, others) if where == "job" else (others, logs)
        worker.submit(job.store, partial(told.on_stored, done))
        del logs, job, told
        async with asyncio.timeout(WAIT_S):
            await done.wait()
            while gone() is not None:  # noqa: ASYNC110 - the thread has told us before it waits again
                await asyncio.sleep(0)
        worker.stop()

    asyncio.run(main())
