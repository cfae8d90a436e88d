"""Preferences in requests written for OpenRouter or LiteLLM, and their meaning for the gateway.

LiteLLM's ``fastest_response`` races all models of a comma list. OpenRouter's ``models`` are tried in turn; its
``provider`` restricts and orders the providers, and sets goals. For configured models these fields are removed; a call
to deployments at OpenRouter itself passes them on unchanged (``is_passed_on``).

A preference that restricts (who may see the prompt, the highest cost) is obeyed, or the request is refused. A
preference about speed changes the race, within the client's rights.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Literal, NoReturn

import msgspec

from gateway.access import Client
from gateway.core.calls import Mode, Objective
from gateway.core.errors import Forbidden, InvalidRequest
from gateway.fleet import Deployment, Model
from gateway.http import LONGEST_MODEL, LONGEST_MODEL_BYTES
from gateway.settings import ONE_AT_A_TIME, PROFILES, DataPolicy, Profile, RaceSettings

# OpenRouter's provider slugs, and the deployments that match. A slug is a provider's name, ``deepinfra``, or one of its
# endpoints, ``deepinfra/fp8``, ``google-vertex/europe``. Case and punctuation are ignored. The part after the slash is
# a quantization, a region, or a word in the name of the provider's model.

_NO_LETTER = re.compile(r"[^a-z0-9]+")
_QUANTIZATIONS = frozenset({"int4", "int8", "fp4", "fp6", "fp8", "fp16", "bf16", "fp32", "mxfp4", "nvfp4"})

# Vendors that OpenRouter calls by another name than the catalog, and rows of the same vendor; without punctuation.
_CALLED: Mapping[str, str] = {
    "alibaba": "dashscope",
    "amazonbedrock": "bedrock",
    "azureopenai": "azure",
    "bedrockconverse": "bedrock",
    "bedrockopenai": "bedrock",
    "featherlessai": "featherless",
    "fireworksai": "fireworks",
    "friendliai": "friendli",
    "google": "gemini",
    "googleaistudio": "gemini",
    "googlevertex": "vertexai",
    "mistralai": "mistral",
    "moonshotai": "moonshot",
    "nebiustokenfactory": "nebius",
    "nvidia": "nvidianim",
    "togetherai": "together",
    "vertexopenai": "vertexai",
}


class Match(Enum):
    """Whether a slug matches a deployment."""

    YES = auto()
    MAYBE = auto()  # the provider matches; the endpoint is unknown
    NO = auto()


class _Routing(msgspec.Struct):
    only: list[str] = []
    order: list[str] = []


def matches(slug: str, deployment: Deployment) -> Match:
    """Return whether ``slug`` matches ``deployment``."""
    provider, slash, variant = slug.strip().partition("/")
    if _called(provider) not in _names(deployment):
        return Match.NO
    return _matches_variant(variant.lower(), deployment) if slash and variant else Match.YES


def _matches_variant(variant: str, deployment: Deployment) -> Match:
    if variant in _QUANTIZATIONS:
        quantization = deployment.quantization
        return Match.MAYBE if quantization is None else Match.YES if quantization.lower() == variant else Match.NO
    region = (deployment.region or "").lower()
    if region and (region == variant or region.startswith(f"{variant}-")):
        return Match.YES
    if _plain(variant) in _plain(deployment.model):
        return Match.YES
    return Match.MAYBE if deployment.region is None else Match.NO


def _names(deployment: Deployment) -> set[str]:
    """Return the names of a deployment's provider, and of the vendor behind an aggregator."""
    names = {_called(deployment.provider)}
    if deployment.vendor is not None:
        names.add(_called(deployment.vendor))
    if (raw := deployment.extra_body.get("provider")) is not None:
        try:  # one vendor behind an aggregator: {provider: {only: [Minimax]}}
            routing = msgspec.json.decode(raw, type=_Routing)
        except msgspec.DecodeError:
            return names
        named = routing.only or routing.order
        if len(named) == 1:
            names.add(_called(named[0].partition("/")[0]))
    return names


