"""Requests in the form of HTTP that a ``Racer`` answers in this process: what the clients of SDKs are given."""

from collections.abc import AsyncIterator, Mapping

import msgspec

from gateway.api import CHAT_ENDPOINT, ENDPOINTS, GEMINI_ENDPOINT, broken, error_body, failure
from gateway.core.errors import ApiError, NotFound
from gateway.http import JSON, headers
from gateway.racing import Winner
from holeshot._racer import Racer
from holeshot._running import StreamedCall
from providers import UpstreamError, encoded
from providers.dialects import Dialect

_PATHS = {path: each for each in ENDPOINTS.values() if each is not GEMINI_ENDPOINT for path in each.paths}
_MODELS = "/v1/models"


class Served(msgspec.Struct, frozen=True):
    """A response. ``body`` is whole, or the events of an answer as it streams."""

    status: int
    headers: Mapping[str, str]
    body: "bytes | ServedEvents"


class ServedEvents:
    """The events of an answer, read once. ``aclose`` cancels all attempts, and waits until they have ended."""

    def __init__(self, call: StreamedCall, dialect: Dialect) -> None:
        self._call = call
        self._dialect = dialect

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield whole events. An answer that breaks off ends with an error's event, at which SDKs raise."""
        latest = b""
        try:
            async for block in self._call.blocks():
                latest = block
                yield block
        except UpstreamError as error:
            yield self._numbered(broken(error, self._dialect, None), latest)
        except ApiError as error:
            yield self._numbered(failure(error, self._dialect, None), latest)

    async def aclose(self) -> None:
        """End the call."""
        await self._call.aclose()

    def _numbered(self, event: bytes, latest: bytes) -> bytes:
        numbers = self._dialect.answers.numbers
        return event if numbers is None else numbers.numbered(event, latest)


async def served(racer: Racer, path: str, body: bytes, race_header: str | None) -> Served:
    """Return the response to a request for a completion, a response or a message, or for the list of models."""
    endpoint = _PATHS.get(path)
    dialect = CHAT_ENDPOINT.dialect if endpoint is None else endpoint.dialect
    if path == _MODELS:
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": headers.SERVER} for name in racer.models]
        return Served(200, {"content-type": JSON}, encoded({"object": "list", "data": listed}))
    try:
        if endpoint is None:
            raise NotFound(f"a Racer has no {path}, but {', '.join((*_PATHS, _MODELS))}")
        request = racer.parsed(endpoint, body, race_header)
        if request.stream:
            call = racer.running(request)
            await call.begin()
            fields = _headers(call.sink.winner, "text/event-stream; charset=utf-8")
            return Served(200, {**fields, **request.response_headers}, ServedEvents(call, dialect))
        sink, _ = await racer.gathered(request)
        return Served(200, {**_headers(sink.winner, JSON), **request.response_headers}, sink.body())
    except ApiError as error:
        return Served(
            error.status_code, {"content-type": JSON, **error.headers}, error_body(error, dialect, request_id=None)
        )


def _headers(winner: Winner | None, content_type: str) -> Mapping[str, str]:
    return {"content-type": content_type, **({} if winner is None else headers.for_client(winner))}
