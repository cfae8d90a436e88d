"""A new API whose answers pass unread is one row and a name: put into a copy of the code, it is raced."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import aiohttp
import msgspec
import pytest

from providers.simulator import ScriptedProvider
from tests.app.gateway.process import CHECKOUT, started
from tests.app.gateway.relayed.samples import HANGS, says
from tests.app.gateway.running_gateway import MODEL, configuration

ROW = """
REVERSALS = Endpoint(
    routes=("/v1/reversals",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.REVERSALS,
        path="reversals",
        api="reversals",
        demands={"text": "the text to reverse"},
        short_bytes=_ANY_BYTES,
    ),
    description=Description(id="createReversal", summary="Texts, reversed"),
)
RELAYED = (
    REVERSALS,
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the code, and add the API to the copy."""
    copy = tmp_path_factory.mktemp("code")
    for name in ("gateway", "providers", "migrations"):
        shutil.copytree(CHECKOUT / name, copy / name)
    for file, before, after in (
        ("providers/vendors/catalog.py", '_RELAYED = ("embeddings",', '_RELAYED = ("reversals", "embeddings",'),
        ("gateway/core/prompt_classes.py", '    COMPACT = "', '    REVERSALS = "reversals"\n    COMPACT = "'),
        (
            "gateway/core/prompt_classes.py",
            "    MeasuredApi.WHOLE: 11,",
            "    MeasuredApi.REVERSALS: 15,\n    MeasuredApi.WHOLE: 11,",
        ),
        ("gateway/api/relayed_apis.py", "\nRELAYED = (\n", ROW),
    ):
        text = (copy / file).read_text()
        assert text.count(before) == 1
        (copy / file).write_text(text.replace(before, after))
    return copy


async def test_a_new_row_is_raced_described_and_recorded(code: Path, tmp_path: Path) -> None:
    answer = msgspec.json.encode({"reversed": "olleh"})
    async with (
        ScriptedProvider(HANGS) as alpha,
        ScriptedProvider(says(answer)) as beta,
        aiohttp.ClientSession() as http,
    ):
        urls = {"alpha": alpha.base_url, "beta": beta.base_url}
        config = configuration(
            tmp_path,
            urls,
            models={MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "race", "width": 2}}},
        )
        async with started(config, tmp_path, cwd=code, PYTHONPATH=str(code), PYTHONDONTWRITEBYTECODE="1") as gateway:
            path = f"{gateway.url}/v1/reversals"
            async with http.post(path, json={"model": MODEL, "text": "hello"}) as response:
                assert (response.status, await response.read()) == (200, answer)
                assert response.headers["x-holeshot-launched"] == "2"
            async with http.post(path, json={"model": MODEL}) as refused:
                error = (await refused.json())["error"]
            assert (refused.status, error["param"]) == (400, "text")
            async with http.get(f"{gateway.url}/openapi.json") as described:
                operation = (await described.json())["paths"]["/v1/reversals"]["post"]
            assert operation["operationId"] == "createReversal"
        [asked] = beta.received
        assert (asked.path, asked.body) == ("/v1/reversals", {"model": "m", "text": "hello"})
    with closing(sqlite3.connect(tmp_path / "holeshot.db")) as connection:
        rows = connection.execute("select endpoint, launched from calls where status_code = 200").fetchall()
    assert rows == [("reversals", 2)]
