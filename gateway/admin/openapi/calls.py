"""The APIs for clients. The fields that the gateway reads are described from its own decoders; others are passed on."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any

import msgspec

from gateway.access import TENANT_KEYS
from gateway.admin.openapi.operation import (
    CALLER,
    CLIENT,
    EVENTS,
    FORMATS,
    JSON,
    OBJECT,
    TEXT,
    Access,
    Answer,
    Made,
    Object,
    Operation,
    Tag,
    body,
    in_path,
    of,
    of_type,
    parameter,
)
from gateway.api import (
    APIS,
    DOOR_ENDPOINTS,
    ESTIMATED,
    FALLBACK,
    FORM,
    IGNORED,
    INTERACTIONS_ENDPOINT,
    AnthropicModel,
    AnthropicModels,
    Endpoint,
    GoogleModel,
    GoogleModels,
    InferenceProfile,
    InferenceProfiles,
    LedgerUnavailable,
    OpenAIModel,
    OpenAIModels,
    ProviderPreferences,
    RelayedApi,
    overrides,
    responses_socket,
    turns,
)
from gateway.core import errors, race_failures
from gateway.core.modes import Mode
from gateway.http import LOWERED, NARROWED, PLAN_HEADER
from gateway.limits import BudgetSpent, LargerThanLimit, LimitReached
from gateway.overload import TooManySockets

# The headers that the gateway reads and sends, described.

_SENT: Mapping[str, tuple[type, str]] = {
    "x-request-id": (str, "An id of yours: logged, sent to providers, and returned. At most 200 characters."),
    "x-holeshot-tags": (
        str,
        "`name=value, name=value`: stored with the call, so that calls can be compared in SQL. At most 16.",
    ),
    TENANT_KEYS: (
        str,
        "`provider=key, provider=key`, or a JSON object: your own keys, if `tenant_keys` allows it. Never forwarded.",
    ),
    overrides.HEADER: (
        str,
        "How this call is raced: a mode, a profile, or the body's object `race` as JSON. The body counts more.",
    ),
    overrides.DEADLINE: (
        float,
        "Milliseconds from the receipt of the request to the first token. The strictest deadline counts.",
    ),
    overrides.LLM_D_TTFT: (float, f"The same as `{overrides.DEADLINE}`, for llm-d."),
    overrides.LLM_D_TPOT: (float, "Milliseconds per token after the first: 20 stands for `min_tok_s: 50`."),
    PLAN_HEADER: (str, "`1`: the answer tells the plan of the race, in a header of the same name."),
}
CALL_HEADERS = tuple(parameter(name, about, of, "header") for name, (of, about) in _SENT.items())

# Headers of answers. Not every answer has all of them.
_OF_CALLS: Mapping[str, Any] = {
    "x-holeshot-call-id": (str, "The call's id: `calls.id` in SQL."),
    "x-request-id": (str, "The id that your request had in `x-request-id`, else the call's."),
    "request-id": (str, "Your request id, or the call's, where Anthropic's SDKs look for it."),
    "x-holeshot-provider": (str, "The provider that answered."),
    "x-holeshot-deployment": (str, "The deployment that answered."),
    "x-holeshot-mode": (
        str,
        f"The mode of the call's race: {', '.join(f'`{mode}`' for mode in Mode)}.",
    ),
    "x-holeshot-launched": (
        str,
        "How many attempts were launched, also those that repeat a request with another key or in another form.",
    ),
    "x-holeshot-upstream-request-id": (str, "The id that the provider gave to the request, for its support."),
    "x-holeshot-dropped": (
        str,
        "Parts of the request (hints, preferences, `drop_params`) that were left out, changed, or kept from the model.",
    ),
    LOWERED: (str, "Parameters that were lowered to the model's maximum, or to the deployment's longest answer."),
    IGNORED: (str, "Preferences, and parts of a body in another API's shape, that have no effect here."),
    FALLBACK: (str, "The model that answered instead of the one that was asked for."),
    NARROWED: (str, "Why the call had fewer attempts than its mode, width and budget ask for, as in `calls.narrowed`."),
    PLAN_HEADER: (str, "The plan as JSON, if the request asked for it."),
    "x-holeshot-cost-usd": (float, "US dollars at list price; in answers that do not stream, where prices are known."),
    "x-holeshot-ttft-ms": (float, "Milliseconds from the receipt of the request to the first token."),
    "x-holeshot-overhead-ms": (
        float,
        "Milliseconds of `x-holeshot-ttft-ms` that the gateway itself took, also to wait for a free deployment.",
    ),
    "x-holeshot-deadline-met": (bool, "Whether the first token came within the deadline; only if there was one."),
}
_OF_STORED = ("x-request-id", "request-id", "x-holeshot-provider", "x-holeshot-deployment", "x-holeshot-cost-usd")
HEADERS: Mapping[str, Any] = {
    **_OF_CALLS,
    ESTIMATED: (bool, "The number is an estimate: no deployment of the model counts tokens."),
    "retry-after": (str, "Seconds until it is worth trying again."),
    "etag": (str, "Names this state of the body: send it back as `if-none-match`, and an unchanged answer is a 304."),
    **{name: (str, about) for each in APIS for name, about in each.description.headers.items()},
}

OF_UPSTREAM: tuple[type[errors.ApiError], ...] = (
    race_failures.RejectedByProvider,
    race_failures.ProviderMisconfigured,
    race_failures.ModelGone,
    race_failures.AllOverloaded,
    race_failures.BroughtKeyRefused,
    race_failures.AllRateLimited,
    race_failures.AllProvidersFailed,
    race_failures.OutOfResources,
    race_failures.AllTimedOut,
)
OF_CALLS: tuple[type[errors.ApiError], ...] = (
    race_failures.NoValidAnswer,
    errors.InvalidRequest,
    LargerThanLimit,
    errors.NoDeploymentFits,
    errors.ModelNotFound,
    errors.NothingStored,
    errors.NamesUnreachable,
    errors.BodyTimeout,
    errors.BodyTooLarge,
    errors.TooMuchFraming,
    errors.UnsupportedMediaType,
    LimitReached,
    BudgetSpent,
    errors.TooManyBodies,
    errors.TooManyValues,
    errors.Overloaded,
    errors.ShuttingDown,
    LedgerUnavailable,
    errors.NothingEnabled,
    race_failures.AtCapacity,
    *OF_UPSTREAM,
)

MODEL = of_type(str, "A configured model. With `adhoc: true` also `provider/model`, or several with commas.")
_NULL = Made(type="null")
# The gateway's own fields of every body, beside the model; none of them is passed on.
OWN_FIELDS: Mapping[str, Made] = {
    "race": Made(
        description="How this call is raced: a mode, a profile, or an object.",
        anyOf=[TEXT, of(overrides.RaceOverride), _NULL],
    ),
    "provider": Made(anyOf=[of(ProviderPreferences), _NULL], description="OpenRouter's preferences."),
    "models": Made(of_type(list[str] | None), description="Models to try in turn, after `model`."),
    "fastest_response": Made(
        of_type(bool | None), description="LiteLLM's: race all models of the comma list in `model`."
    ),
    "route": Made(description="OpenRouter's; it changes nothing here.", enum=["fallback", None]),
    "transforms": Made(of_type(list[str] | None), description="OpenRouter's; it has no effect here."),
}

# The raced APIs.


_NAMED = re.compile(r"\{(\w++)[^{}]*\}")  # a part of a route, with its pattern
_IN_THE_ADDRESS = {"model": "A model's name; slashes need no escape."}
_ANY_NAME = "Of a cloud, in whose place the gateway is asked: any word."


def _described(route: str) -> str:
    """Return a route as OpenAPI writes it."""
    return _NAMED.sub(r"{\1}", route)


def _in_the_address(route: str) -> tuple[Made, ...]:
    names = [found[1] for found in _NAMED.finditer(route)]
    return tuple(each for name in names for each in in_path(name, _IN_THE_ADDRESS.get(name, _ANY_NAME)))


def operations(endpoint: Endpoint) -> Iterator[Operation]:
    """Yield the operations of an API, one for each of its paths."""
    if endpoint.relayed is None:
        yield from (_raced(endpoint, path) for path in endpoint.paths)
    elif endpoint.counts is None:
        yield _relayed(endpoint)
    else:
        yield from (_counting(endpoint, path) for path in endpoint.paths)


def _version(path: str, first: str) -> str:
    """Return the part of an operation's name that distinguishes several versions of an API."""
    version = path.split("/")[1]
    return "" if version == first.split("/")[1] else version.capitalize()


