"""What only operators' handlers use, beside the ``Context`` of calls; and the state of the process: health, metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec
from aiohttp import web
from aiohttp.hdrs import METH_HEAD

from gateway.alerts import AlertTasks
from gateway.api import CONTEXT, GatewayPhase, models_for
from gateway.core.errors import NotFound, SignerUnknown, Unauthorized
from gateway.core.reports import Reports
from gateway.live import Live

if TYPE_CHECKING:
    from gateway.admin.answers import Stores
    from gateway.admin.sign_in import SignIn


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """The reports, the live view and the alerts of a process, the state of its stores, and its metrics.

    ``render_metrics`` returns the page and its content type. ``signing_key`` is the one beside a SQLite database, which
    signs sessions if no other is set. ``sign_in`` returns what signs people in, where ``page.sign_in`` is set.
    """

    reports: Reports
    live: Live
    alerts: AlertTasks
    readiness: "Callable[[], Stores]"
    render_metrics: Callable[[], Awaitable[tuple[Sequence[bytes], str]]]
    signing_key: str
    sign_in: "Callable[[], SignIn]"


OPERATIONS = web.AppKey("holeshot.operations", Operations)


# Health and metrics.


async def live(_request: web.Request) -> web.Response:
    """Answer 200 as long as the process responds."""
    from gateway.admin.answers import Alive  # noqa: PLC0415 - memory: with what operators use

    return web.json_response(body=msgspec.json.encode(Alive()))


async def login_at(request: web.Request) -> web.Response:
    """Tell where people of this gateway sign in, for `holeshot login`: public, as a browser that signs in sees it too.

    Who sends a token or a key is told the models, too.

    Raises:
        NotFound: no issuer has a login.
        SignerUnknown: the token's issuer has to be asked first.

    """
    from gateway.admin.answers import LoginAt  # noqa: PLC0415 - as above

    for issuer in request.app[CONTEXT].settings.issuers.values():
        if (login := issuer.login) is not None:
            models: Sequence[str] = ()
            try:
                models = await models_for(request)
            except SignerUnknown:
                raise
            except (
                Unauthorized
            ):  # also a credential that a proxy in front has put there, which is no key of this gateway
                pass
            told = LoginAt(issuer.issuer, **login.model_dump(), models=models)
            return web.json_response(body=msgspec.json.encode(told))
    raise NotFound("nobody signs in at this gateway with `holeshot login`: its operator sets `login` at an issuer")


async def ready(request: web.Request) -> web.Response:
    """Answer 200 while new calls are accepted; 503 while stopping, or before the keys of the database are known.

    The gateway stays ready when its database or Redis goes away: calls are answered, rows wait in the spool, each
    replica steers with its own statistics, and known keys stay good. The body has the state of both. ``degraded``: a
    store or another part is sick, and calls are answered all the same, unless ``ledger.required`` refuses them.
    """
    from gateway.admin.answers import Readiness  # noqa: PLC0415 - memory: with what operators use

    context = request.app[CONTEXT]
    readiness = request.app[OPERATIONS].readiness()
    workers, is_unrecorded = readiness.workers, context.is_unrecorded()
    database, redis = readiness.database, readiness.redis
    is_degraded = (
        is_unrecorded
        or database.connected is False
        or context.admission.keys.stale_s > 0
        or database.sums_stand_still_s is not None
        or readiness.spool.problem is not None
        or (redis is not None and not redis.connected)
        or (workers is not None and bool(workers.stopped))
    )
    status: Literal["ok", "degraded", "keys_not_loaded", "stopping"] = "degraded" if is_degraded else "ok"
    accepts = not (is_unrecorded and context.settings.ledger.required)
    if not context.admission.keys.table.is_loaded:
        status, accepts = "keys_not_loaded", False
    if context.phase is not GatewayPhase.SERVING:
        status, accepts = "stopping", False
    body = msgspec.json.encode(Readiness(status=status, **msgspec.structs.asdict(readiness)))
    return web.Response(body=body, content_type="application/json", status=200 if accepts else 503)


async def metrics(request: web.Request) -> web.StreamResponse:
    """Return the metrics in Prometheus' text format. Needs the key of an admin or a viewer if keys are required."""
    context = request.app[CONTEXT]
    context.admission.admit_viewer(request)
    parts, content_type = await request.app[OPERATIONS].render_metrics()
    return await send(request, parts, {"content-type": content_type})


# Long answers.

COMPRESSED_FROM = 32_768  # bytes


async def send(
    request: web.Request, parts: Sequence[bytes], headers: Mapping[str, str], *, packs: bool = False
) -> web.StreamResponse:
    """Send a body that is too long for one turn of the event loop; ``packs``: compressed, where the caller takes it."""
    response = web.StreamResponse(headers=headers)
    number = sum(map(len, parts))
    if packs and number >= COMPRESSED_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)  # in a thread
    else:
        response.content_length = number
    if request.method == METH_HEAD:  # a body would be read as the next answer
        return response
    with suppress(ConnectionError):  # the caller has disconnected
        await response.prepare(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(0)
        await response.write_eof()
    return response
