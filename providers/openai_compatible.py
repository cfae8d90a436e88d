"""A provider that speaks OpenAI's chat-completions API, with whatever quirks its catalog row names."""

import base64
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from yarl import URL

from providers.error_bodies import error_of_response
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Answer, Exchange, Request
from providers.http.client import Client
from providers.http.dialing import TlsContexts, Versions
from providers.http.encoding import ACCEPTED, Body, decoded
from providers.http.message import Head, checked
from providers.http.message import Request as HttpRequest
from providers.http.response import Response
from providers.http_exchange import HttpExchange, RepairedExchange, read_body
from providers.json_stream import read_answer
from providers.quirks import Quirks, shape
from providers.redaction import redact
from providers.repairs import repairs_of

_LARGEST_ERROR_BYTES = 64 * 1024
_LARGEST_ANSWER_BYTES = 128 * 1024 * 1024
_HEADS_KEPT = 256  # a path may hold the model's name, and clients may name models ad hoc
_TRUE = msgspec.Raw(b"true")
_FALSE = msgspec.Raw(b"false")
_INCLUDE_USAGE = msgspec.Raw(b'{"include_usage":true}')
_COMPRESSED = {"accept-encoding": ACCEPTED}
_SUCCESS = range(200, 300)
_CLIENT_ERROR = 400

