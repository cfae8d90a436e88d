"""Handles what aiohttp meets outside our handlers: requests that are not HTTP, incomplete bodies, bugs.

aiohttp would log each with a traceback that quotes the client's bytes (a malformed header may contain its key), and
quote them in a plain-text answer as well.
"""

from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong

from gateway.errors import ApiError, InternalError, InvalidRequest
from gateway.ingress.headers import SERVER
from gateway.ingress.refusals import Refusals, Refused

MALFORMED_REQUEST = "malformed_request"
MALFORMED_BODY = "malformed_body"
_CLIENTS_FAULTS = (HttpProcessingError, web.RequestPayloadError, web.PayloadAccessError, ConnectionError)


class AnsweringHandler(web.RequestHandler):
    """aiohttp's connection; it answers such requests in our format and counts them as refusals."""

    __slots__ = ("_refusals",)

    def __init__(self, server: web.Server, refusals: Refusals, **options: Any) -> None:
        super().__init__(server, **options)
        self._refusals = refusals

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's message, which quotes the client
    ) -> web.StreamResponse:
        """Return the answer to a request that is not HTTP, or whose handler has a bug; close the connection.

        Raises:
            ConnectionError: an answer has already begun.

        """
        refused = Refused(peer=request.remote)
        if isinstance(exc, HttpProcessingError):
            error: ApiError = InvalidRequest(_words(exc))
            error.code = MALFORMED_REQUEST
            self._refusals.add(error.status, error.kind, refused)
        else:
            error = InternalError("internal error; the log of the gateway has the details")
            self._refusals.add(status, error.kind, refused, defect=exc or RuntimeError("a handler timed out"))
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        fields = {"server": SERVER, "x-content-type-options": "nosniff"}
        body, status = error.body(), error.status_code
        response = web.Response(body=body, status=status, content_type="application/json", headers=fields)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Record an error that ended a connection without an answer."""
        problem = kw.get("exc_info")
        if isinstance(problem, _CLIENTS_FAULTS):
            self._refusals.add(InvalidRequest.status, MALFORMED_BODY, Refused(peer=self._peer))
        else:
            defect = problem if isinstance(problem, BaseException) else RuntimeError(*args[:1])
            self._refusals.add(InternalError.status, "internal_error", Refused(peer=self._peer), defect=defect)

    @property
    def _peer(self) -> str | None:
        address = None if self.transport is None else self.transport.get_extra_info("peername")
        return str(address[0]) if isinstance(address, tuple) else None


def _words(error: HttpProcessingError) -> str:
    """Return what is wrong with a request's head, without quoting it."""
    if isinstance(error, BadHttpMethod):
        return "this is not an HTTP request; is it TLS, or HTTP/2, sent to a port that speaks HTTP/1.1?"
    if isinstance(error, LineTooLong):
        return "the request's path or one of its headers is too long"
    return "the head of the request is malformed: its request line or one of its headers"
