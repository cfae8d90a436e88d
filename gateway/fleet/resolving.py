"""Resolves settings to models: each deployment with its provider's settings and the catalog's data."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from gateway.fleet.deployment import Clocks, Deployment
from gateway.fleet.model import Common, Model
from gateway.parameters import Parameters
from gateway.settings.datasheets import bills_on
from gateway.settings.deployment import DeploymentSettings
from gateway.settings.model import ModelSettings, RaceSettings, Settings
from gateway.settings.profiles import Profile
from gateway.settings.takeover_checks import ways_of
from gateway.settings.timeouts import Timeouts, profile_timeouts
from providers.catalog import Api, Vendor, apis_of
from providers.datasheets import Datasheet
from providers.dialects.dialect import Dialect
from providers.dialects.index import DIALECTS, PIVOT
from providers.exchange import Upstream
from providers.prices import Price

# Of a deployment, in all models.
_FACTS = frozenset({"bills_after_disconnect", "capabilities", "price_per_mtok"})

FindDatasheet = Callable[[Vendor | None, DeploymentSettings], Datasheet]


class Resolver:
    """Resolves the models of one version of the settings; ``upstreams`` must have one for each provider."""

    def __init__(
        self,
        settings: Settings,
        catalog: Mapping[str, Vendor],
        upstreams: Mapping[str, Upstream],
        find_datasheet: FindDatasheet,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._upstreams = upstreams
        self._find_datasheet = find_datasheet
        self._limits = limits(settings)

    def model(self, name: str, settings: ModelSettings, *, adhoc: bool = False, payer: str = "") -> Model:
        """Return a model as configured, and under each profile; ``payer`` is charged for its extra attempts."""
        race, own = settings.race, settings.timeouts
        deployments = {item.name: self._deployment(item) for item in settings.deployments if item.enabled}
        prices = {key: each.price for key, each in deployments.items() if each.price is not None}
        limited = {key: each.max_in_flight for key, each in deployments.items() if each.max_in_flight is not None}
        own_of = {item.name: item.timeouts for item in settings.deployments}
        weights = {key: each.weight for key, each in deployments.items() if each.weight != 1.0}
        canaries = {key: each.canary for key, each in deployments.items() if each.canary is not None}
        bills_losers = frozenset(key for key, each in deployments.items() if each.bills_after_disconnect)
        dearest = max(prices.values(), key=_dearness) if 0 < len(prices) < len(deployments) else None
        parameters = Parameters.of(settings)
        common = Common.of(deployments.values())

        def raced(race: RaceSettings, *timeouts: Timeouts, profiles: Mapping[Profile, Model]) -> Model:
            return Model(
                name=name,
                deployments={key: self._clocked(each, own_of[key], *timeouts) for key, each in deployments.items()},
                race=race,
                adhoc=adhoc,
                payer=payer or name,
                prices=prices,
                limits=limited,
                weights=weights,
                canaries=canaries,
                bills_losers=bills_losers,
                usd_per_day=settings.usd_per_day,
                dearest=dearest,
                fallbacks=settings.fallbacks,
                keepalive_s=settings.keepalive_s,
                takeover=settings.takeover,
                parameters=parameters,
                common=common,
                profiles=profiles,
            )

        # Explicit settings take precedence over the model's own profile, but not over one chosen by a client or
        # request.
        others = {
            profile: raced(race.under(profile), profile_timeouts(profile), own, profiles={}) for profile in Profile
        }
        return raced(race, own, profile_timeouts(race.profile), profiles=others)

    def facts_of(self, deployment: str) -> DeploymentSettings:
        """Return a deployment that is named directly, with its configured price and capabilities.

        One that is configured under another name (``as``) is a separate deployment with its own facts.
        """
        for model in self._settings.models.values():
            for each in model.deployments:
                if each.name == each.deployment == deployment and each.model_fields_set & _FACTS:
                    facts = {field: getattr(each, field) for field in _FACTS & each.model_fields_set}
                    return DeploymentSettings(deployment=deployment, **facts)
        return DeploymentSettings(deployment=deployment)

    def vendor(self, provider: str) -> Vendor | None:
        """Return the catalog row of a provider; None if it has none."""
        settings = self._settings.providers[provider]
        return self._catalog.get(settings.preset or provider)

    def _deployment(self, settings: DeploymentSettings) -> Deployment:
        provider, _, model = settings.deployment.partition("/")
        vendor = self.vendor(provider)
        datasheet = self._find_datasheet(vendor, settings)
        provided = self._settings.providers[provider]
        apis = settings.apis or provided.apis or apis_of(vendor, provided.kind)
        return Deployment(
            name=settings.name,
            provider=provider,
            model=model,
            upstream=self._upstreams[provider],
            clocks=_clocks(self._settings.timeouts),
            price=datasheet.price,
            bills_after_disconnect=bills_on(settings, vendor),
            extra_body={key: msgspec.Raw(msgspec.json.encode(value)) for key, value in settings.extra_body.items()},
            upstream_stream=settings.upstream_stream,
            max_in_flight=self._limits.get(settings.name),
            capabilities=datasheet.capabilities,
            apis=frozenset(apis),
            speaks=_spoken(apis) or (PIVOT,),
            drop_params=settings.drop_params,
            extra_headers=tuple(
                (key.lower(), value.get_secret_value()) for key, value in settings.extra_headers.items()
            ),
            weight=settings.weight,
            canary=settings.canary,
            vendor=vendor.name if vendor else None,
            continues=ways_of(settings, vendor, provided.base_url),
            takes_thoughts=vendor is not None and vendor.quirks.takes_thoughts,
            zdr=settings.zdr,
            region=settings.region,
            quantization=settings.quantization,
        )

    def _clocked(self, deployment: Deployment, *timeouts: Timeouts) -> Deployment:
        """Return the deployment with ``timeouts``, the first taking precedence, else its provider's."""
        provider = self._settings.providers[deployment.provider]
        clocks = _clocks(*timeouts, provider.timeouts, self._settings.timeouts)
        return msgspec.structs.replace(deployment, clocks=clocks)


def limits(settings: Settings) -> Mapping[str, int]:
    """Return the maximum of attempts in flight in this process, by limited deployment.

    The limit protects a server: if several models have the same deployment, the smallest limit counts for all. Each of
    several workers gets the same share, at least one.
    """
    smallest: dict[str, int] = {}
    for model in settings.models.values():
        for each in model.deployments:
            if each.max_in_flight is not None:
                smallest[each.name] = min(each.max_in_flight, smallest.get(each.name, each.max_in_flight))
    return {name: max(1, limit // settings.workers) for name, limit in smallest.items()}


def _spoken(apis: Iterable[Api]) -> tuple[Dialect, ...]:
    """Return the dialects among ``apis``, first those to which others can be translated."""
    spoken = [DIALECTS[api] for api in DIALECTS if api in apis]
    return tuple(sorted(spoken, key=lambda dialect: dialect.untranslated is not None))


def _clocks(*levels: Timeouts) -> Clocks:
    """Return each timeout from the first of ``levels`` that sets it."""

    def first(name: str) -> float | None:
        return next((value for level in levels if (value := getattr(level, name)) is not None), None)

    return Clocks(
        connect_s=first("connect_timeout_s") or 5.0,
        ttft_s=first("ttft_timeout_s") or 120.0,
        stall_s=first("stall_timeout_s") or 120.0,
        total_s=first("total_timeout_s"),
    )


def _dearness(price: Price) -> float:
    return price.input_usd + price.output_usd
