"""Commands wait for their commit, find their controller, and get an answer when leadership ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar

import pytest

from barnabas_metadata_quorum import active_controller as active_module
from barnabas_metadata_quorum import submission as submission_module
from barnabas_metadata_quorum.active_controller import ActiveController, Clocks
from barnabas_metadata_quorum.answer_limit import AnswerLimit
from barnabas_metadata_quorum.controller.commands import (
    AllocateProducerIds,
    BrokerHeartbeat,
    Command,
    CreateTopics,
    CreateTopicsAnswer,
    HeartbeatAnswer,
    NewTopic,
    ProducerIdBlock,
    ReadIndex,
    ReadIndexAnswer,
    Refusal,
    RefusalReason,
    Refused,
    RegisterBroker,
    Reply,
    decode_command,
    encode_reply,
)
from barnabas_metadata_quorum.controller.controller import ControllerConfig
from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.pulse import Pulse
from barnabas_metadata_quorum.submission import Submission, refusal_of, with_identity
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.links.links import LinkDownError
from barnabas_raftlog.raft.messages import Entry

from .harness import run

BLOCK = ProducerIdBlock(0, 1_000)


class Group:
    """Appends proposals. `confirm` ends when `answered` is set."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.error: Exception | None = None
        self.confirmed = True
        self.answered = asyncio.Event()

    async def confirm(self) -> None:
        await self.answered.wait()
        if self.error is not None:
            raise self.error

    def propose(self, frame: bytearray) -> Entry:
        if self.error is not None:
            raise self.error
        self.entries.append(Entry(len(self.entries) + 1, 1, bytes(frame)))
        return self.entries[-1]


def controller(group: Group) -> ActiveController:
    return ActiveController(1, group, Image("c"), 0, 0, ControllerConfig(), Clocks(lambda: 0, lambda: 0))


async def started(*commands: Coroutine[Any, Any, Reply]) -> list[asyncio.Task[Reply]]:
    """Start commands and let each run until it waits."""
    tasks = [asyncio.create_task(command) for command in commands]
    await asyncio.wait(tasks, timeout=0)
    return tasks


def test_an_answer_waits_for_everything_decided_before_it() -> None:
    async def main() -> None:
        group = Group()
        active = controller(group)
        first, second = await started(active.carry_out(AllocateProducerIds()), active.carry_out(AllocateProducerIds()))
        # It has no records, but rests on those of the others.
        [refused, read] = await started(active.carry_out(BrokerHeartbeat(1, 0, 0)), active.carry_out(ReadIndex()))
        active.applied(1)
        assert await first == Reply(1, BLOCK)
        assert not second.done()
        assert not refused.done()
        assert not read.done()
        active.applied(2)
        assert await second == Reply(2, ProducerIdBlock(1_000, 1_000))
        await asyncio.wait([read], timeout=0)
        assert not read.done(), "it may have been deposed"
        group.answered.set()
        assert await read == Reply(2, ReadIndexAnswer(2))
        with pytest.raises(Refused, match="not registered"):
            await refused

    run(main())


def test_a_node_that_stalls_all_the_time_answers_what_a_majority_has_confirmed() -> None:
    """A commit confirms; an answer that rests on nothing new waits for a round. Else none would ever be given."""

    async def main() -> None:
        group = Group()
        group.confirmed = False
        active = controller(group)
        [written] = await started(active.carry_out(AllocateProducerIds()))
        active.applied(1)
        assert await written == Reply(1, BLOCK)
        [refused] = await started(active.carry_out(BrokerHeartbeat(1, 0, 0)))
        assert not refused.done(), "another controller may know that broker"
        group.answered.set()
        with pytest.raises(Refused, match="not registered"):
            await refused

    run(main())


def test_the_end_of_leadership_leaves_nobody_waiting() -> None:
    async def main() -> None:
        active = controller(Group())
        tasks = await started(*(active.carry_out(AllocateProducerIds()) for _ in range(3)))
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        active.end(leader_id=2)
        for task in (tasks[0], tasks[2]):
            with pytest.raises(Refused, match="node 2 is") as caught:
                await task
            assert caught.value.reason is RefusalReason.NOT_CONTROLLER

    run(main())


def test_a_heartbeat_passes_by_a_topic_of_many_partitions_and_another_topic_does_not() -> None:
    async def main() -> None:
        active = controller(Group())
        brokers = await started(
            active.carry_out(RegisterBroker(1, 1, "h", 1)), active.carry_out(BrokerHeartbeat(1, 0, 1))
        )
        active.applied(2)
        await asyncio.wait(brokers)
        large = with_identity(CreateTopics((NewTopic("large", 10_000, 1),)))
        small = with_identity(CreateTopics((NewTopic("small", 1, 1),)))
        first, again, second = await started(*(active.carry_out(command) for command in (large, large, small)))
        [beat] = await started(active.carry_out(BrokerHeartbeat(1, 0, 1)))
        assert await beat == Reply(2, HeartbeatAnswer(False, False)), "nothing that it rests on waits for a commit"
        assert not any(task.done() for task in (first, again, second))
        for _ in range(300):
            await asyncio.sleep(0)
        active.applied(3)
        answer = await first
        assert isinstance(answer.answer, CreateTopicsAnswer)
        assert answer.answer.topics[0].partition_count == 10_000
        active.applied(4)
        assert (await again).answer == answer.answer, "a retry is answered the same"
        fates = (await second).answer
        assert isinstance(fates, CreateTopicsAnswer)
        assert fates.topics[0].error is None

    run(main())


