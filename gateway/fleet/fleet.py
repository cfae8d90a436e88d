"""All models of one version of the configuration, leased by calls and replaced by reloads.

A fleet is built from one version of the settings and never changes. A reload builds the next fleet. The next fleet
takes over the upstreams (with their connections) of unchanged providers. A call leases the fleet with which the call
began. Upstreams that no newer fleet took over are closed when the last lease ends.
"""

import asyncio
import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Self

import msgspec
from pydantic import SecretStr

from gateway.core.errors import ApiError, Forbidden, InvalidRequest, ModelNotFound, NoDeploymentFits
from gateway.fleet.answered_names import AnsweredNames
from gateway.fleet.models import Deployment, Model
from gateway.fleet.resolver import FindDatasheet, Resolver, fleet_limits, limits
from gateway.fleet.tenants import LazyUpstream, TenantKeys, TenantUpstreams, digest_of, is_of_account
from gateway.settings import (
    STAR,
    ModelSettings,
    Profile,
    ProviderSettings,
    Settings,
    is_covered,
    is_pattern,
    longest_of,
    may_be_asked,
    named,
    owners_of,
)
from providers import Upstream, Vendor

# The profiles of clients, and the models that each client may use; None: all.
Callers = Collection[tuple[Profile | None, frozenset[str] | None]]

# A comma list of models as one model: all their deployments, with the strictest of their limits.


def joined(models: Sequence[ModelSettings]) -> ModelSettings:
    """Return ``models`` as one model with the race of the first. A list must not circumvent a model's limits.

    Raises:
        InvalidRequest: the models have different system prefixes.

    """
    first = models[0]
    if any(model.system_prefix != first.system_prefix for model in models):
        raise InvalidRequest("these models have different system prefixes: use one at a time", param="model")
    maximums: dict[str, float] = {}
    for model in models:
        for name, most in model.maximums.items():
            maximums[name] = min(most, maximums.get(name, most))
    daily = [model.race.usd_per_day for model in models if model.race.usd_per_day is not None]
    per_call = [model.race.extra_usd_per_call for model in models if model.race.extra_usd_per_call is not None]
    values = [model.race.value_usd_per_s for model in models if model.race.value_usd_per_s is not None]
    of_use: dict[str, float] = {}
    for model in models:
        for name, limit in model.by_name.items():
            of_use[name] = min(limit, of_use.get(name, limit))
    limits = {
        "budget": min(model.race.budget for model in models),
        "usd_per_day": min(daily, default=None),
        "extra_usd_per_call": min(per_call, default=None),
        "value_usd_per_s": min(values, default=None),
        "worth_ms": max(model.race.worth_ms for model in models),
        "audit_share": min(model.race.audit_share for model in models),
    }
    return first.model_copy(
        update={
            "deployments": tuple({each.name: each for model in models for each in model.deployments}.values()),
            "race": first.race.model_copy(update=limits),
            "maximums": maximums,
            **of_use,
        }
    )


# Who pays for calls of names that clients make up. All such names share one budget and one sum of dollars.

NAMED_DIRECTLY = "\0direct"  # for deployments; no model has this name


def who_pays(models: Mapping[str, ModelSettings]) -> str:
    """Return which of the ``models`` of a list pays for its calls: the model with the strictest limit in dollars."""
    return min(models, key=lambda name: (_usd_a_day(models[name]), _limit(models[name].race.usd_per_day)))


_PER_DAY = {"usd_per_hour": 24.0, "usd_per_day": 1.0, "usd_per_week": 1 / 7, "usd_per_month": 1 / 30, "usd_total": 1.0}


def _usd_a_day(model: ModelSettings) -> float:
    limits = model.by_name
    return min((limits[name] * factor for name, factor in _PER_DAY.items() if name in limits), default=inf)


class ConfiguredModel(msgspec.Struct, frozen=True):
    """A model in a list of models, as configured: by its name, or by the pattern that covers the name."""

    configured: str
    settings: ModelSettings


def _limit(usd: float | None) -> float:
    return inf if usd is None else usd


ADHOC_KEPT = 256  # cached ad-hoc models: clients choose their names, so the number is limited

