"""What deployments cost: as configured, else as the price table lists the vendor's model."""

from gateway.settings.model import DeploymentSettings, Settings
from gateway.settings.presets import Catalog
from providers.catalog import Vendor
from providers.prices import Price, PriceTable

PriceKey = tuple[str, str]  # litellm's name of the vendor, the vendor's name of the model


class Prices:
    """The prices of deployments. Those of all configured ones are read from the table at once."""

    def __init__(self, settings: Settings, catalog: Catalog, table: PriceTable) -> None:
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

    def of(self, vendor: Vendor | None, item: DeploymentSettings) -> Price | None:
        """Return the price of a deployment at ``vendor``, None when it is unknown."""
        if (own := item.price_per_mtok) is not None:
            cached_usd = None if own.cached_input is None else own.cached_input / 1e6
            return Price(input_usd=own.input / 1e6, output_usd=own.output / 1e6, cached_input_usd=cached_usd)
        key = _key(vendor, item)
        if key is None:
            return None
        return self._listed[key] if key in self._listed else self._table.look_up([key])[key]


def _key(vendor: Vendor | None, item: DeploymentSettings) -> PriceKey | None:
    if vendor is None or vendor.litellm_prefix is None:
        return None
    return vendor.litellm_prefix, item.deployment.partition("/")[2]
