"""What a configuration amounts to: its providers, and for each model the deployments with what is known of them."""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.settings.model import DeploymentSettings, Settings
from gateway.settings.presets import Catalog, vendor_of
from providers.prices import Price, PriceTable


class ProviderLine(msgspec.Struct, frozen=True):
    """One provider. Never holds the key itself."""

    provider: str
    kind: str
    base_url: str | None  # None: litellm knows
    key: str  # "set", "not set", "not needed"


class DeploymentLine(msgspec.Struct, frozen=True):
    """One deployment of one model, and what is unknown about it. Prices in US dollars per million tokens."""

    model: str
    mode: str
    budget: float
    deployment: str
    input_usd: float | None
    output_usd: float | None
    bills_after_disconnect: bool | None  # None: unknown


def provider_lines(settings: Settings, catalog: Catalog) -> list[ProviderLine]:
    """Return a line for each provider, in the order of the configuration."""
    lines = []
    for name, provider in settings.providers.items():
        vendor = vendor_of(name, provider, catalog)
        needed = vendor.key_required if vendor else False
        lines.append(
            ProviderLine(
                provider=name,
                kind=provider.kind or (vendor.kind if vendor else "openai_compatible"),
                base_url=provider.base_url or (vendor.base_url if vendor else None),
                key="set" if provider.api_key else "not set" if needed else "not needed",
            )
        )
    return lines


def deployment_lines(settings: Settings, catalog: Catalog, prices: PriceTable) -> list[DeploymentLine]:
    """Return a line for each deployment of each model, prices from the configuration or the price table."""
    pairs = [(name, model, item) for name, model in settings.models.items() for item in model.deployments]
    keys = {id(item): _price_key(item, settings, catalog) for _, _, item in pairs}
    listed = prices.look_up({key for key in keys.values() if key is not None})
    lines = []
    for name, model, item in pairs:
        provider = item.deployment.partition("/")[0]
        vendor = vendor_of(provider, settings.providers[provider], catalog)
        input_usd, output_usd = _per_mtok(item, listed, keys[id(item)])
        lines.append(
            DeploymentLine(
                model=name,
                mode=model.race.mode,
                budget=model.race.budget,
                deployment=item.name,
                input_usd=input_usd,
                output_usd=output_usd,
                bills_after_disconnect=vendor.bills_after_disconnect if vendor else None,
            )
        )
    return lines


def warnings(settings: Settings, lines: Sequence[DeploymentLine]) -> list[str]:
    """Return what works but deserves a thought."""
    found = []
    if not settings.providers:
        found.append(
            "no provider is configured: `holeshot serve` starts simulated ones; set a key such as GROQ_API_KEY"
        )
    elif not settings.models:
        found.append("no model is configured: deployments can be named directly, as provider/model")
    unpriced = [line.deployment for line in lines if line.input_usd is None]
    if unpriced:
        found.append(
            f"price unknown, so the cost of calls is, too; set price_per_mtok: {', '.join(dict.fromkeys(unpriced))}"
        )
    return found


PriceKey = tuple[str, str]  # litellm's name of the vendor, the vendor's name of the model


def _price_key(item: DeploymentSettings, settings: Settings, catalog: Catalog) -> PriceKey | None:
    provider, _, model = item.deployment.partition("/")
    vendor = vendor_of(provider, settings.providers[provider], catalog)
    return (vendor.litellm_prefix, model) if vendor is not None and vendor.litellm_prefix is not None else None


def _per_mtok(
    item: DeploymentSettings, listed: Mapping[PriceKey, Price | None], key: PriceKey | None
) -> tuple[float | None, float | None]:
    if item.price_per_mtok is not None:
        return item.price_per_mtok.input, item.price_per_mtok.output
    price = listed.get(key) if key is not None else None
    return (round(price.input_usd * 1e6, 6), round(price.output_usd * 1e6, 6)) if price is not None else (None, None)
