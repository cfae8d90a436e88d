"""A provider that speaks one or more dialects over HTTP, with the quirks in its catalog row."""

import asyncio
import base64
import functools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from yarl import URL

from providers.catalog import Auth, Quirks, losses, shape
from providers.dialects import DIALECTS, PIVOT, Dialect, Loss
from providers.error_bodies import error_of_response, fewest_entries, read_answer
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Exchange, Request, UpstreamAnswer
from providers.http import ACCEPTED, Body, Client, Head, Response, TlsContexts, Versions, checked, decoded
from providers.http import Request as HttpRequest
from providers.http_exchange import HttpExchange, HttpRest, TranslatedExchange, comes_whole, read_beginning, read_body
from providers.http_exchange import masked_headers as masked
from providers.large_bodies import check_room
from providers.listings import Listing, read_pages
from providers.multipart import Steps
from providers.redaction import Fleeting, redact
from providers.sse import masked_body

# The bodies of requests to providers: the client's fields in the vendor's shape, with the deployment's own.

_TRUE = msgspec.Raw(b"true")
_FALSE = msgspec.Raw(b"false")
_INCLUDE_USAGE = msgspec.Raw(b'{"include_usage":true}')

_LARGE_BYTES = 1024 * 1024  # of a prompt: for more, the room is checked before it is copied

_options_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def streamed_body(request: Request, quirks: Quirks) -> bytes:
    """Return the body of a request for events. Only its top level is changed: messages are not parsed."""
    fields = _fields(request, quirks)
    streamed = request.upstream_stream
    fields["stream"] = _TRUE if streamed else _FALSE
    if request.dialect.requests.takes_quirks:
        if streamed and quirks.usage_option == "stream_options":
            fields["stream_options"] = _with_usage(fields.get("stream_options"))
        else:
            fields.pop("stream_options", None)
    requests = request.dialect.requests
    prompt = fields.get(requests.prompt, b"")
    if len(prompt) > _LARGE_BYTES:
        check_room(3 * len(prompt))
    return msgspec.json.encode(fields if requests.body is None else requests.body(fields))


def _fields(request: Request, quirks: Quirks) -> dict[str, msgspec.Raw]:
    requests, fields = request.dialect.requests, request.fields
    if requests.takes_quirks:
        fields = shape(fields, quirks, request.model)
    if requests.with_history is not None:
        fields = requests.with_history(fields, quirks.history).fields
    return with_own(request, fields)


