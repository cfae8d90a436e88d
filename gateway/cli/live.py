"""Every provider, asked for its list of models: whether it is there, takes the key, and has what is configured."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import msgspec

from gateway.settings.model import Settings
from gateway.settings.presets import Catalog, vendor_of
from gateway.upstreams import Upstreams
from providers.errors import ErrorKind, UpstreamError

_TIMEOUT_S = 15.0
_STATES = {ErrorKind.PROVIDER_AUTH: "unauthorised", ErrorKind.NOT_FOUND: "no model list"}


@runtime_checkable
class ListsModels(Protocol):
    """An upstream that can say what it offers."""

    async def list_models(self) -> list[str]:
        """Return the names of the provider's models."""

    async def aclose(self) -> None:
        """Close kept connections."""


class Liveness(msgspec.Struct, frozen=True):
    """What asking one provider showed. ``latency_ms`` includes the connection."""

    state: str  # "reachable", "unauthorised", "no model list", or the kind of error
    latency_ms: float | None = None
    message: str | None = None
    models: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """The provider answered, and took the key; not every one has a list of models."""
        return self.state in ("reachable", "no model list")


def open_listing(settings: Settings, catalog: Catalog) -> dict[str, ListsModels]:
    """Return an upstream for each provider that has a list of models; what goes through litellm has none."""
    upstreams = Upstreams()
    opened: dict[str, ListsModels] = {}
    for name, provider in settings.providers.items():
        upstream = upstreams.open(name, provider, vendor_of(name, provider, catalog))
        if isinstance(upstream, ListsModels):
            opened[name] = upstream
    return opened


async def ask(open_upstreams: Callable[[], Mapping[str, ListsModels]]) -> dict[str, Liveness]:
    """Ask all providers at once, each for at most 15 s, and close them. Opened here: HTTP clients belong to a loop."""
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(_ask_one(upstream)) for name, upstream in open_upstreams().items()}
    return {name: task.result() for name, task in tasks.items()}


async def _ask_one(upstream: ListsModels) -> Liveness:
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            models = await upstream.list_models()
    except UpstreamError as error:
        return Liveness(_STATES.get(error.kind, str(error.kind)), message=error.message)
    except TimeoutError:
        return Liveness("timeout", message=f"no answer within {_TIMEOUT_S:g} s")
    else:
        return Liveness("reachable", (time.perf_counter() - started) * 1000, models=tuple(models))
    finally:
        await upstream.aclose()
