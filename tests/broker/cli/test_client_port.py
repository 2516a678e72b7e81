"""What is asked on a broker's port for clients ends in an answer or in one line, whoever is there."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from barnabas_broker.cli import entry as cli
from barnabas_broker.local_cluster.client_port import ClientPort, ClientPortError, NotOursError
from barnabas_clients.protocol.api_versions import ApiVersion, ApiVersionsResponse
from barnabas_clients.protocol.describe_health import DescribeHealthRequest, DescribeHealthResponse
from barnabas_clients.protocol.registry import Message, encode_response

OURS = DescribeHealthRequest.api_key


def framed(key: int, response: Message) -> bytes:
    return b"".join(encode_response(key, 0, 1, response))


def versions(*keys: int) -> bytes:
    return framed(18, ApiVersionsResponse(api_keys=[ApiVersion(api_key=key) for key in keys]))


@contextlib.contextmanager
def answering(*answers: bytes | None) -> Iterator[int]:
    """Listen on the port that is yielded; each request gets the next of these; None: nothing, for as long as it takes.

    After the last one the connection is closed.
    """
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    for answer in answers:
                        connection.recv(1 << 16)
                        if answer is None:
                            over.wait()
                        else:
                            connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        over.set()
        # Whoever has connected already is served; nobody else will come.
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join()


def ask(port: int, timeout_s: float = 5.0) -> DescribeHealthResponse:
    with ClientPort("127.0.0.1", port, timeout_s) as connection:
        answer: DescribeHealthResponse = connection.ask(DescribeHealthRequest())
        return answer


def test_an_answer_that_comes_is_returned() -> None:
    health = DescribeHealthResponse(cluster_id="c", node_id=4)
    with answering(versions(18, OURS), framed(OURS, health)) as port:
        assert ask(port) == health


def test_a_broker_without_the_api_is_none_of_ours_and_nobody_calls_its_cluster_down(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with answering(versions(0, 18)) as port, pytest.raises(NotOursError, match="has no DescribeHealth"):
        ask(port)
    with answering(versions(0, 18)) as port:
        assert cli.main(["cluster", "health", "-b", f"127.0.0.1:{port}"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"127.0.0.1:{port} has no DescribeHealth: it is not a broker of Barnabas" in err


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ((), "has closed the connection"),
        ((versions(OURS),), "has closed the connection"),
        ((versions(OURS)[:9],), "has closed the connection"),
        ((b"HTTP/1.1 400 Bad Request",), "does not answer as a broker does"),
        ((b"\xff\xff\xff\xff",), "does not answer as a broker does"),
    ],
)
def test_what_is_no_answer_is_one_line(answers: tuple[bytes, ...], text: str) -> None:
    with answering(*answers) as port, pytest.raises(ClientPortError, match=text):
        ask(port)


def test_nobody_waits_longer_than_told_and_people_are_told_for_whom_the_command_waits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas_broker.cli.commands.watch.asking.NOTICE_S", 0.0)
    with answering(None) as port, pytest.raises(ClientPortError, match=r"no answer within 0\.1 s"):
        ask(port, 0.1)
    with answering(None) as port:
        assert cli.main(["cluster", "health", "-b", f"127.0.0.1:{port}", "--timeout", "0.1"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"down: no broker answers (127.0.0.1:{port}: no answer within 0.1 s)")
    assert err == f"barnabas: waiting for 127.0.0.1:{port} until 0.1 s are over\n"


def test_a_name_that_no_host_can_have_is_one_line() -> None:
    with pytest.raises(ClientPortError):
        ClientPort("a" * 300, 9092, 1.0)
