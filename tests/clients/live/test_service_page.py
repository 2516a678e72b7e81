"""The programs of docs/clients-in-a-service.md run, that of FastAPI with a stand-in for it."""

import asyncio
import re
import sys
import types
import uuid
from pathlib import Path
from typing import Any

import pytest

from barnabas_clients import Admin, Producer

PAGE = Path(__file__).parents[3] / "docs" / "clients-in-a-service.md"


class FastAPI:
    """What FastAPI does with a lifespan, as far as the example goes."""

    def __init__(self, lifespan: Any) -> None:
        self.state = types.SimpleNamespace()
        self.lifespan = lifespan


async def test_the_programs_run(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", types.SimpleNamespace(FastAPI=FastAPI))
    topic = f"service-{uuid.uuid4().hex[:8]}"
    found = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    programs = [text.replace("localhost:9092", bootstrap).replace('"service"', f'"{topic}"') for text in found]
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic)
        for number, program in enumerate(programs):
            if "logging.basicConfig" in program:
                continue
            names: dict[str, Any] = {"__name__": "__main__"}
            code = compile(program, f"{PAGE.name}, program {number + 1}", "exec")
            # A thread, because a program has a loop of its own.
            await asyncio.to_thread(exec, code, names)
            if isinstance(app := names.get("app"), FastAPI):
                async with app.lifespan(app):
                    assert isinstance(app.state.producer, Producer)
                    await app.state.producer.send_and_wait(topic, b"in the lifespan")
        await admin.delete_topics([topic])
    assert "b'in the lifespan'" in capsys.readouterr().out
