"""One provider that is not OpenAI-compatible, called through litellm, which is imported at its first use."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import msgspec

from providers.dialects.chat.answers import events_of_answer
from providers.dialects.chat.dialect import CHAT
from providers.dialects.dialect import Dialect
from providers.dialects.wording import Loss
from providers.error_bodies import error_of_response
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Answer, Exchange, Request
from providers.listings import Listing
from providers.litellm_exchange import DONE, PumpedExchange, event
from providers.litellm_hearing import Hearing
from providers.litellm_library import LiteLLM
from providers.shortage import is_shortage, out_of_descriptors

_EMBEDDING_FIELDS = frozenset({"dimensions", "encoding_format", "input", "user"})

# The gateway's timeouts end an attempt long before; litellm's default is 6,000 s. Litellm has a single timeout and does
# not report when it is connected, so a request's connect_timeout_s cannot be applied here.
_TIMEOUT_S = 600.0
_BAD_REQUEST = 400
_PROVIDER_HEADER = "llm_provider-"  # litellm's prefix on the provider's own headers


class LiteLLMUpstream:
    """One provider behind litellm, as an ``Upstream``. The key is in no repr, error or log."""

    accepts_all_parameters = False
    can_fetch = False
    needs_warming = True

    def __init__(
        self,
        litellm: LiteLLM,
        *,
        provider: str,
        litellm_prefix: str,  # litellm's name for the provider: anthropic, bedrock
        api_key: str | None = None,  # None: litellm finds the credentials (AWS, Google) in their usual places
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,  # sent with every request
        secrets: Sequence[str] = (),  # must not appear in messages, besides the key
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._litellm = litellm
        self._provider = provider
        self._prefix = litellm_prefix
        self._api_key = api_key
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._secrets = (*([api_key] if api_key else []), *secrets)
        self._wall_clock = wall_clock
        self._pumps: set[asyncio.Task[None]] = set()
        self._hearing = Hearing(litellm_prefix, lambda: litellm.imported)
        litellm.serves(litellm_prefix)

    def __repr__(self) -> str:
        return f"LiteLLMUpstream({self._provider!r}, {self._prefix!r})"

    async def warm_up(self) -> None:
        """Do the import and the work of the first call before a race needs them."""
        await self._litellm.warm_up()

    def losses(self, dialect: Dialect, model: str, fields: Mapping[str, msgspec.Raw]) -> Sequence[Loss]:
        """Return the losses of a request at this provider; those of its models only once litellm is imported."""
        if dialect is not CHAT:
            return (Loss("model", f"{self._provider} supports chat completions only"),)
        return self._hearing.losses(model, fields)

    async def stream(self, request: Request) -> Exchange:
        """Request a chat completion; return when litellm has the response's headers.

        Raises:
            UpstreamError: no connection, or any status but 2xx.

        """
        if request.dialect is not CHAT:
            message = f"provider {self._provider!r} supports chat completions, not {request.dialect.name}"
            raise UpstreamError(ErrorKind.NOT_FOUND, message, status=404)
        litellm = await self._module()
        self._refuse_losses(request)
        request.sendings.is_known = False
        exchange = PumpedExchange()
        arguments = self._arguments(request, self._hearing.spoken(request.model, request.fields))
        if request.upstream_stream:
            arguments |= {"stream": True, "stream_options": {"include_usage": True}}
        pump = asyncio.create_task(self._pump(litellm, arguments, exchange), name=f"litellm-{self._provider}")
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)
        exchange.owned_by(pump)
        try:
            await exchange.opened()
        except BaseException:
            exchange.abort()
            raise
        request.sendings.number, request.sendings.is_known = 1, True  # at least
        return exchange

    async def send(self, path: str, request: Request) -> Answer:
        """Request embeddings (``path`` is ``embeddings``) and return the whole answer.

        Raises:
            UpstreamError: as of ``stream``.

        """
        if path != "embeddings":
            message = f"provider {self._provider!r} answers chat completions and embeddings, not {path}"
            raise UpstreamError(ErrorKind.NOT_FOUND, message, status=404)
        litellm = await self._module()
        asked = {
            name: value
            for name, raw in request.fields.items()
            if name in _EMBEDDING_FIELDS and (value := msgspec.json.decode(raw)) is not None
        }
        started = perf_counter()
        request.sendings.is_known = False
        try:
            response = await litellm.aembedding(**self._arguments(request, asked))
        except Exception as error:  # noqa: BLE001  # litellm raises whatever its many modules raise
            raise self._error(error, opened=False) from None
        headers_ms = (perf_counter() - started) * 1000
        request.sendings.number, request.sendings.is_known = 1, True
        body = response.model_dump_json(exclude_none=True).encode()
        return Answer(200, _headers(response), body, connect_ms=None, headers_ms=headers_ms, secrets=self._secrets)

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> Answer:  # noqa: ARG002 - part of the protocol
        """Refuse: litellm only sends completions and embeddings.

        Raises:
            UpstreamError: always, not_found.

        """
        raise UpstreamError(ErrorKind.NOT_FOUND, f"provider {self._provider!r} stores nothing", status=404)

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:  # noqa: ARG002 - part of the protocol
        """Refuse: litellm lists the models of few providers only, and blocks meanwhile.

        Raises:
            UpstreamError: always, not_found.

        """
        message = f"provider {self._provider!r} is called through litellm, which does not list its models"
        raise UpstreamError(ErrorKind.NOT_FOUND, message, status=404)

    async def aclose(self) -> None:
        """Cancel all running requests, and wait for their end."""
        for pump in self._pumps:
            pump.cancel()
        if self._pumps:
            await asyncio.wait(self._pumps)

    async def _pump(self, litellm: Any, arguments: dict[str, Any], exchange: PumpedExchange) -> None:
        """Send the request, then put the answer into the exchange.

        It always waits inside litellm's own read, never for the reader of the exchange: so a cancellation is raised
        where litellm awaits the connection, which closes it at once; litellm's ``aclose`` does not. Unread data is
        kept, at most one answer.
        """
        opened = False
        try:
            response = await litellm.acompletion(**arguments)
            if (fetch := getattr(response, "fetch_stream", None)) is not None:
                await fetch()  # for some providers litellm sends the request only when the stream is read
            opened = True
            exchange.open(_headers(response))
            if arguments.get("stream"):
                async for chunk in response:
                    exchange.put(event(response, chunk))
                exchange.put(DONE)
            else:
                exchange.put(events_of_answer(response.model_dump_json().encode(), self._secrets))
            exchange.end()
        except asyncio.CancelledError:
            exchange.end(UpstreamError(ErrorKind.DISCONNECTED, "the gateway closed the connection"))
            raise
        except UpstreamError as error:
            exchange.end(error)
        except Exception as error:  # noqa: BLE001  # litellm raises whatever its many modules raise
            exchange.end(self._error(error, opened=opened))

    async def _module(self) -> Any:
        try:
            return await self._litellm.module()
        except (ImportError, OSError) as error:
            if not (is_shortage(error) or out_of_descriptors()):
                raise
            message = f"litellm could not be loaded, as the gateway's machine is short of resources ({error})"
            raise UpstreamError(ErrorKind.LOCAL_RESOURCES, message) from None

    def _refuse_losses(self, request: Request) -> None:
        """Refuse a request with losses. Before litellm is imported, the planner does not know them."""
        lost = [] if request.drop_params else self._hearing.losses(request.model, request.fields)
        if told := "; ".join(f"{loss.field} ({loss.reason})" for loss in lost if not loss.hint):
            message = f"provider {self._provider!r} does not support {told}; drop_params: true leaves it out"
            raise error_of_response(_BAD_REQUEST, {}, message.encode(), self._secrets, self._wall_clock())

    def _arguments(self, request: Request, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return litellm's keyword arguments for a request."""
        arguments = dict(asked)
        arguments |= {name: msgspec.json.decode(raw) for name, raw in request.extra_body.items()}
        arguments |= {
            "model": f"{self._prefix}/{request.model}",
            "timeout": _TIMEOUT_S,
            "num_retries": 0,
            "max_retries": 0,
            "drop_params": request.drop_params,
        }
        if self._api_key:
            arguments["api_key"] = self._api_key
        if self._base_url:
            arguments["api_base"] = self._base_url
        passed = {name: value for name, value in request.headers.items() if value.isascii()}  # others cannot be sent
        if headers := {**passed, **self._headers, **dict(request.own_headers)}:
            arguments["extra_headers"] = headers
        return arguments

    def _error(self, error: Exception, *, opened: bool) -> UpstreamError:
        from providers.litellm_errors import upstream_error  # noqa: PLC0415  # needs litellm's dependencies

        return upstream_error(error, self._secrets, self._wall_clock(), opened=opened)


def _headers(response: Any) -> dict[str, str]:
    """Return the provider's response headers that litellm passes on."""
    passed = (getattr(response, "_hidden_params", None) or {}).get("additional_headers") or {}
    return {
        str(name).lower().removeprefix(_PROVIDER_HEADER): str(value)
        for name, value in passed.items()
        if str(name).lower().startswith(_PROVIDER_HEADER)
    }
