"""The raced APIs. What the gateway reads of a body is described from its own decoders; the rest is passed on."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import (
    ApiError,
    BodyTimeout,
    BodyTooLarge,
    InvalidRequest,
    ModelNotFound,
    NoDeploymentFits,
    NothingEnabled,
    Overloaded,
    ResponseNotFound,
    ShuttingDown,
    UnsupportedMediaType,
)
from gateway.ingress.openapi.headers import CALL_HEADERS, OF_RACES
from gateway.ingress.openapi.operation import CALLER, EVENTS, JSON, TEXT, Answer, Body, Operation, Schema, Tag, ref
from gateway.ingress.openapi.structs import of, of_type
from gateway.ingress.preferences.openrouter import Provider
from gateway.ingress.preferences.override import RaceOverride
from gateway.ingress.surfaces.index import SURFACES
from gateway.ingress.surfaces.responses import STORE_HEADER
from gateway.limits.errors import BudgetSpent, LargerThanLimit, LimitReached
from gateway.race_failures import (
    AllProvidersFailed,
    AllRateLimited,
    AllTimedOut,
    AtCapacity,
    OutOfResources,
    ProviderMisconfigured,
    RejectedByProvider,
)
from providers.dialects.chat.dialect import CHAT
from providers.dialects.completions.dialect import COMPLETIONS
from providers.dialects.dialect import Dialect
from providers.dialects.messages.dialect import MESSAGES
from providers.dialects.responses.dialect import RESPONSES

OF_UPSTREAM: tuple[type[ApiError], ...] = (
    RejectedByProvider,
    ProviderMisconfigured,
    AllRateLimited,
    AllProvidersFailed,
    OutOfResources,
    AllTimedOut,
)
OF_CALLS: tuple[type[ApiError], ...] = (
    InvalidRequest,
    LargerThanLimit,
    NoDeploymentFits,
    ModelNotFound,
    BodyTimeout,
    BodyTooLarge,
    UnsupportedMediaType,
    LimitReached,
    BudgetSpent,
    Overloaded,
    ShuttingDown,
    NothingEnabled,
    AtCapacity,
    *OF_UPSTREAM,
)

MODEL: Schema = {
    "type": "string",
    "description": "A configured model. With `adhoc: true` also `provider/model`, or several with commas.",
}
# The gateway's own fields of every body, beside the model; none of them is passed on.
OWN_FIELDS: Mapping[str, Schema] = {
    "race": {
        "description": "How this call is raced: a mode, a profile, or an object.",
        "anyOf": [TEXT, of(RaceOverride), {"type": "null"}],
    },
    "provider": {"description": "OpenRouter's preferences.", "anyOf": [of(Provider), {"type": "null"}]},
    "models": {
        "description": "Models to try in turn, after `model`.",
        **of_type(list[str] | None),
    },
    "fastest_response": {
        "description": "LiteLLM's: race all models of the comma list in `model`.",
        **of_type(bool | None),
    },
    "route": {"description": "OpenRouter's; it changes nothing here.", "enum": ["fallback", None]},
    "transforms": {"description": "OpenRouter's; it has no effect here.", **of_type(list[str] | None)},
}
_HELLO: Any = [{"role": "user", "content": "Say hello."}]


class _Api(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a raced API beside what its surface knows."""

    id: str
    summary: str
    prompt: str
    prompt_schema: Schema
    example: Mapping[str, Any]
    answer: str  # the name of the schema of a whole answer
    events: str
    required: tuple[str, ...] = ()
    optional_prompt: bool = False
    errors: tuple[type[ApiError], ...] = ()
    headers: tuple[str, ...] = OF_RACES
    error_schema: str = "Error"


_APIS: Mapping[Dialect, _Api] = {
    CHAT: _Api(
        id="createChatCompletion",
        summary="OpenAI's chat completions",
        prompt="messages",
        prompt_schema={"type": "array", "minItems": 1, "items": {"type": "object"}},
        example={"messages": _HELLO, "stream": True},
        answer="ChatCompletion",
        events="Events of `chat.completion.chunk`, then `data: [DONE]`.",
    ),
    COMPLETIONS: _Api(
        id="createCompletion",
        summary="OpenAI's older completions of a raw prompt",
        prompt="prompt",
        prompt_schema={"type": ["string", "array"], "description": "A string, or an array of strings or tokens."},
        example={"prompt": "Once upon a time", "max_tokens": 40},
        answer="Completion",
        events="Events of `text_completion`, then `data: [DONE]`.",
    ),
    MESSAGES: _Api(
        id="createMessage",
        summary="Anthropic's messages",
        prompt="messages",
        prompt_schema={"type": "array", "minItems": 1, "items": {"type": "object"}},
        example={"messages": _HELLO, "max_tokens": 100},
        answer="Message",
        events="Anthropic's events, from `message_start` to `message_stop`.",
        required=("max_tokens",),
        error_schema="MessagesError",
    ),
    RESPONSES: _Api(
        id="createResponse",
        summary="OpenAI's responses",
        prompt="input",
        prompt_schema={"type": ["string", "array"], "description": "A string, or an array of items."},
        example={"input": "Say hello.", "store": False},
        answer="Response",
        events="OpenAI's events, from `response.created` to `response.completed`.",
        optional_prompt=True,  # where it continues something
        errors=(ResponseNotFound,),
        headers=(*OF_RACES, STORE_HEADER),
    ),
}

_DESCRIPTION = (
    "Raced as the model's settings, the key's profile and this request say: the first meaningful token wins, and the"
    " other attempts are cancelled. Fields that are not listed are passed on as they are, byte for byte where the"
    " deployment speaks this API; what a deployment cannot be told keeps it out of the race. An error after the first"
    " byte of a stream is an event of the stream."
)


def operations() -> list[Operation]:
    """Return an operation for each raced API."""
    return [_operation(dialect, api) for dialect, api in _APIS.items()]


def _operation(dialect: Dialect, api: _Api) -> Operation:
    surface = SURFACES[dialect]
    read = {name: of_type(decoder.type) for name, decoder in surface.fields.items()}
    body = {
        "type": "object",
        "properties": {"model": MODEL, api.prompt: api.prompt_schema, **read, **OWN_FIELDS},
        "required": [*api.required, *(() if api.optional_prompt else (api.prompt,))],
        "anyOf": [{"required": ["model"]}, {"required": ["models"]}],
    }
    return Operation(
        method="POST",
        path=surface.route,
        id=api.id,
        tag=Tag.RACED,
        summary=api.summary,
        description=_DESCRIPTION,
        access=CALLER,
        parameters=CALL_HEADERS,
        body=Body(content={JSON: body}, example={"model": "demo-chat", **api.example}),
        answers={
            200: Answer(
                description=f"The answer; with `stream: true` as events. {api.events}",
                content={JSON: ref(api.answer), EVENTS: TEXT},
                headers=api.headers,
            )
        },
        errors=(*OF_CALLS, *api.errors),
        error_schema=api.error_schema,
    )
