"""Resolves settings to models: each deployment with its provider's settings and the catalog's data."""

from collections.abc import Callable, Collection, Iterable, Mapping
from urllib.request import getproxies_environment

import msgspec
from pydantic import SecretStr

from gateway.fleet.models import Clocks, Common, Deployment, Model, Parameters, learnt_by
from gateway.settings import (
    DeploymentSettings,
    ModelSettings,
    Profile,
    ProviderSettings,
    RaceSettings,
    Settings,
    Timeouts,
    apis_at,
    bills_on,
    keeps_requests,
    kind_of,
    profile_takeover,
    profile_timeouts,
    says_store,
    vendor_of,
    ways_of,
)
from providers import (
    CLAUDES,
    COMPACTING,
    SEARCHING,
    Api,
    Capabilities,
    Datasheet,
    Price,
    Quirks,
    Traits,
    Upstream,
    Vendor,
    addresses,
    apis_of,
    apis_perhaps,
    is_added,
    lets_search,
    raw_json,
    refusing,
    runs_itself,
    stores_responses,
    tier_of,
    traits_of,
    within,
)
from providers.dialects import DIALECTS, PIVOT, Dialect, Habits, Seal, habits_by_dialect

# Settings of a deployment that hold in all models.
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
        secret: bytes,
    ) -> None:
        self._settings, self._secret = settings, secret
        self._catalog = catalog
        self._upstreams = upstreams
        self._find_datasheet = find_datasheet
        self._limits, self._of_fleet = limits(settings), fleet_limits(settings)
        self._proxies = tuple(getproxies_environment().values())  # once: the whole environment is read

    def model(self, name: str, settings: ModelSettings, *, adhoc: bool = False, payer: str = "") -> Model:
        """Return a model as configured, and under each profile; ``payer``'s budget pays for its extra attempts."""
        race, own = settings.race, settings.timeouts
        marks = settings.cache_marks == "auto"
        deployments = {item.name: self._deployment(item, marks=marks) for item in settings.deployments if item.enabled}
        prices = {key: each.price for key, each in deployments.items() if each.price is not None}
        limited = {key: each.max_in_flight for key, each in deployments.items() if each.max_in_flight is not None}
        own_of = {item.name: item.timeouts for item in settings.deployments}
        weights = {key: each.weight for key, each in deployments.items() if each.weight != 1.0}
        canaries = {key: each.canary for key, each in deployments.items() if each.canary is not None}
        bills_losers = frozenset(key for key, each in deployments.items() if each.bills_after_disconnect)
        dearest = max(prices.values(), key=_total_price) if 0 < len(prices) < len(deployments) else None
        costs_nothing = all(each.is_free for each in deployments.values())
        parameters = Parameters.of(settings)
        common = Common.of(deployments.values())
        if parameters is not None and is_added(parameters.defaults):
            common = msgspec.structs.replace(common, acts=True)
        learnt = learnt_by(deployments.values())

        def raced(race: RaceSettings, *timeouts: Timeouts, profiles: Mapping[Profile, Model]) -> Model:
            clocked = {key: self._clocked(each, own_of[key], *timeouts) for key, each in deployments.items()}
            return Model(
                name=name,
                deployments=clocked,
                ttft_s={key: each.clocks.ttft_s for key, each in clocked.items()},
                race=race,
                adhoc=adhoc,
                payer=payer or name,
                prices=prices,
                limits=limited,
                weights=weights,
                canaries=canaries,
                bills_losers=bills_losers,
                use_limits=settings.by_name,
                zone=self._settings.limits_zone,
                has_dollars=bool(settings.in_dollars),
                dearest=dearest,
                fallbacks=settings.fallbacks,
                fallback_after=settings.fallback_after,
                keepalive_s=settings.keepalive_s,
                takeover=profile_takeover(race.profile, settings.takeover),
                parameters=parameters,
                common=common,
                marks=any(each.marks_from is not None for each in deployments.values()),
                costs_nothing=costs_nothing,
                learnt=learnt,
                profiles=profiles,
            )

        # Explicit settings override the model's own profile, but not one chosen by a client or request.
        others = {
            profile: raced(race.under(profile), profile_timeouts(profile), own, profiles={}) for profile in Profile
        }
        return raced(race, own, profile_timeouts(race.profile), profiles=others)

    def facts_of(self, deployment: str) -> DeploymentSettings:
        """Return a deployment that a client names directly, with its configured price and capabilities.

        A deployment that is configured under another name (``as``) is another deployment, with facts of its own.
        """
        for model in self._settings.models.values():
            for each in model.deployments:
                if each.name == each.deployment == deployment and each.model_fields_set & _FACTS:
                    facts = {field: getattr(each, field) for field in _FACTS & each.model_fields_set}
                    return DeploymentSettings(deployment=deployment, **facts)
        return DeploymentSettings(deployment=deployment)

    def vendor(self, provider: str) -> Vendor | None:
        """Return the catalog row of a provider; None: the catalog has none."""
        return vendor_of(provider, self._settings.providers[provider], self._catalog)

    def _deployment(self, settings: DeploymentSettings, *, marks: bool) -> Deployment:
        """Return a deployment; ``marks``: its requests get cache marks, if its model takes marks."""
        provider, _, model = settings.deployment.partition("/")
        extra_body = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in settings.extra_body.items()}
        vendor = self.vendor(provider)
        quirks = _NO_QUIRKS if vendor is None else vendor.quirks
        datasheet = self._find_datasheet(vendor, settings)
        provided = self._settings.providers[provider]
        kind = kind_of(provider, provided, self._catalog)
        traits = traits_of(settings.same_as or model, vendor.name if vendor is not None else "")
        version = _version_of(provided.headers, settings.extra_headers) if kind == "anthropic" else ""
        if version >= _NEWEST_VERSION:
            traits = refusing(traits, _SAMPLING)
        if quirks.temperatures is not None:
            traits = within(traits, quirks.temperatures)
        apis = apis_at(settings, provided, vendor, datasheet.only_api)
        price, tier = datasheet.price, tier_of(settings.extra_body.get("service_tier"))
        is_free = model.endswith(quirks.free) and not (price and price.is_configured)
        price = _NOTHING if is_free else price
        # Models without a cache have no price of cached tokens, and refuse marks.
        takes_marks = quirks.habits.takes_marks and price is not None and price.cached_input_usd is not None
        marks_from = _marks_from(traits, kind, extra_body, takes_marks=takes_marks) if marks else None
        can, has_marks = datasheet.capabilities, marks_from is not None
        habits = _habits(vendor, model, traits, can, takes_marks=takes_marks, has_marks=has_marks)
        store, stores_own = says_store(provided, vendor)
        return Deployment(
            name=settings.name,
            provider=provider,
            model=model,
            upstream=self._upstreams[provider],
            clocks=_clocks(self._settings.timeouts),
            is_free=is_free or (price is not None and price.is_zero),
            price=price.usually(tier) if price is not None and tier else price,
            listed=datasheet.listed,
            bills_after_disconnect=bills_on(settings, vendor),
            extra_body=extra_body,
            acts=runs_itself(model) or is_added(extra_body),
            searches=runs_itself(model) or lets_search(extra_body),
            upstream_stream=settings.upstream_stream,
            max_in_flight=min(
                (each[settings.name] for each in (self._limits, self._of_fleet) if settings.name in each), default=None
            ),
            capabilities=can,
            apis=frozenset(apis),
            speaks=_spoken(apis) or (PIVOT,),
            may_have=None if settings.apis else _may_have(provided, vendor, apis),
            learnt=self._upstreams[provider].learnt,
            drop_params=settings.drop_params,
            adapts_forced=settings.forced_tools == "adapt",
            extra_headers=tuple(
                (key.lower(), value.get_secret_value()) for key, value in settings.extra_headers.items()
            ),
            weight=settings.weight,
            canary=settings.canary,
            vendor=vendor.name if vendor else None,
            continues=ways_of(settings, vendor, provided.base_url),
            traits=traits,
            is_newest_version=version >= _NEWEST_VERSION,
            drops_unfit=kind in CLAUDES and "prefix" in traits.bound,
            seal=Seal(self._secret, provided.account or provider),
            habits=habits,
            dropped=_dropped(quirks, traits),
            refuses_storing=quirks.refuses_storing,
            compacts=vendor is None or vendor.name in COMPACTING,
            functions_only=quirks.functions_only,
            lacks_schemas=quirks.lacks_schemas and settings.capabilities.json_schema is None,
            marks_from=marks_from,
            cache_keys=vendor.cache_keys if vendor is not None else frozenset(),
            conversations=None if vendor is None else vendor.conversations,
            stores=stores_responses(vendor, provided.base_url),
            keeps=keeps_requests(provided, vendor),
            store=None if store is None else raw_json(store),
            stores_own=stores_own,
            states_cost=quirks.states_cost and not (price and price.is_configured),
            zdr=settings.zdr,
            region=settings.region,
            same_as=settings.same_as,
            quantization=settings.quantization,
            hardware=settings.hardware,
            whole=quirks.whole,
            addresses=addresses((*([str(provided.base_url)] if provided.base_url else []), *self._proxies)),
        )

    def _clocked(self, deployment: Deployment, *timeouts: Timeouts) -> Deployment:
        """Return the deployment with ``timeouts``, the first taking precedence, else its provider's timeouts."""
        provider = self._settings.providers[deployment.provider]
        clocks = _clocks(*timeouts, provider.timeouts, self._settings.timeouts)
        return msgspec.structs.replace(deployment, clocks=clocks)