def with_own(request: Request, fields: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return ``fields`` with the deployment's own fields and model."""
    return {**fields, **request.extra_body, "model": _name(request.model)}


@functools.lru_cache(maxsize=256)
def _name(model: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(model))


def _without_usage(quirks: Quirks) -> Quirks:
    return msgspec.structs.replace(quirks, usage_option="none")


async def _in_turns(steps: Steps[bytes]) -> bytes:
    """Return the result of ``steps``, each of which takes a turn of the loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            rendered: bytes = end.value
            return rendered
        await asyncio.sleep(0)


def _with_usage(options: msgspec.Raw | None) -> msgspec.Raw:
    if options is None:
        return _INCLUDE_USAGE
    try:
        merged = _options_decoder.decode(options)
    except msgspec.ValidationError:  # null, or an invalid value
        return _INCLUDE_USAGE
    return msgspec.Raw(msgspec.json.encode({**merged, "include_usage": _TRUE}))


_LARGEST_ERROR_BYTES = 64 * 1024
_LARGEST_ANSWER_BYTES = 128 * 1024 * 1024
_HEADS_KEPT = 256  # a path may contain the model's name, and clients may name any model
_COMPRESSED = {"accept-encoding": ACCEPTED}
_NO_QUERY: Mapping[str, str] = {}
_QUERIES = {dialect.name: dialect.query for dialect in DIALECTS.values()}
_CONNECT_S = 5.0
_SUCCESS = range(200, 300)
_CLIENT_ERROR = 400
_NO_SUCH_PATH = frozenset({404, 405})
_NOT_OFFERED = frozenset({405, 501})  # llama.cpp and others, for an API that the server or its model does not have
_VERSION = re.compile(r"/v\d")
# What vendors say with 400 where others answer 404: DeepSeek, SiliconFlow, Mistral, Perplexity, Groq, OpenRouter.
_UNKNOWN_MODEL = re.compile(
    r"Model (?:Not Exist|does not exist)|Invalid model(?:: | ')|The model \S+ has been decommissioned"
    r"|(?P<id>\S+) is not a valid model ID"
)
# What chat templates, and vendors that use them, say of a history that they do not take: of its roles, or of a list of
# texts in place of a text (github.com/Gitlawb/openclaude/issues/774, kvcache-ai/ktransformers/issues/773,
# router-for-me/CLIProxyAPI/issues/4737, theroyallab/tabbyAPI/issues/117, read on 2026-11-27).
_OF_HISTORY = re.compile(
    r"roles? must alternate|unexpected (message )?role|system message must be|only .{0,60}roles are supported"
    r"|(invalid|unknown|unsupported).{0,20}\brole\b|role.{0,40}(not supported|is invalid|must be one of)"
    r"|invalid type: sequence, expected a string|input should be a valid string"
    r"|untagged enum \w*MessageContent|content.{0,20} must be a string",
    re.IGNORECASE,
)
# And of ``stream_options``, without which they send no usage, or send it all the same
# (github.com/earendil-works/pi/pull/596, anomalyco/opencode/pull/35446, openkursar/hello-halo/issues/237, likewise).
_OF_USAGE = re.compile(r"stream_options|include_usage", re.IGNORECASE)


class _Form(NamedTuple):
    """How much less than its vendor's rules allow a request has: what its model refused is not in it."""

    is_strict: bool  # in the strictest order of roles, with plain texts
    is_without_usage: bool


class StrictModels(set[str]):
    """The models of one provider, with any of its keys, that refused the order or the names of roles.

    ``on_found`` is called with each, once: it is asked in the strictest order from then on.
    """

    def __init__(self, on_found: Callable[[str], object]) -> None:
        super().__init__()
        self.without_usage: set[str] = set()  # those that refused to be asked for usage
        self._on_found = on_found

    def add(self, model: str) -> None:
        """Note a model that refused a conversation, and has answered it in the strictest order."""
        if model not in self:
            super().add(model)
            self._on_found(model)

    def note(self, model: str, form: "_Form") -> None:
        """Note the form that a model has answered, after it refused another."""
        if form.is_strict:
            self.add(model)
        if form.is_without_usage:
            self.without_usage.add(model)


class HttpUpstream:
    """One provider's ``Upstream``. It connects at the first request; the key is in no repr, error or log."""

    can_fetch = True
    needs_warming = False

    def __init__(
        self,
        *,
        provider: str,
        base_url: str,
        api_key: str | None,
        auth: Auth = "bearer",
        headers: Mapping[str, str] | None = None,  # sent with every request; the client's do not replace them
        query: Mapping[str, str] | None = None,  # Azure's api-version
        chat_path: str = PIVOT.path,  # may contain {model}
        embeddings_path: str = "embeddings",
        models_path: str = "models",
        quirks: Quirks | None = None,
        secrets: Sequence[str] = (),  # must not appear in messages, besides the key
        versions: Versions = "auto",
        tls: TlsContexts | None = None,
        is_own_url: bool = False,  # set by the operator, so it may have a typing error
        strict: StrictModels | None = None,  # shared by the upstreams of a provider's keys
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.accepts_all_parameters = quirks is None or not (quirks.drop or quirks.history.tells)
        self._provider = provider
        self._base_url = URL(base_url)
        if self._base_url.user is not None and api_key:
            raise ValueError(
                f"provider {provider!r}: base_url names a user and there is an api_key; keep one of the two"
            )
        self._query = dict(query or {})
        self._paths = {
            **{dialect.name: dialect.path for dialect in DIALECTS.values()},
            PIVOT.name: chat_path,
            "embeddings": embeddings_path,
            "models": models_path,
        }
        self._quirks = quirks or Quirks()
        history = self._quirks.history
        self._strictest = msgspec.structs.replace(self._quirks, system_role=True, history=history.strictest())
        self._strict = StrictModels(lambda _: None) if strict is None else strict
        self._other_secrets = tuple(secrets)
        known = (*([api_key] if api_key else []), *secrets)
        self._secrets = Fleeting(known) if type(secrets) is Fleeting else known
        self._is_own_url = is_own_url
        self._wall_clock = wall_clock
        self._fixed_headers = self._headers(api_key, auth, headers or {})
        self._client = Client(self._base_url, headers=self._fixed_headers, versions=versions, tls=tls)
        self._head = functools.lru_cache(maxsize=_HEADS_KEPT)(self._build_head)

    def __repr__(self) -> str:
        return f"HttpUpstream({self._provider!r}, {str(self._base_url.with_user(None))!r})"

    def use_key(self, key: str) -> None:
        """Send another key from now on, in ``authorization``."""
        self._secrets = (key, *self._other_secrets)
        self._fixed_headers = {**self._fixed_headers, "authorization": f"Bearer {key}"}
        self._client.use_headers(self._fixed_headers)
        self._head.cache_clear()

    async def warm_up(self) -> None:
        """Do nothing: there is nothing to prepare."""

    async def stream(self, request: Request) -> Exchange:
        """Request an answer in events; return when the response's headers have arrived with a status of 2xx.

        Raises:
            UpstreamError: no connection, or any other status, with its kind, message and ``retry-after``.

        """
        dialect = request.dialect
        head = self._head("POST", dialect.name, request.model, packed=False, own=request.own_headers)
        response = await self._accepted(head, request)
        exchange = HttpExchange(response, self._secrets, dialect.answers.events_of_answer)
        repaired = dialect.answers.repairs
        repairs = repaired(self._quirks.repairs) if repaired is not None else ()
        return TranslatedExchange(exchange, repairs) if repairs else exchange

    def losses(self, dialect: Dialect, model: str, fields: Mapping[str, msgspec.Raw]) -> Sequence[Loss]:
        """Return the parts of a request that this vendor would refuse."""
        requests = dialect.requests
        quirks = self._quirks_of(model)
        lost = losses(fields, quirks) if requests.takes_quirks else ()
        if requests.with_history is not None:
            lost += requests.with_history(fields, quirks.history).losses
        return lost

    def _quirks_of(self, model: str) -> Quirks:
        return self._strictest if model in self._strict else self._quirks

    async def _accepted(self, head: Head, request: Request) -> Body:
        """Return the response to ``request``, which is asked again in a stricter form where it was refused for that."""
        form = known = self._form_for(request)
        body = self._body_in(form, request)
        while True:
            try:
                response = await self._ask(head, request.dialect.name, request, body)
            except UpstreamError as error:
                refused, form = form, self._stricter(form, request, error)
                if form == refused:  # as nearly always: the body is not made again
                    raise
                before, body = body, self._body_in(form, request)
                if body == before:
                    raise
            else:
                if form != known:
                    self._strict.note(request.model, form)
                return response

    def _form_for(self, request: Request) -> "_Form":
        """Return the form that the model of ``request`` is known to take. What its client asked for stays."""
        strict, model = self._strict, request.model
        return _Form(model in strict, model in strict.without_usage and "stream_options" not in request.fields)

    def _body_in(self, form: "_Form", request: Request) -> bytes:
        quirks = self._strictest if form.is_strict else self._quirks
        return streamed_body(request, _without_usage(quirks) if form.is_without_usage else quirks)

    def _stricter(self, form: "_Form", request: Request, error: UpstreamError) -> "_Form":
        """Return a form that should be accepted where ``form`` was refused; the same if there is none.

        Also if the request may not be sent again.
        """
        if error.kind is not ErrorKind.BAD_REQUEST or request.once:
            return form
        is_of_history = _OF_HISTORY.search(error.message) is not None
        is_of_usage = _OF_USAGE.search(error.message) is not None and "stream_options" not in request.fields
        return _Form(form.is_strict or is_of_history, form.is_without_usage or is_of_usage)

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        """Post ``request`` to ``path`` (``embeddings``, ``audio/speech``); return its answer once it has begun.

        Raises:
            UpstreamError: as of ``stream``; or the answer is an error, or not one of the API at ``path``.

        """
        started = perf_counter()
        form = request.form
        packed = comes_whole(path)
        if form is None:
            head = self._head("POST", path, request.model, packed=packed, own=request.own_headers)
            fields = with_own(request, request.fields)
            if "{model}" in path or not request.model:
                del fields["model"]
            body = msgspec.json.encode(fields)
        else:
            own = (*request.own_headers, ("content-type", form.content_type))
            head = self._build_head("POST", path, request.model, packed=packed, own=own)
            body = await _in_turns(form.rendering_steps(request.model, request.extra_body))
        response = await self._ask(head, path, request, body)
        headers_ms = (perf_counter() - started) * 1000
        rest: HttpRest | None = None
        try:
            fewest = fewest_entries(path, {**request.fields, **request.extra_body})
            beginning, rest = await read_beginning(path, response, self._secrets, fewest)
        except UpstreamError as error:
            error.status = error.status or response.status
            raise
        finally:
            if rest is None:
                response.abort()  # without effect after the end; otherwise the provider must stop
        headers = masked(response.headers, self._secrets, relayed=True)
        return UpstreamAnswer(response.status, headers, beginning, response.connect_ms, headers_ms, rest, self._secrets)

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:
        """Send a request without a body to ``path``, and return the whole JSON answer.

        Raises:
            UpstreamError: as of ``send``.

        """
        started = perf_counter()
        head = self._build_head(method, path, "", packed=True, query=query)
        body = None if method in {"GET", "DELETE"} else b""
        response = await self._checked(await self._client.send(HttpRequest(head, (), body), _CONNECT_S))
        headers_ms = (perf_counter() - started) * 1000
        answer = masked_body(await self._read_whole(response), self._secrets)
        headers = masked(response.headers, self._secrets, relayed=True)
        return UpstreamAnswer(response.status, headers, answer, response.connect_ms, headers_ms)

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:
        """Return the models that the provider offers to this key, from all pages of its list.

        Raises:
            UpstreamError: as of ``send``; or a body is not a list of models.

        """

        async def read_page(query: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
            head = self._build_head("GET", "models", "", packed=True, query=[*query.items()])
            response = await self._checked(await self._client.send(HttpRequest(head, (), None), connect_timeout_s))
            return await self._read_whole(response, may_be_array=True), response.headers

        try:
            return await read_pages(read_page)
        except UpstreamError as error:
            self._name_url(error, "models", "")
            raise

    async def aclose(self) -> None:
        """Close kept connections."""
        await self._client.aclose()

    async def _ask(self, head: Head, path: str, request: Request, body: bytes) -> Body:
        fixed = {**self._fixed_headers, **dict(request.own_headers)} if request.own_headers else self._fixed_headers
        asked = {name: value for name, value in request.headers.items() if name.lower() not in fixed}
        sendings = request.sendings
        sendings.number = 0  # it may have counted a refused request with another key
        sent = HttpRequest(head, checked(asked) if asked else (), body, once=request.once, sendings=sendings)
        response = await self._client.send(sent, request.connect_timeout_s)
        try:
            return await self._checked(response)
        except UpstreamError as error:
            if error.kind is ErrorKind.BAD_REQUEST and _knows_no(request.model, error):
                error.kind, error.body = ErrorKind.NOT_FOUND, None
            if path != PIVOT.name and _lacks_api(error):
                error.kind = ErrorKind.NO_SUCH_API  # the model may still work in chat
            self._name_url(error, path, request.model)
            raise

    def _name_url(self, error: UpstreamError, path: str, model: str) -> None:
        """Note the requested URL at an error that may be about the path, so that the operator sees a wrong base URL."""
        if error.status not in _NO_SUCH_PATH or _names_model(error):
            return
        url = self._url(path, model).with_user(None).with_query(None)
        lacks_version = self._is_own_url and _VERSION.search(self._base_url.path) is None
        hint = "; is /v1 missing at the end of its base_url?" if lacks_version else ""
        error.noted(redact(f" (asked was {url}{hint})", self._secrets))

    async def _checked(self, response: Response) -> Body:
        """Return a response's body if its status is 2xx; raise its error otherwise."""
        try:
            if response.status in _SUCCESS:
                return decoded(response)
            refusal = await self._refusal(response)
        except BaseException:
            response.abort()
            raise
        response.abort()
        raise refusal

    async def _refusal(self, response: Response) -> UpstreamError:
        status = response.status
        if status < _CLIENT_ERROR:
            # Not followed: the key must not be sent elsewhere.
            target = redact(response.headers.get("location", "elsewhere").partition("?")[0], self._secrets)
            told = f"redirects to {target} ({status}); correct its base_url"
            caller = f"redirects elsewhere ({status})"
            return UpstreamError(
                ErrorKind.INVALID_RESPONSE, told, status=status, caller=caller, words=told, brief=caller
            )
        body = await _read_at_most(response, _LARGEST_ERROR_BYTES)
        return error_of_response(status, response.headers, body, self._secrets, self._wall_clock())

    async def _read_whole(self, response: Body, *, may_be_array: bool = False) -> bytes:
        try:
            body = await read_body(response, _LARGEST_ANSWER_BYTES)
            if not (may_be_array and body.lstrip().startswith(b"[")):
                read_answer(body, self._secrets)
        finally:
            response.abort()  # without effect after the end; otherwise the provider must stop
        return body

    def _headers(self, api_key: str | None, auth: Auth, own: Mapping[str, str]) -> dict[str, str]:
        # Some gateways would compress events, and buffer them for that.
        headers = {"user-agent": "holeshot", "content-type": "application/json", "accept-encoding": "identity"}
        if api_key:
            if auth == "bearer":
                headers["authorization"] = f"Bearer {api_key}"
            else:
                headers[auth] = api_key
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

    def _build_head(
        self,
        method: str,
        path: str,
        model: str,
        *,
        packed: bool,
        query: Sequence[tuple[str, str]] = (),
        own: tuple[tuple[str, str], ...] = (),
    ) -> Head:
        """Return the head of requests to ``path``; ``packed``: the answer may be compressed.

        The fields ``own`` replace the provider's, as do those of ``query``, in which a name may be repeated.
        """
        own_query = _QUERIES.get(path, _NO_QUERY)
        names = {name for name, _ in query}
        kept = {**self._base_url.query, **self._query, **own_query}.items()
        url = self._url(path, model).with_query([*((name, said) for name, said in kept if name not in names), *query])
        headers = {**_COMPRESSED, **dict(own)} if packed else dict(own)
        return self._client.head(method, url.raw_path_qs, headers)

    def _url(self, path: str, model: str) -> URL:
        filled = self._paths.get(path, path).replace("{model}", quote(model, safe=""))
        return self._base_url.joinpath(*filled.split("/"), encoded=True)


def _lacks_api(error: UpstreamError) -> bool:
    """Whether an error says that there is no such API, and nothing of the server or the model."""
    if error.kind is ErrorKind.NOT_FOUND:
        return not _names_model(error)
    return error.kind is ErrorKind.SERVER_ERROR and error.status in _NOT_OFFERED


def _knows_no(model: str, error: UpstreamError) -> bool:
    """Whether an error with 400 says that there is no such model; clients of OpenRouter may name others beside it."""
    found = _UNKNOWN_MODEL.match(error.message)
    return found is not None and found["id"] in {None, model}


def _names_model(error: UpstreamError) -> bool:
    """Whether a 404 is about the model, and not about the path. OpenRouter says that a model has no endpoints."""
    return "model" in error.message.lower() or error.message.startswith("No endpoints found")


async def _read_at_most(response: Response, limit_bytes: int) -> bytes:
    """Read the beginning of an error's body; it ends where it cannot be read: the status says enough."""
    body = b""
    with suppress(UpstreamError):
        readable = decoded(response)
        while len(body) < limit_bytes and (data := await readable.read()):
            body += data
    return body[:limit_bytes]
