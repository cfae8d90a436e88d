"""Adds what need not be configured: providers and keys known from the catalog and the environment."""

from collections.abc import Iterator, Mapping

from pydantic import SecretStr

from gateway.settings.model import Settings
from gateway.settings.provider import ProviderSettings
from providers.catalog import Vendor
from providers.extras import has_litellm

Catalog = Mapping[str, Vendor]


def vendor_of(name: str, provider: ProviderSettings, catalog: Catalog) -> Vendor | None:
    """Return the catalog row for provider ``name``: that of its preset, else of its name."""
    return catalog.get(provider.preset or name)


def usual_key(vendor: Vendor, environ: Mapping[str, str]) -> str | None:
    """Return the first of the vendor's usual variables that is set."""
    return next((variable for variable in vendor.key_env if environ.get(variable)), None)


def complete(settings: Settings, environ: Mapping[str, str], catalog: Catalog) -> Settings:
    """Return ``settings`` with the implied providers and keys.

    - Without ``providers:``, every vendor whose usual variable is set is a provider.
    - A vendor named only by a model's deployment is a provider too.
    - A provider without ``api_key`` uses its vendor's usual variable, unless its ``base_url`` was changed: a key is not
      sent to a host that its vendor does not own.
    """
    named = dict(settings.providers)
    if "providers" not in settings.model_fields_set:
        named |= {vendor.name: ProviderSettings() for vendor in found_vendors(environ, catalog)}
    named |= {name: ProviderSettings() for name in _deployed(settings) if name in catalog and name not in named}
    providers = {name: _with_usual_key(name, provider, environ, catalog) for name, provider in named.items()}
    return settings.model_copy(update={"providers": providers})


def withheld_keys(settings: Settings, environ: Mapping[str, str], catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Yield providers without a key although their vendor's usual variable is set, each with that variable."""
    for name, provider in settings.providers.items():
        vendor = vendor_of(name, provider, catalog)
        if vendor is not None and not provider.keys and (variable := usual_key(vendor, environ)) is not None:
            yield name, variable


def found_vendors(environ: Mapping[str, str], catalog: Catalog) -> Iterator[Vendor]:
    """Yield the vendors that can be used with only the variables that are set."""
    for vendor in catalog.values():
        if usual_key(vendor, environ) and (vendor.base_url or (vendor.kind == "litellm" and has_litellm())):
            yield vendor


def _deployed(settings: Settings) -> Iterator[str]:
    """Yield the providers that deployments name."""
    for model in settings.models.values():
        for deployment in model.deployments:
            yield deployment.deployment.partition("/")[0]


def _with_usual_key(
    name: str, provider: ProviderSettings, environ: Mapping[str, str], catalog: Catalog
) -> ProviderSettings:
    vendor = vendor_of(name, provider, catalog)
    if provider.keys or vendor is None or (provider.base_url is not None and vendor.base_url is not None):
        return provider
    variable = usual_key(vendor, environ)
    return provider.model_copy(update={"api_key": SecretStr(environ[variable])}) if variable else provider
