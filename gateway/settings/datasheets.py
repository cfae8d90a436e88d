"""The price and capabilities of deployments: as configured, else from the table."""

import msgspec

from gateway.settings.deployment import DeploymentSettings
from gateway.settings.model import Settings
from gateway.settings.presets import Catalog
from providers.capabilities import Capabilities
from providers.catalog import Vendor
from providers.datasheets import UNLISTED, Datasheet, DatasheetTable, ModelKey
from providers.prices import Price


class Datasheets:
    """The datasheets of deployments. The table is read once for all configured ones."""

    def __init__(self, settings: Settings, catalog: Catalog, table: DatasheetTable) -> None:
        wanted = set()
        for model in settings.models.values():
            for item in model.deployments:
                name = item.deployment.partition("/")[0]
                provider = settings.providers.get(name)
                key = _key(catalog.get(name if provider is None else provider.preset or name), item)
                if key is not None:
                    wanted.add(key)
        self._table = table
        self._listed = table.look_up(wanted) if wanted else {}

    def of(self, vendor: Vendor | None, item: DeploymentSettings) -> Datasheet:
        """Return the datasheet of a deployment at ``vendor``: configured fields take precedence over the table's.

        A configured price replaces the table's completely.
        """
        listed = self._look_up(_key(vendor, item))
        price = _configured_price(item)
        return Datasheet(listed.price if price is None else price, _configured_capabilities(item, listed.capabilities))

    def _look_up(self, key: ModelKey | None) -> Datasheet:
        if key is None:
            return UNLISTED
        return self._listed[key] if key in self._listed else self._table.look_up([key])[key]


def bills_on(item: DeploymentSettings, vendor: Vendor | None) -> bool | None:
    """Whether the whole answer is billed after a disconnect; None if unknown. The configuration takes precedence."""
    if item.bills_after_disconnect is not None:
        return item.bills_after_disconnect
    return vendor.bills_after_disconnect if vendor else None


def _configured_price(item: DeploymentSettings) -> Price | None:
    own = item.price_per_mtok
    if own is None:
        return None
    return Price(
        input_usd=own.input / 1e6,
        output_usd=own.output / 1e6,
        cached_input_usd=_per_token(own.cached_input),
        cache_write_usd=_per_token(own.cache_write),
        reasoning_usd=_per_token(own.reasoning),
    )


def _configured_capabilities(item: DeploymentSettings, listed: Capabilities) -> Capabilities:
    own = {name: value for name, value in item.capabilities.model_dump().items() if value is not None}
    return msgspec.structs.replace(listed, **own) if own else listed


def _per_token(usd_per_mtok: float | None) -> float | None:
    return None if usd_per_mtok is None else usd_per_mtok / 1e6


def _key(vendor: Vendor | None, item: DeploymentSettings) -> ModelKey | None:
    if vendor is None or vendor.litellm_prefix is None:
        return None
    return vendor.litellm_prefix, item.deployment.partition("/")[2]
