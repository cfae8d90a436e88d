"""GET /api/calls: calls, the newest first, and one call with its attempts."""

from typing import Annotated

import msgspec
from aiohttp import web

from gateway.errors import InvalidRequest
from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import MOST, NoQuery, asked, position, written
from gateway.ingress.context import CONTEXT
from gateway.ingress.visitors import admit_visitor
from gateway.reports import CallNotFound, CallsWanted, Ended, Position, Window


class CallsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which calls, and how many of them at a time. ``window`` is a day, unless a request id is looked for.

    With ``attempts`` each call has its attempts.
    """

    window: Window | None = None
    model: str | None = None
    client: str | None = None
    tag: str | None = None  # name:value
    outcome: Ended | None = None
    slower_than_ms: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    error: str | None = None
    request_id: str | None = None
    deployment: str | None = None
    attempts: bool = False
    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST)] = 50


async def list_calls(request: web.Request) -> web.Response:
    """Return a page of calls."""
    admit_visitor(request)
    query = asked(request, CallsQuery)
    window = query.window or (Window.DAY if query.request_id is None else None)
    table = await request.app[CONTEXT].reports.calls(
        CallsWanted(
            window=window,
            limit=query.limit,
            after=position(query.after),
            model=query.model,
            client=query.client,
            deployment=query.deployment,
            tag=_tag(query.tag),
            outcome=query.outcome,
            slower_than_ms=query.slower_than_ms,
            error=query.error,
            request_id=query.request_id,
            attempts=query.attempts,
        )
    )
    rows, more = table.rows[: query.limit], len(table.rows) > query.limit
    following = written(Position(rows[-1]["started_at"], rows[-1]["id"])) if more else None
    return answer(request, {"data": rows, "next": following, "sql": table.sql})


async def get_call(request: web.Request) -> web.Response:
    """Return one call.

    Raises:
        CallNotFound: there is none with this id.

    """
    admit_visitor(request)
    asked(request, NoQuery)
    found = await request.app[CONTEXT].reports.call(request.match_info["id"])
    if found is None:
        raise CallNotFound("no call has this id: ids are in the header x-holeshot-call-id, and in GET /api/calls")
    return answer(request, found)


def _tag(text: str | None) -> tuple[str, str] | None:
    """Return the name and the value of a tag.

    Raises:
        InvalidRequest: it is not ``name:value``.

    """
    if text is None:
        return None
    name, colon, value = text.partition(":")
    if not name or not colon:
        raise InvalidRequest("tag: write name:value", param="tag")
    return name, value
