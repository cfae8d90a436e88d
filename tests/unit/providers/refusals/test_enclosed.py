"""What a proxy quotes of its vendor is read as the vendor's: JSON in a message, and what zod has found wrong."""

import json
from typing import Any

import msgspec
import pytest

from providers.exchange import VendorsWords, mark
from providers.refusals import ErrorKind, UpstreamError, decide_by_request, error_in, error_of_response, read

CAPPED = "You have reached your specified API usage limits. You will regain access on 2027-01-01 at 00:00 UTC."
LONG = "prompt is too long: 210000 tokens > 200000 maximum"
ANTHROPICS = {"type": "error", "error": {"type": "invalid_request_error", "message": LONG}}
GROQS = {"error": {"message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed"}}
GOOGLES: dict[str, Any] = {
    "error": {
        "code": 400,
        "message": "API key not valid. Please pass a valid API key.",
        "status": "INVALID_ARGUMENT",
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
    }
}


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


def openrouter(raw: Any) -> dict[str, Any]:
    return error("Provider returned error", code=400, metadata={"raw": json.dumps(raw), "provider_name": "Acme"})


def told(body: Any, asked: Any = None, status: int = 400) -> UpstreamError:
    fields = {name: msgspec.Raw(msgspec.json.encode(said)) for name, said in (asked or {}).items()}
    own = VendorsWords(fields)
    if status == 200:
        found = error_in(msgspec.json.encode(body), (), otherwise=ErrorKind.SERVER_ERROR)
        mark(found, own)
    else:
        found = error_of_response(status, {}, msgspec.json.encode(body), (), 0.0, own=own)
    decide_by_request(found, "m", fields)
    return found


ENCLOSED: dict[str, tuple[Any, ErrorKind, str]] = {
    "OpenRouter": (openrouter(ANTHROPICS), ErrorKind.BAD_REQUEST, f"Provider returned error: {LONG}"),
    "OpenRouter, of Groq": (
        openrouter(GROQS),
        ErrorKind.INVALID_ANSWER,
        "Provider returned error: Failed to call a function.",
    ),
    "LiteLLM": (
        error(f"litellm.BadRequestError: GroqException - {json.dumps(GROQS)}. Received Model Group=m", code="400"),
        ErrorKind.INVALID_ANSWER,
        "litellm.BadRequestError: GroqException - Failed to call a function.. Received Model Group=m",
    ),
    "a message that is JSON": (
        error(json.dumps(GOOGLES), code=400, status="Bad Request"),
        ErrorKind.PROVIDER_AUTH,
        GOOGLES["error"]["message"],
    ),
    "JSON within JSON": (error(json.dumps(error(json.dumps(ANTHROPICS))), code=400), ErrorKind.BAD_REQUEST, LONG),
    "an error around it": (
        {"type": "error", "error": {"type": "request_fail", "upstream_error": ANTHROPICS}},
        ErrorKind.BAD_REQUEST,
        LONG,
    ),
    "a proxy for Google, a rate": (
        error(
            json.dumps(error("Resource has been exhausted (e.g. check quota).", code=429, status="RESOURCE_EXHAUSTED")),
            code=400,
            status="UPSTREAM_ERROR",
        ),
        ErrorKind.RATE_LIMITED,
        "Resource has been exhausted (e.g. check quota).",
    ),
    "a text that is JSON": (
        json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": CAPPED}}),
        ErrorKind.PROVIDER_AUTH,
        CAPPED,
    ),
    "Google, a project": (
        error(
            json.dumps(
                error(
                    "Invalid resource field value in the request.",
                    status="INVALID_ARGUMENT",
                    details=[{**GOOGLES["error"]["details"][0], "reason": "RESOURCE_PROJECT_INVALID"}],
                )
            )
        ),
        ErrorKind.PROVIDER_AUTH,
        "Invalid resource field value in the request.",
    ),
    "Databricks": (
        {"error_code": "BAD_REQUEST", "message": json.dumps({"provider": "anthropic", **ANTHROPICS})},
        ErrorKind.BAD_REQUEST,
        LONG,
    ),
}


