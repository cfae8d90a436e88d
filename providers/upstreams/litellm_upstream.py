"""One provider that is not OpenAI-compatible, called through litellm. litellm is imported at the first call."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import msgspec

from providers.bodies import encoded
from providers.dialects import CHAT, Dialect, Loss, events_of_answer, raw_json
from providers.exchange import Exchange, FormRequest, Request, UpstreamAnswer, VendorsWords, adapted, learn, taken
from providers.models import Listing
from providers.refusals import (
    ErrorKind,
    Facts,
    LearntFacts,
    UpstreamError,
    error_of_response,
    is_shortage,
    out_of_descriptors,
)
from providers.upstreams.litellm_library import LiteLLM
from providers.vendors import demanded

# One answer from litellm as an ``Exchange``: its chunks as OpenAI's events, passed from one task to another.

DONE = b"data: [DONE]\n\n"


class PumpedExchange:
    """An ``Exchange`` that the task fills which reads litellm's stream."""

    finishing = False  # ends are passed on as they arrive
    usage_so_far = None  # no usage is kept back

    def __init__(self) -> None:
        self.status = 200
        self.secrets: Sequence[str] = ()  # errors from litellm have been redacted already
        self.headers: Mapping[str, str] = {}
        self.connect_ms: float | None = None  # litellm does not report the time
        self._pump: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()
        self._arrived = asyncio.Event()
        self._blocks: list[bytes] = []
        self._ended = False
        self._error: UpstreamError | None = None

    @property
    def ended(self) -> bool:
        """Whether the provider has sent everything."""
        return self._ended

    async def read(self) -> bytes:
        """Return everything since the last read, waiting if there is nothing; ``b""`` at the end."""
        try:
            await self._arrived.wait()
        except asyncio.CancelledError:
            self.abort()
            raise
        block = b"".join(self._blocks)
        self._blocks.clear()
        if not self._ended:
            self._arrived.clear()
        if not block and self._error is not None:
            raise self._error
        return block

    def conclude(self) -> bytes:
        """Return nothing: no end is held back."""
        return b""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Do nothing: litellm's own cost per chunk is a hundred times that of waking a task."""

    def abort(self) -> None:
        """Cancel the reading task, which closes the connection; without effect after the end or an abort."""
        if self._pump is not None:
            self._pump.cancel()
        self._blocks.clear()
        self.end()

    async def opened(self) -> None:
        """Wait for the response's headers.

        Raises:
            UpstreamError: no response.

        """
        await self._opened.wait()
        if self._error is not None and not self._blocks:
            raise self._error

    def owned_by(self, pump: asyncio.Task[None]) -> None:
        """Set the task that fills this exchange; cancelling it closes the connection."""
        self._pump = pump

    def open(self, headers: Mapping[str, str]) -> None:
        """Note that the response has begun."""
        self.headers = headers
        self._opened.set()

    def put(self, block: bytes) -> None:
        """Add bytes of the event stream. Empty ones are ignored: they would be the end for the reader."""
        if block:
            self._blocks.append(block)
            self._arrived.set()

    def end(self, error: UpstreamError | None = None) -> None:
        """Note the end of the stream; the bytes before it can still be read."""
        if self._ended:
            return
        self._ended = True
        self._error = error
        self._opened.set()
        self._arrived.set()


def event(response: Any, chunk: Any) -> bytes:
    """Return one of litellm's chunks as an event, without litellm's own additions.

    Litellm adds an empty choice and a price to usage, and sends usage even if the provider did not. At the end of every
    stream it sends a finish reason, however the stream ended.

    Raises:
        UpstreamError: the provider's stream ended without a finish reason.

    """
    data = chunk.model_dump(mode="json", exclude_none=True)
    choices = data.get("choices", ())
    if any(choice.get("finish_reason") for choice in choices) and not _finished(response):
        raise UpstreamError(ErrorKind.UPSTREAM_TRUNCATED, "the answer ended without a finish reason")
    if (usage := data.get("usage")) is not None:
        if not any(getattr(part, "usage", None) for part in getattr(response, "chunks", None) or (chunk,)):
            del data["usage"]
        else:
            usage.pop("cost", None)
        if all(not choice.get("delta") and not choice.get("finish_reason") for choice in choices):
            data["choices"] = []
            if "usage" not in data:
                return b""
    try:
        return b"data: " + encoded(data) + b"\n\n"
    except UnicodeEncodeError:  # half a character, as JSON writes such; the next event may have the other half
        return b"data: " + json.dumps(data).encode() + b"\n\n"


def _finished(response: Any) -> bool:
    """Whether the provider has sent a finish reason; assumed if litellm does not track finish reasons."""
    names = ("received_finish_reason", "intermittent_finish_reason")
    return any(getattr(response, name, "") is not None for name in names)


