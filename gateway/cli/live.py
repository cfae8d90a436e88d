"""Checks every provider by its list of models: the provider may be unreachable, refuse the key, or lack the models.

A model that its provider does not list is checked by a request for one token: lists omit aliases and fine-tunes.
"""

import asyncio
import difflib
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from gateway.app import Upstreams
from gateway.settings import (
    STAR,
    Catalog,
    ConfigurationError,
    ProviderSettings,
    Settings,
    others,
    vendor_of,
    without_secrets,
)
from providers import (
    Api,
    ErrorKind,
    EventSplitter,
    Exchange,
    Fact,
    Kind,
    ListedModel,
    Listing,
    Met,
    Request,
    Upstream,
    UpstreamError,
    Vendor,
    apis_of,
    events,
    headroom,
    set_apart,
    step_by_step,
)
from providers.dialects import DIALECTS

# Checks the base_url of an operator's own provider if there is no list of models.

# These statuses mean that there is no API, where the error's kind may have another cause: unknown path, unknown method.
_LACKING = frozenset({404, 405})
_PATHS: Mapping[Api, str] = {**{name: dialect.path for name, dialect in DIALECTS.items()}, "embeddings": "embeddings"}

Open = Callable[[str], Upstream]


class AtOwnUrl:
    """Lists the models of a provider with an operator's base URL, and looks for the right URL if there is no list.

    Servers without a list are sent a request for an answer with an empty body. They refuse this without computing
    anything. If that path is unknown too, the base URL is wrong.
    """

    def __init__(self, base_url: str, apis: tuple[Api, ...], upstream: Upstream, opened: Open) -> None:
        self._base_url = base_url
        self._api = next((api for api in apis if api in _PATHS), None)
        self._upstream = upstream
        self._open = opened

    async def list_models(self) -> Listing:
        """Return the models.

        Raises:
            UpstreamError: there is no list. If there is no API, the kind is no_such_api, with the right URL if found.

        """
        try:
            return await self._upstream.list_models()
        except UpstreamError as error:
            is_server = error.kind is ErrorKind.SERVER_ERROR
            if not error.kind.facts.may_be_elsewhere or (is_server and error.status not in _LACKING):
                raise
            is_there = await self._answers(self._upstream)
            if is_there and error.kind is not ErrorKind.INVALID_RESPONSE:
                raise
            if (right := await self._found()) is not None:
                raise UpstreamError(ErrorKind.NO_SUCH_API, f"{self._wrong(error)}; set base_url: {right}") from None
            if not is_there:
                raise UpstreamError(
                    ErrorKind.NO_SUCH_API, f"{self._wrong(error)}; correct its base_url (it usually ends in /v1)"
                ) from None
            raise

    async def aclose(self) -> None:
        """Close open connections."""
        await self._upstream.aclose()

    def _wrong(self, error: UpstreamError) -> str:
        url = f"{without_secrets(self._base_url).rstrip('/')}/models"
        answer = (
            error.status if error.kind is not ErrorKind.INVALID_RESPONSE else "something other than a list of models"
        )
        also = "" if self._api is None else f" and there is no {_PATHS[self._api]} beside it"
        return f"{url} answers {answer}{also}"

    async def _found(self) -> str | None:
        """Return the first of the usual base URLs of this server that has an API."""
        for base_url in others(self._base_url):
            upstream = self._open(base_url)
            try:
                await upstream.list_models()
            except UpstreamError as error:
                if error.kind is not ErrorKind.PROVIDER_AUTH and not await self._answers(upstream, surely=True):
                    continue
            finally:
                await upstream.aclose()
            return without_secrets(base_url)
        return None

    async def _answers(self, upstream: Upstream, *, surely: bool = False) -> bool:
        """Whether the API that a call would use exists; with ``surely``, only an answer of the API itself counts."""
        if self._api is None:
            return not surely
        try:
            await upstream.fetch("POST", self._api, [])
        except UpstreamError as error:
            if error.kind is ErrorKind.BAD_REQUEST:
                return True
            is_lacking = error.status in _LACKING and "model" not in error.message.lower()  # perhaps about the model
            return not is_lacking and not surely
        return True