_options_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class OpenAICompatible:
    """One provider's ``Upstream``. Opens nothing before the first request; the key shows in no repr, error or log."""

    def __init__(
        self,
        *,
        provider: str,
        base_url: str,
        api_key: str | None,
        auth: Literal["bearer", "api-key"] = "bearer",
        headers: Mapping[str, str] | None = None,  # sent with every request; a request's own do not replace them
        query: Mapping[str, str] | None = None,  # Azure's api-version
        chat_path: str = "chat/completions",  # may hold {model}
        embeddings_path: str = "embeddings",
        models_path: str = "models",
        quirks: Quirks | None = None,
        secrets: Sequence[str] = (),  # besides the key, what must not show up in a message
        versions: Versions = "auto",
        tls: TlsContexts | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._provider = provider
        self._base_url = URL(base_url)
        if self._base_url.user is not None and api_key:
            raise ValueError(
                f"provider {provider!r}: base_url names a user and there is an api_key; keep one of the two"
            )
        self._query = dict(query or {})
        self._paths = {"chat/completions": chat_path, "embeddings": embeddings_path, "models": models_path}
        self._quirks = quirks or Quirks()
        self._secrets = (*([api_key] if api_key else []), *secrets)
        self._wall_clock = wall_clock
        self._fixed_headers = self._headers(api_key, auth, headers or {})
        self._client = Client(self._base_url, headers=self._fixed_headers, versions=versions, tls=tls)
        self._head = functools.lru_cache(maxsize=_HEADS_KEPT)(self._build_head)

    def __repr__(self) -> str:
        return f"OpenAICompatible({self._provider!r}, {str(self._base_url.with_user(None))!r})"

    async def stream(self, request: Request) -> Exchange:
        """Ask for a chat completion; return when the response's headers say 2xx.

        Raises:
            UpstreamError: no connection, or any other status, with its kind, message and ``retry-after``.

        """
        head = self._head("POST", "chat/completions", request.model, packed=False)
        response = await self._ask(head, request, chat_body(request, self._quirks))
        exchange = HttpExchange(response, self._secrets)
        repairs = repairs_of(self._quirks.repairs)
        return RepairedExchange(exchange, repairs) if repairs else exchange

    async def send(self, path: str, request: Request) -> Answer:
        """Post ``request`` to ``path`` (``embeddings``) and read the whole JSON answer.

        Raises:
            UpstreamError: as for ``stream``, and when the body is no JSON object, or says it is an error.

        """
        started = perf_counter()
        head = self._head("POST", path, request.model, packed=True)
        response = await self._ask(head, request, plain_body(request, self._quirks))
        headers_ms = (perf_counter() - started) * 1000
        body = await self._read_whole(response)
        return Answer(response.status, response.headers, body, response.connect_ms, headers_ms)

    async def list_models(self, connect_timeout_s: float = 5.0) -> list[str]:
        """Return the names of the models the provider offers to this key.

        Raises:
            UpstreamError: as for ``send``.

        """
        head = self._head("GET", "models", "", packed=True)
        response = await self._checked(await self._client.send(HttpRequest(head, (), None), connect_timeout_s))
        body = await self._read_whole(response, may_be_array=True)
        return _model_names(msgspec.json.decode(body))

    async def aclose(self) -> None:
        """Drop kept connections."""
        await self._client.aclose()

    async def _ask(self, head: Head, request: Request, body: bytes) -> Body:
        fixed = self._fixed_headers
        own = {name: value for name, value in request.headers.items() if name.lower() not in fixed}
        sent = HttpRequest(head, checked(own) if own else (), body)
        return await self._checked(await self._client.send(sent, request.connect_timeout_s))

    async def _checked(self, response: Response) -> Body:
        """Return a response's body if its status is 2xx, and raise what it says otherwise."""
        try:
            body = decoded(response)
            refusal = None if response.status in _SUCCESS else await self._refusal(body)
        except BaseException:
            response.abort()
            raise
        if refusal is not None:
            response.abort()
            raise refusal
        return body

    async def _refusal(self, response: Body) -> UpstreamError:
        status = response.status
        if status < _CLIENT_ERROR:
            # Not followed: the key must not travel.
            target = redact(response.headers.get("location", "elsewhere").partition("?")[0], self._secrets)
            message = f"redirects to {target} ({status}); correct its base_url"
            return UpstreamError(ErrorKind.INVALID_RESPONSE, message, status=status)
        body = await _read_at_most(response, _LARGEST_ERROR_BYTES)
        return error_of_response(status, response.headers, body, self._secrets, self._wall_clock())

    async def _read_whole(self, response: Body, *, may_be_array: bool = False) -> bytes:
        try:
            body = await read_body(response, _LARGEST_ANSWER_BYTES)
            if not (may_be_array and body.lstrip().startswith(b"[")):
                read_answer(body, self._secrets)
        finally:
            response.abort()  # harmless after the end; anything else must not go on
        return body

    def _headers(
        self, api_key: str | None, auth: Literal["bearer", "api-key"], own: Mapping[str, str]
    ) -> dict[str, str]:
        # Some gateways would compress events, and hold them back for it.
        headers = {"user-agent": "holeshot", "content-type": "application/json", "accept-encoding": "identity"}
        if api_key:
            name, value = ("api-key", api_key) if auth == "api-key" else ("authorization", f"Bearer {api_key}")
            headers[name] = value
        if self._base_url.user is not None:
            pair = f"{self._base_url.user}:{self._base_url.password or ''}"
            headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        headers |= {name.lower(): value for name, value in own.items()}
        for name, value in headers.items():
            if not value.isprintable():
                message = (
                    f"provider {self._provider!r}: the value of header {name} holds a line break or control character"
                )
                raise ValueError(message)
        return headers

    def _build_head(self, method: str, path: str, model: str, *, packed: bool) -> Head:
        """Return the head of requests for ``path``; ``packed``: the answer may come compressed."""
        template = self._paths.get(path, path)
        filled = template.replace("{model}", quote(model, safe=""))
        url = self._base_url.joinpath(*filled.split("/"), encoded=True)
        url = url.with_query({**self._base_url.query, **self._query})
        return self._client.head(method, url.raw_path_qs, _COMPRESSED if packed else {})


def chat_body(request: Request, quirks: Quirks) -> bytes:
    """Return the body of a chat completion, patched at its top level only: messages are never parsed."""
    fields = _fields(request, quirks)
    if not request.upstream_stream:
        fields["stream"] = _FALSE
        fields.pop("stream_options", None)
    else:
        fields["stream"] = _TRUE
        if quirks.usage_option == "stream_options":
            fields["stream_options"] = _with_usage(fields.get("stream_options"))
        else:
            fields.pop("stream_options", None)
    return msgspec.json.encode(fields)


def plain_body(request: Request, quirks: Quirks) -> bytes:
    """Return the body of a request that is not a chat completion."""
    return msgspec.json.encode(_fields(request, quirks))


def _fields(request: Request, quirks: Quirks) -> dict[str, msgspec.Raw]:
    fields = shape(request.fields, quirks)
    fields |= request.extra_body
    fields["model"] = msgspec.Raw(msgspec.json.encode(request.model))
    return fields


def _with_usage(options: msgspec.Raw | None) -> msgspec.Raw:
    if options is None:
        return _INCLUDE_USAGE
    try:
        merged = _options_decoder.decode(options)
    except msgspec.ValidationError:  # null, or nonsense that only its sender can mean
        return _INCLUDE_USAGE
    return msgspec.Raw(msgspec.json.encode({**merged, "include_usage": _TRUE}))


async def _read_at_most(response: Body, limit_bytes: int) -> bytes:
    """Read the beginning of an error's body, or what there is of it before the connection breaks."""
    body = b""
    with suppress(UpstreamError):
        while len(body) < limit_bytes and (data := await response.read()):
            body += data
    return body[:limit_bytes]


def _model_names(answer: Any) -> list[str]:
    """Read ``{"data": [{"id": …}]}``, or the bare list some vendors send."""
    rows = answer.get("data") if isinstance(answer, dict) else answer
    if not isinstance(rows, list):
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "its list of models is none")
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
