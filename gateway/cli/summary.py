"""The summary of a configuration: its providers, and each model's deployments with known facts about them."""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from gateway.settings import (
    DEAR_FALLBACK,
    STAR,
    Catalog,
    Datasheets,
    Settings,
    apis_at,
    bills_on,
    doubtful,
    doubtful_model,
    doubtful_takeovers,
    keeps_requests,
    kind_of,
    model_identity,
    parsed_name,
    says_store,
    set_price,
    vendor_of,
    withheld_keys,
    without_secrets,
)
from providers import Api, Capabilities, DatasheetTable, Price, is_of_tokens
from providers.dialects import PIVOT


class ProviderLine(msgspec.Struct, frozen=True):
    """One provider. Never contains the key."""

    provider: str
    kind: str
    base_url: str | None  # None: only litellm knows the URL
    key: str  # "set", "not set", "not needed"


class PriceLine(msgspec.Struct, frozen=True):
    """The prices of a deployment in one tier, for prompts of more than so many tokens. None: unknown."""

    tier: str  # "standard", "priority", …
    above_tokens: int  # 0: any prompt
    input_usd: float | None  # per million tokens, as the next two prices
    output_usd: float | None
    cached_input_usd: float | None


class DeploymentLine(msgspec.Struct, frozen=True):
    """One deployment of one model. None: unknown. Prices are in US dollars per million tokens."""

    model: str
    mode: str
    objective: str
    budget: float
    deployment: str
    input_usd: float | None
    output_usd: float | None
    cached_input_usd: float | None  # these three prices may be unknown even if the others are known
    cache_write_usd: float | None
    reasoning_usd: float | None
    bills_after_disconnect: bool | None
    capabilities: Capabilities
    apis: tuple[Api, ...]
    apis_known: bool  # False for a server of one's own: then ``apis`` are the APIs that a call may try
    enabled: bool
    weight: float
    canary: float | None  # the canary's share of the model's calls
    drop_params: bool
    zdr: bool | None
    region: str | None
    quantization: str | None
    tiers: tuple[PriceLine, ...] = ()  # the prices of all tiers and sizes of prompts; none: one price holds for all
    units: Mapping[str, float] = {}  # of other units: tokens of sound and pictures (per million), searches, seconds
    unpriced: tuple[str, ...] = ()  # units that the deployment bills, without a known price
    uncounted: tuple[str, ...] = ()  # units of ``unpriced`` for which the vendor has no known price at all
    counted_as: str = "the vendor"  # whose dearest prices limits in dollars count for ``unpriced`` units


class FallbackLine(msgspec.Struct, frozen=True):
    """A fallback of a model, and its causes."""

    model: str
    fallback: str
    causes: tuple[str, ...]


class PolicyLine(msgspec.Struct, frozen=True):
    """What a client requires of deployments that see its prompts. None: no requirement."""

    client: str
    zdr: bool | None
    regions: tuple[str, ...] | None
    quantizations: tuple[str, ...] | None


def provider_lines(settings: Settings, catalog: Catalog) -> list[ProviderLine]:
    """Return a line for each provider, in the order of the configuration."""
    lines = []
    for name, provider in settings.providers.items():
        vendor = vendor_of(name, provider, catalog)
        needed = vendor.key_required if vendor else False
        base_url = provider.base_url or (vendor.base_url if vendor else None)
        lines.append(
            ProviderLine(
                provider=name,
                kind=kind_of(name, provider, catalog),
                base_url=None if base_url is None else without_secrets(base_url),
                key="set" if provider.keys else "not set" if needed else "not needed",
            )
        )
    return lines


def deployment_lines(settings: Settings, catalog: Catalog, table: DatasheetTable) -> list[DeploymentLine]:
    """Return a line for each deployment of each model, with facts from the configuration or the table."""
    datasheets = Datasheets(settings, catalog, table)
    lines = []
    for name, model in settings.models.items():
        for item in model.deployments:
            provider = item.deployment.partition("/")[0]
            provided = settings.providers[provider]
            vendor = vendor_of(provider, provided, catalog)
            datasheet = datasheets.of(vendor, item)
            price = datasheet.price or datasheet.listed
            usd = _known(price)
            lines.append(
                DeploymentLine(
                    model=name,
                    mode=model.race.mode,
                    objective=model.race.objective,
                    budget=model.race.budget,
                    deployment=item.name,
                    input_usd=usd["input"],
                    output_usd=usd["output"],
                    cached_input_usd=_per_mtok(price.cached_input_usd if price else None),
                    cache_write_usd=_per_mtok(price.cache_write_usd if price else None),
                    reasoning_usd=_per_mtok(price.reasoning_usd if price else None),
                    bills_after_disconnect=bills_on(item, vendor),
                    capabilities=datasheet.capabilities,
                    apis=apis_at(item, provided, vendor, datasheet.only_api),
                    apis_known=bool(item.apis or provided.apis or vendor or provided.kind == "anthropic"),
                    enabled=item.enabled,
                    weight=item.weight,
                    canary=item.canary,
                    drop_params=item.drop_params,
                    zdr=item.zdr,
                    region=item.region,
                    quantization=item.quantization,
                    tiers=_tiers(price),
                    units={} if price is None else {name: _shown(name, each) for name, each in price.units},
                    unpriced=(unpriced := _unpriced(price, datasheet.capabilities)),
                    uncounted=unpriced if price is None else price.uncounted(unpriced),
                    counted_as=_counted_as(price),
                )
            )
    return lines


