"""What a configuration amounts to: its providers, and for each model the deployments with what is known of them."""

from collections.abc import Sequence

import msgspec

from gateway.settings.model import Settings
from gateway.settings.presets import Catalog, vendor_of
from gateway.settings.prices import Prices
from gateway.settings.races import doubtful
from providers.prices import PriceTable


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
    objective: str
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


def deployment_lines(settings: Settings, catalog: Catalog, table: PriceTable) -> list[DeploymentLine]:
    """Return a line for each deployment of each model, prices from the configuration or the price table."""
    prices = Prices(settings, catalog, table)
    lines = []
    for name, model in settings.models.items():
        for item in model.deployments:
            provider = item.deployment.partition("/")[0]
            vendor = vendor_of(provider, settings.providers[provider], catalog)
            price = prices.of(vendor, item)
            lines.append(
                DeploymentLine(
                    model=name,
                    mode=model.race.mode,
                    objective=model.race.objective,
                    budget=model.race.budget,
                    deployment=item.name,
                    input_usd=None if price is None else round(price.input_usd * 1e6, 6),
                    output_usd=None if price is None else round(price.output_usd * 1e6, 6),
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
    priced = {line.model for line in lines if line.input_usd is not None}
    for name, model in settings.models.items():
        found += doubtful(name, model, priced=name in priced)
    return found
