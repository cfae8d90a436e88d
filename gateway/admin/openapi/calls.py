"""The raced APIs. What the gateway reads of a body is described from its own decoders; the rest is passed on."""

from collections.abc import Mapping

import msgspec

from gateway.admin.openapi.operation import (
    CALLER,
    CLIENT,
    EVENTS,
    JSON,
    TEXT,
    Access,
    Answer,
    Body,
    Operation,
    Parameter,
    Schema,
    Tag,
    count,
    flag,
    number,
    record,
    ref,
    text,
)
from gateway.admin.openapi.shapes import of, of_type
from gateway.api import headers
from gateway.api.call_runner import FALLBACK
from gateway.api.endpoint import Endpoint
from gateway.api.endpoints import ENDPOINTS
from gateway.api.fitting import IGNORED, LOWERED
from gateway.api.headers import PLAN_HEADER
from gateway.api.overrides import DEADLINE, LLM_D_TPOT, LLM_D_TTFT, RaceOverride
from gateway.api.overrides import HEADER as RACE_HEADER
from gateway.api.passthrough import ESTIMATED
from gateway.api.passthrough_requests import (
    COUNT_TOKENS,
    EDITS,
    EMBEDDINGS,
    FORM,
    GENERATIONS,
    MODERATIONS,
    RERANK,
    SPEECH,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    VARIATIONS,
    RelayedApi,
)
from gateway.api.preferences import Provider
from gateway.core.errors import (
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
    TooManyBodies,
    UnsupportedMediaType,
)
from gateway.core.race_failures import (
    AllProvidersFailed,
    AllRateLimited,
    AllTimedOut,
    AtCapacity,
    NoValidAnswer,
    OutOfResources,
    ProviderMisconfigured,
    RejectedByProvider,
)
from gateway.limits.quota import BudgetSpent, LargerThanLimit, LimitReached

# The headers that the gateway reads and sends, described.

REQUEST_ID = Parameter(
    name="x-request-id",
    place="header",
    description="An id of yours: logged, sent to providers, and returned. At most 200 characters.",
)
TAGS = Parameter(
    name="x-holeshot-tags",
    place="header",
    description="`name=value, name=value`: stored with the call, so that calls can be compared in SQL. At most 16.",
)
RACE = Parameter(
    name=RACE_HEADER,
    place="header",
    description="How this call is raced: a mode, a profile, or the body's object `race` as JSON. The body counts more.",
)
CALL_HEADERS = (
    REQUEST_ID,
    TAGS,
    RACE,
    Parameter(
        name=DEADLINE,
        place="header",
        schema=number(),
        description="Milliseconds from the receipt of the request to the first token. The strictest deadline counts.",
    ),
    Parameter(name=LLM_D_TTFT, place="header", schema=number(), description=f"The same as `{DEADLINE}`, for llm-d."),
    Parameter(
        name=LLM_D_TPOT,
        place="header",
        schema=number(),
        description="Milliseconds per token after the first: 20 stands for `min_tok_s: 50`.",
    ),
    Parameter(
        name=PLAN_HEADER, place="header", description="`1`: the answer has the plan of its race in this same header."
    ),
)

# Headers of answers. Which of them an answer has depends on how it was made.
IDENTIFYING = ("x-request-id", "request-id")
HEADERS_OF_CALLS = (
    "x-holeshot-call-id",
    *IDENTIFYING,
    "x-holeshot-provider",
    "x-holeshot-deployment",
    "x-holeshot-mode",
    "x-holeshot-launched",
    "x-holeshot-upstream-request-id",
    "x-holeshot-dropped",
    LOWERED,
    IGNORED,
    FALLBACK,
    headers.NARROWED,
    PLAN_HEADER,
    "x-holeshot-cost-usd",
    "x-holeshot-ttft-ms",
)
OF_RACES = (*HEADERS_OF_CALLS, "x-holeshot-overhead-ms", "x-holeshot-deadline-met")