def _counted_as(price: Price | None) -> str:
    """Return in words whose dearest prices limits in dollars count for units without a price."""
    if price is None or not price.dearest_of:
        return "the vendor"
    usd = dict(price.dearest)
    return (
        f"its {price.dearest_of} models (${_per_mtok(usd['input']):g} in, ${_per_mtok(usd['output']):g} out per Mtok)"
    )


def fallback_lines(settings: Settings) -> list[FallbackLine]:
    """Return a line for each fallback of each model, in the order they are tried."""
    return [
        FallbackLine(model=name, fallback=fallback.model, causes=tuple(cause.value for cause in fallback.causes))
        for name, model in settings.models.items()
        for fallback in model.fallbacks
    ]


def policy_lines(settings: Settings) -> list[PolicyLine]:
    """Return a line for each client with requirements for the deployments that see its prompts."""
    required = {name: client.require for name, client in settings.clients.items()}
    return [
        PolicyLine(client=name, zdr=policy.zdr, regions=policy.regions, quantizations=policy.quantizations)
        for name, policy in required.items()
        if policy.zdr or policy.regions is not None or policy.quantizations is not None
    ]


def warnings(settings: Settings, lines: Sequence[DeploymentLine], catalog: Catalog) -> list[str]:
    """Return notes about what works but may not be intended."""
    found = []
    if not settings.providers:
        found.append(
            "no provider is configured: `holeshot serve` starts simulated ones; set a key such as GROQ_API_KEY"
        )
    elif not settings.models:
        found.append("no model is configured: deployments can be named directly, as provider/model")
    found += _bare_addresses(settings, catalog)
    found += _kept_requests(settings, lines, catalog)
    unpriced: dict[str, str] = {}  # each deployment once, with the first of its models
    for line in lines:
        if (
            line.input_usd is None and not line.units and STAR not in line.deployment
        ):  # under a star, prices belong to the names that clients ask for
            unpriced.setdefault(line.deployment, line.model)
    for where in dict.fromkeys(unpriced.values()):
        named = [name for name, its_model in unpriced.items() if its_model == where]
        said = f"{', '.join(named)}{_counted(settings, [line for line in lines if line.deployment in named])}"
        found.append(f"price unknown, so the cost of calls is unknown too: {said}; {set_price(where)}")
    found += _partly_priced(settings, lines)
    priced = {line.model for line in lines if line.input_usd is not None or STAR in line.deployment}
    bounded = {
        line.model for line in lines if not line.uncounted or STAR in line.deployment
    }  # limits count the dearest price of the vendor
    for name, model in settings.models.items():
        is_bounded, counted = name in bounded, settings.limits_dollars
        found += doubtful_model(name, model, priced=name in priced, counted=counted, bounded=is_bounded)
    found += [*_dear_fallbacks(settings, lines), *_mixed_vectors(settings)]
    return [*found, *doubtful_takeovers(settings, catalog), *doubtful(settings)]


def _partly_priced(settings: Settings, lines: Sequence[DeploymentLine]) -> Iterator[str]:
    """Yield a note on each deployment that has a known price for only some units."""
    told = set()
    for line in lines:
        if (
            STAR not in line.deployment
            and line.unpriced
            and (line.input_usd is not None or line.units)
            and line.deployment not in told
        ):
            told.add(line.deployment)
            yield (
                f"{line.deployment}: no price is known of {', '.join(line.unpriced)}, so the cost of calls with them is"
                f" unknown{_counted(settings, [line])}; {set_price(line.model)}"
            )


def _counted(settings: Settings, lines: Sequence[DeploymentLine]) -> str:
    """Return what limits in dollars do about units without a known price, as the middle of a note."""
    if not settings.limits_dollars:
        return ""
    said = ""
    uncounted = dict.fromkeys(unit for line in lines for unit in line.uncounted)
    if any(set(line.unpriced) - set(line.uncounted) for line in lines):
        counted = dict.fromkeys(line.counted_as for line in lines if set(line.unpriced) - set(line.uncounted))
        said = f"; limits in dollars count the dearest known price of {' and '.join(counted)}"
    if uncounted:
        said += f"; of {', '.join(uncounted)} their vendor has none either, so limits in dollars do not count that"
        refused = [name for name, client in settings.clients.items() if client.unpriced == "refuse"]
        if refused:
            said += f", and it is refused to {', '.join(refused)} (unpriced: refuse)"
        else:
            said += " (unpriced: refuse at a client refuses it)"
    return said


