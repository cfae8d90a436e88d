"""Amazon Bedrock through its Converse API: chat is translated, answers come as an AWS event stream.

A request carries a key of Bedrock's, or is signed by botocore with AWS credentials.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from providers.bodies import encoded
from providers.dialects import (
    CHAT,
    SWITCH,
    ConverseToChat,
    Dialect,
    Frames,
    Loss,
    Malformed,
    OneCall,
    Wording,
    converse_from_chat,
    events_of_converse,
    wants_one_call,
    with_switch,
)
from providers.exchange import (
    Exchange,
    FormRequest,
    Request,
    SentFields,
    UpstreamAnswer,
    adapted,
    learn,
    masked_headers,
    read_body,
    taken,
)
from providers.http import Body
from providers.models import Listing, Usage
from providers.refusals import ErrorKind, Facts, UpstreamError, error_of_response
from providers.upstreams.claude_clouds import WRONG_MODEL, no_list
from providers.upstreams.http_upstream import Server, words_of_vendor
from providers.upstreams.signed import SignedUpstream
from providers.vendors import demanded

_STREAM, _WHOLE = "model/{model}/converse-stream", "model/{model}/converse"
_LARGEST_ANSWER_BYTES = 128 * 1024 * 1024
_BAD_REQUEST = 400
_CITATIONS = b'"citations":'  # in a request: it asks for some
# What Converse, and the models behind it, call the fields of chat that it is translated from.
_IN_CHAT: Mapping[str, str] = {
    **dict.fromkeys(("effort", "output_config", "reasoning", "reasoning_config", "thinking"), "reasoning_effort"),
    **{name: name for name in ("reasoning_effort", "temperature", "top_p", "top_k", "service_tier")},
    "stop_sequences": "stop",
    # Members of turns: whether a tool has failed; thoughts ("doesn't support the reasoningContent field").
    "status": "messages.is_error",
    "reasoning_content": "messages.thinking_blocks",
    # What is added to drop thoughts that do not fit any more, and its beta.
    **dict.fromkeys(("block_binding", "mismatch_behavior", "anthropic_beta"), SWITCH),
}


def _asked_in_chat(request: Request) -> FormRequest:
    return FormRequest(request, CHAT.name, CHAT.requests, aliases=_IN_CHAT)


_REQUEST_ID = "x-amzn-requestid"


class BedrockUpstream(SignedUpstream):
    """Bedrock's runtime in one region, with the dialect chat completions."""

    can_fetch = False

    def __init__(self, server: Server, api_key: str | None, **options: Any) -> None:
        """``options`` are those of ``SignedUpstream``, without the service."""
        bearer = replace(server, auth="bearer", chat_path=_STREAM)
        super().__init__(bearer, api_key, service="bedrock", **options)
        self.accepts_all_parameters = False

    def losses(self, dialect: Dialect, model: str, fields: Mapping[str, msgspec.Raw]) -> Sequence[Loss]:
        """Return the parts of a request that cannot be expressed in Converse.

        Raises:
            Malformed: the request is not valid in chat.

        """
        if dialect is not CHAT:
            return (Loss("model", f"{self._provider} supports chat completions only"),)
        return converse_from_chat(fields, model).losses

    async def stream(self, request: Request) -> Exchange:
        """Request an answer in events; return when the response's headers have arrived with a status of 2xx.

        Raises:
            UpstreamError: no connection, or any other status, with its kind and message; no credentials; or the
                request has parts that Converse has no words for.

        """
        if request.dialect is not CHAT:
            raise self._lacks(request.dialect.name)
        asked, fields = _asked_in_chat(request), with_switch(request.fields, request.model)
        response = await taken(
            self.learnt,
            asked,
            say=lambda facts: adapted(fields, facts, asked),
            ask=lambda sent: self._asked(request, sent),
        )
        return ConverseExchange(
            response,
            self._secrets,
            request.model,
            OneCall() if wants_one_call(request.fields) else None,
            cites=_CITATIONS in bytes(request.fields.get("messages", b"")),
        )

    def learn(self, request: Request, error: UpstreamError) -> Facts:
        """Return what an ``error`` within an answer, before anything of it, teaches of the model: see ``taught``."""
        asked, fields = _asked_in_chat(request), with_switch(request.fields, request.model)
        return learn(self.learnt, asked, error, lambda facts: adapted(fields, facts, asked))

    async def _asked(self, request: Request, sent: SentFields) -> Body:
        """Return the response to a request in the form that is ``sent``, which is translated.

        Raises:
            UpstreamError: as of ``stream``.

        """
        request = msgspec.structs.replace(sent.of(request), fields=sent.fields)
        fields = {**self._worded(request).fields, **request.extra_body}
        body = encoded(fields)
        path = CHAT.name if request.upstream_stream else _WHOLE
        head = self._head("POST", path, request.model, packed=False, own=request.own_headers)
        try:
            return await self._ask(head, CHAT.name, request, body)
        except UpstreamError as error:
            if error.kind is ErrorKind.BAD_REQUEST and WRONG_MODEL.search(error.said):
                error.turn_into(ErrorKind.NOT_FOUND, without_body=True)
            raise

    async def send(self, path: str, request: Request) -> UpstreamAnswer:  # noqa: ARG002 - part of the protocol
        """Refuse: Converse has completions only.

        Raises:
            UpstreamError: always, no_such_api.

        """
        raise self._lacks(path)

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:  # noqa: ARG002 - likewise
        """Refuse: nothing is stored.

        Raises:
            UpstreamError: always, no_such_api.

        """
        raise self._lacks(path)

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:  # noqa: ARG002 - likewise
        """Refuse: the list is at another host, with other rights.

        Raises:
            UpstreamError: always, not_found.

        """
        raise no_list(self._provider)

    def _lacks(self, api: str) -> UpstreamError:
        message = f"provider {self._provider!r} supports chat completions, not {api}"
        return UpstreamError(ErrorKind.NO_SUCH_API, message, status=404)

    def _worded(self, request: Request) -> Wording:
        try:
            wording = converse_from_chat(request.fields, request.model)
        except Malformed as malformed:
            raise self._refused(malformed.message, request) from None
        lost = [] if request.drop_params else demanded(wording.losses, request.fields, request.unchosen)
        if lost:
            told = "; ".join(f"{loss.field} ({loss.reason})" for loss in lost)
            raise self._refused(f"provider {self._provider!r} does not support {told}", request)
        return wording

    def _refused(self, message: str, request: Request) -> UpstreamError:
        own = words_of_vendor(request)
        return error_of_response(_BAD_REQUEST, {}, message.encode(), self._secrets, self._wall_clock(), own=own)