DESCRIBED: Mapping[str, Schema] = {
    "x-holeshot-call-id": text("The call's id: `calls.id` in SQL."),
    "x-request-id": text("The id that your request had in `x-request-id`, else the call's."),
    "request-id": text("Your request id, or the call's, where Anthropic's SDKs look for it."),
    "x-holeshot-provider": text("The provider that answered."),
    "x-holeshot-deployment": text("The deployment that answered."),
    "x-holeshot-mode": text("How the call was raced: `race`, `hedge` or `single`."),
    "x-holeshot-launched": text("How many attempts were launched."),
    "x-holeshot-ttft-ms": number("Milliseconds from the receipt of the request to the first token."),
    "x-holeshot-overhead-ms": number(
        "Milliseconds of `x-holeshot-ttft-ms` that the gateway itself took, a wait for a seat included."
    ),
    "x-holeshot-deadline-met": flag("Whether the first token came within the deadline; only if there was one."),
    "x-holeshot-cost-usd": number("US dollars at list price; in answers that do not stream, where prices are known."),
    "x-holeshot-upstream-request-id": text("The provider's id of its request."),
    "x-holeshot-dropped": text("Parameters that the deployment was not sent, as `drop_params` allows."),
    LOWERED: text("Parameters that were lowered to the model's maximum."),
    IGNORED: text("Preferences that have no effect here."),
    FALLBACK: text("The model that answered instead of the one that was asked for."),
    headers.NARROWED: text("The limit because of which an extra attempt was not launched."),
    PLAN_HEADER: text("The plan as JSON, if the request asked for it."),
    ESTIMATED: flag("The number is an estimate: no deployment of the model counts tokens."),
    "retry-after": text("Seconds until it is worth trying again."),
    "etag": text("Names this state of the body: send it back as `if-none-match`, and an unchanged answer is a 304."),
}


def described(names: tuple[str, ...]) -> Schema:
    """Return the headers object of an answer with these headers."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


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


def raced_operations() -> list[Operation]:
    """Return an operation for each raced API."""
    return [_operation(surface) for surface in ENDPOINTS.values()]


def own_headers() -> dict[str, Schema]:
    """Return the headers that only answers of single APIs have."""
    return {name: schema for each in ENDPOINTS.values() for name, schema in each.description.headers.items()}


def _operation(surface: Endpoint) -> Operation:
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


# The APIs with routing and failover but without races, and what is done with stored responses.

_ANY: Schema = {"type": "object"}
_FILES = frozenset({"file", "image", "image[]", "images"})
_SUBTITLES: Mapping[str, Schema] = {JSON: _ANY, "text/*": TEXT, "application/x-subrip": TEXT}
_AS_IT_IS = "The provider's answer, as it is."


class _Api(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of an API beside what its ``RelayedApi`` knows."""

    id: str
    summary: str
    content: Mapping[str, Schema] = msgspec.field(default_factory=lambda: {JSON: _ANY})


_APIS: Mapping[str, tuple[RelayedApi, _Api]] = {
    "/v1/embeddings": (
        EMBEDDINGS,
        _Api(id="createEmbedding", summary="Embeddings", content={JSON: ref("Embeddings")}),
    ),
    "/v1/moderations": (MODERATIONS, _Api(id="createModeration", summary="Moderations")),
    "/v1/rerank": (RERANK, _Api(id="rerank", summary="Documents ranked for a query")),
    "/v2/rerank": (RERANK, _Api(id="rerankV2", summary="The same, where Cohere's second version has it")),
    "/v1/audio/speech": (
        SPEECH,
        _Api(id="createSpeech", summary="Text to speech", content={"audio/*": {}, EVENTS: TEXT}),
    ),
    "/v1/audio/transcriptions": (
        TRANSCRIPTIONS,
        _Api(id="createTranscription", summary="Speech to text", content=_SUBTITLES),
    ),
    "/v1/audio/translations": (
        TRANSLATIONS,
        _Api(id="createTranslation", summary="Speech to English text", content=_SUBTITLES),
    ),
    "/v1/images/generations": (GENERATIONS, _Api(id="createImage", summary="Pictures from a description")),
    "/v1/images/edits": (EDITS, _Api(id="createImageEdit", summary="Pictures changed as described")),
    "/v1/images/variations": (VARIATIONS, _Api(id="createImageVariation", summary="Variations of a picture")),
}
_RELAYED_DESCRIPTION = (
    "Sent to one deployment after the other, the best first, until one answers. Fields that are not listed are passed"
    " on as they are."
)


