"""The command within this process, with something typed into it, against brokers in this process too."""

import os
from collections.abc import Callable, Iterator

import pytest

from barnabas_broker.cli import entry as cli
from barnabas_broker.testing import RunningCluster

Typed = Callable[..., str]


@pytest.fixture(scope="module")
def in_process() -> Iterator[RunningCluster]:
    with RunningCluster(brokers=1, settings={"auto.create.topics.enable": False}) as running:
        yield running


@pytest.fixture
def run(in_process: RunningCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Run a command with something typed into it, and return what it printed; of a failure, on both outputs."""
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", in_process.bootstrap)

    def run(*arguments: object, typed: bytes = b"", status: int = 0) -> str:
        reading, writing = os.pipe()
        os.write(writing, typed)
        os.close(writing)
        keyboard = os.dup(0)
        os.dup2(reading, 0)
        try:
            ended = cli.main([str(argument) for argument in arguments])
        finally:
            os.dup2(keyboard, 0)
            os.close(keyboard)
            os.close(reading)
        out, err = capfd.readouterr()
        assert ended == status, err
        return out + err

    return run
