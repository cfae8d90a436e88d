"""What is configured, resolved: the models clients ask for, their deployments, and the upstream that reaches each.

A fleet is built from one version of the settings and never changes. A reload builds the next one from the last,
which hands over the upstreams (and so the warm connections) of providers that stayed the same. A call leases the
fleet it began with; upstreams that no newer fleet took over are closed when the last lease ends.
"""

import asyncio
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf

import msgspec

from gateway.errors import Forbidden, ModelNotFound
from gateway.parameters import Parameters
from gateway.settings.datasheets import bills_on
from gateway.settings.joint import joined
from gateway.settings.model import (
    DeploymentSettings,
    FallbackSettings,
    ModelSettings,
    ProviderSettings,
    RaceSettings,
    Settings,
    Timeouts,
    profile_timeouts,
)
from gateway.settings.profiles import Profile
from providers.capabilities import UNKNOWN, Capabilities
from providers.catalog import Api, Vendor, apis_of
from providers.datasheets import Datasheet
from providers.dialects.dialect import Dialect
from providers.dialects.index import DIALECTS, PIVOT
from providers.exchange import Upstream
from providers.masked_record import MaskedRecord
from providers.prices import Price

# Of a deployment, whichever model has it.
_FACTS = frozenset({"bills_after_disconnect", "capabilities", "price_per_mtok"})
ADHOC_KEPT = 256  # ad-hoc names remembered: they come from clients, so their number must be bounded

# Takes also what must not show up in a message, besides the provider's own secrets.
OpenUpstream = Callable[[str, ProviderSettings, Vendor | None, tuple[str, ...]], Upstream]
FindDatasheet = Callable[[Vendor | None, DeploymentSettings], Datasheet]


class Clocks(msgspec.Struct, frozen=True):
    """The four clocks of one deployment, resolved. Seconds."""

    connect_s: float
    ttft_s: float
    stall_s: float
    total_s: float | None


