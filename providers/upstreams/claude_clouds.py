"""Claude, and Gemini, in their own APIs at clouds whose addresses name the model: Vertex AI, and Bedrock's InvokeModel.

What differs from their makers' servers is the body (``DOORS``), the address, which says whether the answer is streamed,
and at Bedrock the stream, which has frames of AWS's around each event, and the betas, which stand in the body.
"""

import base64
import re
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec.structs import replace

from providers.bodies import encoded, raw_json
from providers.dialects import DOORS, Dialect, FrameMessage, Frames, Loss, exception_in
from providers.exchange import IN_BODY, Exchange, Fields, HttpExchange, Request, UpstreamAnswer
from providers.http import Body, Head
from providers.models import Listing
from providers.refusals import ErrorKind, UpstreamError
from providers.upstreams.http_upstream import HttpUpstream, Server
from providers.upstreams.signed import SignedUpstream
from providers.upstreams.vertex import VertexUpstream

_VERTEX, _INVOKE = DOORS["vertex"], DOORS["invoke"]
_COUNTED, _COUNTING = _INVOKE.counting, "model/{model}/count-tokens"
_PROFILES = re.compile(r"^[a-z-]+\.anthropic\.")
_COUNTS_NONE = re.compile(r"doesn.t support counting|on-demand throughput isn.t supported|model identifier is invalid")
_VERSION, _BETAS = "anthropic-version", "anthropic-beta"
_FRAMED = "application/vnd.amazon.eventstream"
# 400 where a model's name is wrong, or needs an inference profile, as of Converse.
WRONG_MODEL = re.compile(r"model identifier is invalid|on-demand throughput isn.t supported|doesn.t support the model")


class VertexModels(HttpUpstream):
    """Vertex AI's models of Anthropic and Google, with a token of the operator's."""

    can_fetch = False

    async def stream(self, request: Request) -> Exchange:
        """Request an answer in events, as ``HttpUpstream`` does."""
        if not _VERTEX.has(request.dialect):
            return await super().stream(request)
        headers = {name: value for name, value in request.headers.items() if name.lower() != _VERSION}
        return await super().stream(replace(request, dialect=_VERTEX.messages, headers=headers))

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        """Post ``request`` to ``path``, as ``HttpUpstream`` does."""
        counts = path == _COUNTED.path
        return await super().send(path, replace(request, fields=_VERTEX.counted(request.fields)) if counts else request)

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:  # noqa: ARG002 - part of the protocol
        """Refuse: the list is at another address.

        Raises:
            UpstreamError: always, not_found.

        """
        raise no_list(self._provider)


class VertexModelsByToken(VertexModels, VertexUpstream):
    """The same, with tokens of Google's, which google-auth fetches."""


def no_list(provider: str) -> UpstreamError:
    """Return the error of a provider whose list of models is not at its address."""
    message = f"provider {provider!r} does not list its models at this address"
    return UpstreamError(ErrorKind.NOT_FOUND, message, status=404)


class _Chunk(msgspec.Struct):
    bytes: str


class _Count(msgspec.Struct):
    inputTokens: int  # noqa: N815 - AWS's name


class _Kind(msgspec.Struct):
    type: str = ""


EventsOfAnswer = Callable[[bytes, Sequence[str]], bytes]
_chunks, _kinds = msgspec.json.Decoder(_Chunk), msgspec.json.Decoder(_Kind)
_counts = msgspec.json.Decoder(_Count)