# The last argument: secrets to mask in messages, besides the provider's key.
OpenUpstream = Callable[[str, ProviderSettings, Vendor | None, tuple[str, ...]], Upstream]


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
        open_for_tenant: OpenUpstream | None = None,
        secret: bytes = b"",
    ) -> None:
        """``open_for_tenant`` opens upstreams with clients' own keys; None: ``open_upstream`` does.

        ``secret``: seals reasoning, the same in all replicas.
        """
        self._settings = settings
        self._open_for_tenant = open_for_tenant or open_upstream
        self._of_tenants = TenantUpstreams(self._opened_for_tenant)
        self.limits, self.fleet_limits = limits(settings), fleet_limits(settings)
        self.max_requests = settings.most_requests  # the most requests of one call to providers
        self.kept: dict[int, Any] = {}  # decisions of this fleet alone, which end with it: ``api/shapes.py``
        self._leases = 0
        self._idle: asyncio.Event | None = None  # made by ``idle``
        self._upstreams: dict[str, Upstream] = {}
        self._resolver = Resolver(settings, catalog, self._upstreams, find_datasheet, secret)
        for name, provider in settings.providers.items():
            secrets = self._secrets_sent_to(name)
            kept = previous.upstream_of(name, provider, secrets) if previous is not None else None
            self._upstreams[name] = kept or open_upstream(name, provider, self._resolver.vendor(name), secrets)
        # All models in the file: ``models``, and ``patterns``. Patterns have a star in their names and deployments, and
        # are not asked.
        self.configured: Mapping[str, Model] = {
            name: self._resolver.model(name, model) for name, model in settings.models.items()
        }
        self.models = {name: model for name, model in self.configured.items() if not is_pattern(name)}
        self.patterns = {name: model for name, model in self.configured.items() if is_pattern(name)}
        self._providers = {
            name: each.provider for it in self.configured.values() for name, each in it.deployments.items()
        }
        self._adhoc: dict[str, Model] = {}  # the model used last stands at the end
        self.answered: AnsweredNames = AnsweredNames() if previous is None else previous.answered
        # Clients may name a deployment of a model with several, or one that belongs to no model.
        configured = (each for model in self.models.values() for each in model.deployments.values())
        vendors = filter(None, map(self._resolver.vendor, settings.providers))
        self.has_free = any(each.is_free for each in configured) or any(each.quirks.free for each in vendors)

    def to_keep_connected(self, callers: Callers = ()) -> Collection[Upstream]:
        """Return the upstreams to which a connection should be open, for the calls of models or of clients."""
        wanted = [model for model in self.models.values() if model.race.keep_connected]
        for profile, models in callers:
            may_ask = (model for name, model in self.models.items() if models is None or is_covered(name, models))
            wanted += [model for model in may_ask if model.under(profile).race.keep_connected]
        return {each.upstream for model in wanted for each in model.deployments.values()}

    def find(self, name: str, *, adhoc: bool) -> Model:
        """Return the model called ``name``, or that name under a pattern; for a comma list, all its models as one.

        With ``adhoc`` also ``provider/model`` and comma lists of these.

        Raises:
            ModelNotFound: no model has the name; the message has the nearest names.
            Forbidden: ``name`` names deployments, but ``adhoc`` is false.
            InvalidRequest: these models cannot be used as one.

        """
        model = self.known(name) or self._joint_model(name) or (self._adhoc_model(name) if adhoc else None)
        if model is not None:
            return model
        if not adhoc and self._deployments_in(name):
            error: ApiError = Forbidden(
                f"this key may not name deployments directly, as {name!r} does: ask for one of GET /v1/models, or have"
                " the operator set 'adhoc: true' for it",
                param="model",
            )
        else:
            error = ModelNotFound(self._explain_unknown(name, adhoc=adhoc), param="model")
        error.asked_model = name
        raise error

    def known(self, name: str) -> Model | None:
        """Return the model called ``name``, or that name under a pattern; None: no such model, and no such pattern."""
        return self.models.get(name) or (self._under_pattern(name) if self.patterns else None)

    def configured_as(self, name: str) -> str | None:
        """Return a model's name in the file: its own, or the pattern that covers its name; None: it is not in the file.

        A name that begins with a provider's name and a slash is a deployment, unless a pattern begins so too.
        """
        if name in self.models:
            return name
        if not self.patterns or not may_be_asked(name):
            return None
        provider, slash, _ = name.partition("/")
        pattern = longest_of(self.patterns, name)
        is_deployment = bool(slash) and provider in self._settings.providers
        return None if pattern is None or (is_deployment and not pattern.startswith(f"{provider}/")) else pattern

    def configured_deployment(self, model: str, deployment: str) -> str:
        """Return the name in the file of a deployment of ``model``: its own, or the name with a star."""
        pattern = None if model in self.models else self.configured_as(model)
        if pattern is None:
            return deployment
        stands_for, known = model[len(pattern) - 1 :], self.patterns[pattern].deployments
        return next((each for each in known if each.replace(STAR, stands_for) == deployment), deployment)

    def shown_as(self, model: str, deployment: str | None = None) -> tuple[str, str | None] | None:
        """Return the names in the file of a model under a pattern and of its deployment; None: no pattern covers it."""
        pattern = None if model in self.models else self.configured_as(model)
        if pattern is None:
            return None
        return pattern, None if deployment is None else self.configured_deployment(model, deployment)

    def has_answered(self, *names: str) -> None:
        """Note that models have answered: models under a pattern may now have rows of their own in the ledger."""
        for name in names:
            if name not in self.models and (pattern := self.configured_as(name)) is not None:
                self.answered.add(pattern, name)

    def kept_name(self, model: str) -> str:
        """Return the name under which the ledger keeps a model: its own, or the pattern's before the first answer."""
        pattern = None if model in self.models else self.configured_as(model)
        return model if pattern is None or self.answered.has(pattern, model) else pattern

    def kept_deployment(self, model: str, deployment: str) -> str:
        """Return the name under which the ledger keeps a deployment of ``model``, by the same rule."""
        return deployment if self.kept_name(model) == model else self.configured_deployment(model, deployment)

    def with_keys(self, model: Model, tenant: TenantKeys) -> Model:
        """Return ``model`` for a call of a client that brings keys: its deployments at the providers of these keys.

        Other deployments are left out, unless ``tenant_keys.mixed`` allows both.

        Raises:
            NoDeploymentFits: none of the keys is for one of the model's providers.

        NoDeploymentFits: none of the keys is for a provider of the model.
        """
        found = {name: self.with_key(each, tenant) for name, each in model.deployments.items()}
        deployments = {name: each for name, each in found.items() if each is not None}
        if found and not deployments:
            words = "needs a key for {}, and this call brings its own keys, of other providers"
            without = {name: words.format(each.provider) for name, each in model.deployments.items()}
            raise NoDeploymentFits(model.name, without)
        if not any(each.tenant for each in deployments.values()):
            return model
        return model.with_deployments(deployments, tenant.id, is_free=not self._settings.tenant_keys.mixed)

    def with_key(self, deployment: Deployment, tenant: TenantKeys) -> Deployment | None:
        """Return ``deployment`` for a call of a client that brings keys; None if the client may not use it."""
        provider = deployment.provider
        key = tenant.keys.get(provider)
        if key is None or provider not in self._upstreams:  # a reload may have removed the provider
            return deployment if self._settings.tenant_keys.mixed else None
        place = tenant.client, provider, key
        lazy = LazyUpstream(self._upstreams[provider], partial(self._of_tenants.of, *place))
        return deployment.with_key(lazy, digest_of(provider, key), self._of_tenants.learnt(*place))

    def may_ask(self, deployment: Deployment, tenant: TenantKeys | None) -> bool:
        """Whether a call of a client that brings these keys (None: no keys) may use ``deployment``."""
        return tenant is None or deployment.provider in tenant.keys or self._settings.tenant_keys.mixed

    def forget(self) -> None:
        """Forget the upstreams of clients' keys that were not used for a while."""
        self._of_tenants.forget()

    def provider_of(self, deployment: str) -> str:
        """Return the provider of a deployment by its name, which may differ from ``provider/model``."""
        return self._providers.get(deployment) or deployment.partition("/")[0]

    def payer_of(self, name: str) -> str:
        """Return the model that pays for calls of the model ``name``: for a comma list of models, one of the list."""
        if (configured := self.configured_as(name)) is not None:
            return configured
        parts = self._parts_of(name)
        return who_pays({part.configured: part.settings for part in parts}) if parts else name

    def upstream_of(self, name: str, settings: ProviderSettings, secrets: tuple[str, ...]) -> Upstream | None:
        """Return the upstream of provider ``name`` if it was opened with the same settings and ``secrets``."""
        same = self._settings.providers.get(name) == settings and self._secrets_sent_to(name) == secrets
        return self._upstreams[name] if same else None

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """Every provider's upstream, by the provider's name."""
        return self._upstreams

    def __enter__(self) -> Self:
        """Keep this fleet's upstreams open while a call uses them."""
        self._leases += 1  # as ``hold`` and ``let_go``, without their calls
        return self

    def __exit__(self, *_: object) -> None:
        self._leases -= 1
        if not self._leases and self._idle is not None:
            self._idle.set()

    def hold(self) -> None:
        """Keep this fleet's upstreams open until ``let_go``."""
        self._leases += 1

    def let_go(self, _task: object = None) -> None:
        """Undo one ``hold``."""
        self._leases -= 1
        if not self._leases and self._idle is not None:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until no call uses this fleet."""
        while self._leases:
            self._idle = self._idle or asyncio.Event()
            self._idle.clear()
            await self._idle.wait()

    async def aclose(self, successor: "Fleet | None" = None) -> None:
        """Close the upstreams that ``successor`` did not take over."""
        kept = set(map(id, successor.upstreams.values())) if successor is not None else set()
        for upstream in self._upstreams.values():
            if id(upstream) not in kept:
                await upstream.aclose()
        await self._of_tenants.aclose()

    def _opened_for_tenant(self, provider: str, key: str) -> Upstream:
        """Open the upstream of a client's own key, without the operator's headers and fields for that provider."""
        settings = self._settings.providers[provider]
        headers = {
            name: value for name, value in settings.headers.items() if not is_of_account(name, value.get_secret_value())
        }
        query = {name: value for name, value in settings.query.items() if not is_of_account(name)}
        own = {"api_key": SecretStr(key), "api_keys": {}, "organization": None, "headers": headers, "query": query}
        vendor, secrets = self._resolver.vendor(provider), self._secrets_sent_to(provider)
        return self._open_for_tenant(provider, settings.model_copy(update=own), vendor, secrets)

    def _secrets_sent_to(self, provider: str) -> tuple[str, ...]:
        """Return the values of the extra headers of all deployments at ``provider``."""
        headers = (
            value.get_secret_value()
            for model in self._settings.models.values()
            for each in model.deployments
            if each.deployment.startswith(f"{provider}/")
            for value in each.extra_headers.values()
        )
        return tuple(sorted(set(headers)))

    def _joint_model(self, name: str) -> Model | None:
        parts = self._parts_of(name)
        if not parts:
            return None
        if (known := self._adhoc.pop(name, None)) is not None:
            self._adhoc[name] = known  # the model used last stands at the end
            return known
        payer = who_pays({part.configured: part.settings for part in parts})
        return self._cached(name, joined([part.settings for part in parts]), payer=payer)

    def _parts_of(self, name: str) -> list[ConfiguredModel]:
        """Return the models in a comma list of models; empty if ``name`` is no such list."""
        names = [part.strip() for part in name.split(",")]
        if len(names) == 1:
            return []
        parts = {}
        for each in names:
            if (configured := self.configured_as(each)) is None:
                return []
            parts[each] = ConfiguredModel(configured, self._settings_of(configured, each))
        return [*parts.values()]

    def _under_pattern(self, name: str) -> Model | None:
        if (known := self._adhoc.pop(name, None)) is not None:
            self._adhoc[name] = known  # the model used last stands at the end
            return known if known.payer in self.patterns and "," not in name else None
        if (pattern := self.configured_as(name)) is None:
            return None
        return self._cached(name, self._settings_of(pattern, name), payer=pattern)

    def _settings_of(self, configured: str, name: str) -> ModelSettings:
        settings = self._settings.models[configured]
        return settings if configured == name else named(settings, configured, name)

    def _cached(self, name: str, settings: ModelSettings, *, payer: str) -> Model:
        if len(self._adhoc) >= ADHOC_KEPT:
            self._adhoc.pop(next(iter(self._adhoc)))
        model = self._adhoc[name] = self._resolver.model(name, settings, adhoc=True, payer=payer)
        return model

    def _adhoc_model(self, name: str) -> Model | None:
        if (known := self._adhoc.pop(name, None)) is not None:
            self._adhoc[name] = known  # the model used last stands at the end
            return known
        parts = self._deployments_in(name)
        if not parts:
            return None
        settings = ModelSettings.model_validate({"deployments": [self._resolver.facts_of(part) for part in parts]})
        return self._cached(name, settings, payer=NAMED_DIRECTLY)

    def _deployments_in(self, name: str) -> list[str]:
        """Return the deployments in a comma list of ``provider/model``, without duplicates; empty: not such a list."""
        parts = list(dict.fromkeys(part.strip() for part in name.split(",")))
        for part in parts:
            provider, _, name_there = part.partition("/")
            if not name_there or provider not in self._settings.providers:
                return []
        return parts

    def _explain_unknown(self, name: str, *, adhoc: bool) -> str:
        near = difflib.get_close_matches(name, self.models, n=3, cutoff=0.5)  # no patterns: these are not asked for
        hint = (
            f"did you mean {' or '.join(map(repr, near))}?"
            if near
            else f"known models: {', '.join(self.configured) or 'none'}"
        )
        provider, slash, _ = name.partition("/")
        real = [each for each in self._settings.providers if not each.startswith("sim-")]  # the demo's sell no others
        if adhoc and not slash and "," not in name and may_be_asked(name) and real:
            first, *others = (f"{each}/{name}" for each in _owners_first(name, real))
            hint += f" (its provider before it names any other, as {first}{', …' if others else ''})"
        if adhoc and slash and provider not in self._settings.providers:
            known = ", ".join(self._settings.providers) or "none"
            hint += f"{' ' if near else '; '}{provider!r} is not a configured provider ({known})"
        return f"the model {_bounded(name)!r} does not exist; {hint}"


_LONGEST = 200  # characters of an unknown name in an error


def _bounded(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"


def _owners_first(name: str, providers: Iterable[str]) -> list[str]:
    """Return ``providers``, first the providers that are called like the publisher of the model's family."""
    owners = owners_of(name)
    return sorted(providers, key=lambda each: each not in owners)
