"""A provider that speaks OpenAI's chat-completions API, with whatever quirks its catalog row names."""

import functools
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, Literal
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from providers.error_bodies import error_of_response
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Answer, Exchange, Request
from providers.http_exchange import HttpExchange, RepairedExchange, lower_case, read_body
from providers.json_stream import read_answer
from providers.quirks import Quirks, shape
from providers.redaction import redact
from providers.repairs import repairs_of
from providers.transport import Response, Transport, UpstreamErrors, default_ssl_context

_LARGEST_ERROR_BYTES = 64 * 1024
_LARGEST_ANSWER_BYTES = 128 * 1024 * 1024
_URLS_KEPT = 256  # a path may hold the model's name, and clients may name models ad hoc
_TRUE = msgspec.Raw(b"true")
_FALSE = msgspec.Raw(b"false")
_INCLUDE_USAGE = msgspec.Raw(b'{"include_usage":true}')
_COMPRESSED = {"accept-encoding": "gzip, deflate"}
_OK, _REDIRECT, _CLIENT_ERROR = 200, 300, 400

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
        ssl_context: Callable[[], ssl.SSLContext] = default_ssl_context,
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
        self._transport = Transport(headers=self._fixed_headers, ssl_context=ssl_context)
        self._url = functools.lru_cache(maxsize=_URLS_KEPT)(self._build_url)

    def __repr__(self) -> str:
        return f"OpenAICompatible({self._provider!r}, {str(self._base_url.with_user(None))!r})"

    async def stream(self, request: Request) -> Exchange:
        """Ask for a chat completion; return when the response's headers say 2xx.

        Raises:
            UpstreamError: no connection, or any other status, with its kind, message and ``retry-after``.

        """
        response = await self._transport.request(
            "POST",
            self._url("chat/completions", request.model),
            body=chat_body(request, self._quirks),
            headers=self._own_headers(request),
            connect_timeout_s=request.connect_timeout_s,
        )
        await self._raise_unless_ok(response)
        exchange = HttpExchange(response, self._secrets)
        repairs = repairs_of(self._quirks.repairs)
        return RepairedExchange(exchange, repairs) if repairs else exchange

    async def send(self, path: str, request: Request) -> Answer:
        """Post ``request`` to ``path`` (``embeddings``) and read the whole JSON answer.

        Raises:
            UpstreamError: as for ``stream``, and when the body is no JSON object, or says it is an error.

        """
        started = perf_counter()
        response = await self._transport.request(
            "POST",
            self._url(path, request.model),
            body=plain_body(request, self._quirks),
            headers={**_COMPRESSED, **(self._own_headers(request) or {})},
            connect_timeout_s=request.connect_timeout_s,
        )
        headers_ms = (perf_counter() - started) * 1000
        body = await self._read_whole(response)
        return Answer(response.status, lower_case(response), body, response.connect_ms, headers_ms)

    async def list_models(self, connect_timeout_s: float = 5.0) -> list[str]:
        """Return the names of the models the provider offers to this key.

        Raises:
            UpstreamError: as for ``send``.

        """
        response = await self._transport.request(
            "GET", self._url("models", ""), headers=_COMPRESSED, connect_timeout_s=connect_timeout_s
        )
        body = await self._read_whole(response, may_be_array=True)
        return _model_names(msgspec.json.decode(body))

    async def aclose(self) -> None:
        """Drop kept connections."""
        await self._transport.aclose()

    async def _read_whole(self, response: Response, *, may_be_array: bool = False) -> bytes:
        await self._raise_unless_ok(response)
        try:
            with UpstreamErrors():
                body = await read_body(response, _LARGEST_ANSWER_BYTES)
            if not (may_be_array and body.lstrip().startswith(b"[")):
                read_answer(body, self._secrets)
        finally:
            response.close()  # harmless after the end; anything else must not go on
        return body

    async def _raise_unless_ok(self, response: Response) -> None:
        status = response.status
        if _OK <= status < _REDIRECT:
            return
        try:
            if status < _CLIENT_ERROR:
                # Not followed: the key must not travel.
                target = redact(response.headers.get("location", "elsewhere").partition("?")[0], self._secrets)
                message = f"redirects to {target} ({status}); correct its base_url"
                raise UpstreamError(ErrorKind.INVALID_RESPONSE, message, status=status)
            body = await _read_at_most(response, _LARGEST_ERROR_BYTES)
        finally:
            response.close()
        raise error_of_response(status, lower_case(response), body, self._secrets, self._wall_clock())

    def _own_headers(self, request: Request) -> Mapping[str, str] | None:
        if not request.headers:
            return None
        return {name: value for name, value in request.headers.items() if name.lower() not in self._fixed_headers}

    def _headers(
        self, api_key: str | None, auth: Literal["bearer", "api-key"], own: Mapping[str, str]
    ) -> dict[str, str]:
        # Some gateways would compress events, and hold them back for it.
        headers = {"user-agent": "holeshot", "content-type": "application/json", "accept-encoding": "identity"}
        if api_key:
            name, value = ("api-key", api_key) if auth == "api-key" else ("authorization", f"Bearer {api_key}")
            headers[name] = value
        headers |= {name.lower(): value for name, value in own.items()}
        for name, value in headers.items():
            if not value.isprintable():
                message = (
                    f"provider {self._provider!r}: the value of header {name} holds a line break or control character"
                )
                raise ValueError(message)
        return headers

    def _build_url(self, path: str, model: str) -> URL:
        template = self._paths.get(path, path)
        filled = template.replace("{model}", quote(model, safe=""))
        url = self._base_url.joinpath(*filled.split("/"), encoded=True)
        return url.with_query({**self._base_url.query, **self._query})


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


async def _read_at_most(response: Response, limit_bytes: int) -> bytes:
    """Read the beginning of an error's body, or what there is of it before the connection breaks."""
    body = b""
    with suppress(aiohttp.ClientError, OSError):
        while len(body) < limit_bytes and (data := await response.content.readany()):
            body += data
    return body[:limit_bytes]


def _model_names(answer: Any) -> list[str]:
    """Read ``{"data": [{"id": …}]}``, or the bare list some vendors send."""
    rows = answer.get("data") if isinstance(answer, dict) else answer
    if not isinstance(rows, list):
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "its list of models is none")
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