def _raced(endpoint: Endpoint, path: str) -> Operation:
    route, streams = _described(path), path in endpoint.streamed
    api, prompt = endpoint.description, endpoint.dialect.requests.prompt
    read = {name: of_type(decoder.type) for name, decoder in endpoint.fields.items()}
    is_addressed = "{model}" in route
    model = {} if is_addressed else {"model": MODEL}
    needs_model = {} if is_addressed else {"anyOf": [{"required": ["model"]}, {"required": ["models"]}]}
    sent = Made(
        OBJECT,
        properties={**model, prompt: api.prompt, **read, **OWN_FIELDS},
        required=[*api.required, *(() if api.optional_prompt else (prompt,))],
        **needs_model,
    )
    about = f"The answer. {api.events}" if is_addressed else f"The answer; with `stream: true` as events. {api.events}"
    whole = Object if api.answer is None else FORMATS[api.answer]
    content = {JSON: list[whole] if streams else whole, EVENTS: str}  # type: ignore[valid-type]
    if api.streamed_as is not None:
        content = {api.streamed_as: str} if streams else {JSON: whole}
    return Operation(
        f"POST {route}",
        f"{api.id}{'Streamed' if streams else ''}{_version(path, endpoint.paths[0])}",
        api.summary,
        Tag.RACED,
        CALLER,
        {200: Answer(about, content, (*_OF_CALLS, *api.headers))},
        (*_in_the_address(route), *CALL_HEADERS),
        (*OF_CALLS, *api.errors),
        body({JSON: sent}, api.example if is_addressed else {"model": "demo-chat", **api.example}),
        "Raced as the model's settings, the key's profile and this request say: the first meaningful token wins, and"
        " the other attempts are cancelled. Fields that are not listed are passed on as they are, byte for byte where"
        " the deployment speaks this API; what a deployment cannot be told keeps it out of the race. An error after the"
        " first byte of a stream is an event of the stream.",
        api.error_schema,
    )


