"""Asks every provider for its models: it may be unreachable, refuse the key, or lack the models."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from gateway.cli.own_urls import AtOwnUrl
from gateway.settings.model import Settings
from gateway.settings.presets import Catalog, vendor_of
from gateway.settings.provider import ProviderSettings
from gateway.upstreams import Upstreams
from providers.catalog import Vendor, apis_of
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Upstream
from providers.listed import Listed
from providers.listings import Listing
from providers.rate_limits import headroom

_TIMEOUT_S = 15.0
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
    listed: tuple[Listed, ...] = ()
    headroom: float | None = None  # of its scarcest limit, for the key with the most left; None if unknown

    @property
    def works(self) -> bool:
        """Whether the provider answered and accepted the key; not every one has a list of models."""
        return self.state in ("reachable", "no model list")

    @property
    def models(self) -> tuple[str, ...]:
        """The names of its models."""
        return tuple(model.id for model in self.listed)


Lists = Mapping[str, Sequence[ListsModels]]  # by provider, one for each key
OpenLists = Callable[[], Lists]
OnAnswer = Callable[[str, Liveness], None]


class Unopened:
    """Replaces an upstream whose settings are contradictory: it fails like one without a connection."""

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
            except ValueError as error:
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

    return AtOwnUrl(provider.base_url, provider.apis or apis_of(vendor, provider.kind), upstream, opened)


async def ask(open_upstreams: OpenLists, on_answer: OnAnswer = _ignored) -> dict[str, Liveness]:
    """Ask all providers at once, each for at most 15 s, and close them; ``on_answer`` is called with each answer.

    The upstreams are opened here, as HTTP clients belong to an event loop.
    """

    async def ask_one(name: str, upstreams: Sequence[ListsModels]) -> Liveness:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_ask_one(upstream)) for upstream in upstreams]
        answer = _together([task.result() for task in tasks])
        on_answer(name, answer)
        return answer

    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(ask_one(name, upstreams)) for name, upstreams in open_upstreams().items()}
    return {name: task.result() for name, task in tasks.items()}


def ask_with_progress(providers: Mapping[str, ProviderSettings], catalog: Catalog) -> dict[str, Liveness]:
    """Ask these providers; on a terminal, show which ones have not answered yet."""
    with _progress() as tell:
        awaited: set[str] = set()

        def open_all() -> Lists:
            opened = open_lists(providers, catalog)
            awaited.update(opened)
            tell(awaited)
            return opened

        def on_answer(provider: str, _: Liveness) -> None:
            awaited.discard(provider)
            tell(awaited)

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


def _together(answers: Sequence[Liveness]) -> Liveness:
    """Combine the answers for several keys of one provider."""
    if len(answers) == 1:
        return answers[0]
    listed = {model.id: model for answer in answers for model in answer.listed}
    latencies_ms = [answer.latency_ms for answer in answers if answer.latency_ms is not None]
    headrooms = [answer.headroom for answer in answers if answer.headroom is not None]
    shown, message = answers[0], answers[0].message
    for number, answer in enumerate(answers, start=1):
        if not answer.works:
            shown, message = answer, f"key {number} of {len(answers)}: {answer.message or answer.state}"
            break
    return Liveness(
        shown.state,
        max(latencies_ms, default=None),
        message,
        tuple(listed.values()),
        max(headrooms, default=None),
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
