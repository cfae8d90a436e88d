"""The whole document: every operation, and the schemas, headers and ways to identify oneself they refer to."""

from collections.abc import Mapping
from typing import Any

from gateway import __version__
from gateway.errors import ApiError, ExpectationFailed, HeadersTimeout, HeadersTooLarge, MethodNotAllowed, NoWebSocket
from gateway.ingress.openapi import (
    answers,
    errors,
    keys,
    models,
    page,
    page_api,
    page_schemas,
    raced,
    relayed,
    status,
    structs,
)
from gateway.ingress.openapi.headers import DESCRIBED, described
from gateway.ingress.openapi.operation import API_KEY, KEY, SESSION, Answer, Operation, Parameter, Tag

OPERATIONS: tuple[Operation, ...] = (
    *raced.operations(),
    *relayed.operations(),
    *models.operations(),
    *status.operations(),
    *keys.operations("/admin/keys", Tag.KEYS),
    *page_api.operations(),
    *page_api.sessions(),
    *keys.operations("/api/keys", Tag.PAGE_API),
    *page.operations(),
)
ANY_REQUEST: tuple[type[ApiError], ...] = (
    MethodNotAllowed,
    HeadersTimeout,
    ExpectationFailed,
    NoWebSocket,
    HeadersTooLarge,
)

_ABOUT = (
    "An LLM gateway that races providers: the first token wins, the losers are cancelled, and every attempt is a row in"
    " SQL. Point an SDK of OpenAI at `v1`, or one of Anthropic at the root. Errors are in OpenAI's format, those of"
    " `v1/messages` in Anthropic's; `code` is the word to decide on."
)
_TAGS: Mapping[Tag, str] = {
    Tag.RACED: "Several deployments are asked, and the first token wins.",
    Tag.RELAYED: "Routing and failover, without races.",
    Tag.MODELS: "What may be asked.",
    Tag.STATUS: "For operators, their balancers and their monitoring.",
    Tag.KEYS: "Clients and their keys, for programs. Requests with an `Origin` are refused. docs/keys.md",
    Tag.PAGE_API: "What the page shows, as JSON. Unknown figures are null. Answers have an `etag`.",
    Tag.PAGE: "Files. They hold no data, so they need no key.",
}
_SECURITY: Mapping[str, Mapping[str, str]] = {
    KEY: {"type": "http", "scheme": "bearer", "description": "A gateway key, `hs-…`."},
    API_KEY: {
        "type": "apiKey",
        "in": "header",
        "name": "x-api-key",
        "description": "The same, as Anthropic's SDKs do.",
    },
    SESSION: {
        "type": "apiKey",
        "in": "cookie",
        "name": "holeshot",
        "description": "The page's session, got for a key. It counts for the page and its API only.",
    },
}


def document() -> dict[str, Any]:
    """Return the document as OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holeshot", "version": __version__, "description": _ABOUT, "license": _LICENCE},
        "servers": [{"url": ".", "description": "Where this document is."}],
        "tags": [{"name": str(tag), "description": about} for tag, about in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {
                **answers.SCHEMAS,
                **errors.SCHEMAS,
                **models.SCHEMAS,
                **status.SCHEMAS,
                **keys.SCHEMAS,
                **page_schemas.SCHEMAS,
                **structs.schemas(),
            },
            "headers": {name: _header(schema) for name, schema in {**DESCRIBED, **raced.own_headers()}.items()},
            "responses": {
                schema: _any_request(schema) for schema in sorted({each.error_schema for each in OPERATIONS})
            },
            "securitySchemes": _SECURITY,
        },
    }


_LICENCE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}


def _operation(each: Operation) -> dict[str, Any]:
    described_ = f"{each.description} {each.access.words}".strip()
    found: dict[str, Any] = {
        "operationId": each.id,
        "tags": [str(each.tag)],
        "summary": each.summary,
        "description": described_,
        # An empty requirement: where no clients are configured, local programs need no key.
        "security": [*({scheme: []} for scheme in each.access.security), {}],
        "responses": {
            **{str(status): _answer(answer) for status, answer in each.answers.items()},
            **_beside(each),
            "default": {"$ref": f"#/components/responses/{each.error_schema}"},
        },
    }
    if each.parameters:
        found["parameters"] = [_parameter(parameter) for parameter in each.parameters]
    if each.body is not None:
        media = {name: {"schema": schema} for name, schema in each.body.content.items()}
        if each.body.example is not None:
            media[next(iter(media))]["example"] = each.body.example
        found["requestBody"] = {"required": each.body.required, "content": media}
    return found


def _beside(each: Operation) -> dict[str, Any]:
    """Return the errors of an operation, but for a status that has an answer of its own."""
    found = errors.responses(each.all_errors, each.error_schema)
    return {status: response for status, response in found.items() if int(status) not in each.answers}


def _answer(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.description}
    if answer.headers:
        found["headers"] = described(answer.headers)
    if answer.content:
        found["content"] = {media: {"schema": schema} for media, schema in answer.content.items()}
    return found


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _header(schema: Mapping[str, Any]) -> dict[str, Any]:
    said = {name: each for name, each in schema.items() if name != "description"}
    return {"description": schema["description"], "schema": said}


def _any_request(schema: str) -> dict[str, Any]:
    """Return the response for errors of any request, which come before its operation is known."""
    [first, *rest] = errors.responses(ANY_REQUEST, schema).values()
    listed = "\n".join(each["description"] for each in (first, *rest))
    codes = [code for each in (first, *rest) for code in each["x-error-codes"]]
    return {**first, "description": f"Errors of any request:\n{listed}", "x-error-codes": codes}
