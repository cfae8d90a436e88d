"""Stand-ins of vendors, and a gateway before them with a model for each: what tests of conversations begin with."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving

Json = dict[str, Any]


class Place(NamedTuple):
    """A deployment at a vendor's stand-in, and the API in which it is asked."""

    vendor: str
    preset: str
    model: str
    api: str
    says_api: bool = False  # its provider has that alone


@asynccontextmanager
async def standing_in(places: Mapping[str, Place]) -> AsyncIterator[dict[str, Served]]:
    """Serve a stand-in for each place."""
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(running_vendor(place.vendor)) for name, place in places.items()}


def gateway_before(
    folder: Path,
    places: Mapping[str, Place],
    vendors: Mapping[str, Served],
    *,
    models: Json | None = None,
    deployment: Json | None = None,
    settings: Json | None = None,
    **more: Any,
) -> AbstractAsyncContextManager[RunningGateway]:
    """Run a gateway before all places, each a provider and a model of its name, and ``models`` of several of them.

    ``deployment`` is said of each deployment besides, ``settings`` of each model, ``more`` of the gateway.
    """
    providers: Json = {}
    for name, place in places.items():
        vendor = vendors[name]
        providers[name] = {"base_url": vendor.base_url, "api_key": vendor.key, "preset": place.preset}
        providers[name] |= {"apis": [place.api]} if place.says_api else {}
    own = {
        name: {"deployments": [{"deployment": f"{name}/{place.model}", **(deployment or {})}], **(settings or {})}
        for name, place in places.items()
    }
    return serving(folder, {"unused": None}, providers=providers, models={**own, **(models or {})}, **more)
