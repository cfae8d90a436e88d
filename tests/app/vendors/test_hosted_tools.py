"""Answers of tools that vendors run, as they really are: read by clients of each API, and sent back in later turns.

The vendors' own searches, with the pages that are cited, at the strict stand-ins: each client's API, each vendor, whole
and streamed. The forms are those of anthropic 2.14, openai 3.57 and google-genai 3.6, read on 2026-11-29.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.test_signed_loops import PATHS, answered

Json = dict[str, Any]
Gateway = tuple[RunningGateway, dict[str, Served]]


class Place(NamedTuple):
    """A deployment that searches for each answer, and the API that it has."""

    vendor: str
    model: str
    api: str
    searches: Json
    apis: tuple[str, ...] = ()


_OPENAIS: Json = {"tools": [{"type": "web_search"}]}
_CLAUDES: Json = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
PLACES: Mapping[str, Place] = {
    "responses": Place("openai", "gpt-6.2-sol", "responses", _OPENAIS, ("responses",)),
    "chat": Place("openai", "gpt-4o", "chat", {"web_search_options": {}}, ("chat",)),
    "claude": Place("anthropic", "claude-haiku-4-5", "messages", _CLAUDES),
    "sonnet": Place("anthropic", "claude-sonnet-5-5", "messages", _CLAUDES),
    "google": Place("google", "gemini-3.8-flash", "gemini", {"tools": [{"googleSearch": {}}]}),
}
ASKED = "What is the weather in Oslo?\nsearch: weather in Oslo\nsay: It rains in Oslo."
URLS = ["https://weather.example/weather-in-oslo", "https://facts.example/weather-in-oslo?lang=nb"]
TITLES = ["Weather: weather in Oslo", "Været — weather in Oslo"]
NEXT = "And tomorrow?\nsay: The sun shines."
FIRST: Mapping[str, Json] = {
    "chat": {"messages": [{"role": "user", "content": ASKED}]},
    "responses": {
        "input": [{"role": "user", "content": ASKED}],
        "include": ["reasoning.encrypted_content"],
        "store": False,
    },
    "messages": {"messages": [{"role": "user", "content": ASKED}], "max_tokens": 9000},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": ASKED}]}]},
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway before all of them, each a model of its own that searches, and once more one that does not."""
    async with AsyncExitStack() as stack:
        vendors = {
            name: await stack.enter_async_context(running_vendor(place.vendor)) for name, place in PLACES.items()
        }
        providers: Json = {
            name: {
                "base_url": vendors[name].base_url,
                "api_key": vendors[name].key,
                "preset": place.vendor,
                **({"apis": [*place.apis]} if place.apis else {}),
            }
            for name, place in PLACES.items()
        }
        models: Json = {}
        for name, place in PLACES.items():
            at = f"{name}/{place.model}"
            models[name] = {"deployments": [{"deployment": at, "extra_body": place.searches}]}
            models[f"{name}-alone"] = {"deployments": [at]}
        yield (
            await stack.enter_async_context(serving(tmp_path, {"alpha": None}, providers=providers, models=models)),
            vendors,
        )


def cited(api: str, answer: Json) -> list[tuple[str, str]]:
    """Return the addresses and titles that an answer cites, where its API has the place for them."""
    match api:
        case "chat":
            given = answer["choices"][0]["message"].get("annotations") or []
            return [(each["url_citation"]["url"], each["url_citation"]["title"]) for each in given]
        case "responses":
            parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
            return [(each["url"], each["title"]) for part in parts for each in part["annotations"]]
        case "messages":
            blocks = [block for block in answer["content"] if block["type"] == "text"]
            return [(each["url"], each["title"]) for block in blocks for each in block.get("citations") or ()]
    chunks = answer["candidates"][0]["groundingMetadata"]["groundingChunks"]
    return [(each["web"]["uri"], each["web"]["title"]) for each in chunks]