# The parts of a chat request that reach a model behind litellm: fields that litellm accepts and the model supports.

# Fields that a client may set. Litellm's own parameters, such as addresses and credentials, are keywords too: only the
# configuration can set these (``extra_body``).
_CHAT_FIELDS = frozenset({
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "modalities",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
})  # fmt: skip
_OURS = frozenset({"model", "stream", "stream_options"})  # set by the exchange itself
_UNLISTED = frozenset({"messages", "top_k"})  # supported, but not in litellm's lists
# The API's defaults: a field with its default value is not a loss.
_DEFAULTS: Mapping[str, Any] = {
    "frequency_penalty": 0,
    "function_call": "auto",
    "functions": [],
    "logit_bias": {},
    "logprobs": False,
    "metadata": {},
    "modalities": ["text"],
    "n": 1,
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "response_format": {"type": "text"},
    "service_tier": "auto",
    "stop": [],
    "store": False,
    "temperature": 1,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1,
    "verbosity": "medium",
}
_LONGEST_DEFAULT_BYTES = 32
_MARKER = b'"cache_control"'
_KEEP_MARKERS = frozenset({"anthropic", "bedrock", "databricks", "gemini", "vertex_ai"})
_MOST_MODELS = 1000  # clients may name any model; beyond so many, the cache is cleared


