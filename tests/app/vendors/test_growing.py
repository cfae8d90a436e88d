"""A conversation only grows at its end: what a deployment got in a turn is the beginning of what it gets in the next.

Over all pairs of APIs, in what vendors hash: system prompt, tools and messages, without marks of what to cache. By that
beginning caches are found, and thoughts are bound to it.
"""

import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from strict_vendors import Request, Served
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.places import Place, gateway_before, standing_in
from tests.app.vendors.test_signed_loops import ALL_PATHS, PATHS, SCHEMA, answered, gone_on

Json = dict[str, Any]
Gateway = tuple[RunningGateway, dict[str, Served]]
TURNS = 4
SYSTEM = "You are a coding agent. Read before you write, and be brief. " * 120  # long enough to be cached


PLACES: Mapping[str, Place] = {
    "chat": Place("deepseek", "deepseek", "deepseek-v4-pro", "chat"),
    "strict-chat": Place("mistral", "mistral", "mistral-large-latest", "chat"),
    "responses": Place("openai", "openai", "gpt-6.2-astra", "responses"),
    "messages": Place("anthropic", "anthropic", "claude-opus-5-5", "messages"),
    "older-messages": Place("anthropic", "anthropic", "claude-haiku-4-5", "messages"),
    "gemini": Place("google", "google", "gemini-3.1-pro-preview", "gemini"),
    "interactions": Place("google", "google", "gemini-3.1-pro-preview", "interactions", says_api=True),
    "converse": Place("bedrock", "bedrock_converse", "us.anthropic.claude-haiku-4-5-20251001-v1:0", "converse"),
}
RACED = ("messages", "responses", "gemini", "chat")


def said(api: str, text: str) -> Json:
    """Return what a user says."""
    if api == "interactions":
        return {"type": "user_input", "content": [{"type": "text", "text": text}]}
    return {"role": "user", "parts": [{"text": text}]} if api == "gemini" else {"role": "user", "content": text}


def begun(api: str) -> Json:
    """Return a conversation's first request but for what the user says: instructions, and two tools."""
    match api:
        case "chat":
            tools: list[Json] = [
                {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("look", "read")
            ]
            return {"messages": [{"role": "system", "content": SYSTEM}], "tools": tools}
        case "responses":
            tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in ("look", "read")]
            kept = {"include": ["reasoning.encrypted_content"], "store": False}
            return {"instructions": SYSTEM, "input": [], "tools": tools, **kept}
        case "messages":
            tools = [{"name": name, "input_schema": SCHEMA} for name in ("look", "read")]
            return {"system": SYSTEM, "messages": [], "tools": tools, "max_tokens": 9000}
        case "interactions":
            tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in ("look", "read")]
            return {"system_instruction": SYSTEM, "input": [], "tools": tools, "store": False}
        case _:
            tools = [{"name": name, "parametersJsonSchema": SCHEMA} for name in ("look", "read")]
            system = {"parts": [{"text": SYSTEM}]}
            return {"systemInstruction": system, "contents": [], "tools": [{"functionDeclarations": tools}]}


PROMPTS = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"} | {
    "interactions": "input"
}


def with_turn(api: str, body: Json, text: str) -> Json:
    """Return the request with one more thing that its user says."""
    return {**body, PROMPTS[api]: [*body[PROMPTS[api]], said(api, text)]}


def has_calls(api: str, answer: Json) -> bool:
    """Say whether an answer calls tools."""
    told = json.dumps(answer)
    return any(f'"{word}"' in told for word in ("tool_calls", "function_call", "tool_use", "functionCall")) and not (
        api == "messages" and answer["stop_reason"] != "tool_use"
    )


def after(api: str, body: Json, answer: Json) -> Json:
    """Return the request after an answer without calls."""
    if api == "chat":
        return {**body, "messages": [*body["messages"], answer["choices"][0]["message"]]}
    if api == "messages":
        return {**body, "messages": [*body["messages"], {"role": "assistant", "content": answer["content"]}]}
    grown = gone_on(api, body, answer)
    return {**grown, PROMPTS[api]: grown[PROMPTS[api]][:-1]} if api == "gemini" else grown


# What a vendor hashes.


def unmarked(told: Any) -> Any:
    """Return JSON without marks of what to cache."""
    if isinstance(told, list):
        return [unmarked(each) for each in told if not (isinstance(each, dict) and "cachePoint" in each)]
    if isinstance(told, dict):
        return {name: unmarked(value) for name, value in told.items() if name != "cache_control"}
    return told


