"""The providers that can be used: the configured ones, and those whose usual variables are set."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from pydantic import SecretStr

from gateway.settings.model import Settings
from gateway.settings.presets import Catalog, found_vendors, usual_key, vendor_of
from gateway.settings.provider import ProviderSettings
from providers.catalog import Api, Vendor, apis_of

# Where vendors without an API key look for credentials: groups of variables, one of which is enough, and files.
_CREDENTIAL_VARIABLES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "bedrock": (
        ("AWS_BEARER_TOKEN_BEDROCK",),
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_PROFILE",),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
    ),
    "vertex_ai": (("GOOGLE_APPLICATION_CREDENTIALS",),),
}
_CREDENTIAL_FILES: Mapping[str, tuple[str, ...]] = {
    "bedrock": (".aws/credentials", ".aws/config"),
    "vertex_ai": (".config/gcloud/application_default_credentials.json",),
}


class Reachable(msgspec.Struct, frozen=True):
    """One usable provider, its row of the catalog if it has one, and whether it is configured."""

    name: str
    settings: ProviderSettings
    vendor: Vendor | None
    configured: bool

    @property
    def title(self) -> str:
        """The display name."""
        return self.vendor.title if self.vendor is not None else self.name

    @property
    def kind(self) -> str:
        """The kind of its API."""
        return self.settings.kind or (self.vendor.kind if self.vendor is not None else "openai_compatible")

    @property
    def base_url(self) -> str | None:
        """The base URL; None if only litellm knows it."""
        return self.settings.base_url or (self.vendor.base_url if self.vendor is not None else None)

    @property
    def apis(self) -> tuple[Api, ...]:
        """The APIs it has."""
        return self.settings.apis or apis_of(self.vendor, self.settings.kind)


def reachable(settings: Settings, environ: Mapping[str, str], catalog: Catalog) -> list[Reachable]:
    """Return the configured providers, in their order, then the vendors with a key in the environment only."""
    named = [
        Reachable(name, provider, vendor_of(name, provider, catalog), configured=True)
        for name, provider in settings.providers.items()
    ]
    presets = {provider.settings.preset or provider.name for provider in named}
    others = [vendor for vendor in found_vendors(environ, catalog) if vendor.name not in presets]
    return [*named, *found(others, environ)]


def found(vendors: Iterable[Vendor], environ: Mapping[str, str]) -> list[Reachable]:
    """Return vendors as providers that have only their usual key from the environment."""
    return [
        Reachable(vendor.name, ProviderSettings(api_key=SecretStr(environ[variable])), vendor, configured=False)
        for vendor in vendors
        if (variable := usual_key(vendor, environ))
    ]


def has_credentials(provider: Reachable, environ: Mapping[str, str], home: Path) -> bool | None:
    """Whether there are credentials; None if none are needed, or it is unknown which.

    Checks the usual places, in the environment and below ``home``, and proves nothing: cloud machines have others.
    """
    if provider.settings.keys:
        return True
    vendor = provider.vendor
    if vendor is None:
        return None
    groups, files = _CREDENTIAL_VARIABLES.get(vendor.name, ()), _CREDENTIAL_FILES.get(vendor.name, ())
    if groups or files:
        return any(all(map(environ.get, group)) for group in groups) or any((home / file).is_file() for file in files)
    return False if vendor.key_required else None