# The APIs whose answers pass unread, and the operations on stored responses.

_FILES = frozenset({"file", "image", "image[]", "images"})
_AS_IT_IS = "The provider's answer, as it is."
_ANY = {JSON: Object}
_CONTENT: Mapping[str, Any] = {"audio/*": Any}  # of media types; others are texts, or JSON


def _relayed(endpoint: Endpoint) -> Operation:
    [path], api, said = endpoint.paths, endpoint.relayed, endpoint.description
    assert api is not None
    whole = Object if said.answer is None else FORMATS[said.answer]
    return Operation(
        f"POST {path}",
        said.id,
        said.summary,
        Tag.RELAYED,
        CALLER,
        {
            200: Answer(
                _AS_IT_IS,
                {each: whole if each == JSON else _CONTENT.get(each, str) for each in said.content},
                _OF_CALLS,
            )
        },
        CALL_HEADERS,
        OF_CALLS,
        body({media: _body(api, media) for media in api.takes}),
        "The best deployment is asked first, another when it fails or is late. Fields that are not listed are passed on"
        " as they are.",
        said.error_schema,
    )


def _body(api: RelayedApi, media: str) -> Made:
    """Return the schema of a body: one of alternative names is enough, and the model may have a default."""
    properties = {"model": MODEL}
    required = [] if api.kind is not None else ["model"]
    one_of: list[Any] = []
    for field, hint in api.demands.items():
        names = field.split("|")
        for name in names:
            is_file = media == FORM and name in _FILES
            properties[name] = Made({**TEXT, "format": "binary"} if is_file else {}, description=hint)
        if len(names) == 1:
            required.append(field)
        else:
            one_of.append({"anyOf": [{"required": [name]} for name in names]})
    own = OWN_FIELDS if media == JSON else {name: of_type(str, "JSON, as in bodies of JSON.") for name in OWN_FIELDS}
    return Made(OBJECT, properties={**properties, **own}, required=required, **({"allOf": one_of} if one_of else {}))


_FIRST_COUNTED = "/v1/messages/count_tokens"


@cache
def _count(field: str) -> type[msgspec.Struct]:
    """Return the type of an answer with the number of tokens in ``field``."""
    return msgspec.defstruct(f"{field[0].upper()}{field[1:]}", [(field, int)])


