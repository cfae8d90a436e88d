"""A provider that speaks one or more dialects over HTTP, with the quirks in its vendor's row of the catalog."""

import asyncio
import base64
import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from time import perf_counter
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from yarl import URL

from providers.bodies import check_room, encoded, masked_body, raw_json
from providers.dialects import (
    DIALECTS,
    PIVOT,
    Dialect,
    Loss,
    OmissibleFields,
    ParameterNames,
    RequestFormat,
    stands,
)
from providers.exchange import NAMES as BETAS
from providers.exchange import (
    Exchange,
    Fields,
    FormRequest,
    HttpExchange,
    HttpRest,
    Request,
    SentFields,
    Steps,
    TranslatedExchange,
    UpstreamAnswer,
    VendorsWords,
    adapted,
    answered,
    comes_whole,
    events_to_come,
    known_of,
    learn,
    mark,
    may_teach,
    quotable,
    read_beginning,
    read_body,
    refused,
    taken,
    with_strict,
    without_refused,
)
from providers.exchange import masked_headers as masked
from providers.http import (
    ACCEPTED,
    ALONE,
    Body,
    Connecting,
    Head,
    HttpClient,
    HttpRequest,
    Response,
    checked,
    decoded,
)
from providers.models import Listing, read_pages
from providers.refusals import (
    LARGEST_REQUEST_BYTES,
    NOTHING,
    ClientSecrets,
    ErrorKind,
    Facts,
    LearntFacts,
    MaskedRecord,
    UpstreamError,
    decide_by_request,
    error_of_response,
    fewest_entries,
    names_model,
    read_answer,
    redact,
)
from providers.vendors import Auth, Quirks, ignored, is_plain, losses, shape

# The bodies of requests to providers: the client's fields in the vendor's shape, with the deployment's own.

_TRUE = msgspec.Raw(b"true")
_FALSE = msgspec.Raw(b"false")
_INCLUDE_USAGE = msgspec.Raw(b'{"include_usage":true}')

_encode_into = msgspec.json.Encoder().encode_into
_LARGE_BYTES = 1024 * 1024  # of a prompt: before a longer one is copied, the free memory is checked

_options_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def streamed_body(request: Request, quirks: Quirks) -> bytes:
    """Return the body of a request for events. Only the top level is changed: messages are not parsed."""
    return _encoded(request, _said(request, quirks, NOTHING).fields)


def _said(request: Request, quirks: Quirks, facts: Facts, *, as_it_is: bool = False) -> SentFields:
    """Return the fields of a request for events, in the form that ``facts`` about its model demand.

    ``as_it_is``: no quirk changes any field.
    """
    told: tuple[Loss, ...] = ()
    vendors, fields = request.dialect.requests.vendors, request.fields
    if facts or not as_it_is:
        quirks = with_strict(quirks, facts) if facts else quirks
        if vendors.takes_quirks:
            fields = shape(fields, quirks, request.model)
            if request.may_have_refused and quirks.refused_members and stands(quirks.refused_members, fields):
                fields = without_refused(fields, quirks.refused_members).fields
        elif dropped := quirks.drop_in.get(request.dialect.name):
            fields = {name: value for name, value in fields.items() if name not in dropped}
        if quirks.least_answers:
            limits = request.dialect.requests.parameters.answer_limits
            facts = (*facts, *quirks.too_short(request.dialect.name, limits, fields))
        if vendors.with_history is not None:
            wording = vendors.with_history(fields, quirks.history)
            fields, told = wording.fields, wording.losses
    said = {**fields, **request.extra_body, "model": _name(request.model)}  # ``with_own``, inlined
    streamed = request.upstream_stream
    said["stream"] = _TRUE if streamed else _FALSE
    if vendors.takes_quirks:
        if streamed and quirks.usage_option == "stream_options":
            options = said.get("stream_options")
            said["stream_options"] = _INCLUDE_USAGE if options is None else _with_usage(options)
        else:
            said.pop("stream_options", None)
    if not facts:  # as nearly always
        return SentFields(said)
    sent = adapted(said, facts, FormRequest(request, request.dialect.name, request.dialect.requests, quirks.rename))
    return sent._replace(told=(*(loss.field for loss in told if not loss.kept), *sent.told))