_TIMEOUT_S = 15.0
_MESSAGES = [{"role": "user", "content": "1"}]
_SMALLEST: Mapping[Api, Mapping[str, object]] = {  # requests for one token, or one short embedding
    "chat": {"messages": _MESSAGES, "max_tokens": 1, "stream": True},
    "messages": {"messages": _MESSAGES, "max_tokens": 1, "stream": True},
    "completions": {"prompt": "1", "max_tokens": 1, "stream": True},
    "embeddings": {"input": "1"},
}
_WITH_DONE = frozenset({"chat", "completions"})  # APIs whose streams end with [DONE], after a finish reason
_STATES = {
    ErrorKind.PROVIDER_AUTH: "unauthorised",
    ErrorKind.NOT_FOUND: "no model list",
    ErrorKind.NO_SUCH_API: "wrong base_url",
}


class ListsModels(Protocol):
    """An upstream that can list its models."""

    async def list_models(self) -> Listing:
        """Return the provider's models."""

    async def aclose(self) -> None:
        """Close open connections."""


class Liveness(msgspec.Struct, frozen=True):
    """The result of asking one provider with each of its keys; with several keys the first failure is shown.

    ``latency_ms`` includes the connection, and every page of the list.
    """

    state: str  # "reachable", "unauthorised", "no model list", "wrong base_url", or the kind of error
    latency_ms: float | None = None
    message: str | None = None
    listed: tuple[ListedModel, ...] = ()
    headroom: float | None = None  # what is left of the scarcest limit, for the key with the most left; None if unknown
    key: int = 0  # the place of the key whose answer is shown

    @property
    def refuses_key(self) -> bool:
        """Whether the provider refused the key."""
        return self.state == _STATES[ErrorKind.PROVIDER_AUTH]

    @property
    def works(self) -> bool:
        """Whether the provider answered and accepted the key; not every provider has a list of models."""
        return self.state in ("reachable", "no model list")

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the provider's models."""
        return tuple(model.id for model in self.listed)


Lists = Mapping[str, Sequence[ListsModels]]  # by provider, one for each key
OpenLists = Callable[[], Lists]
OnAnswer = Callable[[str, Liveness], None]


class UnlistedModel(msgspec.Struct, frozen=True):
    """A deployment whose provider does not list its model, and whether a request for one token was answered."""

    deployment: str
    model: str  # the public name
    near: str | None  # the most similar model that the provider lists
    answers: bool | None  # None: not asked, as the provider's APIs cannot be asked for one token
    refusal: str | None = None  # the provider's message

    @property
    def note(self) -> str:
        """A sentence for the notes of ``check``."""
        provider, _, name = self.deployment.partition("/")
        note = f"{provider} does not list {name!r} (model {self.model!r})"
        if self.answers:
            return f"{note}, but answers a request for it"
        if self.answers is not None:
            note += f", and refuses a request for it: {self.refusal}"
        names_it = self.near is None or repr(self.near) in note
        return note if names_it else f"{note}; did you mean {self.near!r}?"


