"""Markers arrive whatever happens on their way; and the machine that says so notices when they do not."""

import pytest
from broker.coordinators.mutants import assert_caught
from hypothesis import settings

from .marker_machine import MarkerMachine

QUEUES = "coordinators.transactions.marker_queues"
SENDER = "coordinators.transactions.markers"
MUTANTS = {  # what is broken: (module, the text, the text instead)
    "whatever is answered counts as written": (
        QUEUES,
        "        if code == ErrorCode.NONE:\n            queue.failures = 0",
        "        if code != -99:\n            queue.failures = 0",
    ),
    "a shard that has ended is told of its markers": (
        QUEUES,
        "        return not owed.owner.is_over\n",
        "        return True\n",
    ),
    "what a shard has left stays": (
        QUEUES,
        "            self._leaving.append(owner)\n",
        "            pass\n",
    ),
    "two requests are under way to one broker": (
        QUEUES,
        "if target.ready and target.request is None and target.retry is None:",
        "if target.ready and target.retry is None:",
    ),
    "a place without a leader is not looked at again": (
        QUEUES,
        "        elif leader_id != queue.target:\n",
        "        elif leader_id != queue.target and queue.target != NOBODY:\n",
    ),
    "a failed request is forgotten": (
        QUEUES,
        "                queue.waiting[owed] = None\n        queue.taken.clear()",
        "                pass\n        queue.taken.clear()",
    ),
    "a broker that has failed is asked at once": (
        QUEUES,
        "        target.retry = self._retries.add(now_ms + _backoff_ms(target.failures), target)\n",
        "",
    ),
    "a broker that has failed is never asked again": (
        QUEUES,
        "            self._offer(item)\n            return\n",
        "            return\n",
    ),
    "a place that refuses is asked at once": (
        QUEUES,
        "            self._pause(queue, now_ms + _backoff_ms(queue.failures))\n",
        "            queue.refused_by = NOBODY\n",
    ),
    "a marker that is refused is never asked again": (
        QUEUES,
        "        item.waiting.update(item.refused)\n",
        "",
    ),
    "what is not in the image counts as written, current or not": (
        SENDER,
        "            await self._leaders.confirm()\n",
        "            pass\n",
    ),
    "nobody confirms what is not in the image": (
        SENDER,
        "        self._confirm_soon()\n\n    async def _carry_out",
        "\n    async def _carry_out",
    ),
    "news is heard once": (
        SENDER,
        "            self._listen()\n            self._queues.on_news",
        "            self._queues.on_news",
    ),
    "the next request waits for news": (
        SENDER,
        "            self._queues.finish(request)\n        self._work_soon()",
        "            self._queues.finish(request)",
    ),
    "deadlines are not set": (
        SENDER,
        "        if at_ms is not None and self._deadline is None:",
        "        if False:",
    ),
    "all transactions of a request are one": (
        SENDER,
        "        producer_epoch=owed.producer.epoch,",
        "        producer_epoch=1,",
    ),
}

TestMarkers = MarkerMachine.TestCase
TestMarkers.settings = settings(max_examples=150, stateful_step_count=50)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_machine_catches(name: str) -> None:
    assert_caught(MarkerMachine, *MUTANTS[name])