def blocks(content: Any) -> list[Any]:
    """Return a content as a list: a text is one block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def hashed(api: str, body: Json) -> Iterator[str]:
    """Yield what stands in a request, in the order in which its vendor reads it."""
    body = unmarked(body)
    match api:
        case "responses":
            head: list[Any] = [body.get("tools"), (body.get("text") or {}).get("format"), body.get("instructions")]
            turns = [(None, item) for item in blocks(body["input"])]
        case "interactions":
            head = [body.get("tools"), body.get("system_instruction")]
            turns = [(None, step) for step in body["input"]]
        case "chat":
            head = [body.get("tools")]
            turns = [(None, {**each, "content": blocks(each.get("content"))}) for each in body["messages"]]
        case "gemini":
            head = [body.get("tools"), body.get("systemInstruction")]
            turns = [(each["role"], part) for each in body["contents"] for part in each["parts"]]
        case _:
            head = [body.get("tools") or (body.get("toolConfig") or {}).get("tools"), blocks(body.get("system"))]
            turns = [(each["role"], block) for each in body["messages"] for block in blocks(each["content"])]
    for each in (*head, *turns):
        yield json.dumps(each, sort_keys=True)


def edits(place: Place, vendor: Served) -> list[tuple[str, str]]:
    """Return where a request's beginning was not what the one before it had: what was there, and what is now."""
    return edits_of(place, vendor.seen)


def edits_of(place: Place, requests: Sequence[Request]) -> list[tuple[str, str]]:
    """Return as ``edits`` where one of these requests changed what the one before it had."""
    asked = [request.body for request in requests if isinstance(request.body, dict)]
    told = [list(hashed(place.api, body)) for body in asked if place.api == "converse" or PROMPTS[place.api] in body]
    found = []
    for before, now in itertools.pairwise(told):
        if len(now) < len(before):
            found.append((before[len(now)], "nothing"))
        found += [pair for pair in zip(before, now, strict=False) if pair[0] != pair[1]][:1]
    return found


