"""The routes of clients, and the one place where errors become HTTP responses."""

import asyncio
import difflib
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from operator import itemgetter

from aiohttp import HttpVersion11, web
from aiohttp.hdrs import METH_ALL, METH_OPTIONS
from aiohttp.typedefs import Handler
from multidict import istr

from gateway.access import FORWARDED_FOR, Trust
from gateway.api.apis import APIS
from gateway.api.bodies import DRAINED_S, answer_first, withhold_continue
from gateway.api.context import CONTEXT, Context, GatewayPhase
from gateway.api.counting import counting
from gateway.api.doors import (
    BELOW_ANTHROPIC,
    DOOR_ENDPOINTS,
    PROFILES,
    TOLD_AS,
    error_headers,
    get_profile,
    list_profiles,
)
from gateway.api.endpoint import Endpoint
from gateway.api.endpoints import ENDPOINTS
from gateway.api.handler import LAST_WORD_S, answering
from gateway.api.models import dialect_of, get_model, list_models
from gateway.api.refusals import RefusedRequest
from gateway.api.relayed_apis import (
    DECISIONS,
    GOOGLE_DECISIONS,
)
from gateway.api.responses_socket import PATH as SOCKET_PATH
from gateway.api.responses_socket import responses_socket
from gateway.api.stored import conversation, kept_answer, kept_conversation
from gateway.api.told import error_body
from gateway.core.errors import (
    ApiError,
    InternalError,
    InvalidRequest,
    KeyExpired,
    KeysNotLoaded,
    MethodNotAllowed,
    NotFound,
    NoWebSocket,
    ShuttingDown,
    SignerUnknown,
    Unauthorized,
    WrongKey,
)
from gateway.http import JSON, headers, past_the_router
from gateway.keys import SHARED
from gateway.overload import process_full
from providers import redact
from providers.dialects import GEMINI, INTERACTIONS, PIVOT, RESPONSES, Dialect

# Suggests a known path for an unknown one (``/chat/completions``: ``/v1/chat/completions``).

_ALIKE = 0.8  # difflib's ratio, 0 to 1: a typing error, not another word
# The maximum of words in a path that gets a suggestion: our paths have five, and each word takes time.
_MOST_WORDS = 12
_VERSION = re.compile(r"^v\d+(?:(?:alpha|beta)\d*)?$")
# APIs of OpenAI, Anthropic and Google that the gateway does not have: their state is at one provider, so nothing can be
# raced. From openai 3.57.0, anthropic 2.14.0 and google-genai 3.6.1 for Python, read on 2026-11-27.
_NOT_OFFERED = (
    *("agents", "assistants", "audio/voice_consents", "audio/voices", "batches", "chatkit", "compliance"),
    *("containers", "content_provenance_checks", "deployment_runs", "dreams", "environments", "evals"),
    *("files", "fine_tuning", "fine-tunes", "live", "memory_stores", "messages/batches", "organization"),
    *("organizations", "projects", "realtime", "safety", "sessions", "skills", "threads", "tunnels", "uploads"),
    *("user_profiles", "vaults", "vector_stores", "videos", "webhook_endpoints", "webhook_event_types"),
    *(
        "auth_tokens",
        "cachedContents",
        "corpora",
        "credentials",
        "fileSearchStores",
        "interactions/auth_tokens",
        "operations",
    ),
    *("triggers", "tunedModels", "upload", "voices", "webhooks"),
)


def is_not_offered(path: str) -> bool:
    """Whether ``path`` belongs to a known API that the gateway does not have."""
    bare = "/".join(_bare([word for word in path.split("/") if word]))
    return any(bare == api or bare.startswith(f"{api}/") for api in _NOT_OFFERED)


def nearest_path(path: str, paths: Sequence[str]) -> str | None:
    """Return the path in ``paths`` that is most similar to ``path``; None if none is similar.

    Typical mistakes in base URLs are ignored: doubled slashes; ``/v1`` missing, doubled or after another prefix.
    """
    words = [word for word in path.split("/") if word]
    if len(words) > _MOST_WORDS:
        return None
    for start in range(len(words)):
        bare = _bare(words[start:])
        for candidate in paths:
            if bare and bare == _bare(candidate.strip("/").split("/")):
                return candidate
    # Without versions, as all paths have similar ones.
    paths_by_bare = {"/".join(_bare(candidate.strip("/").split("/"))): candidate for candidate in reversed(paths)}
    bare_path = "/".join(_bare(words))
    near = difflib.get_close_matches(bare_path, paths_by_bare, n=1, cutoff=_ALIKE) if bare_path else []
    return paths_by_bare[near[0]] if near else None


