"""What a client says about why nothing happens."""

import asyncio
import socket

import pytest

from barnabas_clients import Admin, Consumer, DeadlineExceededError, Producer
from barnabas_clients.cluster.trouble import Trouble

A, B = ("a", 1), ("::1", 2)


def test_a_short_wait_is_no_trouble_and_a_long_one_is_named_with_its_latest_failure() -> None:
    trouble = Trouble()
    with trouble.waiting("creating topics", 10.0) as wait:
        assert trouble.text(10.9, (), ()) == ""
        assert trouble.text(11.0, (), ()) == "creating topics: still waiting"
        assert trouble.text(11.0, (), [B]) == "creating topics: still waiting (no answer from [::1]:2 yet)"
        wait.last = "t: no leader"
        assert trouble.text(11.0, (), [B]) == "creating topics: still waiting (t: no leader)"
    assert trouble.text(99.0, (), ()) == ""


def test_the_longest_of_several_waits_is_the_one_that_is_named() -> None:
    trouble = Trouble()
    with trouble.waiting("one", 10.0), trouble.waiting("two", 10.5):
        assert trouble.text(20.0, (), ()) == "one: still waiting"


def test_nobody_answers_only_if_every_known_broker_has_failed() -> None:
    trouble = Trouble()
    trouble.failed(A, "connection refused")
    assert trouble.text(0.0, [A, B], ()) == ""
    trouble.failed(B, "no answer")
    assert trouble.text(0.0, [A, B], ()) == "no broker answers at a:1, [::1]:2: connection refused, no answer"
    assert trouble.text(0.0, (), ()) == ""
    trouble.reached(B)
    assert trouble.text(0.0, [A, B], ()) == ""
    assert trouble.text(0.0, [A], ()) == "no broker answers at a:1: connection refused"


def test_a_broker_that_left_the_cluster_is_forgotten_and_of_many_some_are_named() -> None:
    trouble = Trouble()
    many = [("h", port) for port in range(1, 6)]
    for endpoint in many:
        trouble.failed(endpoint, "x")
    assert trouble.text(0.0, many, ()) == "no broker answers at h:1, h:2, h:3 and 2 more: x"
    trouble.forget_all_but(many[:1])
    assert trouble.text(0.0, many[1:], ()) == ""


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1"])
async def test_a_refused_connection_is_told_in_words(address: str) -> None:
    admin = Admin(address, timeout_s=0.05)
    with pytest.raises(DeadlineExceededError, match="connection refused"):
        await admin.__aenter__()
    assert admin.trouble == f"no broker answers at {address}: connection refused"


async def test_all_clients_tell() -> None:
    for client in (Producer("127.0.0.1:1", timeout_s=0.05), Consumer("127.0.0.1:1", timeout_s=0.05)):
        assert client.trouble == ""
        with pytest.raises(DeadlineExceededError):
            await client.__aenter__()
        assert client.trouble == "no broker answers at 127.0.0.1:1: connection refused"


async def test_a_port_that_never_answers_is_named_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(DeadlineExceededError, match=f"while connecting to 127.0.0.1:{port}"):
            await Admin(f"127.0.0.1:{port}", timeout_s=0.05).__aenter__()


async def test_a_port_that_closes_at_once_may_be_the_one_between_brokers() -> None:
    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    admin = Admin(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=0.2)
    with pytest.raises(DeadlineExceededError):
        await admin.__aenter__()
    assert "closed by the broker at once (is that the port between brokers? clients" in admin.trouble
    server.close()