def test_the_end_of_leadership_ends_what_is_being_decided() -> None:
    async def main() -> None:
        group = Group()
        active = controller(group)
        brokers = await started(
            active.carry_out(RegisterBroker(1, 1, "h", 1)), active.carry_out(BrokerHeartbeat(1, 0, 1))
        )
        active.applied(2)
        await asyncio.wait(brokers)
        commands = [with_identity(CreateTopics((NewTopic(name, 10_000, 1),))) for name in "ab"]
        tasks = await started(*(active.carry_out(command) for command in commands))
        active.end(leader_id=2)
        for task in tasks:
            with pytest.raises(Refused, match="node 2 is"):
                await task
        assert len(group.entries) == 2

    run(main())


def test_a_command_that_cannot_be_proposed_leaves_no_trace() -> None:
    async def main() -> None:
        group = Group()
        active = controller(group)
        group.error = StorageFailedError("disk full")
        with pytest.raises(StorageFailedError):
            await active.carry_out(AllocateProducerIds())
        group.error = None
        [task] = await started(active.carry_out(AllocateProducerIds()))
        active.applied(1)
        assert await task == Reply(1, BLOCK)

    run(main())


def test_too_many_waiting_commands_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_module, "COMMANDS_MAX", 2)

    async def main() -> None:
        active = controller(Group())
        tasks = await started(*(active.carry_out(AllocateProducerIds()) for _ in range(2)))
        with pytest.raises(Refused) as caught:
            await active.carry_out(AllocateProducerIds())
        assert caught.value.reason is RefusalReason.TIMED_OUT
        active.applied(2)
        await asyncio.gather(*tasks)

    run(main())


# --------------------------------------------------------------------------------------------- submission


class World:
    """A controller elsewhere, whose answers are scripted; each failure is followed by a sign that things changed."""

    def __init__(self, *script: Exception | Reply, leaders: tuple[int | None, ...] = (2,)) -> None:
        self.script = list(script)
        self.leaders = list(leaders)
        self.asked = list[tuple[int, Command]]()
        self.changed = Pulse()
        self.submission = Submission(1, self, self.leader_id, self.here, self.changed)

    def leader_id(self) -> int | None:
        return self.leaders[0]

    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
        return encode_reply(await refusal_of(self.answer(node_id, decode_command(body))))

    async def here(self, command: Command) -> Reply:
        return await self.answer(1, command)

    async def answer(self, node_id: int, command: Command) -> Reply:
        self.asked.append((node_id, command))
        if len(self.leaders) > 1:
            self.leaders.pop(0)
        asyncio.get_running_loop().call_soon(self.changed.fire)
        result = self.script.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


GOOD = Reply(1, BLOCK)


NOT_HERE = Refused(RefusalReason.NOT_CONTROLLER, "not me")
FAILURES = [NOT_HERE, NotLeaderError(3), LinkDownError("gone"), TimeoutError()]
ELSEWHERE = [*FAILURES, Reply(0, Refusal(RefusalReason.NOT_CONTROLLER, "not me", 3))]


@pytest.mark.parametrize(
    ("leader", "failure"), [*((1, failure) for failure in FAILURES), *((2, failure) for failure in ELSEWHERE)]
)
def test_what_may_go_better_elsewhere_is_tried_again(leader: int, failure: Exception | Reply) -> None:
    async def main() -> None:
        world = World(failure, GOOD, leaders=(leader, 2, 2))
        assert await world.submission.submit(AllocateProducerIds(), 5) == GOOD
        assert [node_id for node_id, _ in world.asked] == [leader, 2]

    run(main())


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Refused(RefusalReason.POLICY_VIOLATION, "no"), RefusalReason.POLICY_VIOLATION),
        (StorageFailedError("disk full"), RefusalReason.KAFKA_STORAGE_ERROR),
    ],
)
@pytest.mark.parametrize("leader", [1, 2])
def test_a_real_refusal_ends_it(leader: int, failure: Exception, reason: RefusalReason) -> None:
    """Also of the controller on this very node: its full disk must not end the broker."""

    async def main() -> None:
        with pytest.raises(Refused) as caught:
            await World(failure, leaders=(leader,)).submission.submit(AllocateProducerIds(), 5)
        assert caught.value.reason is reason

    run(main())