class Unopened:
    """Stands for an upstream with contradictory settings: it fails like an upstream without a connection."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def list_models(self) -> Listing:
        """Raise the reason.

        Raises:
            UpstreamError: always.


        """
        raise UpstreamError(ErrorKind.CONNECT_ERROR, self._why)

    async def aclose(self) -> None:
        """Nothing is open."""


def _ignored(provider: str, answer: Liveness) -> None:
    """Ignore an answer."""


async def ask_for_unlisted(
    settings: Settings, catalog: Catalog, liveness: Mapping[str, Liveness]
) -> list[UnlistedModel]:
    """Request one token from each deployment that is missing in its provider's list.

    Providers whose paths name the customer's own deployments, like Azure's, are left out: they list models.
    """
    upstreams = Upstreams()
    found = []
    for name, model in settings.models.items():
        for item in model.deployments:
            provider, _, wanted = item.deployment.partition("/")
            vendor = vendor_of(provider, settings.providers[provider], catalog)
            offered = liveness[provider].models if provider in liveness else ()
            if STAR in wanted:
                if offered and not _are_offered(wanted, offered):
                    found.append(UnlistedModel(item.deployment, name, None, None, None))
                continue
            if not offered or wanted in offered or (vendor is not None and "{model}" in vendor.chat_path):
                continue
            apis = (
                item.apis
                or settings.providers[provider].apis
                or apis_of(vendor, settings.providers[provider].kind, settings.providers[provider].base_url)
            )
            answers, refusal = await _ask_for_a_token(
                upstreams.open(provider, settings.providers[provider], vendor), wanted, apis
            )
            near = difflib.get_close_matches(wanted, offered, n=1)
            found.append(UnlistedModel(item.deployment, name, near[0] if near else None, answers, refusal))
    await upstreams.aclose()
    return found


def _are_offered(wanted: str, offered: Collection[str]) -> bool:
    """Whether a provider lists a model that the star of ``wanted`` may stand for."""
    before, _, behind = wanted.partition(STAR)
    return any(each.startswith(before) and each.endswith(behind) for each in offered)


def _whole_names(settings: Settings) -> list[str]:
    """Return each deployment once, except names with a star: what a star stands for is known only by a call."""
    each = (item.deployment for model in settings.models.values() for item in model.deployments)
    return [name for name in dict.fromkeys(each) if STAR not in name]


async def _begun(upstream: Upstream, request: Request) -> Exchange:
    """Return the answer to a request, with the first key that is not refused.

    Raises:
        UpstreamError: no key got an answer.

    """
    return await step_by_step(lambda: upstream.stream(request), request.sendings)


async def _ask_for_a_token(upstream: Upstream, model: str, apis: Sequence[Api]) -> tuple[bool | None, str | None]:
    """Return whether ``model`` answers, and the error if not; (None, None) if no API takes so small a request."""
    api = next((api for api in apis if api in _SMALLEST), None)
    if api is None:
        return None, None
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            if api == "embeddings":
                request = _smallest(model, api)
                await step_by_step(lambda: upstream.send("embeddings", request), request.sendings)
            else:
                (await _begun(upstream, _smallest(model, api))).abort()
    except UpstreamError as error:
        return False, error.message
    except TimeoutError:
        return False, f"no answer within {_TIMEOUT_S:g} s"
    else:
        return True, None
    finally:
        await upstream.aclose()


async def ask_for_endings(settings: Settings, catalog: Catalog, liveness: Mapping[str, Liveness]) -> list[str]:
    """Return a note for each server whose streams end with [DONE] and no finish reason, so that they count as broken.

    Each provider with an operator's base URL is asked for one token at one deployment; vendors are known already.
    """
    upstreams = Upstreams()
    found = []
    asked: set[str] = set()
    for name in _whole_names(settings):
        provider, _, model = name.partition("/")
        own = settings.providers[provider]
        vendor = vendor_of(provider, own, catalog)
        apis = own.apis or apis_of(vendor, own.kind, own.base_url)
        api = next((each for each in apis if each in _WITH_DONE), None)
        if api is None or own.base_url is None or own.omits_finish_reason or provider in asked:
            continue
        asked.add(provider)
        if not liveness[provider].works or not await _lacks_finish_reason(
            upstreams.open(provider, own, vendor), model, api
        ):
            continue
        found.append(
            f"{provider} ends its streams with [DONE] and no finish reason, so they count as broken off; if they are"
            " whole, set omits_finish_reason: true"
        )
    await upstreams.aclose()
    return found


_SYSTEM, _DEVELOPER = {"role": "system", "content": "1"}, {"role": "developer", "content": "1"}
_ASKED, _ANSWERED = {"role": "user", "content": "1"}, {"role": "assistant", "content": "1"}
_FUNCTION = {"name": "f", "arguments": "{}"}
_CALL = {"id": "abcdefgh1", "type": "function", "function": _FUNCTION}
_CALLED = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
_RESULT = {"role": "tool", "tool_call_id": "abcdefgh1", "content": "1"}
_TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
_THINKING: Mapping[str, object] = {"messages": [_ASKED], "reasoning_effort": "low"}
# What `history` of a provider may say of roles and texts, and the conversation that a server refuses otherwise.
_ORDERS: Sequence[tuple[str, str, Mapping[str, object]]] = (
    ("one_system", "true", {"messages": [_SYSTEM, _DEVELOPER, _ASKED, _ANSWERED, _SYSTEM, _ASKED]}),
    ("alternating", "true", {"messages": [_ASKED, _ASKED, _ANSWERED, _ASKED]}),
    ("user_after_tool", "false", {"messages": [_ASKED, _CALLED, _RESULT, _ASKED], "tools": _TOOLS}),
    ("plain_texts", "true", {"messages": [{"role": "user", "content": [{"type": "text", "text": "1"}]}]}),
)


async def ask_for_orders(settings: Settings, catalog: Catalog, liveness: Mapping[str, Liveness]) -> list[str]:
    """Return a note for each deployment that refuses an order of roles, or a role, which its provider's row allows.

    Each deployment with an operator's base URL is asked for one token after each of four short conversations, and once
    with an effort of thinking. Anything else that it refuses of these requests is noted, too.
    """
    refused = _Refused()
    upstreams = Upstreams(on_fact=refused.note)
    found = []
    for name in _whole_names(settings):
        provider, _, model = name.partition("/")
        own = settings.providers[provider]
        vendor = vendor_of(provider, own, catalog)
        apis = own.apis or apis_of(vendor, own.kind, own.base_url)
        if "chat" not in apis or own.base_url is None or not liveness[provider].works:
            continue
        needed = []
        for column, value, conversation in _ORDERS:
            if column in own.history.model_fields_set:  # the operator has decided
                continue
            refused.histories.discard(name)
            if not await _answers_chat(upstreams.open(provider, own, vendor), model, conversation):
                break
            if name in refused.histories:
                needed.append(f"{column}: {value}")
        else:
            await _answers_chat(upstreams.open(provider, own, vendor), model, _THINKING)
        found += refused.notes(name)
        if needed:
            found.append(
                f"{name} refuses roles or lists of texts that clients send; such calls are sent again in another form."
                f" To send that at once, set in section '{provider}' of providers: history: {{ {', '.join(needed)} }}"
            )
    await upstreams.aclose()
    return found


class _Refused:
    """The parts of a check's requests that deployments have refused."""

    def __init__(self) -> None:
        self.histories: set[str] = set()  # the deployments that refused a history
        self._others: dict[str, list[str]] = {}

    def note(self, provider: str, model: str, fact: Fact, _until: float, _met: Met) -> None:
        """Note a fact that a refusal has taught."""
        name = f"{provider}/{model}"
        if fact.kind is Kind.HISTORY:
            self.histories.add(name)
        elif fact.words not in self._others.setdefault(name, []):
            self._others[name].append(fact.words)

    def notes(self, name: str) -> list[str]:
        """Return a note of what a deployment has refused besides histories, if anything."""
        if name not in self._others:
            return []
        said = ", ".join(self._others[name])
        told = "such calls are sent again without it, once a day, and callers are told in x-holeshot-dropped"
        return [f"{name} refuses {said}: {told}"]