def _called(name: str) -> str:
    plain = _plain(name)
    return _CALLED.get(plain, plain)


def _plain(name: str) -> str:
    return _NO_LETTER.sub("", name.lower())


# OpenRouter's ``provider`` object: its fields, and their meaning for the gateway.

OPENROUTER = "openrouter"
# In one list; there are fewer providers, regions and quantizations, and each name is compared with each deployment.
MOST_SLUGS = 200
LONGEST_SLUG = 200  # characters
UNKNOWN_QUANTIZATION = "unknown"  # OpenRouter's value for deployments whose quantization is unknown

_SORTED_BY: Mapping[str, Objective] = {
    "throughput": Objective.COMPLETION,
    "latency": Objective.FIRST_TOKEN,
    "price": Objective.COST,
}
# Of several percentiles, the nearest to the leaderboard's: p90 for TTFT, p50 for decode speed.
_LATENCY_AT = ("p90", "p99", "p75", "p50")
_THROUGHPUT_AT = ("p50", "p75", "p90", "p99")
_PRICES = ("prompt", "completion")


class MaxPrice(msgspec.Struct, frozen=True):
    """The highest accepted prices, in US dollars per million tokens; None: no limit."""

    prompt: float | None = None
    completion: float | None = None


class _Percentiles(msgspec.Struct):
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p99: float | None = None


class _Sort(msgspec.Struct):
    by: Literal["throughput", "latency", "price"] | None = None
    partition: Literal["model", "none"] | None = None


_Cutoff = float | _Percentiles | None


class ProviderPreferences(msgspec.Struct):
    """OpenRouter's object; ``unmet`` checks fields that are not listed here."""

    order: list[str] | None = None
    only: list[str] | None = None
    ignore: list[str] | None = None
    allow_fallbacks: bool | None = None
    require_parameters: bool | None = None
    data_collection: Literal["allow", "deny"] | None = None
    zdr: bool | None = None
    quantizations: list[str] | None = None
    regions: list[str] | None = None  # ours; OpenRouter has separate hosts instead
    sort: Literal["throughput", "latency", "price"] | _Sort | None = None
    preferred_max_latency: _Cutoff = None  # seconds
    preferred_min_throughput: _Cutoff = None  # tokens per second
    max_price: dict[str, float | str | None] | None = None  # US dollars per million tokens

    def slugs(self, name: Literal["order", "only", "ignore"]) -> tuple[str, ...] | None:
        """Return one of the lists of providers; None if it is missing or empty."""
        listed = self._listed(name)
        if any(not slug.strip() for slug in listed):
            refuse(f"provider.{name}", "must not hold an empty name")
        return listed or None

    @property
    def objective(self) -> Objective | None:
        """The objective for the sort order."""
        by = self.sort.by if isinstance(self.sort, _Sort) else self.sort
        return None if by is None else _SORTED_BY[by]

    @property
    def ttft_ms(self) -> float | None:
        """The preferred time to the first token, in ms."""
        latency_s = _cutoff("preferred_max_latency", self.preferred_max_latency, _LATENCY_AT)
        return None if latency_s is None else latency_s * 1000

    @property
    def min_tok_s(self) -> float | None:
        """The preferred decode speed, in tokens per second."""
        return _cutoff("preferred_min_throughput", self.preferred_min_throughput, _THROUGHPUT_AT)

    @property
    def policy(self) -> DataPolicy:
        """The required data policy. ``data_collection: deny`` means zero retention, as nothing weaker is configured."""
        keeps_nothing = self.zdr or self.data_collection == "deny"
        return DataPolicy(
            zdr=True if keeps_nothing else None,
            regions=self._listed("regions") or None,
            quantizations=tuple(each.lower() for each in self._listed("quantizations")) or None,
        )

    @property
    def most(self) -> MaxPrice | None:
        """The highest accepted prices."""
        most = {name: _price(name, price) for name, price in (self.max_price or {}).items() if name in _PRICES}
        return None if all(price is None for price in most.values()) else MaxPrice(**most)

    def _listed(self, name: str) -> tuple[str, ...]:
        listed: list[str] = getattr(self, name) or []
        if len(listed) > MOST_SLUGS or any(len(each) > LONGEST_SLUG for each in listed):
            refuse(f"provider.{name}", f"must hold at most {MOST_SLUGS} names of at most {LONGEST_SLUG} characters")
        return tuple(listed)

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Preferences that have no effect here."""
        return ("provider.sort",) if isinstance(self.sort, _Sort) and self.sort.partition == "none" else ()


def unmet(provider: Mapping[str, Any]) -> Iterator[str]:
    """Yield the requirements in OpenRouter's object that are unknown, or that the gateway cannot guarantee."""
    for name, value in provider.items():
        if name not in ProviderPreferences.__struct_fields__ and value not in (None, False, [], {}):
            yield f"provider.{name}"
    for name, price in (provider.get("max_price") or {}).items():
        if name not in _PRICES and price is not None:
            yield f"provider.max_price.{name}"


