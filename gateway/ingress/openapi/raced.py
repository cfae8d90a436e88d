"""The raced APIs. What the gateway reads of a body is described from its own decoders; the rest is passed on."""

from collections.abc import Mapping

from gateway.errors import (
    ApiError,
    BodyTimeout,
    BodyTooLarge,
    InvalidRequest,
    ModelNotFound,
    NoDeploymentFits,
    NothingEnabled,
    Overloaded,
    ShuttingDown,
    TooManyBodies,
    UnsupportedMediaType,
)
from gateway.ingress.openapi.headers import CALL_HEADERS, OF_RACES
from gateway.ingress.openapi.operation import CALLER, EVENTS, JSON, TEXT, Answer, Body, Operation, Schema, Tag
from gateway.ingress.openapi.structs import of, of_type
from gateway.ingress.preferences.openrouter import Provider
from gateway.ingress.preferences.override import RaceOverride
from gateway.ingress.surfaces.index import SURFACES
from gateway.ingress.surfaces.surface import Surface
from gateway.limits.errors import BudgetSpent, LargerThanLimit, LimitReached
from gateway.race_failures import (
    AllProvidersFailed,
    AllRateLimited,
    AllTimedOut,
    AtCapacity,
    NoValidAnswer,
    OutOfResources,
    ProviderMisconfigured,
    RejectedByProvider,
)

OF_UPSTREAM: tuple[type[ApiError], ...] = (
    RejectedByProvider,
    ProviderMisconfigured,
    AllRateLimited,
    AllProvidersFailed,
    OutOfResources,
    AllTimedOut,
)
OF_CALLS: tuple[type[ApiError], ...] = (
    NoValidAnswer,
    InvalidRequest,
    LargerThanLimit,
    NoDeploymentFits,
    ModelNotFound,
    BodyTimeout,
    BodyTooLarge,
    UnsupportedMediaType,
    LimitReached,
    BudgetSpent,
    TooManyBodies,
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

_DESCRIPTION = (
    "Raced as the model's settings, the key's profile and this request say: the first meaningful token wins, and the"
    " other attempts are cancelled. Fields that are not listed are passed on as they are, byte for byte where the"
    " deployment speaks this API; what a deployment cannot be told keeps it out of the race. An error after the first"
    " byte of a stream is an event of the stream."
)


def operations() -> list[Operation]:
    """Return an operation for each raced API."""
    return [_operation(surface) for surface in SURFACES.values()]


def own_headers() -> dict[str, Schema]:
    """Return the headers that only answers of single APIs have."""
    return {name: schema for each in SURFACES.values() for name, schema in each.description.headers.items()}


def _operation(surface: Surface) -> Operation:
    api, prompt = surface.description, surface.dialect.requests.prompt
    read = {name: of_type(decoder.type) for name, decoder in surface.fields.items()}
    body = {
        "type": "object",
        "properties": {"model": MODEL, prompt: api.prompt, **read, **OWN_FIELDS},
        "required": [*api.required, *(() if api.optional_prompt else (prompt,))],
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
                content={JSON: api.answer, EVENTS: TEXT},
                headers=(*OF_RACES, *api.headers),
            )
        },
        errors=(*OF_CALLS, *api.errors),
        error_schema=api.error_schema,
    )