def _counting(endpoint: Endpoint, path: str) -> Operation:
    counted, prompt, route = endpoint.description, endpoint.dialect.requests.prompt, _described(path)
    counting = endpoint.counts
    assert counting is not None
    is_addressed, version = "{model}" in route, _version(path, endpoint.paths[0])
    model = {} if is_addressed else {"model": MODEL}
    whole = {} if counting.whole is None else {counting.whole: Made(OBJECT)}
    given = {prompt: counted.prompt} if counted.prompt else {}
    named = {} if is_addressed else {"model": "demo-chat"}
    return Operation(
        f"POST {route}",
        "countTokens"
        if path == _FIRST_COUNTED
        else f"countTokensOf{counted.id[0].upper()}{counted.id[1:]}{version if is_addressed else ''}",
        "How many tokens a prompt has",
        Tag.RELAYED,
        CALLER,
        {
            200: Answer(
                "The number of tokens.",
                {JSON: _count(counting.field)},
                (*_OF_CALLS, ESTIMATED),
            )
        },
        (*_in_the_address(route), *CALL_HEADERS),
        OF_CALLS,
        body(
            {
                JSON: Made(
                    OBJECT,
                    properties={**model, **given, **whole, **OWN_FIELDS},
                    required=[*model, *(() if whole else (prompt,))],
                )
            },
            {**named, **{name: counted.example[name] for name in (prompt, *whole) if name in counted.example}},
        ),
        f"Asks a deployment that speaks {counted.summary}. If none does, the number is estimated.",
        counted.error_schema,
    )


_NO_CALL = (
    "No model is asked: this is not a call. A deletion of which not all replicas have learnt yet, as Redis does not"
    " answer, is a 503 `stored_names_unreachable`: send it once more."
)


def _stored(method: str, rest: str, name: str, summary: str, access: Access) -> Operation:
    return Operation(
        f"{method} /v1/responses/{{id}}{rest}",
        name,
        summary,
        Tag.RELAYED,
        access,
        {200: Answer(_AS_IT_IS, _ANY, _OF_STORED)},
        (*in_path("id", "The id of a response that was stored for this key."), CALL_HEADERS[0]),
        (errors.InvalidRequest, errors.ResponseNotFound, errors.NamesUnreachable, LimitReached, *OF_UPSTREAM),
        description=f"Passed on to the deployment that stores the response. {_NO_CALL}",
    )


def _of_interactions(method: str, rest: str, name: str, summary: str, access: Access) -> Iterator[Operation]:
    """Yield the same of an interaction, at both of its addresses."""
    paths = INTERACTIONS_ENDPOINT.paths
    for path in paths:
        yield msgspec.structs.replace(
            _stored(method, rest, f"{name}{_version(path, paths[0])}", summary, access),
            asked=f"{method} {path}/{{id}}{rest}",
            parameters=(*in_path("id", "The id of an interaction that was stored for this key."), CALL_HEADERS[0]),
            description=f"Passed on to the deployment that stores it. {_NO_CALL}",
            error_schema="InteractionError",
        )


def _conversation(method: str, rest: str, name: str, summary: str) -> Operation:
    is_made, is_sent = not rest, method == "POST"
    described = {"id": "The id of a conversation that was made for this key.", "name": "The id of one of its items."}
    named = [each for field, text in described.items() if f"{{{field}}}" in rest for each in in_path(field, text)]
    keeps = Made(OBJECT, properties={"model": MODEL, "items": Made({"type": "array"}), "metadata": Made(OBJECT)})
    return Operation(
        f"{method} /v1/conversations{rest}",
        name,
        summary,
        Tag.RELAYED,
        CALLER if is_sent or method == "DELETE" else CLIENT,
        {200: Answer(_AS_IT_IS, _ANY, _OF_STORED)},
        (*named, CALL_HEADERS[0]),
        (errors.InvalidRequest, errors.NothingStored, errors.NamesUnreachable, LimitReached, *OF_UPSTREAM),
        body({JSON: keeps if is_made else Made(OBJECT)}) if is_sent else None,
        "Passed on to the deployment that keeps the conversation; a new one is made at the only provider that could, or"
        " at that of `model`. No model is asked: this is not a call.",
    )


_SOCKET = Operation(
    f"GET {responses_socket.PATH}",
    "connectResponses",
    "Responses over a WebSocket",
    Tag.RACED,
    CALLER,
    {101: Answer("The connection is a WebSocket from here on.")},
    CALL_HEADERS,
    (
        errors.NoWebSocket,
        errors.ShuttingDown,
        LedgerUnavailable,
        TooManySockets,
        turns.InvalidStream,
        turns.TooManyStreams,
        turns.ConnectionTooOld,
        turns.TooManyTurns,
        turns.ResponseCancelled,
    ),
    description="Each message `response.create` has the fields of a body of the POST, and is a call of its own, raced"
    " and limited like one. Its events come as messages, and so do errors of turns. The headers of the handshake count"
    " for all turns. Without `upgrade: websocket` this is a 405.",
)