def _bare(words: Sequence[str]) -> list[str]:
    """Return ``words`` without the versions at the beginning."""
    start = next((at for at, word in enumerate(words) if not _VERSION.match(word)), len(words))
    return list(words[start:])


# CORS: web pages of the configured origins may call the APIs, each with a key of its own, never with cookies.

# Paths of the APIs; pages for operators and health checks are not for other web pages.
PATHS = (
    *("/v1/", "/v1beta/", "/v2/", "/openai/v1/", "/anthropic/v1/", "/model/"),
    *("/chat/completions", "/completions", "/embeddings", "/models", "/responses", "/audio/"),  # without a version
)
METHODS = "GET, POST, DELETE"
MAX_AGE_S = 7200  # browsers ask again after this; they cache at most for a day, Chrome for two hours
_FIELD = re.compile("[a-z0-9-]{1,100}")

# Headers that a page may send: of SDKs and of the gateway. Never a proxy's headers with a client's address.
_SENT = frozenset(
    {
        *("accept", "accept-language", "authorization", "content-language", "content-type", "http-referer"),
        *("idempotency-key", "traceparent", "tracestate", "user-agent", "x-api-key", "x-request-id", "x-title"),
        *("x-goog-api-client", "x-goog-api-key"),
    }
)
_SENT_PREFIXES = ("anthropic-", "openai-", "x-holeshot-", "x-llm-d-", "x-stainless-")
# Headers of answers that a page may read.
_SHOWN = frozenset({"request-id", "retry-after", "traceresponse", "x-request-id"})
_SHOWN_PREFIXES = ("anthropic-ratelimit-", "x-holeshot-", "x-ratelimit-")

_VARY, _ORIGIN, _EXPOSED = istr("vary"), istr("access-control-allow-origin"), istr("access-control-expose-headers")


def preflight(request: web.Request, origins: Collection[str]) -> web.Response | None:
    """Return the response to a CORS preflight request; None if the origin may not call, or it is no preflight.

    No key is needed, as browsers send none with a preflight. ``add_headers`` completes the response.
    """
    if request.method != METH_OPTIONS or "access-control-request-method" not in request.headers:
        return None
    if not request.path.startswith(PATHS) or request.headers.get("origin") not in origins:
        return None
    headers = {"access-control-allow-methods": METHODS, "access-control-max-age": str(MAX_AGE_S)}
    header_names = request.headers.get("access-control-request-headers", "").lower().split(",")
    if allowed := [name for field in header_names if _may_be_sent(name := field.strip())]:
        headers["access-control-allow-headers"] = ", ".join(allowed)
    return web.Response(status=204, headers=headers)


def add_headers(request: web.Request, response: web.StreamResponse, origins: Collection[str]) -> None:
    """Let the page that sent ``request`` read ``response``, even an error, if its origin is one of ``origins``.

    There is no ``access-control-allow-credentials``: a page needs a key, and cookies are ignored.
    """
    if not request.path.startswith(PATHS):
        return
    headers = response.headers
    headers[_VARY] = f"{headers[_VARY]}, origin" if _VARY in headers else "origin"  # also for other origins: for caches
    origin = request.headers.get("origin")
    if origin is None or origin not in origins:
        return
    headers[_ORIGIN] = origin
    shown = [name for field in headers if (name := field.lower()) in _SHOWN or name.startswith(_SHOWN_PREFIXES)]
    if shown:
        headers[_EXPOSED] = ", ".join(shown)


def _may_be_sent(name: str) -> bool:
    return name in _SENT or (name.startswith(_SENT_PREFIXES) and _FIELD.fullmatch(name) is not None)


_get, _post, _delete = (partial(add, expect_handler=withhold_continue) for add in (web.get, web.post, web.delete))


def _handler(endpoint: Endpoint) -> Handler:
    if endpoint is DECISIONS:
        return _deciding()
    return answering(endpoint) if endpoint.counts is None else counting(endpoint)


def _deciding() -> Handler:
    """Return the handler of the path that OpenAI's and Google's clients share; Google's SDK begins it with v1, too."""
    openais, googles = answering(DECISIONS), answering(GOOGLE_DECISIONS)

    async def decide(request: web.Request) -> web.StreamResponse:
        return await (googles if dialect_of(request) is GEMINI else openais)(request)

    return decide


