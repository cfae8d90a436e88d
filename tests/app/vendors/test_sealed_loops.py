"""OpenAI's encrypted reasoning goes back to it from clients of every API, in each step of a loop of tools."""

import base64
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import Served
from tests.app.gateway.running_gateway import RunningGateway
from tests.app.vendors.places import Place, gateway_before, standing_in
from tests.app.vendors.test_signed_loops import FIRST, PATHS, answered, gone_on

Json = dict[str, Any]
APIS = ("chat", "messages", "gemini")
STEPS = 6
IN_GEMINI = "dGhpbmtpbmc6"  # how signatures begin there that are not Google's
MODEL = "gpt-5.4"
PLACES: Mapping[str, Place] = {
    "gpt": Place("openai", "openai", MODEL, "responses", says_api=True),
    "other": Place("openai", "openai", MODEL, "responses", says_api=True),  # another account
    "claude": Place("anthropic", "anthropic", "claude-haiku-4-5", "messages"),
    "gemini": Place("google", "google", "gemini-3.1-pro-preview", "gemini"),
    "groq": Place("groq", "groq", "openai/gpt-oss-120b", "chat"),
}
OTHERS = tuple(name for name in PLACES if name != "gpt")
KEY = "0123456789abcdef0123456789abcdef"


def first(api: str) -> Json:
    """Return a request whose tools are called in each of the steps."""
    calls = "\n".join(f'{"then" if number else "call"}: look {{"city": "city {number}"}}' for number in range(STEPS))
    told = json.dumps(FIRST[api]).replace('"twice"', json.dumps(f"Look.\n{calls}"))
    return json.loads(told)  # type: ignore[no-any-return] # an object


@pytest.fixture
async def vendors() -> AsyncIterator[dict[str, Served]]:
    async with standing_in(PLACES) as vendors:
        yield vendors


def gateway(folder: Path, vendors: Mapping[str, Served], key: str = KEY) -> AbstractAsyncContextManager[RunningGateway]:
    """Return a gateway before all of them, each a model of its own, with that key of its page's sessions."""
    both: Json = {"deployments": [f"other/{MODEL}", f"gpt/{MODEL}"], "race": {"mode": "single"}}
    return gateway_before(folder, PLACES, vendors, models={"both": both}, page={"signing_key": key})


def came_back(vendor: Served) -> list[int]:
    """Return how much encrypted reasoning was in each request."""
    return [sum("encrypted_content" in item for item in request.body["input"]) for request in vendor.seen]


async def steps(running: RunningGateway, api: str, body: Json, count: int, *, stream: bool, model: str = "gpt") -> Json:
    for _ in range(count):
        body = gone_on(api, body, await answered(running, api, model, body, stream=stream))
    return body


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", APIS)
async def test_all_of_it_comes_back_in_each_step_before_its_call(
    tmp_path: Path, vendors: dict[str, Served], api: str, stream: bool
) -> None:
    async with gateway(tmp_path, vendors) as running:
        await steps(running, api, first(api), STEPS, stream=stream)
    openai = vendors["gpt"]
    assert openai.said == ""
    assert came_back(openai) == [*range(STEPS)]
    kinds = [item["type"] for item in openai.seen[-1].body["input"]]
    assert kinds == ["message", *["reasoning", "function_call", "function_call_output"] * (STEPS - 1)]


async def test_an_agent_that_says_nothing_of_thinking_gets_it_beside_its_calls_alone(
    tmp_path: Path, vendors: dict[str, Served]
) -> None:
    body = {name: value for name, value in first("messages").items() if name != "thinking"}
    body["output_config"] = {"effort": "low"}
    async with gateway(tmp_path, vendors) as running:
        body = await steps(running, "messages", body, STEPS, stream=True)
        told = await answered(running, "messages", "gpt", body, stream=True)
    assert came_back(vendors["gpt"]) == [*range(STEPS + 1)]
    assert [block["type"] for block in body["messages"][1]["content"]] == ["redacted_thinking", "tool_use"]
    assert [block["type"] for block in told["content"]] == ["text"]


