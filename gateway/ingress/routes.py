"""The application as a list you can read: every route, and the one place where errors become responses."""

from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from gateway.errors import ApiError, BodyTooLarge, InternalError, InvalidRequest, MethodNotAllowed, NotFound
from gateway.ingress.chat import chat_completions
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.embeddings import embeddings
from gateway.ingress.models import get_model, list_models
from gateway.ingress.status import leaderboard, live, metrics, ready

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ROUTES = (
    web.post("/v1/chat/completions", chat_completions),
    web.post("/v1/embeddings", embeddings),
    web.get("/v1/models", list_models),
    web.get("/v1/models/{id:.+}", get_model),
    web.get("/health/live", live),
    web.get("/health/ready", ready),
    web.get("/metrics", metrics),
    web.get("/leaderboard", leaderboard),
)


def application(context: Context) -> web.Application:
    """Return the aiohttp application around ``context``."""
    app = web.Application(middlewares=[errors_as_json], client_max_size=int(context.settings.max_body_mb * 2**20))
    app[CONTEXT] = context
    app.add_routes(ROUTES)
    return app


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error in OpenAI's shape; log only what is a defect of ours."""
    try:
        return await handler(request)
    except ApiError as error:
        return _response(error)
    except web.HTTPException as error:
        return _response(_translate(request, error))
    except web.RequestPayloadError:
        request.content.feed_eof()  # aiohttp would read on for the rest, and log what it meets as unhandled
        response = _response(InvalidRequest("the body cannot be read: is it what its content-encoding says?"))
        response.force_close()
        return response
    except Exception:  # noqa: BLE001 - the last line of defence: a client is told nothing of our insides
        structlog.get_logger().exception("request.crashed", method=request.method, path=request.path)
        return _response(InternalError("the gateway made a mistake; its log has the details"))


def _translate(request: web.Request, error: web.HTTPException) -> ApiError:
    match error:
        case web.HTTPNotFound():
            paths = ", ".join(route.path for route in ROUTES)
            return NotFound(f"there is no {request.path!r} here; there are {paths}")
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            return MethodNotAllowed(
                f"{request.path!r} takes {allowed}, not {request.method}", headers={"allow": allowed}
            )
        case web.HTTPRequestEntityTooLarge():
            limit_mb = request.app[CONTEXT].settings.max_body_mb
            return BodyTooLarge(f"the body is larger than {limit_mb:g} MiB; the operator's max_body_mb sets the limit")
        case _:
            return InvalidRequest(error.reason)


def _response(error: ApiError) -> web.Response:
    return web.Response(
        body=error.body(), status=error.status_code, content_type="application/json", headers=error.headers
    )