async def _answers_chat(upstream: Upstream, model: str, conversation: Mapping[str, object]) -> bool:
    """Whether a model answers a conversation with a token, in one order of roles or another."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            (await _begun(upstream, _smallest(model, "chat", conversation))).abort()
    except (UpstreamError, TimeoutError):
        return False
    finally:
        await upstream.aclose()
    return True


async def _lacks_finish_reason(upstream: Upstream, model: str, api: Api) -> bool:
    """Whether a stream of one token ends with [DONE] alone; False after an error, which does not show the end."""
    dialect, splitter = DIALECTS[api], EventSplitter()
    finished = done = meaningful = False
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            exchange = await _begun(upstream, _smallest(model, api))
            while not done and (data := await exchange.read()):
                for event in events(set_apart(splitter.feed(data))):
                    chunk = dialect.answers.read_event(event.data, ())
                    finished, done = finished or chunk.finished, done or chunk.done
                    meaningful = meaningful or chunk.meaningful
            exchange.abort()
    except (UpstreamError, TimeoutError):
        return False
    finally:
        await upstream.aclose()
    return done and meaningful and not finished


def _smallest(model: str, api: Api, more: Mapping[str, object] = {}) -> Request:
    asked = {"model": model, **_SMALLEST[api], **more}
    fields = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in asked.items()}
    return Request(model, fields) if api == "embeddings" else Request(model, fields, dialect=DIALECTS[api])


def open_listing(settings: Settings, catalog: Catalog) -> Lists:
    """Return upstreams for each configured provider."""
    return open_lists(settings.providers, catalog)


def open_lists(providers: Mapping[str, ProviderSettings], catalog: Catalog) -> Lists:
    """Return an upstream for each key of each provider."""
    upstreams = Upstreams()
    opened: dict[str, list[ListsModels]] = {}
    for name, provider in providers.items():
        vendor = vendor_of(name, provider, catalog)
        for key in provider.keys or (None,):
            single = provider.model_copy(update={"api_key": key, "api_keys": {}})
            upstream: ListsModels
            try:
                upstream = _opened(upstreams, name, single, vendor)
            except ConfigurationError as error:
                upstream = Unopened(str(error))
            opened.setdefault(name, []).append(upstream)
    return opened


def _opened(upstreams: Upstreams, name: str, provider: ProviderSettings, vendor: Vendor | None) -> ListsModels:
    """Return a provider's upstream; with a base_url of the operator's, one that also checks the URL."""
    upstream = upstreams.open(name, provider, vendor)
    by_model = vendor is not None and "{model}" in vendor.chat_path  # without a model's name there is no such path
    if provider.base_url is None or by_model or not upstream.can_fetch:
        return upstream

    def opened(base_url: str) -> Upstream:
        return upstreams.open(name, provider.model_copy(update={"base_url": base_url}), vendor)

    return AtOwnUrl(
        provider.base_url, provider.apis or apis_of(vendor, provider.kind, provider.base_url), upstream, opened
    )


async def ask(open_upstreams: OpenLists, on_answer: OnAnswer = _ignored) -> dict[str, Liveness]:
    """Ask all providers at once, each for at most 15 s, and close them; ``on_answer`` is called with each answer.

    The upstreams are opened here, as HTTP clients belong to an event loop.
    """

    async def ask_one(name: str, upstreams: Sequence[ListsModels]) -> Liveness:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_ask_one(upstream)) for upstream in upstreams]
        answer = _combined([task.result() for task in tasks])
        on_answer(name, answer)
        return answer

    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(ask_one(name, upstreams)) for name, upstreams in open_upstreams().items()}
    return {name: task.result() for name, task in tasks.items()}


def ask_with_progress(providers: Mapping[str, ProviderSettings], catalog: Catalog) -> dict[str, Liveness]:
    """Ask these providers; on a terminal, show which ones have not answered yet."""
    with _progress() as show:
        awaited: set[str] = set()

        def open_all() -> Lists:
            opened = open_lists(providers, catalog)
            awaited.update(opened)
            show(awaited)
            return opened

        def on_answer(provider: str, _: Liveness) -> None:
            awaited.discard(provider)
            show(awaited)

        return asyncio.run(ask(open_all, on_answer))


@contextmanager
def _progress() -> Iterator[Callable[[set[str]], None]]:
    """Yield a function that shows the missing providers: on one temporary line of a terminal, not in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only on a terminal

    console = Console(stderr=True, highlight=False)
    with console.status("asking the providers") as status:
        yield lambda awaited: status.update(f"waiting for {', '.join(sorted(awaited))}")


