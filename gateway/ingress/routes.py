"""The list of all routes, and the one place where errors become HTTP responses."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiohttp import HttpVersion11, web
from aiohttp.hdrs import METH_ALL

from gateway.errors import (
    ApiError,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    NoWebSocket,
    Unauthorized,
    WrongKey,
)
from gateway.ingress import admin_keys, headers
from gateway.ingress.addresses import FORWARDED_FOR, Trust
from gateway.ingress.admission import JSON
from gateway.ingress.answering import answering
from gateway.ingress.api.routes import ROUTES as PAGE_ROUTES
from gateway.ingress.bodies.reading import withhold_continue
from gateway.ingress.bodies.unwanted import answer_first
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.cors import add_headers, preflight
from gateway.ingress.kept_responses import kept_response
from gateway.ingress.models import get_model, list_models, spoken_by
from gateway.ingress.openapi.serving import describe, docs
from gateway.ingress.paths import is_not_offered, nearest_path
from gateway.ingress.phase import Phase
from gateway.ingress.refusals import Refused
from gateway.ingress.relayed.apis import (
    EDITS,
    EMBEDDINGS,
    GENERATIONS,
    MODERATIONS,
    RERANK,
    SPEECH,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    VARIATIONS,
    RelayedApi,
)
from gateway.ingress.relayed.counting import count_tokens
from gateway.ingress.relayed.relaying import relaying
from gateway.ingress.status import leaderboard, live, metrics, ready
from gateway.ingress.surfaces.index import SURFACES
from gateway.key_errors import KeyExpired
from providers.dialects.dialect import Dialect
from providers.dialects.index import PIVOT
from providers.redaction import redact

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_get, _post, _patch, _delete = (
    partial(add, expect_handler=withhold_continue) for add in (web.get, web.post, web.patch, web.delete)
)

_COUNT_TOKENS = "/v1/messages/count_tokens"
_RELAYED: Mapping[str, RelayedApi] = {
    "/v1/embeddings": EMBEDDINGS,
    "/v1/moderations": MODERATIONS,
    "/v1/rerank": RERANK,
    "/v2/rerank": RERANK,
    "/v1/audio/speech": SPEECH,
    "/v1/audio/transcriptions": TRANSCRIPTIONS,
    "/v1/audio/translations": TRANSLATIONS,
    "/v1/images/generations": GENERATIONS,
    "/v1/images/edits": EDITS,
    "/v1/images/variations": VARIATIONS,
}

ROUTES = (
    *(_post(surface.route, answering(surface)) for surface in SURFACES.values()),
    _post(_COUNT_TOKENS, count_tokens),
    *(_post(path, relaying(api)) for path, api in _RELAYED.items()),
    _get("/v1/responses/{id}", kept_response),
    _delete("/v1/responses/{id}", kept_response),
    _get("/v1/responses/{id}/{rest:input_items}", kept_response),
    _post("/v1/responses/{id}/{rest:cancel}", kept_response),
    _get("/v1/models", list_models),
    _get("/v1/models/{id:.+}", get_model),
    _get("/health/live", live),
    _get("/health/ready", ready),
    _get("/metrics", metrics),
    _get("/leaderboard", leaderboard),
    _get("/admin/keys", admin_keys.list_keys),
    _post("/admin/keys", admin_keys.create_key),
    _get("/admin/keys/{name}", admin_keys.get_key),
    _patch("/admin/keys/{name}", admin_keys.change_key),
    _delete("/admin/keys/{name}", admin_keys.revoke_key),
    _post("/admin/keys/{name}/rotate", admin_keys.rotate_key),
    _get("/openapi.json", describe),
    _get("/docs", docs),
    *PAGE_ROUTES,
)


def application(context: Context) -> web.Application:
    """Return the aiohttp application for ``context``."""
    app = web.Application(middlewares=[errors_as_json])
    app[CONTEXT] = context
    app.add_routes(ROUTES)
    app.on_response_prepare.append(_complete(context))
    return app


def _complete(context: Context) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Return the signal handler that completes each response's headers; only one, as each costs time per response."""

    async def complete(request: web.Request, response: web.StreamResponse) -> None:
        response.headers[headers.SERVER_FIELD] = headers.SERVER  # aiohttp would send its version and Python's
        if request.method == "GET" or response.status >= web.HTTPBadRequest.status_code:  # what a browser may show
            response.headers["x-content-type-options"] = "nosniff"
        if origins := context.settings.cors:
            add_headers(request, response, origins)
        if context.phase is not Phase.SERVING:  # the client shall send its next request to another gateway
            response.force_close()
            if request.version >= HttpVersion11:
                response.headers["connection"] = "close"
            else:
                response.headers.pop("connection", None)

    return complete


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Send errors in the format of the API that was called, before the rest of an unread body."""
    response = await _answered(request, handler)
    if not request.content.is_eof():
        await answer_first(request, response, request.app[CONTEXT].body_work)
    return response


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return the handler's response, or that of its error; count and log refusals and bugs of the gateway."""
    try:
        return await handler(request)
    except WrongKey as error:
        response = _refusal(request, error)
        if not await request.app[CONTEXT].wrong_keys.hold(_peer(request)):
            response.force_close()
        return response
    except ApiError as error:
        return _refusal(request, error)
    except web.HTTPException as error:
        asked = preflight(request, request.app[CONTEXT].settings.cors)  # no route takes OPTIONS
        return _refusal(request, _translate(request, error)) if asked is None else asked
    except web.RequestPayloadError:
        request.content.feed_eof()  # aiohttp would continue to read it, and log what it finds as unhandled
        unread = InvalidRequest("the body cannot be read: its chunked encoding is not valid HTTP/1.1")
        response = _refusal(request, unread)
        response.force_close()
        return response
    except Exception as defect:  # noqa: BLE001 - the last handler: a client must not see internals
        crash = InternalError("internal error; the log of the gateway has the details")
        request.app[CONTEXT].refusals.add(crash.status, crash.kind, _facts(request), defect=defect)
        return _response(request, crash)