def _habits(
    vendor: Vendor | None, model: str, traits: Traits, can: Capabilities, *, takes_marks: bool, has_marks: bool
) -> Mapping[str, Habits]:
    """Return how a model is asked, by dialect: by its vendor's row, its traits and its datasheet.

    ``takes_marks``: clients' cache marks. ``has_marks``: the gateway sets such marks.
    """
    quirks, name = (_NO_QUIRKS, None) if vendor is None else (vendor.quirks, vendor.name)
    thinks = can.reasoning
    known = msgspec.structs.replace(
        quirks.habits,
        thinks=thinks is not False,
        takes_marks=takes_marks,
        takes_signed=quirks.signer(model),
        beyond=quirks.beyond_chat(model),
        takes_forced=traits.takes_forced,
        forbids_calls=traits.forced_tools != "auto",
        takes_none=traits.takes_none,
        may_think=not traits.family and thinks is not False,
        instructions_last=traits.breakpoints and has_marks,  # the marked text stands in the input
        encrypts=traits.signs and (bool(traits.efforts) if thinks is None else thinks),
        searches=name in SEARCHING,
        reads_bills=name == "anthropic",
    )
    return habits_by_dialect(known, traits, can.max_output_tokens)


def _marks_from(traits: Traits, kind: str | None, extra: Collection[str], *, takes_marks: bool) -> int | None:
    """Return from how many tokens on a prompt gets a cache mark: of a Claude, or of a GPT with breakpoints, if it may.

    A deployment whose requests get a mark of the operator's gets no others: with four more there would be one too many.
    """
    takes_claudes = kind in CLAUDES or (kind == "bedrock" and takes_marks)
    takes = traits.breakpoints or (traits.family == "claude" and takes_claudes)
    return traits.marks_from if takes and _TOLD.isdisjoint(extra) else None


