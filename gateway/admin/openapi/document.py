"""The whole document: every operation, and the schemas, headers and ways to identify oneself they refer to."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway import __version__
from gateway.admin.openapi import calls, operation, page_api, shapes
from gateway.admin.openapi.calls import DESCRIBED, described
from gateway.admin.openapi.operation import (
    API_KEY,
    CLIENT,
    JSON,
    KEY,
    SESSION,
    TEXT,
    Answer,
    Operation,
    Parameter,
    Schema,
    Tag,
    array,
    count,
    flag,
    instant,
    nullable,
    number,
    record,
    ref,
    text,
)
from gateway.core.errors import (
    ApiError,
    ExpectationFailed,
    HeadersTimeout,
    HeadersTooLarge,
    InvalidRequest,
    MethodNotAllowed,
    ModelNotFound,
    NoDeploymentFits,
    NoWebSocket,
)
from gateway.core.race_failures import CODES_OF_OPERATORS, ProviderMisconfigured, RejectedByProvider

# Schemas of model answers: what all of them have. Providers may send more, and it is passed on.

_CHAT_USAGE = record({"prompt_tokens": count(), "completion_tokens": count(), "total_tokens": count()})
_USAGE = record({"input_tokens": count(), "output_tokens": count()})

ANSWER_SCHEMAS: Mapping[str, Schema] = {
    "ChatCompletion": record(
        {
            "id": TEXT,
            "object": text(one_of=("chat.completion",)),
            "created": count("Unix seconds."),
            "model": text("The model that was asked for, or what the provider calls it."),
            "choices": array(
                record(
                    {
                        "index": count(),
                        "message": record(
                            {"role": text(one_of=("assistant",))},
                            {"content": nullable(TEXT), "tool_calls": array({"type": "object"})},
                        ),
                        "finish_reason": nullable(TEXT),
                    }
                )
            ),
        },
        {"usage": _CHAT_USAGE},
        "OpenAI's chat completion.",
    ),
    "Completion": record(
        {
            "id": TEXT,
            "object": text(one_of=("text_completion",)),
            "choices": array(record({"index": count(), "text": TEXT, "finish_reason": nullable(TEXT)})),
        },
        {"created": count("Unix seconds."), "model": TEXT, "usage": _CHAT_USAGE},
        "OpenAI's completion.",
    ),
    "Message": record(
        {
            "id": TEXT,
            "type": text(one_of=("message",)),
            "role": text(one_of=("assistant",)),
            "model": TEXT,
            "content": array({"type": "object"}),
            "stop_reason": nullable(TEXT),
            "usage": _USAGE,
        },
        {"stop_sequence": nullable(TEXT)},
        "Anthropic's message.",
    ),
    "Response": record(
        {
            "id": TEXT,
            "object": text(one_of=("response",)),
            "status": TEXT,
            "model": TEXT,
            "output": array({"type": "object"}),
        },
        {"created_at": number("Unix seconds."), "usage": nullable(_USAGE)},
        "OpenAI's response.",
    ),
    "Embeddings": record(
        {
            "object": text(one_of=("list",)),
            "data": array(record({"index": count(), "embedding": {"type": ["array", "string"]}})),
            "model": TEXT,
        },
        {"usage": record({"prompt_tokens": count(), "total_tokens": count()})},
        "OpenAI's embeddings.",
    ),
}


# The errors of the API, described from the classes that are raised.

# Classes whose instances have other statuses or codes than the class.
_STATUSES: Mapping[type[ApiError], tuple[int, ...]] = {RejectedByProvider: (400, 413, 422)}
_CODES: Mapping[type[ApiError], tuple[str, ...]] = {
    NoDeploymentFits: ("context_length_exceeded",),
    ProviderMisconfigured: tuple(CODES_OF_OPERATORS.values()),
}

ERROR_SCHEMAS: Mapping[str, Schema] = {
    "Error": record(
        {
            "error": record(
                {
                    "message": text("What happened, and what to do."),
                    "type": nullable(text("The kind of error, as OpenAI names them.")),
                    "param": nullable(text("The field that is at fault, if it is one.")),
                    "code": nullable(text("The word to decide on.")),
                }
            )
        },
        about="An error in OpenAI's format. Where a provider says that the request is invalid, its own object is sent.",
    ),
    "MessagesError": record(
        {
            "type": text(one_of=("error",)),
            "error": record({"type": text("As Anthropic names them."), "message": text("What happened.")}),
        },
        {"request_id": nullable(text())},
        about="An error in Anthropic's format.",
    ),
}


def codes(error: type[ApiError]) -> tuple[str, ...]:
    """Return all codes that errors of a class have."""
    own = () if error.code is None else (str(error.code),)
    return tuple(dict.fromkeys((*own, *map(str, _CODES.get(error, ())))))


def responses(errors: Iterable[type[ApiError]], schema: str) -> dict[str, Any]:
    """Return the response objects of ``errors`` by status, with what each code means."""
    by_status: dict[int, list[type[ApiError]]] = {}
    for error in dict.fromkeys(errors):
        for status in _STATUSES.get(error, (error.status,)):
            by_status.setdefault(status, []).append(error)
    return {str(status): _response(by_status[status], schema) for status in sorted(by_status)}


def _response(errors: Iterable[type[ApiError]], schema: str) -> dict[str, Any]:
    meanings: dict[str, list[str]] = {}
    for error in errors:
        for code in codes(error):
            meanings.setdefault(code, []).append(_first_sentence(error))
    described = "\n".join(f"- `{code}`: {' '.join(dict.fromkeys(said))}" for code, said in meanings.items())
    return {
        "description": described,
        "content": {JSON: {"schema": ref(schema)}},
        "x-error-codes": list(meanings),
    }


def _first_sentence(error: type[ApiError]) -> str:
    said = " ".join((error.__doc__ or "").replace("``", "`").split("\n\n")[0].split())
    return f"{said.partition('. ')[0].rstrip('.')}."


# The list of models, in three formats.

_OPENAI = record(
    {
        "id": text(),
        "object": text(one_of=("model",)),
        "created": count("Always 0: a configured name has no date."),
        "owned_by": text(one_of=("holeshot",)),
        "deployments": array(TEXT),
        "name": text(),
    },
    {
        "context_length": count("The smallest of all deployments, in tokens."),
        "top_provider": record({}, {"context_length": count(), "max_completion_tokens": count()}),
        "pricing": {
            "type": "object",
            "description": "US dollars per token, the highest of all deployments.",
            "additionalProperties": TEXT,
        },
        "supported_parameters": array(TEXT),
        "architecture": record({"input_modalities": array(TEXT), "output_modalities": array(TEXT)}),
    },
    "A model in OpenAI's format, with what is known about it in OpenRouter's fields.",
)
_ANTHROPIC = record(
    {
        "type": text(one_of=("model",)),
        "id": text(),
        "display_name": text(),
        "created_at": instant(),
        "lifecycle": text(),
        "max_input_tokens": nullable(count()),
        "max_tokens": nullable(count()),
    },
    about="A model in Anthropic's format.",
)
MODEL_SCHEMAS: dict[str, Schema] = {"Model": _OPENAI, "AnthropicModel": _ANTHROPIC}

_FORMAT = "In Anthropic's format for requests with `anthropic-version` or `x-api-key`, else in OpenAI's."
_LIST = record({"object": text(one_of=("list",)), "data": array(ref("Model"))})
_PAGE = record(
    {
        "data": array(ref("AnthropicModel")),
        "has_more": flag(),
        "first_id": nullable(TEXT),
        "last_id": nullable(TEXT),
    }
)


def operations() -> list[Operation]:
    """Return the operations."""
    paging = "Anthropic's format only: "
    return [
        Operation(
            method="GET",
            path="/v1/models",
            id="listModels",
            tag=Tag.MODELS,
            summary="The models this key may use",
            description=_FORMAT,
            access=CLIENT,
            parameters=(
                Parameter(name="limit", schema=count(), description=f"{paging}models in a page, 1 to 1000."),
                Parameter(name="after_id", description=f"{paging}the page after this model."),
                Parameter(name="before_id", description=f"{paging}the page before this model."),
            ),
            answers={200: Answer(description="The models.", content={JSON: {"anyOf": [_LIST, _PAGE]}})},
            errors=(InvalidRequest,),
        ),
        Operation(
            method="GET",
            path="/v1/models/{id}",
            id="getModel",
            tag=Tag.MODELS,
            summary="One model",
            description=_FORMAT,
            access=CLIENT,
            parameters=(Parameter(name="id", place="path", description="Its name; slashes need no escape."),),
            answers={
                200: Answer(description="The model.", content={JSON: {"anyOf": [ref("Model"), ref("AnthropicModel")]}})
            },
            errors=(InvalidRequest, ModelNotFound),
        ),
    ]


OPERATIONS: tuple[Operation, ...] = (
    *calls.raced_operations(),
    *calls.relayed_operations(),
    *operations(),
    *shapes.status_operations(),
    *shapes.key_operations("/admin/keys", Tag.KEYS),
    *page_api.operations(),
    *page_api.sessions(),
    *shapes.key_operations("/api/keys", Tag.PAGE_API),
    *operation.page_operations(),
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
                **ANSWER_SCHEMAS,
                **ERROR_SCHEMAS,
                **MODEL_SCHEMAS,
                **shapes.STATUS_SCHEMAS,
                **shapes.KEY_SCHEMAS,
                **page_api.SCHEMAS,
                **shapes.schemas(),
            },
            "headers": {name: _header(schema) for name, schema in {**DESCRIBED, **calls.own_headers()}.items()},
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
    found = responses(each.all_errors, each.error_schema)
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
    [first, *rest] = responses(ANY_REQUEST, schema).values()
    listed = "\n".join(each["description"] for each in (first, *rest))
    codes = [code for each in (first, *rest) for code in each["x-error-codes"]]
    return {**first, "description": f"Errors of any request:\n{listed}", "x-error-codes": codes}
