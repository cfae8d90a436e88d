"""A fifth dialect is a folder and a line, its surface a file and a line: put into a copy of the code, it is raced."""

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from providers.simulator import ScriptedProvider
from tests.app.gateway.extending.fifth_dialect.dialect import event
from tests.app.gateway.process import CHECKOUT, started
from tests.app.gateway.relayed.samples import plays, says
from tests.app.gateway.running_gateway import MODEL, configuration

HERE = Path(__file__).parent / "fifth_dialect"
BITS = [event(bit=f"bit {number} ") for number in range(40)]
TEXT = "".join(f"bit {number} " for number in range(40))
ECHOED = [*BITS, event(over="stop", heard=3, said=40)]
ECHO = {"model": MODEL, "line": "Why race?", "bits": 50}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Why race?"}], "max_tokens": 50}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the code, and add the dialect to the copy."""
    copy = tmp_path_factory.mktemp("code")
    for name in ("gateway", "providers", "migrations"):
        shutil.copytree(CHECKOUT / name, copy / name)  # with what is compiled: it is good for the copies
    folder = copy / "providers" / "dialects" / "echo"
    folder.mkdir()
    shutil.copy(HERE / "dialect.py", folder)
    endpoints = copy / "gateway" / "api" / "endpoints"
    surface = (HERE / "surface.py").read_text()
    (endpoints / "echo.py").write_text(
        surface.replace("tests.app.gateway.extending.fifth_dialect.", "providers.dialects.echo.")
    )
    add(folder.parent / "index.py", "from providers.dialects.echo.dialect import ECHO", "ECHO")
    add(endpoints / "__init__.py", "from gateway.api.endpoints.echo import ECHO_SURFACE", "ECHO_SURFACE")
    return copy


def add(index: Path, imported: str, name: str) -> None:
    """Add ``name`` to the list in ``index``."""
    text = index.read_text()
    assert text.count(" each in (") + text.count(" dialect in (") == 1
    docstring, _, rest = text.partition("\n\n")
    index.write_text(f"{docstring}\n\n{imported}\n{rest.replace(' in (', f' in ({name}, ')}")


class Running:
    """A gateway with the dialect, in front of a provider of ``api``."""

    def __init__(self, folder: Path, url: str, provider: ScriptedProvider, http: aiohttp.ClientSession) -> None:
        self._folder = folder
        self._url = url
        self.provider = provider
        self._http = http

    async def post(self, path: str, body: Any) -> tuple[int, bytes]:
        async with self._http.post(self._url + path, json=body) as response:
            return response.status, await response.read()

    def row(self) -> dict[str, Any]:
        """Return the row of the only call; once the gateway has ended."""
        query = (
            "select endpoint, streamed, c.status_code, c.prompt_tokens, c.completion_tokens, a.api, outcome,"
            " a.ttft_ms > 0 as ttft, a.finish_reason from calls c join attempts a on a.call_id = c.id"
        )
        with closing(sqlite3.connect(self._folder / "holeshot.db")) as connection:
            connection.row_factory = sqlite3.Row
            [row] = connection.execute(query).fetchall()
            return dict(row)


@asynccontextmanager
async def running(code: Path, folder: Path, api: str, answer: Any) -> AsyncIterator[Running]:
    async with ScriptedProvider(answer) as provider, aiohttp.ClientSession() as http:
        config = configuration(folder, {"alpha": provider.base_url}, providers={"alpha": {"apis": [api]}})
        async with started(config, folder, cwd=code, PYTHONPATH=str(code), PYTHONDONTWRITEBYTECODE="1") as gateway:
            yield Running(folder, gateway.url, provider, http)


def streamed(*pieces: bytes) -> Any:
    return plays(b"".join(pieces), kind="text/event-stream")


async def test_its_stream_passes_byte_for_byte_and_is_logged(code: Path, folder: Path) -> None:
    async with running(code, folder, "echo", streamed(*ECHOED)) as gateway:
        assert await gateway.post("/v1/echo/lines", {**ECHO, "stream": True}) == (200, b"".join(ECHOED))
        [asked] = gateway.provider.received
        assert (asked.path, asked.body) == ("/v1/echo/lines", {**ECHO, "model": "m", "stream": True})
    assert gateway.row() == {
        "endpoint": "echo.lines",
        "streamed": 1,
        "status_code": 200,
        "prompt_tokens": 3,
        "completion_tokens": 40,
        "api": "echo.lines",
        "outcome": "won",
        "ttft": 1,
        "finish_reason": "stop",
    }


async def test_its_whole_answer_is_gathered(code: Path, folder: Path) -> None:
    async with running(code, folder, "echo", streamed(*ECHOED)) as gateway:
        status, body = await gateway.post("/v1/echo/lines", ECHO)
    assert (status, msgspec.json.decode(body)) == (200, {"text": TEXT, "over": "stop", "heard": 3, "said": 40})
    row = gateway.row()
    assert (row["endpoint"], row["streamed"], row["outcome"]) == ("echo.lines", 0, "won")


async def test_chat_is_answered_by_who_speaks_it(code: Path, folder: Path) -> None:
    async with running(code, folder, "echo", says({"text": TEXT, "over": "stop", "heard": 3, "said": 40})) as gateway:
        status, body = await gateway.post("/v1/chat/completions", CHAT)
        [asked] = gateway.provider.received
    assert (asked.path, asked.body) == ("/v1/echo/lines", {**ECHO, "model": "m", "stream": True})
    assert status == 200
    assert msgspec.json.decode(body)["choices"][0]["message"]["content"] == TEXT
    assert gateway.row()["endpoint"] == "chat.completions"


async def test_it_is_answered_by_who_speaks_chat(code: Path, folder: Path) -> None:
    whole = {"choices": [{"message": {"content": TEXT}}], "usage": {"prompt_tokens": 3, "completion_tokens": 40}}
    async with running(code, folder, "chat", says(whole)) as gateway:
        status, body = await gateway.post("/v1/echo/lines", {**ECHO, "stream": True})
        [asked] = gateway.provider.received
    assert asked.body["messages"] == CHAT["messages"]
    assert (status, body) == (200, event(bit=TEXT) + event(over="stop", heard=3, said=40))
    assert gateway.row()["endpoint"] == "echo.lines"


async def test_its_errors_have_its_own_shape(code: Path, folder: Path) -> None:
    async with running(code, folder, "echo", streamed(BITS[0], event(error={"message": "lost my voice"}))) as gateway:
        status, body = await gateway.post("/v1/echo/lines", {"model": MODEL})
        assert (status, msgspec.json.decode(body)["echo"]) == (400, "wrong")
        _, body = await gateway.post("/v1/echo/lines", {**ECHO, "stream": True})
        assert b"lost my voice" in body