def test_all_tries_carry_the_same_ids() -> None:
    async def main() -> None:
        world = World(LinkDownError("gone"), GOOD)
        await world.submission.submit(CreateTopics((NewTopic("t"),)), 5)
        [(_, first), (_, second)] = world.asked
        assert first == second
        assert isinstance(first, CreateTopics)
        assert len(first.command_id) == len(first.topics[0].topic_id) == 16
        assert with_identity(first) == first

    run(main())


def test_a_timeout_says_what_failed_last_and_whether_it_may_have_worked() -> None:
    async def main() -> None:
        for world, text, unknown in (
            (World(leaders=(None,)), "no controller is known", False),
            (World(*[LinkDownError("node 2 is not connected")] * 9), "node 2 is not connected", True),
        ):
            world.changed.fire = lambda: None  # type: ignore[method-assign]
            with pytest.raises(Refused, match=text) as caught:
                await world.submission.submit(RegisterBroker(1, 1, "h", 1), 0.1)
            assert caught.value.reason is RefusalReason.TIMED_OUT
            assert caught.value.outcome_unknown == unknown

    run(main())


def test_a_controller_that_swallows_a_question_is_left_as_soon_as_another_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submission_module, "ATTEMPT_S", 3_600.0)

    class CutOff(World):
        async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
            if node_id == 2:
                asyncio.get_running_loop().call_soon(self.elect, None)
                asyncio.get_running_loop().call_soon(self.elect, 3)
                await asyncio.get_running_loop().create_future()
            return await super().call(node_id, method, body, timeout_s)

        def elect(self, leader_id: int | None) -> None:
            self.leaders = [leader_id]
            self.changed.fire()

    async def main() -> None:
        world = CutOff(GOOD)
        assert await world.submission.submit(BrokerHeartbeat(1, 1, 1), 10) == GOOD
        assert world.asked == [(3, BrokerHeartbeat(1, 1, 1))]

    run(main())


def test_a_controller_that_takes_longer_than_a_try_is_waited_for_longer_each_time() -> None:
    class Slow(World):
        limits_s: ClassVar[list[float]] = []

        async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
            self.limits_s.append(timeout_s)
            if timeout_s < 10 * submission_module.ATTEMPT_S:
                asyncio.get_running_loop().call_soon(self.changed.fire)
                raise TimeoutError
            return await super().call(node_id, method, body, timeout_s)

    async def main() -> None:
        world = Slow(GOOD)
        assert await world.submission.submit(AllocateProducerIds(), 60) == GOOD
        assert world.limits_s == [2.0, 4.0, 8.0, 16.0, 32.0]

    run(main())


def test_the_limit_of_a_try_follows_how_long_answers_take() -> None:
    limit = AnswerLimit(2.0, 32.0)
    limit.on_answer(0.01)
    assert limit.limit_s == 2.0
    limit.on_silence(2.0)
    limit.on_silence(2.0)  # asked at the same time
    assert limit.limit_s == 4.0
    limit.on_answer(3.0)
    assert limit.limit_s == 9.0
    for _ in range(5):
        limit.on_silence(limit.limit_s)
    assert limit.limit_s == 32.0
    limit.on_answer(0.01)
    assert limit.limit_s == 2.0


def test_who_waits_while_something_is_so_looks_at_every_pulse_and_not_for_ever() -> None:
    async def main() -> None:
        pulse = Pulse()
        left = 2
        await pulse.wait_while(lambda: False, 0.0)
        waiting = asyncio.create_task(pulse.wait_while(lambda: left > 0, 60.0))
        while left:
            await asyncio.sleep(0)
            assert not waiting.done()
            left -= 1
            pulse.fire()
        await waiting
        await pulse.wait_while(lambda: True, 0.0)

    run(main())


def test_who_has_asked_a_pulse_hears_of_it_before_it_comes_to_waiting() -> None:
    """A caller that waits for one of several asks them all first; a pulse that fires then must not be lost."""

    async def main() -> None:
        first = Pulse()
        second = Pulse()
        changes = [asyncio.ensure_future(pulse.wait()) for pulse in (first, second)]
        second.fire()
        done, waiting = await asyncio.wait(changes, timeout=10.0, return_when=asyncio.FIRST_COMPLETED)
        assert (done, waiting) == ({changes[1]}, {changes[0]})
        changes[0].cancel()

    run(main())


def test_a_pulse_wakes_all_who_wait_and_nobody_twice() -> None:
    async def main() -> None:
        pulse = Pulse()
        woken = list[int]()

        async def wait(number: int) -> None:
            await pulse.wait()
            woken.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(3)]
        await asyncio.wait(tasks, timeout=0)
        tasks[0].cancel()
        pulse.fire()
        await asyncio.wait(tasks)
        pulse.fire()
        assert woken == [1, 2]

    run(main())