def refuse(param: str, message: str) -> NoReturn:
    """Refuse a request because of its field ``param``.

    Raises:
        InvalidRequest: always.

    """
    raise InvalidRequest(f"'{param}' {message}", param=param)


def _cutoff(name: str, cutoff: _Cutoff, at: Sequence[str]) -> float | None:
    if isinstance(cutoff, _Percentiles):
        cutoff = next((value for percentile in at if (value := getattr(cutoff, percentile)) is not None), None)
    if cutoff is not None and not cutoff > 0:
        refuse(f"provider.{name}", "must be greater than 0")
    return cutoff


def _price(name: str, price: float | str | None) -> float | None:
    if price is None:
        return None
    try:
        usd = float(price)
    except ValueError:
        usd = -1.0
    if not usd >= 0:
        refuse(f"provider.max_price.{name}", "must be US dollars per million tokens, 0 or more")
    return usd


MOST_MODELS = 32  # in a request: after each failure the gateway plans again
CONSUMED: frozenset[str] = frozenset({"fastest_response", "models", "provider", "route", "transforms"})


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """A request's preferences; None or empty: not set."""

    models: tuple[str, ...] = ()  # tried in this order; the request's ``model`` is the first
    fastest_response: bool = False  # race all models of the comma list, the first of ``models``
    order: tuple[str, ...] | None = None  # slugs of providers, as in ``only`` and ``ignore``
    only: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    allow_fallbacks: bool = True  # whether deployments besides those in ``order``, or besides the best, may answer
    sort: Objective | None = None
    ttft_ms: float | None = None
    min_tok_s: float | None = None
    policy: DataPolicy = DataPolicy()
    max_price: MaxPrice | None = None
    require_parameters: bool = False  # no parameter may be left out, even with drop_params
    unmet: tuple[str, ...] = ()  # requirements that cannot be met here
    unsupported: tuple[str, ...] = ()  # preferences that have no effect here


NOTHING = Preferences()


class DeploymentChoice(msgspec.Struct, frozen=True):
    """The deployments that may answer, and how they race."""

    deployments: Sequence[Deployment]  # those of ``order`` first
    excluded: dict[str, str]  # deployment → reason
    race: RaceSettings
    asked: RaceSettings  # the same, with the requested width even if fewer deployments are left
    order: tuple[str, ...] = ()  # deployments to try in turn, before the rest
    failover: bool = True  # False: only the first deployment may answer
    unsupported: tuple[str, ...] = ()  # fields that have no effect here, for a response header


def read_preferences(fields: Mapping[str, msgspec.Raw]) -> Preferences:
    """Return the preferences in a body's top level; ``NOTHING`` itself if and only if there are none.

    Raises:
        InvalidRequest: a value is invalid; ``param`` has the field's name.

    """
    if CONSUMED.isdisjoint(fields):
        return NOTHING
    provider = _decoded("provider", fields, ProviderPreferences | None) or ProviderPreferences()
    _decoded("route", fields, Literal["fallback"] | None)
    transforms = _decoded("transforms", fields, list[str] | None)
    fastest = bool(_decoded("fastest_response", fields, bool | None))
    return Preferences(
        models=_models(fields, fastest=fastest),
        fastest_response=fastest,
        order=provider.slugs("order"),
        only=provider.slugs("only"),
        ignore=provider.slugs("ignore"),
        allow_fallbacks=provider.allow_fallbacks is not False,
        sort=provider.objective,
        ttft_ms=provider.ttft_ms,
        min_tok_s=provider.min_tok_s,
        policy=provider.policy,
        max_price=provider.most,
        require_parameters=bool(provider.require_parameters),
        unmet=tuple(unmet(_decoded("provider", fields, dict[str, Any] | None) or {})),
        unsupported=(*(("transforms",) if transforms else ()), *provider.unsupported),
    )