@pytest.mark.parametrize("proxy", ENCLOSED)
def test_the_vendors_words_and_code_count(proxy: str) -> None:
    body, kind, message = ENCLOSED[proxy]
    found = told(body)
    assert (found.kind, found.message, found.is_too_long) == (kind, message, LONG in message)
    assert not found.findings.is_certain  # the JSON may be a client's
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        assert told(body, status=200).kind is kind


def keys(path: list[Any], *names: str) -> dict[str, Any]:
    said = ", ".join(f'"{name}"' for name in names)
    return {"code": "unrecognized_keys", "keys": [*names], "path": path, "message": f"Unrecognized key: {said}"}


def of_type(path: list[Any], name: str) -> dict[str, Any]:
    return {"code": "invalid_value", "values": [name], "path": path, "message": f'Invalid input: expected "{name}"'}


NO_TEXT = {"code": "invalid_type", "path": [], "message": "Invalid input: expected string, received array"}
UNION = {
    "code": "invalid_union",
    "path": ["input"],
    "message": "Invalid input",
    "errors": [
        [NO_TEXT],
        [
            {
                "code": "invalid_union",
                "path": [6],
                "message": "Invalid input",
                "errors": [[of_type(["type"], "message")], [keys([], "phase")], [of_type(["type"], "reasoning")]],
            }
        ],
    ],
}
OLD_UNION = {
    "code": "invalid_union",
    "path": ["input", 1],
    "message": "Invalid input",
    "unionErrors": [
        {"name": "ZodError", "issues": [of_type(["input", 1, "type"], "message")]},
        {"name": "ZodError", "issues": [keys(["input", 1], "namespace")]},
    ],
}
ONE_OF = {"code": "custom", "path": [], "message": 'Only one of "reasoning" and "reasoning_effort" may be provided'}


def responses(*issues: Any) -> dict[str, Any]:
    more = {"metadata": {"raw": json.dumps(issues, indent=2)}}
    return error("Invalid Responses API request", code="invalid_prompt") | more


ZOD: dict[str, tuple[Any, str]] = {
    "OpenRouter's Responses": (responses(keys([], "verbosity")), "verbosity"),
    "within a field": (responses(keys(["text"], "verbosity")), "verbosity"),
    "a kind of a union": (responses(UNION), "phase"),
    "zod 3's unions": ({"success": False, "error": {"name": "ZodError", "issues": [OLD_UNION]}}, "namespace"),
    "a message that is zod's": ({"success": False, "error": {"message": json.dumps([keys([], "seed")])}}, "seed"),
    "OpenRouter's chat": (error(json.dumps([ONE_OF], indent=2), code=400), "reasoning_effort"),
    "beside the error": (
        error("Validation failed") | {"details": [{"path": ["seed"], "message": "Unrecognized key"}]},
        "seed",
    ),
    "pydantic's, beside the error": (
        error("Validation failed") | {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]},
        "seed",
    ),
    "by field": (
        {"error": "Invalid request", "details": {"formErrors": [], "fieldErrors": {"seed": ["Unexpected field"]}}},
        "seed",
    ),
}


@pytest.mark.parametrize("shape", ZOD)
def test_the_field_is_found_that_zod_has_found_wrong(shape: str) -> None:
    body, name = ZOD[shape]
    found = told(body)
    assert [each.path[-1] for each in read(found).fields] == [name], found.message
    assert "Unrecognized key" in found.message or "seed" in found.message or "Only one" in found.message


def test_of_a_union_without_such_a_kind_the_place_is_told() -> None:
    tool = {**UNION, "path": ["tools", 3], "errors": [[of_type(["type"], "function")], [of_type(["type"], "custom")]]}
    assert "tools.3.type" in told(responses(tool)).message


SPENT = {"error": {"message": "You have no credits left", "code": "insufficient_quota"}}


@pytest.mark.parametrize("status", [400, 200])
@pytest.mark.parametrize("quote", ["Could not read the request: {}", 'Bad input (got "{}")', "Failed to parse: {}"])
def test_json_that_the_request_has_is_not_the_vendors(quote: str, status: int) -> None:
    asked = {"messages": [{"role": "user", "content": json.dumps(SPENT)}]}
    body = error(quote.format(json.dumps(SPENT)), code=400)
    assert told(body, asked, status).kind is ErrorKind.BAD_REQUEST