def _refusal(request: web.Request, error: ApiError) -> web.Response:
    has_client = isinstance(error, KeyExpired) or not isinstance(error, Unauthorized)
    request.app[CONTEXT].refusals.add_error(error, lambda: _facts(request, has_client=has_client))
    response = _response(request, error)
    if isinstance(error, NoWebSocket):
        response.force_close()  # after a handshake the connection does not speak HTTP
    return response


def _peer(request: web.Request) -> str | None:
    """Return the address of the client, if a trusted proxy names it, else that of the peer."""
    trust = Trust(request.app[CONTEXT].settings.trusted_proxies)
    return trust.named(request.remote, request.headers.getall(FORWARDED_FOR, ()))


def _facts(request: web.Request, *, has_client: bool = True) -> Refused:
    resource = request.match_info.route.resource
    return Refused(
        peer=_peer(request),
        method=request.method if request.method in METH_ALL else None,
        endpoint=None if resource is None else resource.canonical,
        client=request.app[CONTEXT].admission.name_of(request) if has_client else None,
    )


def _translate(request: web.Request, error: web.HTTPException) -> ApiError:
    if error.status in _NO_ROUTE and is_not_offered(request.path):
        shown = redact(request.path)[:_LONGEST_PATH]
        return NotFound(f"{shown!r} is of an API that this gateway does not have; below /v1 it has {_OFFERED}")
    match error:
        case web.HTTPNotFound():
            meant = nearest_path(request.path, _PATHS)
            hint = f"did you mean {meant}?" if meant else f"chat is at {_CHAT}, the list of models at {_MODELS}"
            return NotFound(f"there is no {redact(request.path)[:_LONGEST_PATH]!r} here; {hint}")
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            if request.headers.get("upgrade", "").lower() == "websocket" and "POST" in error.allowed_methods:
                return NoWebSocket(f"{redact(request.path)!r} is not served over a WebSocket: send a POST request")
            return MethodNotAllowed(
                f"{redact(request.path)!r} takes {allowed}, not {request.method}", headers={"allow": allowed}
            )
        case _:
            return InvalidRequest(error.reason)


def _response(request: web.Request, error: ApiError) -> web.Response:
    """Return the response for ``error``, in the format of the API that was called."""
    request_id = headers.request_id(request.headers) or error.headers.get("x-holeshot-call-id")
    if request_id is not None:
        error.headers.update(headers.identifying(request_id))
    body = error_body(error, _dialect(request), request_id)
    return web.Response(body=body, status=error.status_code, content_type="application/json", headers=error.headers)


def error_body(error: ApiError, dialect: Dialect, request_id: str | None) -> bytes:
    """Return the body that tells of ``error`` in the format of ``dialect``."""
    if dialect.error_body is None:
        return error.body()
    return dialect.error_body(error.status_code, *error.said(), request_id)


def _dialect(request: web.Request) -> Dialect:
    """Return the dialect of the requested path."""
    return spoken_by(request) if request.path.startswith(_MODELS) else _dialect_of(request.path)


def _dialect_of(path: str) -> Dialect:
    return next((dialect for dialect, surface in SURFACES.items() if path.startswith(surface.route)), PIVOT)


# The paths of calls that take JSON, with the dialect of their errors.
CALLS: Mapping[str, Dialect] = {
    path: _dialect_of(path)
    for path in (
        *(surface.route for surface in SURFACES.values()),
        _COUNT_TOKENS,
        *(path for path, api in _RELAYED.items() if JSON in api.takes),
    )
}
_PATHS = tuple(dict.fromkeys(route.path for route in ROUTES if "{" not in route.path))
_MODELS = "/v1/models"  # several vendors have this path
_OFFERED = ", ".join(dict.fromkeys(path.split("/")[2] for path in (*CALLS, *_RELAYED, _MODELS)))
_NO_ROUTE = (404, 405)
_LONGEST_PATH = 200  # characters of an unknown path: the client chose it
_CHAT = SURFACES[PIVOT].route
