"""Counts the tokens of a prompt, by a deployment with the client's API, or else by an estimate."""

from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.api.call_context import ClientContext
from gateway.api.context import Context
from gateway.api.endpoint import Endpoint
from gateway.api.handler import Responder, answering
from gateway.api.provider_state import StoredAt
from gateway.api.request import ParsedRequest, needs_of, required_turns
from gateway.core.errors import ApiError, NoDeploymentFits
from gateway.http import Contents, headers, is_set
from providers import ErrorKind, encoded

ESTIMATED = "x-holeshot-estimated"


def counting(endpoint: Endpoint) -> Handler:
    """Return the request handler for counting tokens. An estimate is marked, and is no call in the ledger."""
    return answering(endpoint, make=partial(_counter, endpoint))


def _counter(  # noqa: PLR0917 - as of every answer
    endpoint: Endpoint,
    context: Context,
    request: web.Request,
    parsed: ParsedRequest,
    client_context: ClientContext,
    made_by: StoredAt | None,
) -> Responder:
    """Return the responder that counts the tokens of a request's prompt.

    Raises:
        InvalidRequest: the request has no prompt

    """
    prompt, media, counts = endpoint.dialect.requests.prompt, endpoint.media, endpoint.counts
    assert media is not None
    assert counts is not None
    has_whole = counts.whole is not None and is_set(parsed.fields.get(counts.whole))
    turns = parsed.fields[counts.whole or prompt] if has_whole else required_turns(parsed.fields, prompt)

    def estimate(error: ApiError) -> web.Response | None:
        if not (isinstance(error, NoDeploymentFits) or error.code == ErrorKind.NO_SUCH_API):
            return None
        contents = Contents({}, parsed.size, scan_media=parsed.scan_media)
        needs = needs_of(turns, contents, media, max_tokens=None, tools=False, json_schema=False)
        request_id = client_context.envelope.request_id
        fields = headers.identifying(request_id) if request_id is not None else {}
        return web.Response(
            body=encoded({**dict(counts.also), counts.field: max(1, needs.prompt_tokens)}),
            content_type="application/json",
            headers={**fields, ESTIMATED: "true"},
        )

    return Responder(context, request, parsed, client_context, made_by, answer_here=estimate)