def relayed_operations() -> list[Operation]:
    """Return the operations of these APIs."""
    return [
        *(_relayed_operation(path, api, said) for path, (api, said) in _APIS.items()),
        _COUNTING,
        *_stored_responses(),
    ]


def _relayed_operation(path: str, api: RelayedApi, said: _Api) -> Operation:
    return Operation(
        method="POST",
        path=path,
        id=said.id,
        tag=Tag.RELAYED,
        summary=said.summary,
        description=_RELAYED_DESCRIPTION,
        access=CALLER,
        parameters=CALL_HEADERS,
        body=Body(content={media: _body(api, media) for media in api.takes}),
        answers={200: Answer(description=_AS_IT_IS, content=said.content, headers=HEADERS_OF_CALLS)},
        errors=OF_CALLS,
    )


def _body(api: RelayedApi, media: str) -> Schema:
    """Return the schema of a body: one of alternative names is enough, and the model may have a default."""
    properties: dict[str, Schema] = {"model": MODEL}
    required = [] if api.kind is not None else ["model"]
    either: list[Schema] = []
    for field, hint in api.demands.items():
        names = field.split("|")
        for name in names:
            is_file = media == FORM and name in _FILES
            properties[name] = {"description": hint, **({"type": "string", "format": "binary"} if is_file else {})}
        if len(names) == 1:
            required.append(field)
        else:
            either.append({"anyOf": [{"required": [name]} for name in names]})
    own = OWN_FIELDS if media == JSON else {name: text("JSON, as in bodies of JSON.") for name in OWN_FIELDS}
    schema = {"type": "object", "properties": {**properties, **own}, "required": required}
    return {**schema, "allOf": either} if either else schema


_COUNTING = Operation(
    method="POST",
    path=f"/v1/{COUNT_TOKENS.path}",
    id="countTokens",
    tag=Tag.RELAYED,
    summary="How many tokens a prompt has",
    description="Asks a deployment that speaks Anthropic's messages. If none does, the number is estimated.",
    access=CALLER,
    parameters=CALL_HEADERS,
    body=Body(
        content={
            JSON: {
                "type": "object",
                "properties": {
                    "model": MODEL,
                    "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
                    **OWN_FIELDS,
                },
                "required": ["model", "messages"],
            }
        },
        example={"model": "demo-chat", "messages": [{"role": "user", "content": "Say hello."}]},
    ),
    answers={
        200: Answer(
            description="The number of tokens.",
            content={JSON: record({"input_tokens": count()})},
            headers=(*HEADERS_OF_CALLS, ESTIMATED),
        )
    },
    errors=OF_CALLS,
    error_schema="MessagesError",
)

_RESPONSE_ID = Parameter(name="id", place="path", description="The id of a response that was stored for this key.")
_OF_STORED = (*IDENTIFYING, "x-holeshot-provider", "x-holeshot-deployment")


def _stored_responses() -> list[Operation]:
    def stored(method: str, rest: str, name: str, summary: str, access: Access) -> Operation:
        return Operation(
            method=method,
            path=f"/v1/responses/{{id}}{rest}",
            id=name,
            tag=Tag.RELAYED,
            summary=summary,
            description="Passed on to the deployment that stores the response. No model is asked: this is not a call.",
            access=access,
            parameters=(_RESPONSE_ID, REQUEST_ID),
            answers={200: Answer(description=_AS_IT_IS, content={JSON: _ANY}, headers=_OF_STORED)},
            errors=(InvalidRequest, ResponseNotFound, *OF_UPSTREAM),
            error_schema="Error",
        )

    return [
        stored("GET", "", "getResponse", "A stored response", CLIENT),
        stored("GET", "/input_items", "listInputItems", "The input of a stored response", CLIENT),
        stored("POST", "/cancel", "cancelResponse", "Cancel a response that runs in the background", CALLER),
        stored("DELETE", "", "deleteResponse", "Delete a stored response", CALLER),
    ]