def _encoded(request: Request, fields: Fields) -> bytes:
    requests = request.dialect.requests
    prompt = fields.get(requests.prompt, b"")
    if len(prompt) > _LARGE_BYTES:
        check_room(3 * len(prompt))
    buffer = bytearray()  # ``encoded``, inlined
    _encode_into(fields if requests.body is None else requests.body(fields), buffer)
    return bytes(buffer)


def with_own(request: Request, fields: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return ``fields`` with the deployment's own fields and model."""
    return {**fields, **request.extra_body, "model": _name(request.model)}


@functools.lru_cache(maxsize=256)
def _name(model: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(model))


async def _in_turns(steps: Steps[bytes]) -> bytes:
    """Return the result of ``steps``. Each step takes a turn of the loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            rendered: bytes = end.value
            return rendered
        await asyncio.sleep(0)


def _with_usage(options: msgspec.Raw) -> msgspec.Raw:
    try:
        merged = _options_decoder.decode(options)
    except msgspec.ValidationError:  # null, or an invalid value
        return _INCLUDE_USAGE
    return raw_json({**merged, "include_usage": _TRUE})


# APIs that are not raced: nothing may be left out but the name of the end user.
_NOT_RACED = RequestFormat(
    prompt="input",
    reading_order=("input",),
    parameters=ParameterNames(answer_limits=()),
    omissible=OmissibleFields(fields=frozenset({"prompt_cache_key", "user"})),
)
# The new metadata of a conversation are all that such a request says: without them nothing would change.
_CHANGES = msgspec.structs.replace(_NOT_RACED, prompt="metadata", reading_order=("metadata",))
_CONVERSATION = "conversations/"  # of one: changed, or given items
_LARGEST_ERROR_BYTES = 64 * 1024
_LARGEST_ANSWER_BYTES = 128 * 1024 * 1024
_HEADS_KEPT = 256  # a path may contain the model's name, and clients may name any model
_COMPRESSED = {"accept-encoding": ACCEPTED}
_NO_QUERY: Mapping[str, str] = {}
_QUERIES = {dialect.name: dialect.query for dialect in DIALECTS.values()}
_CONNECT_S = 5.0
_SUCCESS = range(200, 300)
_CLIENT_ERROR = 400
_NOT_FOUND = 404
_NO_SUCH_PATH = frozenset({404, 405})
_VERSION = re.compile(r"/v\d")
# Azure answers so for models and APIs that are newer than its last version without "preview".
_NEWER = re.compile(r"enabled only for api.versions? (\d{4}-\d\d-\d\d(?:-preview)?) and later")

# APIs whose answers cost little and change nothing: after an error with status 200 these may be asked again. Such an
# error of another API may stand for an answer that was made, and is billed.
_ONLY_SAY = frozenset({"decisions", "embeddings", "moderations", "rerank"})


class _Begun(NamedTuple):
    """An answer that is not raced: when its headers came, the whole body or its beginning, and the rest."""

    response: Body
    at: float
    beginning: bytes
    rest: HttpRest | None


class Server(MaskedRecord, frozen=True):
    """Where and how a provider is asked: what the vendor's row and the operator say of the server."""

    provider: str
    base_url: str
    auth: Auth = "bearer"
    headers: Mapping[str, str] = {}  # sent with every request; the client's headers do not replace these
    query: Mapping[str, str] = {}  # Azure's api-version
    chat_path: str = PIVOT.path  # may contain {model}
    embeddings_path: str = "embeddings"
    models_path: str = "models"
    paths: Mapping[str, str] = {}  # of single APIs, below the base URL, or with a slash from the root of the host
    whole: Mapping[str, str] = {}  # of APIs whose path says that the answer is not to be streamed
    quirks: Quirks = Quirks()
    is_own_url: bool = False  # the operator has set the URL, so it may have a typing error

    def shown(self) -> Iterator[tuple[str, object]]:
        """Return the provider's name alone: the rest may have secrets."""
        yield "provider", self.provider


class HttpUpstream:
    """One provider's ``Upstream``. Connects at the first request. The key is in no repr, error or log."""

    can_fetch = True
    needs_warming = False
    exchange_type = HttpExchange

    def __init__(
        self,
        server: Server,
        api_key: str | None,
        *,
        secrets: Sequence[str] = (),  # must not appear in messages, besides the key
        connecting: Connecting = ALONE,
        learnt: LearntFacts | None = None,  # shared by the upstreams of a provider's keys
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        quirks = server.quirks
        self.accepts_all_parameters = not (quirks.ignores or quirks.history.tells)
        self.refused_fields = quirks.history.refused_fields | quirks.refused_members
        self._provider = server.provider
        self._base_url = URL(server.base_url)
        if self._base_url.user is not None and api_key:
            raise ValueError(
                f"provider {server.provider!r}: base_url names a user and there is an api_key; keep one of the two"
            )
        self._query = dict(server.query)
        self._paths = {
            **{dialect.name: dialect.path for dialect in DIALECTS.values()},
            PIVOT.name: server.chat_path,
            "embeddings": server.embeddings_path,
            "models": server.models_path,
            **dict(_rooted(server.paths)),
        }
        self._whole = server.whole
        self._quirks = quirks
        self._is_plain = is_plain(self._quirks)
        self.learnt = LearntFacts() if learnt is None else learnt
        self._other_secrets = tuple(secrets)
        known = (*([api_key] if api_key else []), *secrets)
        self._secrets = ClientSecrets(known) if type(secrets) is ClientSecrets else known
        self._is_own_url = server.is_own_url
        self._wall_clock = wall_clock
        self._fixed_headers = self._headers(api_key, server.auth, server.headers)
        self._own_betas = self._fixed_headers.keys() & BETAS
        self._client = HttpClient(self._base_url, headers=self._fixed_headers, connecting=connecting)
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

    def connect(self) -> None:
        """Connect, unless a connection is there for the next request."""
        self._client.connect(_CONNECT_S)

    async def stream(self, request: Request) -> Exchange:
        """Request an answer in events; return when the response's headers have arrived with a status of 2xx.

        Raises:
            UpstreamError: no connection, or any other status, with its kind, message and ``retry-after``.

        """
        dialect = request.dialect
        if self._own_betas:
            request = self._without_overruled(request)
        if dialect.requests.vendors.header_for is not None:
            request = self._with_needed(request)
        path = dialect.name if request.upstream_stream else self._whole.get(dialect.name, dialect.name)
        head = self._head("POST", path, request.model, packed=False, own=request.own_headers)
        response = await self._accepted(head, request)
        exchange = self.exchange_type(response, self._secrets, dialect.answers.events_of_answer)
        repaired = dialect.answers.repairs
        repairs = repaired(self._quirks.repairs) if repaired is not None else ()
        return TranslatedExchange(exchange, repairs) if repairs else exchange

    def losses(self, dialect: Dialect, model: str, fields: Fields) -> Sequence[Loss]:  # noqa: ARG002 - its models are alike
        """Return the parts of a request that this vendor would refuse, or ignore and answer another question."""
        vendors = dialect.requests.vendors
        dropped = self._quirks.dropped_from(fields, dialect.name, is_chats=vendors.takes_quirks)
        lost = losses(fields, dropped, dialect.requests.omissible.items)
        if vendors.takes_quirks and self._quirks.refused_members and stands(self._quirks.refused_members, fields):
            lost += without_refused(fields, self._quirks.refused_members).losses
        if vendors.with_history is not None:
            lost += vendors.with_history(fields, self._quirks.history).losses
        if passed_over := self._quirks.ignores & dialect.requests.essential:
            lost += ignored(fields, passed_over)
        return lost

    async def _accepted(self, head: Head, request: Request) -> Body:
        """Return the response to ``request`` in the form that the model takes, as far as is known.

        Raises:
            UpstreamError: as of ``taken``, which does the same more slowly. Most requests are sent once only.

        """
        api = request.dialect.name
        if request.sendings.tried is not None:
            return await taken(
                self.learnt,
                self._of_form(request),
                say=lambda facts: _said(request, self._quirks, facts),
                ask=lambda sent: self._ask(head, api, sent.of(request), _encoded(request, sent.fields)),
            )
        facts = self.learnt.of(request.model, request.client) if self.learnt.is_any else NOTHING
        if request.taught:
            facts = known_of(self.learnt, request)
        sent = _said(request, self._quirks, facts, as_it_is=self._is_plain)
        try:
            asked = request if sent.headers is None else sent.of(request)
            response = await self._ask(head, api, asked, _encoded(request, sent.fields))
        except UpstreamError as error:
            if not may_teach(error, request):
                raise
            refusal = error.without_frames()
        else:
            if facts or sent.most:
                answered(self.learnt, request, facts, sent)
            return response
        of_form = self._of_form(request)
        raise refused(refusal, self.learnt, of_form, sent, say=lambda facts: _said(request, self._quirks, facts))

    def _of_form(self, request: Request) -> FormRequest:
        return FormRequest(request, request.dialect.name, request.dialect.requests, self._quirks.rename)

    def learn(self, request: Request, error: UpstreamError) -> Facts:
        """Return what an ``error`` within an answer that had not begun teaches about the model."""
        request = self._without_overruled(request)
        return learn(self.learnt, self._of_form(request), error, lambda facts: _said(request, self._quirks, facts))

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        """Post ``request`` to ``path`` (``embeddings``, ``audio/speech``); return the answer once it has begun.

        Raises:
            UpstreamError: as of ``stream``; or the answer is an error, or not an answer of the API at ``path``.

        """
        started = perf_counter()
        request, form = self._with_needed(self._without_overruled(request)), request.form
        packed = comes_whole(path)
        if form is None:
            head = self._head("POST", path, request.model, packed=packed, own=request.own_headers)
            begun = await self._taken(head, path, request)
        else:
            own = (*request.own_headers, ("content-type", form.content_type))
            head = self._build_head("POST", path, request.model, packed=packed, own=own)
            body = await _in_turns(form.rendering_steps(request.model, request.extra_body))
            begun = await self._begun(await self._ask(head, path, request, body), path, request)
        response, headers_ms = begun.response, (begun.at - started) * 1000
        headers = masked(response.headers, self._secrets, relayed=True)
        status, connect_ms = response.status, response.connect_ms
        return UpstreamAnswer(status, headers, begun.beginning, connect_ms, headers_ms, begun.rest, self._secrets)

    async def _taken(self, head: Head, path: str, request: Request) -> "_Begun":
        """Return how a request for ``path`` is answered, in the form that is known to be taken."""
        formats, model_is_said = _NOT_RACED, False
        if request.model:
            model_is_said = "{model}" not in path
        elif path.startswith(_CONVERSATION):
            formats = _CHANGES
        asked = FormRequest(request, path, formats)

        def say(facts: Facts) -> SentFields:
            fields = with_own(request, request.fields)
            if not model_is_said:
                del fields["model"]
            return adapted(fields, facts, asked)

        async def ask(sent: SentFields) -> Body:
            return await self._ask(head, path, sent.of(request), encoded(sent.fields))

        async def begin(sent: SentFields) -> _Begun:
            return await self._begun(await ask(sent), path, request)

        if path in _ONLY_SAY:
            return await taken(self.learnt, asked, say=say, ask=begin)
        return await self._begun(await taken(self.learnt, asked, say=say, ask=ask), path, request)

    async def _begun(self, response: Body, path: str, request: Request) -> "_Begun":
        """Return how an answer begins. An error with status 200 is raised."""
        at, rest = perf_counter(), None
        try:
            fewest = fewest_entries(path, {**request.fields, **request.extra_body})
            beginning, rest = await read_beginning(path, response, self._secrets, fewest)
        except UpstreamError as error:
            error.status, error.read_s = error.status or response.status, perf_counter() - at
            mark(error, words_of_vendor(request))
            decide_by_request(error, request.model, _asked_by_client(request))
            raise
        finally:
            if rest is None:
                response.abort()  # without effect after the end; otherwise the provider must stop
        return _Begun(response, at, beginning, rest)

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:
        """Send a request without a body to ``path``, and return the whole JSON answer, or the events asked for.

        Raises:
            UpstreamError: as of ``send``.

        """
        started, streams = perf_counter(), ("stream", "true") in query
        head = self._build_head(method, path, "", packed=not streams, query=query)
        body = None if method in {"GET", "DELETE"} else b""
        try:
            response = await self._checked(await self._client.send(HttpRequest(head, (), body), _CONNECT_S))
        except UpstreamError as error:
            if error.kind is ErrorKind.BAD_REQUEST and error.status == _NOT_FOUND:
                error.turn_into(ErrorKind.NOT_FOUND)  # of what is fetched, and not of what a request names
            raise
        headers_ms = (perf_counter() - started) * 1000
        rest = events_to_come(response, self._secrets) if streams else None
        answer = b"" if rest is not None else masked_body(await self._read_whole(response), self._secrets)
        headers = masked(response.headers, self._secrets, relayed=True)
        return UpstreamAnswer(response.status, headers, answer, response.connect_ms, headers_ms, rest, self._secrets)

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:
        """Return the models that the provider offers for this key, from all pages of the list.

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

    def retire(self) -> None:
        """Keep no connection without a request from now on. Running requests go on, and more may be sent."""
        self._client.retire()

    async def aclose(self) -> None:
        """Close kept connections."""
        await self._client.aclose()

    def _without_overruled(self, request: Request) -> Request:
        """Return a request without the client's betas where the operator has set others: no refusal is about these."""
        if self._own_betas.isdisjoint(request.headers):
            return request
        headers = {name: value for name, value in request.headers.items() if name not in self._own_betas}
        return msgspec.structs.replace(request, headers=headers)

    def _with_needed(self, request: Request) -> Request:
        """Return a request with the header that one of its fields requires, if there is such a field."""
        requests = request.dialect.requests
        needed = requests.vendors.header_for  # of fields that say how to think, which most requests do not have
        says_how = not requests.thinking.fields.isdisjoint(request.fields)
        if needed is None or not says_how or not (header := needed(request.fields)):
            return request
        (name, word), own = header, dict(request.own_headers)
        operators = own.get(name) or self._fixed_headers.get(name)
        said = operators or request.headers.get(name, "")
        if word in said:
            return request
        said = f"{said}, {word}" if said else word
        if operators is None:  # a word beside the client's, so that a refusal of one leaves that out alone
            return msgspec.structs.replace(request, headers={**request.headers, name: said})
        own[name] = said
        return msgspec.structs.replace(request, own_headers=tuple(own.items()))

    async def _ask(self, head: Head, path: str, request: Request, body: bytes) -> Body:
        fixed = {**self._fixed_headers, **dict(request.own_headers)} if request.own_headers else self._fixed_headers
        asked: Mapping[str, str] = request.headers
        if asked:  # mostly none
            asked = {name: value for name, value in asked.items() if name.lower() not in fixed}
        sendings = request.sendings
        sent = HttpRequest(head, checked(asked) if asked else (), body, once=request.once, sendings=sendings)
        response = await self._client.send(sent, request.connect_timeout_s)
        try:
            return await self._checked(response, request)
        except UpstreamError as error:
            answer_of = request.dialect.answers.of_refusal if path == request.dialect.name else None
            if answer_of is not None and (answer := answer_of(error.said, request.model)) is not None:
                return _with_body(response, answer)
            decide_by_request(error, request.model, _asked_by_client(request), may_lack_path=path != PIVOT.name)
            if (needed := _NEWER.search(error.said)) is not None:
                error.noted(f' (set query: {{ api-version: "{needed[1]}" }} of the provider, or a later one)')
            self._name_url(error, path, request.model)
            raise

    def _name_url(self, error: UpstreamError, path: str, model: str) -> None:
        """Add the requested URL to an error that may be about the path, so that the operator sees a wrong base URL."""
        if error.status not in _NO_SUCH_PATH or error.kind is ErrorKind.BAD_REQUEST or names_model(error):
            return
        url = self._url(path, model).with_user(None).with_query(None)
        lacks_version = self._is_own_url and _VERSION.search(self._base_url.path) is None
        hint = "; is /v1 missing at the end of its base_url?" if lacks_version else ""
        error.noted(redact(f" (asked was {url}{hint})", self._secrets))

    async def _checked(self, response: Response, request: Request | None = None) -> Body:
        """Return a response's body if the status is 2xx; otherwise raise its error, which may quote the ``request``."""
        try:
            if response.status in _SUCCESS:
                return decoded(response)
            began = perf_counter()
            refusal = await self._refusal(response, request)
            refusal.read_s = perf_counter() - began
        except BaseException:
            response.abort()
            raise
        response.abort()
        raise refusal

    async def _refusal(self, response: Response, request: Request | None) -> UpstreamError:
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
        own = None if request is None else words_of_vendor(request)
        return error_of_response(status, response.headers, body, self._secrets, self._wall_clock(), own=own)

    async def _read_whole(self, response: Body, *, may_be_array: bool = False) -> bytes:
        try:
            body = await read_body(response, _LARGEST_ANSWER_BYTES)
            if not (may_be_array and body.lstrip().startswith(b"[")):
                read_answer(body, self._secrets)
        finally:
            response.abort()  # without effect after the end; otherwise the provider must stop
        return body

    def _headers(self, api_key: str | None, auth: Auth, own: Mapping[str, str]) -> dict[str, str]:
        # Without this header some gateways would compress events, and buffer the stream for that.
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
        if filled.startswith("/"):
            return self._base_url.with_path(filled, encoded=True)
        return self._base_url.joinpath(*filled.split("/"), encoded=True)


def _rooted(paths: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the paths of APIs, and the paths of their counts of tokens, if these paths begin with a slash."""
    for name, path in paths.items():
        yield name, path
        dialect = DIALECTS.get(name)
        if dialect is not None and (counting := dialect.counting) is not None and counting.path not in paths:
            yield counting.path, counting.path.replace(dialect.path, path, 1)


def words_of_vendor(request: Request) -> VendorsWords:
    """Return what tells a vendor's own words from those of a request that it refuses."""
    form = request.form
    if form is not None and len(form.body) > LARGEST_REQUEST_BYTES:
        return VendorsWords(None)
    texts = quotable(request.headers) if request.headers else []
    return VendorsWords(request.fields, texts=texts if form is None else [*texts, *form.texts()])


def _asked_by_client(request: Request) -> Mapping[str, msgspec.Raw]:
    """Return the fields of a request without the operator's and the gateway's own."""
    if not request.extra_body and not request.added:
        return request.fields
    own = request.added.union(request.extra_body)
    return {name: raw for name, raw in request.fields.items() if name not in own}


def _with_body(response: Response, body: bytes) -> Response:
    """Return a refusal as if it were an answer with this body."""
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    other = Response(None, asyncio.get_running_loop(), response.connect_ms)
    other.begin(HTTPStatus.OK, fields)
    other.feed(body)
    other.end()
    return other


async def _read_at_most(response: Response, limit_bytes: int) -> bytes:
    """Read the beginning of an error's body, as far as possible: the status says enough."""
    body = b""
    with suppress(UpstreamError):
        readable = decoded(response)
        while len(body) < limit_bytes and (data := await readable.read()):
            body += data
    return body[:limit_bytes]
