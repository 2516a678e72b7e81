"""A broker registers, beats, notices that it was replaced, and leaves."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from barnabas_metadata_quorum import registration
from barnabas_metadata_quorum.controller.commands import (
    Answer,
    BrokerHeartbeat,
    BrokerRegistration,
    Command,
    ControlledShutdown,
    HeartbeatAnswer,
    RefusalReason,
    Refused,
    RegisterBroker,
    Reply,
)
from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.records import RECORD_LEVEL
from barnabas_metadata_quorum.registration import BrokerIdentity, Registration

from .harness import run

FENCED = HeartbeatAnswer(True, False)
UP = HeartbeatAnswer(False, False)
STALE = Refused(RefusalReason.STALE_BROKER_EPOCH, "another incarnation")
TIMED_OUT = Refused(RefusalReason.TIMED_OUT, "no controller is known")


class Controller:
    """Answers from a script; when it has come to its end, nothing is answered any more."""

    def __init__(self, *script: Answer | Refused) -> None:
        self.script = list(script)
        self.asked = list[Command]()
        self.ended = asyncio.Event()

    async def submit(self, command: Command, timeout_s: float) -> Reply:
        if not self.script:
            self.ended.set()
            await asyncio.get_running_loop().create_future()
        self.asked.append(command)
        answer = self.script.pop(0)
        if isinstance(answer, Refused):
            raise answer
        return Reply(0, answer)

    async def wait_until(self, claim: Callable[[Image], bool], timeout_s: float) -> Image:
        image = Image("c", version=100)
        if not claim(image):
            raise TimeoutError
        return image


async def play(controller: Controller, beat_s: float = 0) -> Registration:
    """Run a registration to the end of the script."""
    identity = BrokerIdentity(77, "host", 9_092, "rack")
    registration = Registration(1, identity, controller.submit, controller.wait_until, beat_s=beat_s)
    running = asyncio.create_task(registration.run())
    await controller.ended.wait()
    running.cancel()
    await asyncio.wait([running])
    return registration


REGISTER = RegisterBroker(node_id=1, incarnation=77, host="host", port=9_092, rack="rack", record_level=RECORD_LEVEL)


def beat(epoch: int, version: int) -> BrokerHeartbeat:
    return BrokerHeartbeat(1, epoch, version, RECORD_LEVEL)


def test_the_first_heartbeat_shows_that_the_registration_is_applied() -> None:
    async def main() -> None:
        controller = Controller(BrokerRegistration(99), UP, UP)
        assert (await play(controller)).epoch == 99
        assert controller.asked == [
            REGISTER,
            beat(99, 100),
            beat(99, 100),
        ]

    run(main())


def test_a_broker_that_does_not_get_that_far_beats_all_the_same() -> None:
    async def main() -> None:
        controller = Controller(BrokerRegistration(500), FENCED)
        await play(controller)
        assert controller.asked == [REGISTER, beat(500, 500)]

    run(main())


def test_it_tries_until_there_is_a_controller_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        controller = Controller(*[TIMED_OUT] * 3, BrokerRegistration(7), UP)
        with caplog.at_level(logging.WARNING):
            await play(controller)
        assert controller.asked == [REGISTER] * 4 + [beat(7, 100)]
        # Brokers of other tests, in threads of their own, may have something to say at the same time.
        assert sum(record.name == registration.__name__ for record in caplog.records) == 1

    run(main())


def test_after_a_try_that_took_its_time_the_next_does_not_wait_for_a_beat() -> None:
    async def main() -> None:
        controller = Controller(TIMED_OUT, BrokerRegistration(7))
        await play(controller, beat_s=3_600)
        assert controller.asked == [REGISTER] * 2

    run(main())


def test_a_replaced_broker_registers_again() -> None:
    async def main() -> None:
        controller = Controller(BrokerRegistration(7), STALE, BrokerRegistration(9), UP)
        await play(controller)
        assert controller.asked == [
            REGISTER,
            beat(7, 100),
            REGISTER,
            beat(9, 100),
        ]

    run(main())


def test_leaving_ends_the_heartbeats() -> None:
    async def main() -> None:
        controller = Controller(BrokerRegistration(7), UP)
        registration = await play(controller)
        controller.script = [HeartbeatAnswer(False, True), HeartbeatAnswer(True, True)]
        await registration.begin_shutdown(1)
        await registration.finish_shutdown(1)
        assert controller.asked[-2:] == [ControlledShutdown(1, 7, False), ControlledShutdown(1, 7, True)]
        await registration.run()

    run(main())


def test_who_never_registered_has_nothing_to_leave() -> None:
    async def main() -> None:
        controller = Controller()
        registration = Registration(1, BrokerIdentity(1, "h", 1), controller.submit, controller.wait_until, 0)
        await registration.begin_shutdown(1)
        await registration.finish_shutdown(1)
        assert controller.asked == []

    run(main())