def is_passed_on(model: Model) -> bool:
    """Whether OpenRouter itself handles the fields: all deployments of the call are there."""
    return model.adhoc and all(each.vendor == OPENROUTER for each in model.deployments.values())


def preferred(
    preferences: Preferences, model: Model, deployments: Sequence[Deployment], client: Client | None = None
) -> DeploymentChoice:
    """Return the ``deployments`` that may answer, and the race settings of ``model`` with the request's preferences.

    ``client``: limits what requests may ask for; without one, no race becomes wider than the model's own.

    Raises:
        InvalidRequest: a requirement cannot be met.
        Forbidden: the key may not override race settings.

    """
    if preferences.unmet:
        refuse(
            preferences.unmet[0],
            "cannot be guaranteed: leave it out, or name a model at OpenRouter (openrouter/vendor/model)",
        )
    excluded: dict[str, str] = {}
    allowed: list[Deployment] = []
    for deployment in deployments:
        reason = _obstacle(deployment, preferences)
        if reason is None:
            allowed.append(deployment)
        else:
            excluded[deployment.name] = reason
    ordered = list(_in_order(preferences.order or (), allowed))
    if preferences.order is not None and not preferences.allow_fallbacks:
        excluded |= {
            each.name: f"is not in provider.order ({', '.join(preferences.order)}), and fallbacks are not allowed"
            for each in allowed
            if each not in ordered
        }
        allowed = ordered
    allowed = [*ordered, *(each for each in allowed if each not in ordered)]
    if preferences.require_parameters:
        allowed = [msgspec.structs.replace(each, drop_params=False, adapts_forced=False) for each in allowed]
    order = tuple(each.name for each in ordered)
    race_asked = race = _raced(preferences, model.race, client, ordered=bool(order), left=allowed)
    if excluded and race.width > len(allowed):
        race = race.model_copy(update={"width": max(1, len(allowed))})  # a single deployment would race itself
    return DeploymentChoice(
        deployments=allowed,
        excluded=excluded,
        race=race,
        asked=race_asked,
        order=order,
        failover=preferences.allow_fallbacks or preferences.order is not None,
        unsupported=preferences.unsupported,
    )


def _decoded(name: str, fields: Mapping[str, msgspec.Raw], kind: Any) -> Any:
    """Return a field decoded as ``kind``; None if it is missing."""
    if (raw := fields.get(name)) is None:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        refuse(name, f"is not understood: {error}")
    except RecursionError:
        refuse(name, "is nested too deeply")


def _models(fields: Mapping[str, msgspec.Raw], *, fastest: bool) -> tuple[str, ...]:
    """Return the models to try, in order; ``model`` is the first. A comma list is one entry."""
    listed = _decoded("models", fields, list[str] | None) or []
    if not listed and not fastest:
        return ()
    first_model = _decoded("model", fields, str | None)
    if len(listed) > MOST_MODELS:
        refuse("models", f"must hold at most {MOST_MODELS} names")
    models = tuple(dict.fromkeys([first_model, *listed] if first_model else listed))
    if any(not model.strip() for model in models):
        refuse("models", "must not hold an empty name")
    if any(
        not model.isprintable() or len(model) > LONGEST_MODEL or len(model.encode()) > LONGEST_MODEL_BYTES
        for model in models
    ):
        refuse(
            "models", f"must hold printable names of at most {LONGEST_MODEL} characters and {LONGEST_MODEL_BYTES} bytes"
        )
    return models