# The list of models, in three formats.

_ONLY = "Anthropic's format only: "
_MODELS = Operation(
    "GET /v1/models",
    "listModels",
    "The models this key may use",
    Tag.MODELS,
    CLIENT,
    {200: Answer("The models.", {JSON: (OpenAIModels, AnthropicModels, GoogleModels)})},
    (
        parameter("limit", f"{_ONLY}models in a page, 1 to 1000.", int),
        parameter("after_id", f"{_ONLY}the page after this model."),
        parameter("before_id", f"{_ONLY}the page before this model."),
    ),
    (errors.InvalidRequest,),
    description="In Anthropic's format for requests with `anthropic-version` or `x-api-key`, in Google's for those with"
    " `x-goog-api-key` or `?key=`, else in OpenAI's.",
)
_MODEL = msgspec.structs.replace(
    _MODELS,
    asked="GET /v1/models/{id}",
    id="getModel",
    summary="One model",
    parameters=in_path("id", "Its name; slashes need no escape."),
    answers={200: Answer("The model.", {JSON: (OpenAIModel, AnthropicModel, GoogleModel)})},
    errors=(errors.InvalidRequest, errors.ModelNotFound),
)

_GOOGLES_MODELS = msgspec.structs.replace(
    _MODELS,
    asked="GET /v1beta/models",
    id="listGoogleModels",
    summary="The models this key may use, in Google's format",
    parameters=(),
    answers={200: Answer("The models.", {JSON: GoogleModels})},
    errors=(),
    description="",
    error_schema="GeminiError",
)
_GOOGLES_MODEL = msgspec.structs.replace(
    _GOOGLES_MODELS,
    asked="GET /v1beta/models/{id}",
    id="getGoogleModel",
    summary="One model, in Google's format",
    parameters=in_path("id", "Its name; slashes need no escape."),
    answers={200: Answer("The model.", {JSON: GoogleModel})},
    errors=(errors.InvalidRequest, errors.ModelNotFound),
)

_PROFILES = msgspec.structs.replace(
    _GOOGLES_MODELS,
    asked="GET /inference-profiles",
    id="listInferenceProfiles",
    summary="The models this key may use, for clients of Amazon Bedrock",
    answers={200: Answer("The models.", {JSON: InferenceProfiles})},
    error_schema="BedrockError",
)
_PROFILE = msgspec.structs.replace(
    _PROFILES,
    asked="GET /inference-profiles/{id}",
    id="getInferenceProfile",
    summary="One model, for clients of Amazon Bedrock",
    parameters=in_path("id", "Its name, also as Bedrock has it."),
    answers={200: Answer("The model.", {JSON: InferenceProfile})},
    errors=(errors.ModelNotFound,),
)

OPERATIONS = (
    *chain.from_iterable(map(operations, (*APIS, *DOOR_ENDPOINTS))),
    _SOCKET,
    _stored("GET", "", "getResponse", "A stored response", CLIENT),
    _stored("GET", "/input_items", "listInputItems", "The input of a stored response", CLIENT),
    _stored("POST", "/cancel", "cancelResponse", "Cancel a response that runs in the background", CALLER),
    _stored("DELETE", "", "deleteResponse", "Delete a stored response", CALLER),
    *_of_interactions("GET", "", "getInteraction", "A stored interaction", CLIENT),
    *_of_interactions("POST", "/cancel", "cancelInteraction", "Cancel one that runs in the background", CALLER),
    *_of_interactions("DELETE", "", "deleteInteraction", "Delete a stored interaction", CALLER),
    _conversation("POST", "", "createConversation", "Make a conversation"),
    _conversation("GET", "/{id}", "getConversation", "A conversation"),
    _conversation("POST", "/{id}", "updateConversation", "Change what is noted of a conversation"),
    _conversation("DELETE", "/{id}", "deleteConversation", "Delete a conversation"),
    _conversation("GET", "/{id}/items", "listConversationItems", "The items of a conversation"),
    _conversation("POST", "/{id}/items", "createConversationItems", "Add items to a conversation"),
    _conversation("GET", "/{id}/items/{name}", "getConversationItem", "One item of a conversation"),
    _conversation("DELETE", "/{id}/items/{name}", "deleteConversationItem", "Delete an item of a conversation"),
    _MODELS,
    _MODEL,
    _GOOGLES_MODELS,
    _GOOGLES_MODEL,
    _PROFILES,
    _PROFILE,
)