class SupportedFields:
    """The fields that the models of one provider support according to litellm, once litellm is imported."""

    def __init__(self, prefix: str, imported: Callable[[], Any | None]) -> None:
        self._prefix = prefix
        self._imported = imported  # the litellm module, None until the import
        self._lists: dict[str, frozenset[str] | None] = {}

    def losses(self, model: str, fields: Mapping[str, msgspec.Raw]) -> tuple[Loss, ...]:
        """Return the losses among ``fields``, in their order."""
        lost = []
        for name, raw in fields.items():
            if name in _OURS or _says_nothing(name, raw):
                continue
            if name not in _CHAT_FIELDS:
                lost.append(Loss(name, "litellm does not support it"))
            elif not self._takes(model, name):
                lost.append(Loss(name, f"litellm does not support it for {model}"))
        if self._prefix not in _KEEP_MARKERS and _MARKER in bytes(fields.get("messages", b"")):
            lost.append(Loss("messages[].content[].cache_control", "the provider has no cache markers", hint=True))
        return tuple(lost)

    def spoken(
        self, model: str, fields: Mapping[str, msgspec.Raw], unchosen: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        """Return the decoded fields for litellm, without defaults that litellm would refuse."""
        spoken = {}
        for name, raw in fields.items():
            if name not in _CHAT_FIELDS or bytes(raw) == b"null":
                continue
            listed = self._list(model)
            if listed is None or name in listed or name in _UNLISTED:
                spoken[name] = msgspec.json.decode(raw)
            elif name == "max_completion_tokens" and "max_tokens" in listed:
                spoken["max_tokens"] = msgspec.json.decode(raw)  # the field's older name
            elif not _says_nothing(name, raw) and demanded([Loss(name, "")], fields, unchosen):
                spoken[name] = msgspec.json.decode(raw)  # litellm refuses the field, or drops it if allowed
        return spoken

    def _takes(self, model: str, name: str) -> bool:
        listed = self._list(model)
        if listed is None or name in listed or name in _UNLISTED:
            return True
        return name == "max_completion_tokens" and "max_tokens" in listed

    def _list(self, model: str) -> frozenset[str] | None:
        """Return the names of a model's parameters according to litellm, None if unknown."""
        litellm = self._imported()
        if litellm is None:
            return None
        if model not in self._lists:
            if len(self._lists) >= _MOST_MODELS:
                self._lists.clear()
            try:
                names = litellm.get_supported_openai_params(model, custom_llm_provider=self._prefix)
            except Exception:  # noqa: BLE001  # litellm raises whatever its many modules raise
                names = None
            self._lists[model] = None if names is None else frozenset(names)
        return self._lists[model]


def _says_nothing(name: str, raw: msgspec.Raw) -> bool:
    """Whether a field is null or has its default value."""
    text = bytes(raw)
    if text == b"null":
        return True
    if len(text) > _LONGEST_DEFAULT_BYTES or name not in _DEFAULTS:
        return False
    value, default = msgspec.json.decode(text), _DEFAULTS[name]
    return bool(value == default) and isinstance(value, bool) == isinstance(default, bool)


_EMBEDDING_FIELDS = frozenset({"dimensions", "encoding_format", "input", "user"})

# The gateway's timeouts end an attempt long before; litellm's default is 6,000 s. Litellm has a single timeout and does
# not report when it is connected, so a request's connect_timeout_s cannot be applied here.
_TIMEOUT_S = 600.0
_BAD_REQUEST = 400
_OWN_ARGUMENTS = frozenset(  # litellm's arguments
    {"api_base", "api_key", "extra_headers", "max_retries", "model", "num_retries", "timeout"}
)
_PROVIDER_HEADER = "llm_provider-"  # litellm's prefix on the provider's own headers


class LiteLLMUpstream:
    """One provider behind litellm, as an ``Upstream``. The key is in no repr, error or log."""

    accepts_all_parameters = False
    refused_fields = frozenset[str]()
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
        learnt: LearntFacts | None = None,  # shared by the upstreams of a provider's keys
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._litellm = litellm
        self.learnt = LearntFacts() if learnt is None else learnt
        self._provider = provider
        self._prefix = litellm_prefix
        self._api_key = api_key
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._secrets = (*([api_key] if api_key else []), *secrets)
        self._wall_clock = wall_clock
        self._pumps: set[asyncio.Task[None]] = set()
        self._supported = SupportedFields(litellm_prefix, lambda: litellm.imported)
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
        return self._supported.losses(model, fields)

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
        asked = FormRequest(request, CHAT.name, CHAT.requests)
        return await taken(
            self.learnt,
            asked,
            say=lambda facts: adapted(request.fields, facts, asked),
            ask=lambda sent: self._opened(litellm, msgspec.structs.replace(sent.of(request), fields=sent.fields)),
        )

    def connect(self) -> None:
        """Do nothing: litellm makes its own connections."""

    def learn(self, request: Request, error: UpstreamError) -> Facts:
        """Return what an ``error`` within an answer that had not begun teaches about the model."""
        asked = FormRequest(request, CHAT.name, CHAT.requests)
        return learn(self.learnt, asked, error, lambda facts: adapted(request.fields, facts, asked))

    async def _opened(self, litellm: Any, request: Request) -> Exchange:
        """Return the exchange of a request in one form, when litellm has the response's headers."""
        request.sendings.is_known = False
        exchange = PumpedExchange()
        arguments = self._arguments(request, self._supported.spoken(request.model, request.fields, request.unchosen))
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
        request.sendings.number += 1  # at least
        request.sendings.is_known = True
        return exchange

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
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
        arguments = self._arguments(request, asked)
        try:
            response = await litellm.aembedding(**arguments)
        except Exception as error:  # noqa: BLE001  # litellm raises whatever its many modules raise
            raise self._error(error, arguments, opened=False) from None
        headers_ms = (perf_counter() - started) * 1000
        request.sendings.number += 1
        request.sendings.is_known = True
        body = response.model_dump_json(exclude_none=True).encode()
        return UpstreamAnswer(
            200, _headers(response), body, connect_ms=None, headers_ms=headers_ms, secrets=self._secrets
        )

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:  # noqa: ARG002 - part of the protocol
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
        """Cancel all running requests; wait until they have ended."""
        for pump in self._pumps:
            pump.cancel()
        if self._pumps:
            await asyncio.wait(self._pumps)

    async def _pump(self, litellm: Any, arguments: dict[str, Any], exchange: PumpedExchange) -> None:
        """Send the request, then put the answer into the exchange.

        This always waits inside litellm's own read, never for the reader of the exchange. So a cancellation is raised
        where litellm awaits the connection, which closes the connection at once; litellm's ``aclose`` does not. At most
        one answer is kept unread.
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
            exchange.end(self._error(error, arguments, opened=opened))

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
        lost = [] if request.drop_params else self._supported.losses(request.model, request.fields)
        if told := "; ".join(
            f"{loss.field} ({loss.reason})" for loss in demanded(lost, request.fields, request.unchosen)
        ):
            message = f"provider {self._provider!r} does not support {told}; drop_params: true leaves it out"
            own = VendorsWords(request.fields)
            raise error_of_response(_BAD_REQUEST, {}, message.encode(), self._secrets, self._wall_clock(), own=own)

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

    def _error(self, error: Exception, arguments: Mapping[str, Any], *, opened: bool) -> UpstreamError:
        from providers.upstreams.litellm_errors import upstream_error  # noqa: PLC0415  # needs litellm's dependencies

        own = VendorsWords({name: raw_json(said) for name, said in arguments.items() if name not in _OWN_ARGUMENTS})
        return upstream_error(error, self._secrets, self._wall_clock(), own, opened=opened)


def _headers(response: Any) -> dict[str, str]:
    """Return the provider's response headers that litellm passes on."""
    passed = (getattr(response, "_hidden_params", None) or {}).get("additional_headers") or {}
    return {
        str(name).lower().removeprefix(_PROVIDER_HEADER): str(value)
        for name, value in passed.items()
        if str(name).lower().startswith(_PROVIDER_HEADER)
    }
