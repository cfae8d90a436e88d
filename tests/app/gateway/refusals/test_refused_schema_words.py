"""Words of JSON Schema that a server refuses: rules go into descriptions, the client is told, and tools stay."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from providers.simulator import Raw, Status, Step
from tests.app.gateway.apis.test_gemini import TEXT_BYTES as GEMINI_BYTES
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, refused
from tests.app.gateway.running_gateway import MODEL
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]
SCHEMA: Json = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "additionalProperties": False,
    "required": ["page"],
    "properties": {
        "page": {"type": ["integer", "null"], "exclusiveMinimum": 0, "description": "the page"},
        "mode": {"const": "fast"},
        "list": {"type": "array", "items": {"$ref": "#/$defs/item"}},
    },
    "$defs": {"item": {"type": "object", "properties": {"key": {"type": "string"}}}},
}
PLAIN: Json = {
    "type": "OBJECT",
    "required": ["page"],
    "properties": {
        "page": {"type": "INTEGER", "description": 'the page {exclusiveMinimum: 0, type: ["integer","null"]}'},
        "mode": {"type": "STRING", "enum": ["fast"]},
        "list": {"type": "ARRAY", "items": {"type": "OBJECT", "properties": {"key": {"type": "STRING"}}}},
    },
}
KNOWN = {"type", "description", "enum", "items", "properties", "required"}
ASKED = [{"role": "user", "content": "Hi"}]
TURNS = [{"role": "user", "parts": [{"text": "Hi"}]}]
GOOGLES = "/v1beta/models/{}:generateContent"
CLIENTS: dict[str, tuple[str, Json]] = {
    "chat": (
        "/v1/chat/completions",
        {"messages": ASKED, "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]},
    ),
    "messages": (
        "/v1/messages",
        {"max_tokens": 99, "messages": ASKED, "tools": [{"name": "f", "input_schema": SCHEMA}]},
    ),
    "responses": (
        "/v1/responses",
        {"input": "Hi", "tools": [{"type": "function", "name": "f", "strict": False, "parameters": SCHEMA}]},
    ),
    "gemini": (
        GOOGLES,
        {"contents": TURNS, "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}]},
    ),
    "gemini, older": (
        GOOGLES,
        {"contents": TURNS, "tools": [{"functionDeclarations": [{"name": "f", "parameters": SCHEMA}]}]},
    ),
}


def unknown(schema: Json, at: str) -> Iterator[tuple[str, str]]:
    for name, value in schema.items():
        if name not in KNOWN:
            yield name, at
        elif name == "properties":
            for number, inner in enumerate(value.values()):
                yield from unknown(inner, f"{at}.properties[{number}].value")


def at_google(body: Json) -> Sequence[Step]:
    """Refuse what Google's servers of before 2025 do not know."""
    [function] = body["tools"][0]["functionDeclarations"]
    at = "tools[0].function_declarations[0]"
    names = [("parametersJsonSchema", at)] if "parametersJsonSchema" in function else []
    names += unknown(function.get("parameters", {}), f"{at}.parameters")
    said = [f"Unknown name \"{name}\" at '{place}': Cannot find field." for name, place in names]
    error = {"code": 400, "message": "\n".join(said), "status": "INVALID_ARGUMENT"}
    return [Status(400, {"error": error})] if names else [Raw(GEMINI_BYTES, token=True)]


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_older_server_of_googles_is_told_of_tools_in_words_that_it_knows(
    shared: SharedGateways, client: str
) -> None:
    path, asked = CLIENTS[client]
    async with shared.row(alpha=None, config={"providers": {"alpha": {"kind": "gemini"}}}) as running:
        running["alpha"].answers = at_google
        name, told = MODEL + running.suffix, [""]
        body = asked if path == GOOGLES else {"model": name, **asked}
        for sendings in (2, 3):
            async with running.post(body, path=path.format(name)) as response:
                await response.read()
            told = response.headers["x-holeshot-dropped"].split(", ")
            assert (response.status, {"tools.additionalProperties", "tools.exclusiveMinimum"} <= {*told}) == (200, True)
            sent = running.received("alpha")
            assert (len(sent), sent[-1].body["tools"]) == (
                sendings,
                [{"functionDeclarations": [{"name": "f", "parameters": PLAIN}]}],
            )
        row = await running.rows(f"select dropped from calls where model = '{name}'")
        assert json.loads(row[0]["dropped"]) == told


WORDS = {
    "Google's chat": 'Invalid JSON payload received. Unknown name "additionalProperties" at'
    " 'tools[0].function.parameters': Cannot find field.",
    "Moonshot's": "Invalid request: tools.function.parameters is not a valid moonshot flavored json schema, details:"
    " <At path 'properties.page': type is wrong>",
    "pydantic's": "[{'type': 'extra_forbidden', 'loc': ('body', 'tools', 0, 'function', 'parameters', '$schema'),"
    " 'msg': 'Extra inputs are not permitted'}]",
}


@pytest.mark.parametrize("words", WORDS)
async def test_a_server_of_chat_gets_tools_in_plain_words_too(shared: SharedGateways, words: str) -> None:
    def answer(body: Json) -> Sequence[Step]:
        return refused(WORDS[words]) if "additionalProperties" in json.dumps(body) else ANSWERS["chat"]

    path, asked = CLIENTS["chat"]
    async with shared.row(alpha=None) as running:
        running["alpha"].answers = answer
        for sendings in (2, 3):
            async with running.post({"model": MODEL + running.suffix, **asked}, path=path) as response:
                await response.read()
            assert (response.status, "tools.$schema" in response.headers["x-holeshot-dropped"]) == (200, True)
            assert len(running.received("alpha")) == sendings
        parameters = running.received("alpha")[-1].body["tools"][0]["function"]["parameters"]
        assert parameters["properties"]["mode"] == {"type": "string", "enum": ["fast"]}


async def test_a_schema_that_is_plain_is_refused_as_it_was(shared: SharedGateways) -> None:
    plain = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": plain}}]
    async with (
        shared.row(alpha=refused(WORDS["Moonshot's"])) as running,
        running.post({"model": MODEL + running.suffix, "messages": ASKED, "tools": tools}) as response,
    ):
        assert (response.status, len(running.received("alpha"))) == (400, 1)


async def test_the_schema_of_an_answer_gets_plain_words_only_if_they_say_the_same(shared: SharedGateways) -> None:
    """A schema of an answer is a must: its rules are no advice in a description, so who refuses one is not asked."""

    def answer(body: Json) -> Sequence[Step]:
        if "additionalProperties" in json.dumps(body):
            at = "Unknown name \"additionalProperties\" at 'response_format.json_schema.schema': Cannot find field."
            return refused(f"Invalid JSON payload received. {at}")
        return ANSWERS["chat"]

    def asked(page: Json, model: str) -> Json:
        schema = {"type": "object", "properties": {"page": page}, "additionalProperties": False}
        own = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
        return {"model": model, "messages": ASKED, "response_format": own}

    async with shared.row(alpha=None) as running:
        running["alpha"].answers = answer
        name = MODEL + running.suffix
        for sendings, page, status in ((2, {"type": "string"}, 200), (3, {"type": "string", "pattern": "a"}, 400)):
            async with running.post(asked(page, name), path="/v1/chat/completions") as response:
                await response.read()
            assert (response.status, len(running.received("alpha"))) == (status, sendings)
            sent = running.received("alpha")[-1].body["response_format"]["json_schema"]["schema"]
            assert sent["properties"]["page"] == page