# Said in each request, though some vendors have no such field, or refuse it; and what a turn may have besides.
EXTRAS: Mapping[str, Json] = {
    "chat": {"verbosity": "low", "metadata": {"a": "b"}, "seed": 7, "user": "ann", "logit_bias": {"50256": -100}},
    "responses": {
        "text": {"verbosity": "low"},
        "metadata": {"a": "b"},
        "truncation": "auto",
        "safety_identifier": "ann",
    },
    "messages": {"metadata": {"user_id": "ann"}, "service_tier": "auto", "top_k": 5},
    "gemini": {"safetySettings": [], "generationConfig": {"seed": 7, "topK": 5}, "labels": {"a": "b"}},
}
NO_CALL: Mapping[str, Json] = {
    "chat": {"tool_choice": "none"},
    "responses": {"tool_choice": "none"},
    "messages": {"tool_choice": {"type": "none"}},
    "gemini": {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
}


async def talk(
    running: RunningGateway, api: str, model: str, *, stream: bool, is_told: bool = False, extras: Json | None = None
) -> None:
    """Hold a conversation: in each turn two calls, one after the other, and an answer in words.

    ``is_told``: in one turn there are new instructions, and in one no call is allowed.
    """
    body = {**begun(api), **(extras or {})}
    for turn in range(TURNS):
        calls = f'beside: I look.\ncall: look {{"city": "{turn}"}}\nthen: read {{"city": "{turn}"}}'
        if is_told and turn == 1 and api in {"chat", "responses"}:
            body = {**body, PROMPTS[api]: [*body[PROMPTS[api]], {"role": "developer", "content": "Be briefer."}]}
        body = with_turn(api, body, f"Turn {turn}.\n{calls}")
        asked = NO_CALL[api] if is_told and turn == 2 else {}
        while has_calls(api, answer := await answered(running, api, model, {**body, **asked}, stream=stream)):
            body = gone_on(api, body, answer)
        body = after(api, body, answer)


@pytest.fixture
async def vendors() -> AsyncIterator[dict[str, Served]]:
    async with standing_in(PLACES) as vendors:
        yield vendors


DROPPING: Json = {"drop_params": True}


def gateway(
    folder: Path, vendors: Mapping[str, Served], settings: Json | None = None
) -> AbstractAsyncContextManager[RunningGateway]:
    """Return a gateway before all places, each a model of its own, and several raced as one."""
    deployments = [{"deployment": f"{name}/{PLACES[name].model}", **DROPPING} for name in RACED]
    raced: Json = {"deployments": deployments, "race": {"mode": "race", "width": 3}}
    return gateway_before(folder, PLACES, vendors, models={"raced": raced}, deployment=DROPPING, settings=settings)


@pytest.mark.parametrize("settings", [{}, {"cache_marks": "auto"}], ids=["plain", "marked"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", ALL_PATHS)
async def test_it_only_grows_at_its_end(
    tmp_path: Path, vendors: dict[str, Served], api: str, stream: bool, settings: Json
) -> None:
    async with gateway(tmp_path, vendors, settings) as running:
        for name, place in PLACES.items():
            await talk(running, api, name, stream=stream)
            vendor = vendors[name]
            assert edits(place, vendor) == [], name
            assert len(vendor.seen) == 3 * TURNS
            assert vendor.said == "", name


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", ALL_PATHS)
async def test_it_only_grows_at_the_end_where_it_is_raced(
    tmp_path: Path, vendors: dict[str, Served], api: str, stream: bool
) -> None:
    async with gateway(tmp_path, vendors) as running:
        await talk(running, api, "raced", stream=stream)
        for name in RACED:
            assert edits(PLACES[name], vendors[name]) == [], name
            assert vendors[name].said == "", name


@pytest.mark.parametrize("api", PATHS)
async def test_new_instructions_and_no_calls_change_nothing_before_them(
    tmp_path: Path, vendors: dict[str, Served], api: str
) -> None:
    async with gateway(tmp_path, vendors) as running:
        for name, place in PLACES.items():
            await talk(running, api, name, stream=True, is_told=True)
            assert edits(place, vendors[name]) == [], name


@pytest.mark.parametrize("api", PATHS)
async def test_what_is_dropped_or_refused_changes_nothing_of_it(
    tmp_path: Path, vendors: dict[str, Served], api: str
) -> None:
    async with gateway(tmp_path, vendors) as running:
        for name, place in PLACES.items():
            await talk(running, api, name, stream=True, extras=EXTRAS[api])
            assert edits(place, vendors[name]) == [], name


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    "names",
    [
        ("responses", "previous_response_id", "function_call_output"),
        ("interactions", "previous_interaction_id", "function_result"),
    ],
)
async def test_it_grows_where_the_gateway_remembers_it(
    tmp_path: Path, vendors: dict[str, Served], names: tuple[str, str, str], stream: bool
) -> None:
    api, previous, result = names
    async with gateway(tmp_path, vendors) as running:
        for name, place in PLACES.items():
            body = {each: value for each, value in begun(api).items() if each not in {"input", "store"}}
            new: list[Json] = []
            for turn in range(TURNS):
                new = [*new, said(api, f'Turn {turn}.\ncall: look {{"city": "{turn}"}}')]
                for _ in range(3):
                    answer = await answered(running, api, name, {**body, "input": new}, stream=stream)
                    body[previous] = answer["id"]
                    grown = gone_on(api, {"input": []}, answer)["input"]
                    new = [item for item in grown if item["type"] == result]
                    if not new:
                        break
            assert previous in vendors[name].seen[-1].body or edits(place, vendors[name]) == [], name


SHAPE = {**SCHEMA, "additionalProperties": False}
AS_JSON: Mapping[str, Mapping[str, Json]] = {  # said in some turns, after their calls
    "a schema": {
        "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": SHAPE}}},
        "responses": {"text": {"format": {"type": "json_schema", "name": "city", "schema": SHAPE}}},
        "messages": {"output_config": {"format": {"type": "json_schema", "schema": SHAPE}}},
        "gemini": {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SHAPE}},
    },
    "any JSON": {
        "chat": {"response_format": {"type": "json_object"}},
        "responses": {"text": {"format": {"type": "json_object"}}},
        "gemini": {"generationConfig": {"responseMimeType": "application/json"}},
    },
}


def unformatted(requests: Sequence[Request]) -> list[Request]:
    """Return the requests without the format that their client asks for: OpenAI has it at the head of a prompt."""
    return [
        structs.replace(each, body={name: value for name, value in each.body.items() if name != "text"})
        for each in requests
    ]