_HANDLERS: Mapping[str, Handler] = {path: handler for api in APIS for handler in (_handler(api),) for path in api.paths}
# Paths below a prefix, which clients have in addition to their base URL: clients of Groq (groq 1.7.0 for Python, read
# on 2026-11-29), of OpenAI's models at Azure, whose addresses end with /openai/v1, and of Messages at Microsoft Foundry
# and Bedrock (AnthropicFoundry and AnthropicBedrockMantle of Anthropic's SDK 2.14, read on 2026-11-30), DeepSeek,
# Moonshot, Z.ai and others. Clients that change only the host come here.
_GROQS = "/openai"
_OF_GROQ = (
    *("chat/completions", "responses", "embeddings", "completions"),
    *("audio/speech", "audio/transcriptions", "audio/translations"),
)
_BELOW: Mapping[str, Mapping[str, Handler]] = {
    _GROQS: {path: _HANDLERS[path] for path in (f"/v1/{each}" for each in _OF_GROQ)},
    "/anthropic": {path: _handler(api) for api in BELOW_ANTHROPIC for path in api.paths},
}
# The same paths without a version, which LiteLLM's proxy has too: its clients' base URL is the host alone.
_UNVERSIONED: Mapping[str, str] = {f"/{each}": f"/v1/{each}" for each in _OF_GROQ}
_PREFIXED: Mapping[str, Handler] = {
    f"{prefix}{path}": handler for prefix, handlers in _BELOW.items() for path, handler in handlers.items()
} | {path: _HANDLERS[versioned] for path, versioned in _UNVERSIONED.items()}
_RACED: Mapping[str, Handler] = {
    **{path: _HANDLERS[path] for api in ENDPOINTS.values() for path in api.paths},
    **_PREFIXED,
}

# Clients of Claude at clouds.
_DOORS: Mapping[str, Handler] = {path: _handler(api) for api in DOOR_ENDPOINTS for path in api.paths}

_kept_response, _kept_interaction = kept_answer(RESPONSES), kept_answer(INTERACTIONS)
ROUTES = (
    *(_post(path, handler) for path, handler in _HANDLERS.items()),
    _get(SOCKET_PATH, responses_socket, allow_head=False),
    _get("/v1/responses/{id}", _kept_response),
    _delete("/v1/responses/{id}", _kept_response),
    _get("/v1/responses/{id}/{rest:input_items}", _kept_response),
    _post("/v1/responses/{id}/{rest:cancel}", _kept_response),
    *(
        add(f"{path}/{{id}}{rest}", _kept_interaction)
        for path in ENDPOINTS[INTERACTIONS].paths
        for add, rest in ((_get, ""), (_delete, ""), (_post, "/{rest:cancel}"))
    ),
    _post("/v1/conversations", conversation),
    *(
        add(f"/v1/conversations/{{id}}{rest}", conversation if add is _post else kept_conversation)
        for rest, adds in (("", (_get, _post, _delete)), ("/items", (_get, _post)), ("/items/{name}", (_get, _delete)))
        for add in adds
    ),
    _get("/v1/models", list_models),
    _get("/v1/models/{id:.+}", get_model),
    _get("/v1beta/models", list_models),
    _get("/v1beta/models/{id:.+}", get_model),
    *(_post(path, handler) for path, handler in _DOORS.items()),
    _get(PROFILES, list_profiles),
    _get(f"{PROFILES}/{{id:.+}}", get_profile),
)
# Other names of some of these routes; /openapi.json has each route once.
ALIASES = (
    *(_post(path, handler) for path, handler in _PREFIXED.items()),
    *(_get(f"{below}/models", list_models) for below in (f"{_GROQS}/v1", "")),
    *(_get(f"{below}/models/{{id:.+}}", get_model) for below in (f"{_GROQS}/v1", "")),
)


# The paths without parameters of all routes, also of operators' routes: suggestions for unknown paths.
KNOWN_PATHS: web.AppKey[Sequence[str]] = web.AppKey("holeshot.known_paths")


def calls_first(aiohttps: Handler) -> Handler:
    """Return a handler that bypasses aiohttp's router for plain requests of the raced APIs."""
    return past_the_router(aiohttps, _RACED, errors_as_json)