def text(api: str, answer: Json) -> str:
    """Return the words of an answer."""
    match api:
        case "chat":
            return str(answer["choices"][0]["message"]["content"])
        case "responses":
            parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
            return "".join(part["text"] for part in parts)
        case "messages":
            return "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    parts = answer["candidates"][0]["content"]["parts"]
    return "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))


def finish(api: str, answer: Json) -> str:
    """Return why an answer ended."""
    match api:
        case "chat":
            return str(answer["choices"][0]["finish_reason"])
        case "responses":
            return str(answer["status"])
        case "messages":
            return str(answer["stop_reason"])
    return str(answer["candidates"][0]["finishReason"])


FINISHED = {"chat": "stop", "responses": "completed", "messages": "end_turn", "gemini": "STOP"}


def gone_on(api: str, body: Json, answer: Json) -> Json:
    """Return the next request: all of the answer as it came, and a question."""
    match api:
        case "chat":
            turns = [answer["choices"][0]["message"], {"role": "user", "content": NEXT}]
            return {**body, "messages": [*body["messages"], *turns]}
        case "responses":
            return {**body, "input": [*body["input"], *answer["output"], {"role": "user", "content": NEXT}]}
        case "messages":
            turns = [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": NEXT}]
            return {**body, "messages": [*body["messages"], *turns]}
    turns = [answer["candidates"][0]["content"], {"role": "user", "parts": [{"text": NEXT}]}]
    return {**body, "contents": [*body["contents"], *turns]}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("api", PATHS)
async def test_what_a_search_has_found_is_cited_in_the_clients_api(
    gateway: Gateway, api: str, name: str, stream: bool
) -> None:
    running, vendors = gateway
    answer = await answered(running, api, name, FIRST[api], stream=stream)
    assert vendors[name].said == ""
    assert (text(api, answer), finish(api, answer)) == ("It rains in Oslo.", FINISHED[api])
    assert cited(api, answer) == list(zip(URLS, TITLES, strict=True))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("api", PATHS)
async def test_an_answer_with_a_search_goes_back_to_its_vendor_and_to_every_other(
    gateway: Gateway, api: str, name: str, stream: bool
) -> None:
    running, vendors = gateway
    body = gone_on(api, FIRST[api], await answered(running, api, name, FIRST[api], stream=stream))
    wrong: list[str] = []
    for other in (f"{place}{alone}" for alone in ("-alone", "") for place in PLACES):
        path = PATHS[api].format(model=other)
        sent = body if api == "gemini" else {**body, "model": other, "stream": stream}
        async with running.post(sent, path=path) as response:
            came = (await response.read()).decode()
        at = vendors[other.removesuffix("-alone")]
        if response.status != 200 or at.refusals or "It rains in Oslo." not in _words(at.seen[-1].body):
            wrong.append(f"{other}: {response.status} {came[:300]} {at.said} {json.dumps(at.seen[-1].body)[:1500]}")
        at.refusals.clear()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "told"), [("sonnet", "messages[1].thinking_blocks"), ("google", "")])
async def test_thoughts_of_others_are_left_out_before_openai_refuses_them(
    gateway: Gateway, name: str, told: str
) -> None:
    running, vendors = gateway
    body = gone_on("chat", FIRST["chat"], await answered(running, "chat", name, FIRST["chat"], stream=False))
    async with running.post({**body, "model": "chat-alone"}, path=PATHS["chat"]) as response:
        assert response.status == 200, await response.read()
    assert response.headers.get("x-holeshot-dropped", "") == told
    assert (vendors["chat"].said, len(vendors["chat"].seen)) == ("", 1)
    assert vendors["chat"].seen[-1].body["messages"][1].keys() == {"role", "content", "annotations"}


def _words(body: Any) -> str:
    """Return the words of a request, its blocks of text joined."""
    return "".join(_texts(body))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in {"text", "content"} and isinstance(each, str):
                yield each
            else:
                yield from _texts(each)
