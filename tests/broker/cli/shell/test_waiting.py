"""Nobody waits without being told for what."""

import asyncio
import logging

import pytest

from barnabas_broker.cli import entry as cli
from barnabas_broker.cli import waiting
from barnabas_broker.cli.errors import CommandError
from barnabas_broker.cli.output import complain
from barnabas_broker.cli.waiting import told
from barnabas_clients import DeadlineExceededError
from barnabas_clients.cluster.connection import CLOSED_AT_ONCE


class Client:
    """A client whose trouble a test makes up."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.all_told = asyncio.Event()

    @property
    def trouble(self) -> str:
        if len(self.texts) == 1:
            self.all_told.set()
            return self.texts[0]
        return self.texts.pop(0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second pass in a turn of the loop."""
    monkeypatch.setattr(waiting, "NOTICE_S", 0.0)
    monkeypatch.setattr(waiting, "LOOK_EVERY_S", 0.0)


async def test_each_change_of_a_trouble_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client("", "a is down", "a is down", "b is down", "")
    async with told(client, 30.0):
        await client.all_told.wait()
    assert capsys.readouterr().err.splitlines() == [
        "barnabas: a is down; trying until 30 s are over",
        "barnabas: b is down; trying until 30 s are over",
    ]


async def test_a_wait_for_one_thing_without_an_end_is_told_as_such(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = asyncio.Event()

    def hear(text: str) -> None:
        complain(text)
        heard.set()

    monkeypatch.setattr(waiting, "complain", hear)
    async with told("the brokers' disks", None):
        await heard.wait()
    assert capsys.readouterr().err == "barnabas: waiting for the brokers' disks\n"


async def test_a_cluster_that_flaps_does_not_fill_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client(*(f"trouble {number}" for number in range(50)))
    async with told(client, 1.0):
        for _ in range(200):
            await asyncio.sleep(0)
    assert len(capsys.readouterr().err.splitlines()) == waiting.LINES_MAX


async def test_a_deadline_without_any_broker_says_what_to_do() -> None:
    with pytest.raises(CommandError, match=r"^no broker answers at x:1: refused\. Is a cluster running\? \(barnabas "):
        async with told(Client("no broker answers at x:1: refused"), 1.0):
            raise DeadlineExceededError("connecting: no success")
    with pytest.raises(CommandError, match=r"the port between brokers\? clients use another one\)$"):
        async with told(Client(f"no broker answers at x:1: {CLOSED_AT_ONCE}"), 1.0):
            raise DeadlineExceededError("connecting: no success")
    with pytest.raises(DeadlineExceededError, match="slow"):
        async with told(Client("creating topics: still waiting"), 1.0):
            raise DeadlineExceededError("slow")


def test_a_command_tells_before_its_deadline_and_at_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topic", "list", "-b", "127.0.0.1:1", "--timeout", "0.4"]) == 1
    told, at_last = capsys.readouterr().err.splitlines()
    nobody = "barnabas: no broker answers at 127.0.0.1:1: connection refused"
    assert told == f"{nobody}; trying until 0.4 s are over"
    assert at_last == f"{nobody}. Is a cluster running? (barnabas cluster start --data DIR)"


async def test_what_the_clients_library_warns_of_is_told_once_but_for_outages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with told(Client(""), 30.0), told(Client(""), 30.0):
        logging.getLogger("barnabas_clients.groups").warning("group g: lost %s", "orders-0")
        logging.getLogger("barnabas_clients.groups").info("group g: joined")
        logging.getLogger("barnabas_clients.cluster").warning("no broker answers")
    assert capsys.readouterr().err == "barnabas: group g: lost orders-0\n"
    assert logging.getLogger("barnabas_clients").handlers == []
