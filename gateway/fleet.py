"""What is configured, resolved: the models clients ask for, their deployments, and the upstream that reaches each.

A fleet is built from one version of the settings and never changes. A reload builds the next one from the last,
which hands over the upstreams (and so the warm connections) of providers that stayed the same. A call leases the
fleet it began with; upstreams that no newer fleet took over are closed when the last lease ends.
"""

import asyncio
import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from gateway.errors import ModelNotFound
from gateway.settings.model import (
    DeploymentSettings,
    ModelSettings,
    ProviderSettings,
    RaceSettings,
    Settings,
    Timeouts,
    profile_timeouts,
)
from gateway.settings.profiles import Profile
from providers.catalog import Vendor
from providers.exchange import Upstream
from providers.prices import Price

ADHOC_KEPT = 256  # ad-hoc names remembered: they come from clients, so their number must be bounded

OpenUpstream = Callable[[str, ProviderSettings, Vendor | None], Upstream]
FindPrice = Callable[[Vendor | None, DeploymentSettings], Price | None]


class Clocks(msgspec.Struct, frozen=True):
    """The four clocks of one deployment, resolved. Seconds."""

    connect_s: float
    ttft_s: float
    stall_s: float
    total_s: float | None


class Deployment(msgspec.Struct, frozen=True):
    """One model at one provider, ready to be asked."""

    name: str
    provider: str
    model: str  # the provider's own name for it
    upstream: Upstream
    clocks: Clocks
    price: Price | None
    bills_after_disconnect: bool | None  # does hanging up stop the bill? None: unknown
    extra_body: Mapping[str, msgspec.Raw]
    upstream_stream: bool
    max_in_flight: int | None = None  # of this replica


class Model(msgspec.Struct, frozen=True):
    """A public name and the deployments behind it, by name, in the order of the configuration."""

    name: str
    deployments: Mapping[str, Deployment]
    race: RaceSettings
    adhoc: bool = False
    prices: Mapping[str, Price] = {}  # by deployment, where known
    limits: Mapping[str, int] = {}  # max_in_flight by deployment, where there is one
    profiles: Mapping[Profile, "Model"] = {}  # the same model as each profile would have it: its race and its clocks

    def under(self, profile: Profile | None) -> "Model":
        """Return the model as ``profile`` would have it; as configured without one, or under its own."""
        return self if profile is None or profile is self.race.profile else self.profiles.get(profile, self)