@pytest.mark.parametrize(("form", "api"), [(form, api) for form, apis in AS_JSON.items() for api in apis])
async def test_turns_that_ask_for_json_change_nothing_of_those_beside_them(
    tmp_path: Path, vendors: dict[str, Served], api: str, form: str
) -> None:
    async with gateway(tmp_path, vendors) as running:
        for name, place in PLACES.items():
            if (form, name) == ("a schema", "chat"):
                continue  # DeepSeek takes none
            body = begun(api)
            for turn in range(TURNS):
                asked = AS_JSON[form][api] if turn % 2 else {}
                body = with_turn(api, body, f'Turn {turn}, in JSON.\ncall: look {{"city": "{turn}"}}')
                while has_calls(api, answer := await answered(running, api, name, {**body, **asked}, stream=True)):
                    body = gone_on(api, body, answer)
                body = after(api, body, answer)
            assert edits_of(place, unformatted(vendors[name].seen)) == [], name
            assert vendors[name].said == "", name


# What is learnt of a refusal in the middle of a conversation, at servers of which nothing is known but their kind.
KINDS: Mapping[str, Json] = {
    "chat": {"preset": "deepseek"},  # whose thoughts must come back
    "strict-chat": {"kind": "openai_compatible"},
    "responses": {"kind": "openai_compatible", "apis": ["responses"]},
    "messages": {"kind": "anthropic"},
    "older-messages": {"kind": "anthropic"},
    "gemini": {"kind": "gemini"},
}
LESSONS: Mapping[str, Mapping[str, Json]] = {  # said from the third turn on
    "a field": EXTRAS,
    "a forced tool": {  # of the first request of a turn
        "chat": {"tool_choice": "required"},
        "responses": {"tool_choice": "required"},
        "messages": {"tool_choice": {"type": "any"}},
        "gemini": {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
    },
    "an order": {},  # the user speaks twice, and in chat and Responses the instructions change
}


async def taught(running: RunningGateway, api: str, model: str, lesson: str) -> None:
    """Hold a conversation in whose third turn, and in each later one, something is said that a server may refuse."""
    body, said = begun(api), LESSONS[lesson].get(api, {})
    for turn in range(TURNS + 1):
        is_late = turn > 1
        if lesson == "an order" and is_late:
            if api in {"chat", "responses"}:
                body = {**body, PROMPTS[api]: [*body[PROMPTS[api]], {"role": "system", "content": "Be briefer."}]}
            body = with_turn(api, body, "Wait.")
        calls = f'call: look {{"city": "{turn}"}}\nthen: read {{"city": "{turn}"}}'
        body = with_turn(api, body, f"Turn {turn}.\n{calls}")
        now = said if is_late else {}
        while has_calls(api, answer := await answered(running, api, model, {**body, **now}, stream=True)):
            body, now = gone_on(api, body, answer), {} if lesson == "a forced tool" else now
        body = after(api, body, answer)


@pytest.mark.parametrize("lesson", LESSONS)
@pytest.mark.parametrize("api", PATHS)
async def test_after_what_a_refusal_has_taught_it_grows_at_its_end_again(
    tmp_path: Path, vendors: dict[str, Served], api: str, lesson: str
) -> None:
    providers = {
        name: {"base_url": vendors[name].base_url, "api_key": vendors[name].key, **kind} for name, kind in KINDS.items()
    }
    models = {
        name: {"deployments": [{"deployment": f"{name}/{PLACES[name].model}", "drop_params": True}]} for name in KINDS
    }
    async with serving(tmp_path, {"unused": None}, providers=providers, models=models) as running:
        for name in KINDS:
            place, vendor = PLACES[name], vendors[name]
            await taught(running, api, name, lesson)
            refused = {id(each.request) for each in vendor.refusals}
            last = max((number for number, each in enumerate(vendor.seen) if id(each) in refused), default=-1)
            assert len(vendor.seen) - last > 3, vendor.said  # it was learnt at once
            assert edits_of(place, vendor.seen[last + 1 :]) == [], (name, vendor.said)
            taken = [each for each in vendor.seen if id(each) not in refused]
            # Turns of another order are sent otherwise from then on: once, all of them.
            assert len(edits_of(place, taken)) <= (lesson == "an order"), (name, vendor.said)
        assert lesson == "an order" or any(vendor.refusals for vendor in vendors.values())