def completing(context: Context) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Return the signal handler that completes each response's headers; only one, as each costs time."""

    async def complete(request: web.Request, response: web.StreamResponse) -> None:
        response.headers[headers.SERVER_FIELD] = headers.SERVER  # aiohttp would send its version and Python's
        if request.method == "GET" or response.status >= web.HTTPBadRequest.status_code:  # browsers may display it
            response.headers["x-content-type-options"] = "nosniff"
        if origins := context.settings.cors:
            add_headers(request, response, origins)
        if request.version < HttpVersion11 and response.content_length is None:
            response.force_close()  # only this ends a stream in HTTP/1.0; aiohttp would stay open if asked to
        if context.phase is not GatewayPhase.SERVING:  # so that the client sends its next request to another gateway
            response.force_close()
            if request.version >= HttpVersion11:
                response.headers["connection"] = "close"
            else:
                response.headers.pop("connection", None)

    return complete


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Send errors in the form of the requested API, before the rest of an unread body is read."""
    limit_s = DRAINED_S
    try:
        response = await _answered(request, handler)
    except asyncio.CancelledError:
        has_begun = request.writer.output_size > 0  # the answer itself reports its end
        if has_begun or request.transport is None or request.app[CONTEXT].phase is not GatewayPhase.CUTTING:
            raise
        response = _response(request, ShuttingDown("the gateway stopped before this request was answered; retry"))
        limit_s = LAST_WORD_S
    if not request.content.is_eof():
        await answer_first(request, response, request.app[CONTEXT].body_work, limit_s)
    return response


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return the handler's response, or its error's; count and log refusals and defects of the gateway."""
    try:
        return await handler(request)
    except WrongKey as error:
        return await _wrong_key(request, handler, error)
    except (ApiError, MemoryError) as error:
        return _refusal(request, error if isinstance(error, ApiError) else process_full())
    except web.HTTPException as error:
        error.__traceback__ = None  # as above: the route keeps the error
        preflight_answer = preflight(request, request.app[CONTEXT].settings.cors)  # no route takes OPTIONS
        return _refusal(request, _translate(request, error)) if preflight_answer is None else preflight_answer
    except web.RequestPayloadError:
        request.content.feed_eof()  # otherwise aiohttp reads on, and logs errors there as unhandled
        unread = InvalidRequest("the body cannot be read: its chunked encoding is not valid HTTP/1.1")
        response = _refusal(request, unread)
        response.force_close()
        return response
    except Exception as defect:  # noqa: BLE001 - the last handler: a client must not see internals
        crash = InternalError("internal error; the log of the gateway has the details")
        request.app[CONTEXT].refusals.add(crash.status, crash.kind, _facts(request), defect=defect)
        return _response(request, crash)


async def _wrong_key(request: web.Request, handler: Handler, error: WrongKey) -> web.StreamResponse:
    """Return the response to a wrong key. If an unknown key signed a token, the token's issuer is asked first."""
    if isinstance(error, SignerUnknown):
        try:
            if await error.ask():
                return await _answered(request, handler)  # the request was not processed before
        except KeysNotLoaded as not_yet:
            return _refusal(request, not_yet)
    response = _refusal(request, error)
    if not await request.app[CONTEXT].wrong_keys.hold(_peer(request)):
        response.force_close()
    return response


def _refusal(request: web.Request, error: ApiError) -> web.Response:
    has_client = isinstance(error, KeyExpired) or not isinstance(error, Unauthorized)
    request.app[CONTEXT].refusals.add_error(error, lambda: _facts(request, has_client=has_client))
    if (unread := request.content.exception()) is not None:
        unread.__traceback__ = None  # break the reference cycle exception → frame → request → body → exception
    # And the cycle exception → frame → a future or other object → exception: frames have the body, too.
    error.__traceback__ = error.__context__ = error.__cause__ = None
    response = _response(request, error)
    if isinstance(error, NoWebSocket):
        response.force_close()  # after a handshake the connection does not speak HTTP
    return response


def _peer(request: web.Request) -> str | None:
    """Return the client's address if a trusted proxy names it, else the peer's."""
    trust = Trust(request.app[CONTEXT].settings.trusted_proxies)
    return trust.named(request.remote, request.headers.getall(FORWARDED_FOR, ()))


def _facts(request: web.Request, *, has_client: bool = True) -> RefusedRequest:
    resource = request.match_info.route.resource
    return RefusedRequest(
        peer=_peer(request),
        method=request.method if request.method in METH_ALL else None,
        endpoint=None if resource is None else resource.canonical,
        client=request.app[CONTEXT].admission.name_of(request) if has_client else None,
    )