def _combined(answers: Sequence[Liveness]) -> Liveness:
    """Combine the answers for several keys of one provider."""
    if len(answers) == 1:
        return answers[0]
    listed = {model.id: model for answer in answers for model in answer.listed}
    latencies_ms = [answer.latency_ms for answer in answers if answer.latency_ms is not None]
    headrooms = [answer.headroom for answer in answers if answer.headroom is not None]
    shown, message, key = answers[0], answers[0].message, 0
    for place, answer in enumerate(answers):
        if not answer.works:
            shown, message, key = answer, f"key {place + 1} of {len(answers)}: {answer.message or answer.state}", place
            break
    return Liveness(
        shown.state,
        max(latencies_ms, default=None),
        message,
        tuple(listed.values()),
        max(headrooms, default=None),
        key,
    )


async def _ask_one(upstream: ListsModels) -> Liveness:
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            listing = await upstream.list_models()
    except UpstreamError as error:
        return Liveness(_STATES.get(error.kind, str(error.kind)), message=error.message)
    except TimeoutError:
        return Liveness("timeout", message=f"no answer within {_TIMEOUT_S:g} s")
    else:
        latency_ms = (time.perf_counter() - started) * 1000
        return Liveness("reachable", latency_ms, listed=listing.models, headroom=headroom(listing.headers))
    finally:
        await upstream.aclose()