def policy_violation(deployment: Deployment, policy: DataPolicy) -> str | None:
    """Return why ``policy``, the operator's or a request's, keeps the prompt from ``deployment``; None if it does not.

    An unknown quantization is OpenRouter's ``unknown``.
    """
    if policy.zdr and not deployment.zdr:
        return "is not known to have zero data retention (zdr)"
    if policy.regions is not None and deployment.region not in policy.regions:
        return f"is not in {' or '.join(policy.regions)} but {deployment.region or 'an unknown region'}"
    if policy.quantizations is None:
        return None
    quantization = (deployment.quantization or UNKNOWN_QUANTIZATION).lower()
    if quantization not in map(str.lower, policy.quantizations):
        return f"is not {' or '.join(policy.quantizations)} but {quantization}"
    return None


def _obstacle(deployment: Deployment, preferences: Preferences) -> str | None:
    """Return why ``deployment`` may not answer (``is in provider.ignore (groq)``); None if it may."""
    only, ignore, policy = preferences.only, preferences.ignore or (), preferences.policy
    if only is not None and not any(matches(slug, deployment) is Match.YES for slug in only):
        return f"is not in provider.only ({', '.join(only)})"
    for slug in ignore:
        match = matches(slug, deployment)
        if match is not Match.NO:  # if it may match, it must not see the prompt
            return f"is {'' if match is Match.YES else 'maybe '}in provider.ignore ({slug})"
    if (reason := policy_violation(deployment, policy)) is not None:
        return reason
    return None if preferences.max_price is None else _too_dear(deployment, preferences.max_price)


def _too_dear(deployment: Deployment, most: MaxPrice) -> str | None:
    price = deployment.price
    if price is None:
        return "has no known price, and provider.max_price is a limit"
    for name, limit_usd, usd in (
        ("prompt", most.prompt, price.input_usd * 1e6),
        ("completion", most.completion, price.output_usd * 1e6),
    ):
        if limit_usd is not None and usd > limit_usd:
            return f"costs ${usd:g} per million {name} tokens, more than provider.max_price.{name} {limit_usd:g}"
    return None


def _in_order(slugs: Sequence[str], deployments: Sequence[Deployment]) -> Iterator[Deployment]:
    names_before: set[str] = set()
    for slug in slugs:
        for deployment in deployments:
            if deployment.name not in names_before and matches(slug, deployment) is Match.YES:
                names_before.add(deployment.name)
                yield deployment


def _raced(
    preferences: Preferences,
    race: RaceSettings,
    client: Client | None,
    *,
    ordered: bool,
    left: Sequence[Deployment],
) -> RaceSettings:
    """Return ``race`` with the request's preferences; budget and daily limit do not change."""
    changes: dict[str, Any] = {
        name: value
        for name, value in (
            ("objective", preferences.sort),
            ("ttft_ms", preferences.ttft_ms),
            ("min_tok_s", preferences.min_tok_s),
        )
        if value is not None
    }
    if preferences.sort is Objective.COST:
        if left and all(each.price is None for each in left):
            refuse("provider.sort", "cannot be price: no price of this model is known (price_per_mtok)")
        if preferences.ttft_ms is None and race.ttft_ms is None:
            changes["ttft_ms"] = PROFILES[Profile.BATCH]["ttft_ms"]  # the cheapest, even if slow, within limits
    if preferences.fastest_response:
        most = race.width if client is None else client.max_width
        named = preferences.models[0].count(",") + 1 if preferences.models else 1
        changes |= {"mode": Mode.RACE, "width": max(1, min(named, most))}
    if ordered or not preferences.allow_fallbacks:
        changes |= ONE_AT_A_TIME  # one after the other in the given order; or only the best
    if changes and client is not None and not client.override:
        raise Forbidden("this key may not set how its calls are raced: leave out sort, order and the like")
    if not changes:
        return race
    changed = race.model_copy(update=changes)
    if preferences.sort is not None:
        changed.model_fields_set.discard("objective")  # a sort order ranks deployments, but does not ask for holds
    return changed