def _bare_addresses(settings: Settings, catalog: Catalog) -> Iterator[str]:
    """Yield a note on each address of one's own that has no path: most servers of OpenAI's API answer below ``/v1``."""
    for name, provider in settings.providers.items():
        own, vendor = provider.base_url, vendor_of(name, provider, catalog)
        if own is None or kind_of(name, provider, catalog) != "openai_compatible" or urlsplit(own).path.strip("/"):
            continue
        if vendor is None or vendor.chat_path == PIVOT.path:  # paths of other vendors begin at the host
            yield (
                f"providers.{name}.base_url has no path, so requests go to {without_secrets(own).rstrip('/')}"
                "/chat/completions: most servers answer below /v1, then it must end with it"
            )


def _kept_requests(settings: Settings, lines: Sequence[DeploymentLine], catalog: Catalog) -> Iterator[str]:
    """Yield a note on each provider that keeps requests of its own API, unless a request says ``store: false``."""
    used = {line.deployment.partition("/")[0] for line in lines}
    used |= {item.deployment.partition("/")[0] for model in settings.models.values() for item in model.deployments}
    for name in sorted(used & settings.providers.keys()):
        provider = settings.providers[name]
        vendor = vendor_of(name, provider, catalog)
        if not keeps_requests(provider, vendor) or provider.store is not None:
            continue
        if not says_store(provider, vendor)[1]:
            yield (
                f"{name} may keep prompts and answers for 55 days: translated requests say `store: false`, those in its"
                f" own API (generateContent) pass as they are; providers.{name}.store: false adds it there too"
            )


def _mixed_vectors(settings: Settings) -> Iterator[str]:
    """Yield a note on each model whose deployments embed by different models: only the first one's are used."""
    for name, model in settings.models.items():
        named = {each.name: each.same_as or each.deployment for each in model.deployments}
        first, *others = named
        if parsed_name(named[first].rpartition("/")[2]).kind == "embedding":
            other = [each for each in others if model_identity(named[each]) != model_identity(named[first])]
            if other:
                yield (
                    f"model {name!r}: vectors of {', '.join(other)} cannot be mixed with those of {first}, so"
                    " embeddings are made by that alone: same_as tells that they are the same model"
                )


def _dear_fallbacks(settings: Settings, lines: Sequence[DeploymentLine]) -> Iterator[str]:
    """Yield a note on each fallback so expensive that it is asked later."""
    prices: dict[str, list[float]] = {}
    for line in lines:
        if line.input_usd is not None and line.output_usd is not None and line.enabled:
            prices.setdefault(line.model, []).append(line.input_usd + line.output_usd)
    means = {name: sum(each) / len(each) for name, each in prices.items()}
    for name, model in settings.models.items():
        for fallback in model.fallbacks:
            usd, than_usd = means.get(fallback.model), means.get(name)
            is_auto = (fallback.fallback_after or model.fallback_after) == "auto"
            if is_auto and usd is not None and than_usd is not None and usd > DEAR_FALLBACK * than_usd:
                yield (
                    f"model {name!r}: its fallback {fallback.model!r} costs over {DEAR_FALLBACK:g} times as much, so it"
                    " is asked twice as late as another: set its fallback_after to seconds, or to failure"
                )


def withheld(settings: Settings, environ: Mapping[str, str], catalog: Catalog) -> list[str]:
    """Return a note for each provider without a key although its usual variable is set."""
    return [
        f"{name}: {variable} is set, but not sent to your own base_url: write api_key: ${{{variable}}} if this"
        " key is for that address"
        for name, variable in withheld_keys(settings, environ, catalog)
    ]


def _known(price: Price | None) -> dict[str, float | None]:
    """Return the prices of input and output, US dollars per million tokens; None: unknown."""
    if price is None:
        return {"input": None, "output": None}
    each = {"input": price.input_usd, "output": price.output_usd}
    return {unit: None if unit in price.unknown else _per_mtok(usd) for unit, usd in each.items()}


def _tiers(price: Price | None) -> tuple[PriceLine, ...]:
    return tuple(
        PriceLine(
            card.tier or "standard",
            max(0, card.above_tokens),
            _known(card.price)["input"],
            _known(card.price)["output"],
            _per_mtok(None if card.price is None else card.price.cached_input_usd),
        )
        for card in (() if price is None else price.cards)
    )


def _unpriced(price: Price | None, capabilities: Capabilities) -> tuple[str, ...]:
    """Return the units that a model with these ``capabilities`` bills, without a known price."""
    if price is None:
        return ("input", "output")
    is_sound_priced = price.as_text or {"audio_input", "audio_output"} & dict(price.units).keys()
    takes_sound = capabilities.audio and not is_sound_priced
    return (*price.unknown, *(("audio_input",) if takes_sound else ()))


def _shown(unit: str, usd: float) -> float:
    return round(usd * 1e6, 6) if is_of_tokens(unit) else usd


def _per_mtok(usd_per_token: float | None) -> float | None:
    return None if usd_per_token is None else round(usd_per_token * 1e6, 6)