class Deployment(MaskedRecord, frozen=True):
    """One model at one provider, ready to be asked."""

    name: str
    provider: str
    model: str  # the provider's own name for it
    upstream: Upstream
    clocks: Clocks
    price: Price | None
    bills_after_disconnect: bool | None  # is a whole answer billed though one hung up? None: unknown
    extra_body: Mapping[str, msgspec.Raw]
    upstream_stream: bool
    max_in_flight: int | None = None  # of this process
    capabilities: Capabilities = UNKNOWN
    apis: frozenset[Api] = frozenset((PIVOT.name,))
    speaks: tuple[Dialect, ...] = (PIVOT,)  # the dialects among its APIs; others are translated to the first
    drop_params: bool = False
    extra_headers: tuple[tuple[str, str], ...] = ()  # names in lower case
    weight: float = 1.0
    canary: float | None = None
    vendor: str | None = None  # its provider's name in the catalog
    takes_thoughts: bool = False  # its model wants back what it thought
    zdr: bool | None = None
    region: str | None = None
    quantization: str | None = None

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return its name; its headers may be secrets."""
        yield "name", self.name

    def spoken_to(self, dialect: Dialect) -> Dialect:
        """Return the dialect in which it is asked by who speaks ``dialect``: the same if it can be."""
        return dialect if dialect in self.speaks else self.speaks[0]


class Common(msgspec.Struct, frozen=True):
    """What all deployments of a model can do, so that for most calls nobody need look at each of them."""

    speaks: frozenset[Dialect]  # natively, and nothing of a request is lost on any of them
    context_tokens: float  # the shortest that is known
    max_output_tokens: float  # likewise

    @classmethod
    def of(cls, deployments: Iterable[Deployment]) -> "Common":
        """Return what ``deployments`` have in common."""
        each = list(deployments)
        spoken = [set(one.speaks) if one.upstream.accepts_all_parameters else set() for one in each]
        common = set.intersection(*spoken) if spoken else set()
        return cls(
            # Of requests in other dialects, thoughts may have to be left out.
            frozenset(dialect for dialect in common if dialect.requests.without_foreign_thoughts is None),
            min((one.capabilities.context_tokens or inf for one in each), default=inf),
            min((one.capabilities.max_output_tokens or inf for one in each), default=inf),
        )


class Model(msgspec.Struct, frozen=True):
    """A public name and the deployments behind it, by name, in the order of the configuration."""

    name: str
    deployments: Mapping[str, Deployment]
    race: RaceSettings
    adhoc: bool = False
    common: Common = Common(frozenset(), 0, 0)
    payer: str = ""  # whose usd_per_day its extra attempts are charged to: its own name, or the first of a comma list
    prices: Mapping[str, Price] = {}  # by deployment, where known
    limits: Mapping[str, int] = {}  # max_in_flight by deployment, where there is one
    weights: Mapping[str, float] = {}  # by deployment, those that are not 1
    canaries: Mapping[str, float] = {}  # the share of calls by deployment, of those that are given one
    bills_losers: frozenset[str] = frozenset()  # deployments that bill a whole answer although one hung up
    fallbacks: tuple[FallbackSettings, ...] = ()
    keepalive_s: float | None = None
    parameters: Parameters | None = None  # what requests are given, and kept to
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
        find_datasheet: FindDatasheet,
        previous: "Fleet | None" = None,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._find_datasheet = find_datasheet
        self.limits = limits(settings)
        self._leases = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._upstreams: dict[str, Upstream] = {}
        for name, provider in settings.providers.items():
            secrets = self._secrets_sent_to(name)
            kept = previous.upstream_of(name, provider, secrets) if previous is not None else None
            self._upstreams[name] = kept or open_upstream(name, provider, self._vendor(name), secrets)
        self.models: Mapping[str, Model] = {name: self._model(name, model) for name, model in settings.models.items()}
        self._adhoc: dict[str, Model] = {}

    def find(self, name: str, *, adhoc: bool) -> Model:
        """Return the model called ``name``, or all of a comma list of models as one.

        With ``adhoc`` also ``provider/model`` and comma lists of them.

        Raises:
            ModelNotFound: with the nearest known names.
            Forbidden: it names deployments, without ``adhoc``.
            InvalidRequest: models that cannot be asked as one.

        """
        model = self.models.get(name) or self._joint_model(name) or (self._adhoc_model(name) if adhoc else None)
        if model is None and not adhoc and self._deployments_in(name):
            raise Forbidden(
                f"this key may not name deployments directly, as {name!r} does: ask for one of GET /v1/models, or have"
                " the operator set 'adhoc: true' for it",
                param="model",
            )
        if model is None:
            raise ModelNotFound(self._explain_unknown(name, adhoc=adhoc), param="model")
        return model

    def upstream_of(self, name: str, settings: ProviderSettings, secrets: tuple[str, ...]) -> Upstream | None:
        """Return the upstream of provider ``name`` if it was opened with exactly these settings and ``secrets``."""
        same = self._settings.providers.get(name) == settings and self._secrets_sent_to(name) == secrets
        return self._upstreams[name] if same else None

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """Every provider's upstream, by the provider's name."""
        return self._upstreams

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Keep this fleet's upstreams open while a call uses them."""
        self.hold()
        try:
            yield
        finally:
            self.let_go()

    def hold(self) -> None:
        """Keep this fleet's upstreams open until ``let_go``."""
        self._leases += 1
        self._idle.clear()

    def let_go(self, _task: object = None) -> None:
        """Undo one ``hold``."""
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

    def _secrets_sent_to(self, provider: str) -> tuple[str, ...]:
        """Return the values of headers that deployments at ``provider`` have of their own."""
        headers = (
            value.get_secret_value()
            for model in self._settings.models.values()
            for each in model.deployments
            if each.deployment.startswith(f"{provider}/")
            for value in each.extra_headers.values()
        )
        return tuple(sorted(set(headers)))

    def _vendor(self, provider: str) -> Vendor | None:
        settings = self._settings.providers[provider]
        return self._catalog.get(settings.preset or provider)

    def _model(self, name: str, settings: ModelSettings, *, adhoc: bool = False, payer: str = "") -> Model:
        race, own = settings.race, settings.timeouts
        deployments = {item.name: self._deployment(item) for item in settings.deployments if item.enabled}
        prices = {key: each.price for key, each in deployments.items() if each.price is not None}
        limited = {key: each.max_in_flight for key, each in deployments.items() if each.max_in_flight is not None}
        own_of = {item.name: item.timeouts for item in settings.deployments}
        weights = {key: each.weight for key, each in deployments.items() if each.weight != 1.0}
        canaries = {key: each.canary for key, each in deployments.items() if each.canary is not None}
        bills_losers = frozenset(key for key, each in deployments.items() if each.bills_after_disconnect)
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
                fallbacks=settings.fallbacks,
                keepalive_s=settings.keepalive_s,
                parameters=parameters,
                common=common,
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
            max_in_flight=self.limits.get(settings.name),
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
            takes_thoughts=vendor is not None and vendor.quirks.takes_thoughts,
            zdr=settings.zdr,
            region=settings.region,
            quantization=settings.quantization,
        )

    def _clocked(self, deployment: Deployment, *timeouts: Timeouts) -> Deployment:
        """Return the deployment with the clocks of ``timeouts``, strongest first, else its provider's."""
        provider = self._settings.providers[deployment.provider]
        clocks = _clocks(*timeouts, provider.timeouts, self._settings.timeouts)
        return msgspec.structs.replace(deployment, clocks=clocks)

    def _joint_model(self, name: str) -> Model | None:
        parts = [part.strip() for part in name.split(",")]
        if len(parts) == 1 or not all(part in self.models for part in parts):
            return None
        if (known := self._adhoc.get(name)) is not None:
            return known
        return self._remembered(name, joined([self._settings.models[part] for part in parts]), payer=parts[0])

    def _remembered(self, name: str, settings: ModelSettings, *, payer: str = "") -> Model:
        if len(self._adhoc) >= ADHOC_KEPT:
            self._adhoc.pop(next(iter(self._adhoc)))
        model = self._adhoc[name] = self._model(name, settings, adhoc=True, payer=payer)
        return model

    def _adhoc_model(self, name: str) -> Model | None:
        if (known := self._adhoc.get(name)) is not None:
            return known
        parts = self._deployments_in(name)
        if not parts:
            return None
        settings = ModelSettings.model_validate({"deployments": [self._facts_of(part) for part in parts]})
        return self._remembered(name, settings)

    def _deployments_in(self, name: str) -> list[str]:
        """Return the deployments that a list of ``provider/model`` names, each once; none if it is no such list."""
        parts = list(dict.fromkeys(part.strip() for part in name.split(",")))
        for part in parts:
            provider, _, name_there = part.partition("/")
            if not name_there or provider not in self._settings.providers:
                return []
        return parts

    def _facts_of(self, deployment: str) -> DeploymentSettings:
        """Return a deployment that is named directly, with what the configuration says it costs and can do.

        One that is configured under another name (``as``) is a deployment of its own, with other facts.
        """
        for model in self._settings.models.values():
            for each in model.deployments:
                if each.name == each.deployment == deployment and each.model_fields_set & _FACTS:
                    facts = {field: getattr(each, field) for field in _FACTS & each.model_fields_set}
                    return DeploymentSettings(deployment=deployment, **facts)
        return DeploymentSettings(deployment=deployment)

    def _explain_unknown(self, name: str, *, adhoc: bool) -> str:
        near = difflib.get_close_matches(name, self.models, n=3, cutoff=0.5)
        hint = (
            f"did you mean {' or '.join(map(repr, near))}?"
            if near
            else f"known models: {', '.join(self.models) or 'none'}"
        )
        provider, slash, _ = name.partition("/")
        if adhoc and slash and provider not in self._settings.providers:
            hint += f"; {provider!r} is not a configured provider ({', '.join(self._settings.providers) or 'none'})"
        return f"the model {name!r} does not exist; {hint}"


def _spoken(apis: Iterable[Api]) -> tuple[Dialect, ...]:
    """Return the dialects among ``apis``, first those to which others can be translated."""
    spoken = [DIALECTS[api] for api in DIALECTS if api in apis]
    return tuple(sorted(spoken, key=lambda dialect: dialect.untranslated is not None))


def limits(settings: Settings) -> Mapping[str, int]:
    """Return the most attempts that may be in flight in this process, by deployment, where there is a limit.

    It protects a server: where several models have the same deployment, the smallest limit counts for all of them. Of
    several workers each takes the same share, and at least one.
    """
    smallest: dict[str, int] = {}
    for model in settings.models.values():
        for each in model.deployments:
            if each.max_in_flight is not None:
                smallest[each.name] = min(each.max_in_flight, smallest.get(each.name, each.max_in_flight))
    return {name: max(1, limit // settings.workers) for name, limit in smallest.items()}


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
