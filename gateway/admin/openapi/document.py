"""The whole document: every operation, and the schemas, headers and security schemes they refer to."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway import __version__
from gateway.admin.openapi import calls, page_api
from gateway.admin.openapi.operation import (
    API_KEY,
    FORMATS,
    GOOGLE_KEY,
    JSON,
    KEY,
    SESSION,
    Answer,
    Operation,
    Schemas,
    Tag,
    of_type,
)
from gateway.admin.openapi.rows import ROWS
from gateway.core.errors import (
    ApiError,
    ExpectationFailed,
    HeadersTimeout,
    HeadersTooLarge,
    MethodNotAllowed,
    NoDeploymentFits,
    NoWebSocket,
    ResponseNotFound,
)
from gateway.core.race_failures import CODES_OF_OPERATORS, ProviderMisconfigured, RejectedByProvider
from gateway.core.reports import HistorySeries

OPERATIONS: tuple[Operation, ...] = (*calls.OPERATIONS, *page_api.OPERATIONS)

# The errors of the API, described from the classes that are raised.

# Classes whose instances have other statuses or codes than the class.
_STATUSES: Mapping[type[ApiError], tuple[int, ...]] = {
    RejectedByProvider: (400, 413, 422, 429),
    ResponseNotFound: (400, 404),
}
_CODES: Mapping[type[ApiError], tuple[str, ...]] = {
    NoDeploymentFits: ("context_length_exceeded",),
    ProviderMisconfigured: tuple(CODES_OF_OPERATORS.values()),
}


def codes(error: type[ApiError]) -> tuple[str, ...]:
    """Return all codes that errors of a class have."""
    own = () if error.code is None else (str(error.code),)
    return tuple(dict.fromkeys((*own, *map(str, _CODES.get(error, ())))))


def responses(errors: Iterable[type[ApiError]], name: str, schemas: Schemas) -> dict[str, Any]:
    """Return the response objects of ``errors`` by status, with the meaning of each code."""
    by_status: dict[int, list[type[ApiError]]] = {}
    for error in dict.fromkeys(errors):
        for status in _STATUSES.get(error, (error.status,)):
            by_status.setdefault(status, []).append(error)
    return {str(status): _response(by_status[status], name, schemas) for status in sorted(by_status)}


def _response(errors: Iterable[type[ApiError]], name: str, schemas: Schemas) -> dict[str, Any]:
    meanings: dict[str, list[str]] = {}
    for error in errors:
        for code in codes(error):
            meanings.setdefault(code, []).append(_first_sentence(error))
    described = "\n".join(f"- `{code}`: {' '.join(dict.fromkeys(said))}" for code, said in meanings.items())
    return {**Answer(described, {JSON: FORMATS[name]}).described(schemas), "x-error-codes": list(meanings)}


def _first_sentence(error: type[ApiError]) -> str:
    said = " ".join((error.__doc__ or "").replace("``", "`").split("\n\n")[0].split())
    return f"{said.partition('. ')[0].rstrip('.')}."


ANY_REQUEST: tuple[type[ApiError], ...] = (
    MethodNotAllowed,
    HeadersTimeout,
    ExpectationFailed,
    NoWebSocket,
    HeadersTooLarge,
)

_ABOUT = (
    "An LLM gateway that races providers: the first token wins, the losers are cancelled, and every attempt is a row in"
    " SQL. Point an SDK of OpenAI at `v1`, or one of Anthropic or Google at the root. Errors are in OpenAI's format,"
    " those of `v1/messages` in Anthropic's and those of `v1beta` in Google's; `code` is the word to decide on."
)
_TAGS: Mapping[Tag, str] = {
    Tag.RACED: "Several deployments are asked, and the first token wins.",
    Tag.RELAYED: "Short ones are hedged, or raced where that is set; others, as pictures, are routed and failed over.",
    Tag.MODELS: "What may be asked.",
    Tag.STATUS: "For operators, their balancers and their monitoring.",
    Tag.KEYS: "Clients and their keys, for programs. Requests with an `Origin` are refused. More is on the page"
    " 'Keys and secrets'.",
    Tag.PAGE_API: "What the page shows, as JSON. Unknown figures are null. Answers have an `etag`.",
    Tag.PAGE: "Files. They hold no data, so they need no key.",
}
_IN = {"type": "apiKey"}
_SECURITY: Mapping[str, Mapping[str, str]] = {
    KEY: {"type": "http", "scheme": "bearer", "description": "A gateway key, `hs-…`."},
    API_KEY: {**_IN, "in": "header", "name": "x-api-key", "description": "The same, as Anthropic's SDKs do."},
    GOOGLE_KEY: {**_IN, "in": "header", "name": "x-goog-api-key", "description": "The same, as Google's SDKs do."},
    SESSION: {
        **_IN,
        "in": "cookie",
        "name": "holeshot",
        "description": "The page's session, got for a key. It counts for the page and its API only.",
    },
}


def document() -> dict[str, Any]:
    """Return the document as OpenAPI 3.1."""
    sent = (kind for each in OPERATIONS for said in each.answers.values() for kind in said.kinds)
    schemas = Schemas((*sent, *FORMATS.values(), HistorySeries, *ROWS))
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holeshot", "version": __version__, "description": _ABOUT, "license": _LICENCE},
        "servers": [{"url": ".", "description": "Where this document is."}],
        "tags": [{"name": str(tag), "description": about} for tag, about in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "headers": {
                name: {"description": about, "schema": of_type(of)} for name, (of, about) in calls.HEADERS.items()
            },
            "responses": {
                name: _any_request(name, schemas) for name in sorted({each.error_schema for each in OPERATIONS})
            },
            "securitySchemes": _SECURITY,
        },
    }


_LICENCE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}


def _operation(each: Operation, schemas: Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.id,
        "tags": [str(each.tag)],
        "summary": each.summary,
        "description": f"{each.description} {each.access.words}".strip(),
        # An empty requirement: where no clients are configured, local programs need no key.
        "security": [*({scheme: []} for scheme in each.access.security), {}],
        "responses": {
            **{str(status): said.described(schemas) for status, said in each.answers.items()},
            **_beside(each, schemas),
            "default": {"$ref": f"#/components/responses/{each.error_schema}"},
        },
    }
    if each.parameters:
        found["parameters"] = each.parameters
    if each.body is not None:
        found["requestBody"] = each.body
    return found


def _beside(each: Operation, schemas: Schemas) -> dict[str, Any]:
    """Return the errors of an operation, except those of a status that has an answer of its own."""
    found = responses(each.all_errors, each.error_schema, schemas)
    return {status: response for status, response in found.items() if int(status) not in each.answers}


def _any_request(name: str, schemas: Schemas) -> dict[str, Any]:
    """Return the response for errors of any request, which come before its operation is known."""
    [first, *rest] = responses(ANY_REQUEST, name, schemas).values()
    listed = "\n".join(each["description"] for each in (first, *rest))
    codes = [code for each in (first, *rest) for code in each["x-error-codes"]]
    return {**first, "description": f"Errors of any request:\n{listed}", "x-error-codes": codes}