async def dropped(running: RunningGateway, api: str, body: Json, model: str) -> str:
    """Return what a client is told that was left out of a request, which is answered."""
    path = PATHS[api].format(model=model).replace(":streamGenerateContent?alt=sse", ":generateContent")
    async with running.post(body if api == "gemini" else {**body, "model": model}, path=path) as response:
        assert response.status == 200, await response.read()
        return str(response.headers.get("x-holeshot-dropped", ""))


@pytest.mark.parametrize("api", APIS)
async def test_no_other_provider_gets_it_nor_refuses_anything_and_clients_are_told(
    tmp_path: Path, vendors: dict[str, Served], api: str
) -> None:
    async with gateway(tmp_path, vendors) as running:
        body = await steps(running, api, first(api), 2, stream=False)
        for model in OTHERS:
            assert await dropped(running, api, body, model), model
    for name in OTHERS:
        assert vendors[name].said == "", name
        sent = json.dumps([request.body for request in vendors[name].seen])
        assert "sealed" not in sent, name
        assert "gAAAAAB" not in sent, name
        assert IN_GEMINI not in sent, name


@pytest.mark.parametrize("api", APIS)
async def test_another_process_opens_it_if_it_has_the_same_key(
    tmp_path: Path, vendors: dict[str, Served], api: str
) -> None:
    openai = vendors["gpt"]
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
    async with gateway(tmp_path / "one", vendors) as running:
        body = await steps(running, api, first(api), 2, stream=False)
    async with gateway(tmp_path / "two", vendors) as running:
        assert await dropped(running, api, body, "gpt") == ""
    assert came_back(openai)[-1] == 2
    async with gateway(tmp_path / "three", vendors, "of-another-installation-0123456789") as running:
        assert await dropped(running, api, body, "gpt")
    assert came_back(openai)[-1] == 0
    assert openai.said == ""


@pytest.mark.parametrize("api", APIS)
async def test_without_a_key_the_file_beside_the_database_has_one(
    tmp_path: Path, vendors: dict[str, Served], api: str
) -> None:
    openai = vendors["gpt"]
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    async with gateway(tmp_path / "one", vendors, "") as running:
        body = await steps(running, api, first(api), 2, stream=False)
    async with gateway(tmp_path / "one", vendors, "") as running:  # after a restart
        assert await dropped(running, api, body, "gpt") == ""
    assert came_back(openai)[-1] == 2
    async with gateway(tmp_path / "two", vendors, "") as running:
        assert await dropped(running, api, body, "gpt")
    assert came_back(openai)[-1] == 0
    assert openai.said == ""


def forged(told: str) -> str:
    """Return JSON with all sealed reasoning changed in its last letters, also where Gemini has it."""

    def of_gemini(found: re.Match[str]) -> str:
        within = base64.b64decode(found[0]).decode()
        return base64.b64encode(forged(within).encode()).decode()

    told = re.sub(rf"{IN_GEMINI}[\w+/=]+", of_gemini, told)
    return re.sub(r'(holeshot-sealed-v1:[^"]+?)[^"\\]{3}(?=\\?")', r"\1AAA", told)


@pytest.mark.parametrize("api", APIS)
async def test_what_is_forged_is_left_out_and_told(tmp_path: Path, vendors: dict[str, Served], api: str) -> None:
    openai = vendors["gpt"]
    async with gateway(tmp_path, vendors) as running:
        body = await steps(running, api, first(api), 2, stream=False)
        changed = json.loads(forged(json.dumps(body)))
        assert changed != body
        assert await dropped(running, api, changed, "gpt")
    assert came_back(openai)[-1] == 0
    assert openai.said == ""


@pytest.mark.parametrize("api", APIS)
async def test_after_a_restart_the_plan_begins_at_the_account_that_made_it(
    tmp_path: Path, vendors: dict[str, Served], api: str
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    async with gateway(tmp_path / "one", vendors) as running:
        body = await steps(running, api, first(api), 2, stream=False)
    async with gateway(tmp_path / "two", vendors) as running:
        for _ in range(4):
            assert await dropped(running, api, body, "both") == ""
    assert came_back(vendors["gpt"])[2:] == [2] * 4
    assert vendors["other"].seen == []