class ConverseExchange:
    """The ``Exchange`` of a Converse answer: an event stream, or one JSON body, as chat chunks."""

    finishing = False  # ends are passed on as they arrive

    def __init__(
        self,
        response: Body,
        secrets: Sequence[str],
        model: str,
        one_call: OneCall | None = None,
        *,
        cites: bool = False,
    ) -> None:
        """``one_call``: given where the client takes no more than one tool call at a time. ``cites``: it may cite."""
        self.status = response.status
        self.headers = masked_headers(response.headers, secrets)
        self.connect_ms = response.connect_ms
        self.secrets = secrets
        self._response = response
        self._frames = Frames()
        self._is_whole = "json" in self.headers.get("content-type", "")
        self._over = False
        self._one_call = one_call
        answer_id = self.headers.get(_REQUEST_ID) or uuid4().hex
        self._to_chat = ConverseToChat(model, answer_id, secrets, cites=cites)

    @property
    def ended(self) -> bool:
        """Whether the provider has sent everything."""
        return self._response.ended

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that the provider has reported."""
        return self._to_chat.usage

    async def read(self) -> bytes:
        """Return the next chunks, ``b""`` at the end.

        Raises:
            UpstreamError: the connection broke, the stream is no AWS event stream, or it holds an error.

        """
        try:
            while not self._over:
                if self._is_whole:
                    self._over = True
                    body = await read_body(self._response, _LARGEST_ANSWER_BYTES)
                    return self._said(events_of_converse(body, self._to_chat, self.secrets))
                data = await self._response.read()
                self._over = not data
                if block := self._said(self._to_chat.feed(self._frames.feed(data)) if data else self._to_chat.end()):
                    return block
        except BaseException:
            self.abort()
            raise
        return b""

    def _said(self, block: bytes) -> bytes:
        return block if self._one_call is None else self._one_call.feed(block)

    def conclude(self) -> bytes:
        """Return nothing: no end is held back."""
        return b""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Ignore it: the events have to be translated."""

    def abort(self) -> None:
        """Drop the connection at once; without effect after the end."""
        self._response.abort()
