"""What no single value shows: names that must fit together, keys that must be there, hosts that must not be open."""

import ipaddress
from collections.abc import Iterator

from gateway.calls import Objective
from gateway.settings.explain import nearest
from gateway.settings.model import DeploymentSettings, ProviderSettings, Settings
from gateway.settings.presets import Catalog, vendor_of
from gateway.settings.prices import Prices
from gateway.settings.problems import Complaint, Place
from gateway.settings.races import impossible
from providers.prices import PriceTable

_DATABASES = ("postgresql", "postgres", "postgresql+asyncpg", "sqlite", "sqlite+aiosqlite")
_REDISES = ("redis", "rediss", "unix")


def check(settings: Settings, catalog: Catalog) -> Iterator[Complaint]:
    """Yield everything that is wrong with ``settings`` as a whole, in the order of the file."""
    yield from _server(settings)
    yield from _stores(settings)
    for name, provider in settings.providers.items():
        yield from _provider(name, provider, catalog)
    for name in settings.models:
        yield from _model(name, settings, catalog)
    yield from _races(settings, catalog)
    yield from _clients(settings)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _server(settings: Settings) -> Iterator[Complaint]:
    if not settings.clients and not is_loopback(settings.host):
        yield Complaint(
            ("host",),
            f"{settings.host!r} lets others spend your keys: "
            "add clients with `holeshot keys new NAME`, or bind 127.0.0.1",
        )
    if settings.workers > 1 and settings.redis_url is None:
        yield Complaint(("workers",), "several workers need a leaderboard to share: set redis_url, or workers: 1")
    if settings.workers > 1 and _scheme(settings.database_url.get_secret_value()).startswith("sqlite"):
        yield Complaint(("workers",), "SQLite has one writer: set database_url to a postgresql:// URL, or workers: 1")


def _stores(settings: Settings) -> Iterator[Complaint]:
    if _scheme(settings.database_url.get_secret_value()) not in _DATABASES:
        yield Complaint(("database_url",), "must begin with postgresql:// or sqlite:///")
    if settings.redis_url is not None and _scheme(settings.redis_url.get_secret_value()) not in _REDISES:
        yield Complaint(("redis_url",), "must begin with redis://, rediss:// or unix://")


def _provider(name: str, provider: ProviderSettings, catalog: Catalog) -> Iterator[Complaint]:
    place: Place = ("providers", name)
    if "/" in name or "," in name:
        yield Complaint(place, "a provider's name has no slash and no comma: deployments are written provider/model")
    if provider.base_url is not None and _scheme(provider.base_url) not in ("http", "https"):
        yield Complaint((*place, "base_url"), "must begin with http:// or https://")
    vendor = vendor_of(name, provider, catalog)
    if provider.preset is not None and vendor is None:
        yield Complaint(
            (*place, "preset"), f"{provider.preset!r} is not in the catalog; {nearest(provider.preset, catalog)}"
        )
        return
    kind = provider.kind or (vendor.kind if vendor else "openai_compatible")
    known_url = provider.base_url or (vendor.base_url if vendor else None)
    if kind == "openai_compatible" and known_url is None:
        if vendor is not None:
            yield Complaint(place, f"{vendor.title} has no base_url of its own: give yours")
        else:
            yield Complaint(place, f"is not in the catalog: give its base_url, or a preset; {nearest(name, catalog)}")
    own_host = provider.base_url is None or (vendor is not None and vendor.base_url is None)
    if vendor is not None and vendor.key_required and own_host and not _is_set(provider):
        variables = " or ".join(vendor.key_env) or f"api_key of provider '{name}'"
        yield Complaint(place, f"{vendor.title} needs a key: set {variables}, or remove provider '{name}'")


def _model(name: str, settings: Settings, catalog: Catalog) -> Iterator[Complaint]:
    place: Place = ("models", name)
    if "," in name:
        yield Complaint(place, "a model's name has no comma: requests write lists of deployments with it")
    seen: dict[str, int] = {}
    for index, deployment in enumerate(settings.models[name].deployments):
        here = (*place, "deployments", index)
        provider = deployment.deployment.partition("/")[0]
        if provider not in settings.providers:
            hint = nearest(provider, [*settings.providers, *catalog])
            yield Complaint(here, f"{deployment.deployment!r}: there is no provider {provider!r}; {hint}")
        if deployment.name in seen:
            yield Complaint(here, f"{deployment.name!r} is there twice: remove one, or name it apart with `as:`")
        seen[deployment.name] = index


def _races(settings: Settings, catalog: Catalog) -> Iterator[Complaint]:
    def is_priced(item: DeploymentSettings) -> bool:
        name = item.deployment.partition("/")[0]
        provider = settings.providers.get(name)
        vendor = None if provider is None else vendor_of(name, provider, catalog)
        return prices.of(vendor, item) is not None

    by_cost = any(model.race.objective is Objective.COST for model in settings.models.values())
    prices = Prices(settings, catalog, PriceTable.installed() if by_cost else PriceTable(None))
    for name, model in settings.models.items():
        yield from impossible(name, model, is_priced)


def _clients(settings: Settings) -> Iterator[Complaint]:
    holders: dict[str, str] = {}
    for name, client in settings.clients.items():
        place: Place = ("clients", name)
        other = holders.setdefault(client.key_sha256, name)
        if other != name:
            yield Complaint((*place, "key_sha256"), f"is the key of client {other!r}, too: give each its own")
        for field, named, known in (
            ("models", client.models or (), settings.models),
            ("only", client.only or (), settings.providers),
            ("ignore", client.ignore, settings.providers),
        ):
            for index, word in enumerate(named):
                if word not in known:
                    what = "model" if field == "models" else "provider"
                    yield Complaint((*place, field, index), f"there is no {what} {word!r}; {nearest(word, known)}")


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower() if "://" in url else ""


def _is_set(provider: ProviderSettings) -> bool:
    return provider.api_key is not None and provider.api_key.get_secret_value() != ""