class _Unframed(HttpExchange):
    """The ``Exchange`` of an answer in AWS frames, each around one event of Messages; else of one JSON body."""

    def __init__(self, response: Body, secrets: Sequence[str], events_of_answer: EventsOfAnswer) -> None:
        super().__init__(response, secrets, events_of_answer)
        self._frames = Frames() if _FRAMED in response.headers.get("content-type", "") else None

    async def read(self) -> bytes:
        """Return the next events, ``b""`` at the end.

        Raises:
            UpstreamError: the connection broke, the stream is no AWS event stream, or it holds an error.

        """
        if self._frames is None:
            return await super().read()
        try:
            while data := await self._response.read():
                if said := self._said(self._frames.feed(data)):
                    return said
        except BaseException:
            self.abort()
            raise
        return b""

    def _said(self, messages: Sequence[FrameMessage]) -> bytes:
        said: list[bytes] = []
        for message in messages:
            if (error := exception_in(message, self.secrets)) is not None:
                raise error.after(said)
            said.append(_event(message.payload))
        return b"".join(said)

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Ignore it where events have to be taken out of frames."""
        if self._frames is None:
            super().offer_to(listener)


def _event(payload: bytes) -> bytes:
    """Return the event in a frame.

    Raises:
        UpstreamError: there is none (invalid_response).

    """
    try:
        inner = base64.b64decode(_chunks.decode(payload).bytes, validate=True)
        return b"event: %b\ndata: %b\n\n" % (_kinds.decode(inner).type.encode(), inner)
    except (msgspec.DecodeError, ValueError) as error:
        problem = f"sent a frame without an event of Messages: {type(error).__name__}"
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, problem) from None


class InvokeUpstream(SignedUpstream):
    """Bedrock's InvokeModel in one region, with the dialect Messages."""

    can_fetch = False
    exchange_type = _Unframed

    def __init__(self, server: Server, api_key: str | None, **options: Any) -> None:
        """``options`` are those of ``SignedUpstream``, without the service."""
        super().__init__(server, api_key, service="bedrock", **options)

    def losses(self, dialect: Dialect, model: str, fields: Fields) -> Sequence[Loss]:
        """Return the parts of a request that are refused there."""
        if not _INVOKE.has(dialect):
            return (Loss("model", f"{self._provider} supports Messages only"),)
        return super().losses(dialect, model, fields)

    async def stream(self, request: Request) -> Exchange:
        """Request an answer in events, as ``HttpUpstream`` does."""
        if not _INVOKE.has(request.dialect):
            raise self._lacks(request.dialect.name)
        request = _with_betas(self._with_needed(self._without_overruled(request)))
        headers = {name: value for name, value in request.headers.items() if name.lower() != _VERSION}
        return await super().stream(replace(request, dialect=_INVOKE.messages, headers=headers))

    async def _accepted(self, head: Head, request: Request) -> Body:
        try:
            return await super()._accepted(head, request)
        except UpstreamError as error:
            if error.kind is ErrorKind.BAD_REQUEST and WRONG_MODEL.search(error.said):
                error.turn_into(ErrorKind.NOT_FOUND, without_body=True)
            raise

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        """Count the tokens of a prompt; nothing else is asked in this API.

        Raises:
            UpstreamError: as of ``HttpUpstream``; no_such_api, if ``path`` does not count, or none are counted for the
                model.

        """
        if path != _COUNTED.path:
            raise self._lacks(path)
        request = _with_betas(self._with_needed(self._without_overruled(request)))
        headers = {name: value for name, value in request.headers.items() if name.lower() != _VERSION}
        # Counted is for a model, and not for the profile by which it is asked.
        counted = replace(
            request,
            model=_PROFILES.sub("anthropic.", request.model),
            headers=headers,
            fields=_INVOKE.counted(request.fields),
        )
        try:
            answer = await super().send(_COUNTING, counted)
        except UpstreamError as error:
            # Another right than that to ask the model: without it answers are given all the same.
            if error.status == HTTPStatus.FORBIDDEN or _COUNTS_NONE.search(error.said):
                raise self._lacks(path) from None
            raise
        try:
            tokens = _counts.decode(answer.body).inputTokens
        except msgspec.DecodeError:
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "counted tokens, and told no number of them") from None
        return replace(answer, body=encoded({_COUNTED.field: tokens}))

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:  # noqa: ARG002 - part of the protocol
        """Refuse: the list is at another host, with other rights.

        Raises:
            UpstreamError: always, not_found.

        """
        raise no_list(self._provider)

    def _lacks(self, api: str) -> UpstreamError:
        message = f"provider {self._provider!r} supports Messages, not {api}"
        return UpstreamError(ErrorKind.NO_SUCH_API, message, status=404)


def _with_betas(request: Request) -> Request:
    """Return a request with its betas (``anthropic-beta``) in the body."""
    own = dict(request.own_headers)
    said = [own.pop(_BETAS, ""), *(value for name, value in request.headers.items() if name.lower() == _BETAS)]
    betas = [beta for each in said for beta in map(str.strip, each.split(",")) if beta]
    if not betas:
        return request
    headers = {name: value for name, value in request.headers.items() if name.lower() != _BETAS}
    fields = {IN_BODY: raw_json(list(dict.fromkeys(betas))), **request.fields}
    return replace(request, headers=headers, own_headers=tuple(own.items()), fields=fields)