def _dropped(quirks: Quirks, traits: Traits) -> Mapping[str, frozenset[str]]:
    """Return, by dialect, the top-level fields that may be left out of a deployment's request, or made less."""
    of_model = traits.drop | {path.partition(".")[0] for path in traits.drop_within}
    found = dict[str, frozenset[str]]()
    for name, dialect in DIALECTS.items():
        vendors = dialect.requests.vendors
        dropped = quirks.may_drop(name, is_chats=vendors.takes_quirks)
        if dropped := dropped | (of_model if vendors.takes_rules else frozenset()):
            found[name] = dropped
    return found


def limits(settings: Settings) -> Mapping[str, int]:
    """Return the maximum of attempts in flight in this process, by limited deployment.

    The limit protects a server: if several models have the same deployment, the smallest limit counts for all models.
    Each of several workers gets the same share, at least 1.
    """
    smallest = _smallest(settings, lambda each: each.max_in_flight)
    return {name: max(1, limit // settings.workers) for name, limit in smallest.items()}


def fleet_limits(settings: Settings) -> Mapping[str, int]:
    """Return the maximum of attempts in flight in all processes of all replicas, by limited deployment."""
    return _smallest(settings, lambda each: each.max_in_flight_fleet)


def _smallest(settings: Settings, limit_of: Callable[[DeploymentSettings], int | None]) -> dict[str, int]:
    smallest: dict[str, int] = {}
    for model in settings.models.values():
        for each in model.deployments:
            if (limit := limit_of(each)) is not None:
                smallest[each.name] = min(limit, smallest.get(each.name, limit))
    return smallest


def _spoken(apis: Iterable[Api]) -> tuple[Dialect, ...]:
    """Return the dialects among ``apis``, first the dialects to which others can be translated."""
    spoken = [DIALECTS[api] for api in DIALECTS if api in apis]
    return tuple(sorted(spoken, key=lambda dialect: dialect.untranslated is not None))


def _may_have(provider: ProviderSettings, vendor: Vendor | None, apis: Iterable[Api]) -> tuple[Dialect, ...] | None:
    """Return the dialects besides ``apis`` that a deployment may have all the same; None: the operator named ``apis``.

    The table may be wrong about a model, and a server of an unknown kind may have any of OpenAI's and Anthropic's APIs.
    """
    usual = provider.apis or (*apis_of(vendor, provider.kind, provider.base_url), *apis_perhaps(vendor, provider.kind))
    further = _spoken([api for api in usual if api not in apis])
    return (further or None) if provider.apis else further


DEFAULT_S = 120.0  # for the first token, and for a stall
# How long a silence may last while a tool call may be in the making: as long as a call of 30,000 tokens took,
# https://github.com/github/copilot-cli/issues/4286
SILENT_CALL_S = 360.0


def _clocks(*levels: Timeouts) -> Clocks:
    """Return each timeout from the first of ``levels`` that sets it, else the default."""

    def first(name: str) -> float | None:
        return next((value for level in levels if (value := getattr(level, name)) is not None), None)

    ttft_s, stall_s = first("ttft_timeout_s") or DEFAULT_S, first("stall_timeout_s") or DEFAULT_S
    return Clocks(
        connect_s=first("connect_timeout_s") or 5.0,
        ttft_s=ttft_s,
        stall_s=stall_s,
        total_s=first("total_timeout_s"),
        # Other timeouts were chosen for this deployment, and hold.
        first_call_s=SILENT_CALL_S if ttft_s == DEFAULT_S else 0.0,
        silent_call_s=SILENT_CALL_S if stall_s == DEFAULT_S else 0.0,
    )


_NOTHING, _NO_QUIRKS = Price(0.0, 0.0), Quirks()


def _total_price(price: Price) -> float:
    return price.input_usd + price.output_usd


# From this version of Anthropic's API on no model takes sampling, not even its default: "temperature: Extra inputs are
# not permitted" (platform.claude.com/docs/en/api/versioning, read on 2026-11-29). Other operators ask for an older
# version. The dialect knows which parts of a conversation the version does not take (``for_newest_version``).
_NEWEST_VERSION = "2026-10-21"
_TOLD = frozenset({"cache_control", "prompt_cache_options"})  # fields of the operator's that say what to cache
_SAMPLING = frozenset({"temperature", "top_k", "top_p"})


def _version_of(*headers: Mapping[str, SecretStr]) -> str:
    """Return the version of Anthropic's API in an operator's headers; the last headers count before earlier ones."""
    said = {name.lower(): value.get_secret_value() for each in headers for name, value in each.items()}
    return said.get("anthropic-version", "")