def _translate(request: web.Request, error: web.HTTPException) -> ApiError:
    is_method = request.path.startswith(_OF_MODELS) and ":" in request.path  # models/{model}:embedContent
    if error.status in _NO_ROUTE and (is_method or is_not_offered(request.path)):
        shown = redact(request.path)[:_LONGEST_PATH]
        return NotFound(f"{shown!r} is of an API that this gateway does not have; below /v1 it has {_OFFERED}")
    match error:
        case web.HTTPMethodNotAllowed() if not request.path.startswith("/models/"):  # Google's methods need a version
            allowed = ", ".join(sorted(error.allowed_methods))
            if request.headers.get("upgrade", "").lower() == "websocket" and "POST" in error.allowed_methods:
                return NoWebSocket(f"{redact(request.path)!r} is not served over a WebSocket: send a POST request")
            return MethodNotAllowed(
                f"{redact(request.path)!r} takes {allowed}, not {request.method}", headers={"allow": allowed}
            )
        case web.HTTPNotFound() | web.HTTPMethodNotAllowed():
            similar = nearest_path(request.path, request.app[KNOWN_PATHS])
            hint = f"did you mean {similar}?" if similar else _WHERE
            return NotFound(f"there is no {redact(request.path)[:_LONGEST_PATH]!r} here; {hint}")
        case _:
            return InvalidRequest(error.reason)


def _response(request: web.Request, error: ApiError) -> web.Response:
    """Return the response for ``error`` in the form of the requested API."""
    request_id = headers.request_id(request.headers) or error.headers.get("x-holeshot-call-id")
    if request_id is not None:
        error.headers.update(headers.identifying(request_id))
    dialect = _dialect(request)
    body = error_body(error, dialect, request_id)
    error.headers.update(error_headers(dialect, error.status_code))
    return web.Response(body=body, status=error.status_code, content_type="application/json", headers=error.headers)


def _dialect(request: web.Request) -> Dialect:
    """Return the dialect of the requested path; of the client, if several vendors have that path."""
    dialect = dialect_of(request)
    is_the_clients = request.path.startswith(SHARED if dialect is GEMINI else _MODELS)
    return dialect if is_the_clients else _dialect_of(request.path)


def _dialect_of(path: str) -> Dialect:
    """Return the dialect of the API with the longest prefix of ``path``, as Google's APIs share a prefix."""
    prefix = next((prefix for prefix in _BELOW if path.startswith(f"{prefix}/")), "")
    path = path.removeprefix(prefix)
    path = _UNVERSIONED.get(path, path)
    matches = [(len(prefix), dialect) for prefix, dialect in TOLD_AS.items() if path.startswith(prefix)]
    matches += [
        (len(prefix), dialect)
        for dialect, endpoint in ENDPOINTS.items()
        for prefix in endpoint.prefixes
        if path.startswith(prefix)
    ]
    return max(matches, key=itemgetter(0))[1] if matches else PIVOT


# The paths of calls that take JSON, with the dialect of errors.
CALLS: Mapping[str, Dialect] = {
    path: _dialect_of(path) for api in APIS if api.relayed is None or JSON in api.relayed.takes for path in api.paths
} | {path: _dialect_of(path) for path in (*_PREFIXED, *_DOORS)}


def dialect_of_call(path: str, fields: Mapping[str, str]) -> Dialect:
    """Return the dialect of a refused call at ``path``, one of ``CALLS``; Google's clients use some of these."""
    return GEMINI if "x-goog-api-key" in fields and path.startswith(SHARED) else CALLS[path]


_MODELS = "/v1/models"
_OF_MODELS = ("/v1/models/", "/v1beta/models/")
_AT_CLOUDS = (*_DOORS, PROFILES, f"{PROFILES}/{{id:.+}}")
_OFFERED = ", ".join(dict.fromkeys(route.path.split("/")[2] for route in ROUTES if route.path not in _AT_CLOUDS))
_NO_ROUTE = (404, 405)
_LONGEST_PATH = 200  # characters of an unknown path, as the client chose it
[_CHAT] = ENDPOINTS[PIVOT].paths
_WHERE = f"chat is at {_CHAT}, the list of models at {_MODELS}, health at /health/live and /health/ready"