class Fleet:
    """All models of one version of the configuration."""

    def __init__(
        self,
        settings: Settings,
        catalog: Mapping[str, Vendor],
        *,
        open_upstream: OpenUpstream,
        find_price: FindPrice,
        previous: "Fleet | None" = None,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._find_price = find_price
        self._leases = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._upstreams: dict[str, Upstream] = {}
        for name, provider in settings.providers.items():
            kept = previous.upstream_of(name, provider) if previous is not None else None
            self._upstreams[name] = kept or open_upstream(name, provider, self._vendor(name))
        self.models: Mapping[str, Model] = {name: self._model(name, model) for name, model in settings.models.items()}
        self._adhoc: dict[str, Model] = {}

    def find(self, name: str, *, adhoc: bool) -> Model:
        """Return the model called ``name``; with ``adhoc`` also ``provider/model`` and comma lists of them.

        Raises:
            ModelNotFound: with the nearest known names.

        """
        model = self.models.get(name) or (self._adhoc_model(name) if adhoc else None)
        if model is None:
            raise ModelNotFound(self._explain_unknown(name, adhoc=adhoc), param="model")
        return model

    def upstream_of(self, name: str, settings: ProviderSettings) -> Upstream | None:
        """Return the upstream of provider ``name`` if it was opened with exactly these settings."""
        return self._upstreams[name] if self._settings.providers.get(name) == settings else None

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """Every provider's upstream, by the provider's name."""
        return self._upstreams

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Keep this fleet's upstreams open while a call uses them."""
        self._leases += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._leases -= 1
            if not self._leases:
                self._idle.set()

    async def idle(self) -> None:
        """Wait until no call uses this fleet."""
        await self._idle.wait()

    async def aclose(self, successor: "Fleet | None" = None) -> None:
        """Close the upstreams that ``successor`` did not take over."""
        kept = set(map(id, successor.upstreams.values())) if successor is not None else set()
        for upstream in self._upstreams.values():
            if id(upstream) not in kept:
                await upstream.aclose()

    def _vendor(self, provider: str) -> Vendor | None:
        settings = self._settings.providers[provider]
        return self._catalog.get(settings.preset or provider)

    def _model(self, name: str, settings: ModelSettings, *, adhoc: bool = False) -> Model:
        race, own = settings.race, settings.timeouts
        deployments = {item.name: self._deployment(item) for item in settings.deployments}
        prices = {key: each.price for key, each in deployments.items() if each.price is not None}
        limits = {key: each.max_in_flight for key, each in deployments.items() if each.max_in_flight is not None}

        def raced(race: RaceSettings, *timeouts: Timeouts, profiles: Mapping[Profile, Model]) -> Model:
            return Model(
                name=name,
                deployments={key: self._clocked(each, *timeouts) for key, each in deployments.items()},
                race=race,
                adhoc=adhoc,
                prices=prices,
                limits=limits,
                profiles=profiles,
            )

        # What is configured beside the model's own profile is stronger than that, but weaker than one chosen by others.
        others = {
            profile: raced(race.under(profile), profile_timeouts(profile), own, profiles={}) for profile in Profile
        }
        return raced(race, own, profile_timeouts(race.profile), profiles=others)

    def _deployment(self, settings: DeploymentSettings) -> Deployment:
        provider, _, model = settings.deployment.partition("/")
        vendor = self._vendor(provider)
        return Deployment(
            name=settings.name,
            provider=provider,
            model=model,
            upstream=self._upstreams[provider],
            clocks=_clocks(self._settings.timeouts),
            price=self._find_price(vendor, settings),
            bills_after_disconnect=vendor.bills_after_disconnect if vendor else None,
            extra_body={key: msgspec.Raw(msgspec.json.encode(value)) for key, value in settings.extra_body.items()},
            upstream_stream=settings.upstream_stream,
            max_in_flight=settings.max_in_flight,
        )

    def _clocked(self, deployment: Deployment, *timeouts: Timeouts) -> Deployment:
        """Return the deployment with the clocks of ``timeouts``, strongest first, else its provider's."""
        provider = self._settings.providers[deployment.provider]
        clocks = _clocks(*timeouts, provider.timeouts, self._settings.timeouts)
        return msgspec.structs.replace(deployment, clocks=clocks)

    def _adhoc_model(self, name: str) -> Model | None:
        if (known := self._adhoc.get(name)) is not None:
            return known
        parts = [part.strip() for part in name.split(",")]
        for part in parts:
            provider, _, name_there = part.partition("/")
            if not name_there or provider not in self._settings.providers:
                return None
        settings = ModelSettings.model_validate({"deployments": list(dict.fromkeys(parts))})
        if len(self._adhoc) >= ADHOC_KEPT:
            self._adhoc.pop(next(iter(self._adhoc)))
        model = self._adhoc[name] = self._model(name, settings, adhoc=True)
        return model

    def _explain_unknown(self, name: str, *, adhoc: bool) -> str:
        near = difflib.get_close_matches(name, self.models, n=3, cutoff=0.5)
        hint = (
            f"did you mean {' or '.join(map(repr, near))}?"
            if near
            else f"known models: {', '.join(self.models) or 'none'}"
        )
        provider, slash, _ = name.partition("/")
        if adhoc and slash and provider not in self._settings.providers:
            hint += (
                f"; {provider!r} is no configured provider ({', '.join(self._settings.providers) or 'there are none'})"
            )
        return f"the model {name!r} does not exist; {hint}"


def _clocks(*levels: Timeouts) -> Clocks:
    """Return the clocks set by the first of ``levels`` that sets each."""

    def first(name: str) -> float | None:
        return next((value for level in levels if (value := getattr(level, name)) is not None), None)

    return Clocks(
        connect_s=first("connect_timeout_s") or 5.0,
        ttft_s=first("ttft_timeout_s") or 120.0,
        stall_s=first("stall_timeout_s") or 120.0,
        total_s=first("total_timeout_s"),
    )
