"""Adds providers and keys that need not be configured: the catalog and the environment name them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from pydantic import SecretStr

from gateway.settings.deployment import DeploymentSettings, PriceChange, ProviderSettings
from gateway.settings.deployment import PriceSettings as ConfiguredPrice
from gateway.settings.model import ModelSettings, Settings
from gateway.settings.vendor_models import SELLERS, proposed_models
from providers import (
    CLAUDES,
    UNLISTED,
    Api,
    Capabilities,
    Datasheet,
    DatasheetTable,
    ModelKey,
    Price,
    ProviderKind,
    Vendor,
    apis_of,
    elsewhere,
    has_litellm,
    keeps_by_default,
    price_of,
    tier_of,
    uplifted,
)
from providers.dialects import DIALECTS

Catalog = Mapping[str, Vendor]
# Chat in OpenAI's words at Microsoft Foundry (…/openai/v1, …/models), and at Vertex AI (…/endpoints/openapi).
_CLOUDS: frozenset[ProviderKind] = frozenset({"bedrock", "invoke", "vertex"})
_OPENAIS = re.compile(r"/(?:endpoints|models|openai|openapi)(?:/|$)")


def vendor_of(name: str, provider: ProviderSettings, catalog: Catalog) -> Vendor | None:
    """Return the catalog row for provider ``name``: the row of its preset, else of its name.

    Sellers of Claude at an address of one's own have other APIs there, too. A provider with the name of such a row, and
    with the kind or the address of another API, does not get that row. Of other names a kind that only one cloud has
    says which cloud it is. A server at a host of its own that shares only its name with the vendor may take more than
    the vendor does.
    """
    row = catalog.get(provider.preset or name)
    if row is None and provider.preset is None and provider.kind in _CLOUDS:
        return next((each for each in catalog.values() if each.kind == provider.kind), None)
    if row is None or provider.preset is not None:
        return row
    if row.base_url is not None:
        is_own = provider.base_url is None or _host(provider.base_url) == _host(row.base_url)
        return row if is_own else elsewhere(row)
    if row.kind not in CLAUDES:
        return row
    if provider.kind is not None:
        return row if provider.kind == row.kind else None
    return None if _OPENAIS.search(urlsplit(provider.base_url or "").path) else row


def _host(url: str) -> str | None:
    return urlsplit(url).hostname


def kind_of(name: str, provider: ProviderSettings, catalog: Catalog) -> ProviderKind:
    """Return the kind of provider ``name``: its own kind, else its vendor's."""
    return _kind(provider, vendor_of(name, provider, catalog))


def keeps_requests(provider: ProviderSettings, vendor: Vendor | None) -> bool:
    """Whether a server keeps requests that do not say ``store: false``."""
    return keeps_by_default(vendor, _kind(provider, vendor), provider.base_url)


def says_store(provider: ProviderSettings, vendor: Vendor | None) -> tuple[bool | None, bool]:
    """Return the ``store`` of requests that have none, and whether requests in a vendor's own API get it as well.

    Chat is not Google's own API: in OpenAI's, a request that does not mention ``store`` is not kept.
    """
    if provider.store is not None:
        return provider.store, True
    return (False if keeps_requests(provider, vendor) else None), _kind(provider, vendor) == "openai_compatible"


def _kind(provider: ProviderSettings, vendor: Vendor | None) -> ProviderKind:
    return provider.kind or (vendor.kind if vendor else "openai_compatible")


def brought(settings: Settings, catalog: Catalog) -> frozenset[str] | None:
    """Return the providers for which requests may bring keys; None: requests may bring no keys."""
    if not settings.tenant_keys.header:
        return None
    return frozenset(name for name, each in settings.providers.items() if not no_key_for(name, each, catalog))


def no_key_for(name: str, provider: ProviderSettings, catalog: Catalog) -> str:
    """Return why clients can bring no key for provider ``name``; empty if clients can bring one.

    If something other than the key may decide, any key would do: calls with an invented key would be the operator's.
    """
    vendor = vendor_of(name, provider, catalog)
    kind = kind_of(name, provider, catalog)
    if provider.has_login:
        return "its base_url names a user"
    if kind == "litellm":
        return "litellm may use other credentials instead"
    if kind == "vertex" or (vendor is not None and vendor.auth == "google" and kind == vendor.kind):
        return "it takes tokens of Google's, not keys"
    if not provider.has_key and (vendor is None or not vendor.key_required):
        return "it may need none: it has no key here"
    return ""


def usual_key(vendor: Vendor, environ: Mapping[str, str]) -> str | None:
    """Return the first of the vendor's usual variables that is set."""
    return next((variable for variable in vendor.key_env if environ.get(variable)), None)


VARIABLE = re.compile(r"\$\{(\w+)\}")


def usual_address(vendor: Vendor, environ: Mapping[str, str]) -> str | None:
    """Return the first usual address of the vendor that has its variables set; variables stay as ``${NAME}``."""
    return next((each for each in vendor.addresses if all(environ.get(name) for name in VARIABLE.findall(each))), None)


def _found_settings(vendor: Vendor, environ: Mapping[str, str]) -> ProviderSettings:
    """Return the settings of a vendor that only the environment names; the vendor's key is added later."""
    if vendor.base_url is not None or (address := usual_address(vendor, environ)) is None:
        return ProviderSettings()
    return ProviderSettings(base_url=filled(address, environ))


# Locations of Vertex AI with hosts that do not begin with the location: lib/vertex/_client.py of Anthropic's SDK, as of
# 2026-11-29.
_HOSTS = {
    "//global-aiplatform.": "//aiplatform.",
    "//us-aiplatform.": "//aiplatform.us.rep.",
    "//eu-aiplatform.": "//aiplatform.eu.rep.",
}


def filled(address: str, environ: Mapping[str, str]) -> str:
    """Return an address with the values of its variables."""
    url = VARIABLE.sub(lambda found: environ[found[1]], address)
    return next((url.replace(each, host, 1) for each, host in _HOSTS.items() if each in url), url)


def complete(settings: Settings, environ: Mapping[str, str], catalog: Catalog) -> Settings:
    """Return ``settings`` with the implied providers and keys.

    - Without ``providers:``, every vendor whose usual variable is set is a provider. Without ``models:`` too, the
      models are those that `holeshot init` would write for these vendors.
    - A vendor named only by a model's deployment is a provider too.
    - A provider without ``api_key`` uses its vendor's usual variable, unless its ``base_url`` was changed, or only
      its kind names the vendor: a key is not sent to a host that the vendor of the key does not own.
    """
    named = dict(settings.providers)
    update: dict[str, object] = {}
    if "providers" not in settings.model_fields_set:
        named |= {vendor.name: _found_settings(vendor, environ) for vendor in found_vendors(environ, catalog)}
        if named and "models" not in settings.model_fields_set:
            proposed = proposed_models(list(named))
            update["models"] = {each.name: ModelSettings.model_validate(each.settings) for each in proposed}
    named |= {name: ProviderSettings() for name in _deployed(settings) if name in catalog and name not in named}
    providers = {name: _with_usual_key(name, provider, environ, catalog) for name, provider in named.items()}
    return settings.model_copy(update=update | {"providers": providers})


def withheld_keys(settings: Settings, environ: Mapping[str, str], catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Yield providers without a key although their vendor's usual variable is set, each with that variable."""
    for name, provider in settings.providers.items():
        vendor = vendor_of(name, provider, catalog)
        if vendor is not None and not provider.keys and (variable := usual_key(vendor, environ)) is not None:
            yield name, variable


def found_vendors(environ: Mapping[str, str], catalog: Catalog) -> Iterator[Vendor]:
    """Yield the vendors that can be used with the present environment variables alone."""
    with_key = [vendor for vendor in catalog.values() if usual_key(vendor, environ) and not vendor.named_only]
    addressed = {key for vendor in with_key if usual_address(vendor, environ) for key in vendor.key_env}
    for vendor in with_key:
        through_litellm = vendor.kind == "litellm" and has_litellm() and addressed.isdisjoint(vendor.key_env)
        if vendor.base_url or usual_address(vendor, environ) or through_litellm:
            yield vendor


def found_sellers(environ: Mapping[str, str], catalog: Catalog, home: Path) -> Iterator[Vendor]:
    """Yield the other sellers of Claude with address and credentials in the usual places.

    The credentials are the clouds' own, and may serve other purposes. So only commands with a person before them use
    these sellers.
    """
    with_key = {vendor.name for vendor in found_vendors(environ, catalog)}
    for vendor in (catalog[name] for name in SELLERS if name in catalog and name not in with_key):
        is_whose = all(environ.get(variable) for variable in vendor.header_env.values())
        if is_whose and usual_address(vendor, environ) and _are_there(vendor.name, environ, home):
            yield vendor


def without_address(environ: Mapping[str, str], catalog: Catalog) -> Iterator[tuple[Vendor, str]]:
    """Yield vendors with a key but without a variable of their address, each with what to do."""
    known = {key for vendor in found_vendors(environ, catalog) for key in vendor.key_env}
    for vendor in catalog.values():
        key = usual_key(vendor, environ)
        if key is not None and vendor.addresses and key not in known and not vendor.named_only:
            names = list(dict.fromkeys(name for each in vendor.addresses for name in VARIABLE.findall(each)))
            address = VARIABLE.sub(lambda found: found[1], vendor.addresses[0 if len(names) == 1 else -1])
            section = f'{vendor.name}: {{ base_url: "{address}", api_key: "${{{key}}}" }}'
            set_one = f"set {' or '.join(names)}, or write under providers: {section}"
            yield vendor, f"{key} is set, but not where your {vendor.title} is: {set_one}"


def _deployed(settings: Settings) -> Iterator[str]:
    """Yield the providers that deployments name."""
    for model in settings.models.values():
        for deployment in model.deployments:
            yield deployment.deployment.partition("/")[0]


def _with_usual_key(
    name: str, provider: ProviderSettings, environ: Mapping[str, str], catalog: Catalog
) -> ProviderSettings:
    vendor = vendor_of(name, provider, catalog)
    if vendor is None or vendor.name != (provider.preset or name):
        return provider
    if _kind(provider, vendor) == vendor.kind:
        provider = _with_usual_address(provider, vendor, environ)
    if provider.keys or (provider.base_url is not None and vendor.base_url is not None):
        return provider
    variable = usual_key(vendor, environ)
    return provider.model_copy(update={"api_key": SecretStr(environ[variable])}) if variable else provider


def _with_usual_address(provider: ProviderSettings, vendor: Vendor, environ: Mapping[str, str]) -> ProviderSettings:
    """Return a provider with the address, and the headers, that usual variables of its vendor name."""
    update: dict[str, object] = {}
    if provider.base_url is None and vendor.base_url is None and (address := usual_address(vendor, environ)):
        update["base_url"] = filled(address, environ)
    said = {name.lower() for name in provider.headers}
    if found := {
        header: SecretStr(environ[variable])
        for header, variable in vendor.header_env.items()
        if header not in said and environ.get(variable)
    }:
        update["headers"] = {**provider.headers, **found}
    return provider.model_copy(update=update) if update else provider


# The providers that can be used: the configured providers, and vendors whose usual variables are set.

# Credentials of vendors without an API key: groups of variables, of which one is enough, and files.
_AWS = (
    ("AWS_BEARER_TOKEN_BEDROCK",),
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    ("AWS_PROFILE",),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
)
_OF_AWS = ("bedrock", "bedrock_converse", "bedrock_invoke", "bedrock_mantle", "claude_aws")
_OF_GOOGLE = ("claude_google", "vertex", "vertex_ai", "vertex_openai")
_CREDENTIAL_VARIABLES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(_OF_AWS, _AWS),
    **dict.fromkeys(_OF_GOOGLE, (("GOOGLE_APPLICATION_CREDENTIALS",),)),
    "foundry": (("AZURE_CLIENT_ID", "AZURE_TENANT_ID"), ("IDENTITY_ENDPOINT",)),
}
_CREDENTIAL_FILES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_AWS, (".aws/credentials", ".aws/config")),
    **dict.fromkeys(_OF_GOOGLE, (".config/gcloud/application_default_credentials.json",)),
    "foundry": (".azure/msal_token_cache.json",),
}


class Reachable(msgspec.Struct, frozen=True):
    """One usable provider, its row of the catalog if there is one, and whether the provider is configured."""

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
        """The kind of the provider's API."""
        return _kind(self.settings, self.vendor)

    @property
    def base_url(self) -> str | None:
        """The base URL; None if only litellm knows the URL."""
        return self.settings.base_url or (self.vendor.base_url if self.vendor is not None else None)

    @property
    def apis(self) -> tuple[Api, ...]:
        """The provider's APIs."""
        return self.settings.apis or apis_of(self.vendor, self.settings.kind, self.settings.base_url)


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
        Reachable(
            vendor.name,
            _found_settings(vendor, environ).model_copy(update={"api_key": SecretStr(environ[variable])}),
            vendor,
            configured=False,
        )
        for vendor in vendors
        if (variable := usual_key(vendor, environ))
    ]


def has_credentials(provider: Reachable, environ: Mapping[str, str], home: Path) -> bool | None:
    """Whether credentials are found; None if no credentials are needed, or it is unknown which are.

    Only the usual places are checked, in the environment and below ``home``; cloud machines have other places.
    """
    if provider.settings.keys:
        return True
    vendor = provider.vendor
    if vendor is None:
        return None
    if vendor.name in _CREDENTIAL_VARIABLES:
        return _are_there(vendor.name, environ, home)
    return False if vendor.key_required else None


def _are_there(vendor: str, environ: Mapping[str, str], home: Path) -> bool:
    """Whether credentials of a vendor are in the usual places."""
    groups, files = _CREDENTIAL_VARIABLES.get(vendor, ()), _CREDENTIAL_FILES.get(vendor, ())
    return any(all(map(environ.get, group)) for group in groups) or any((home / file).is_file() for file in files)


# The price and capabilities of deployments: as configured, else from the table.


class Datasheets:
    """The datasheets of deployments. The table is read once for all configured deployments."""

    def __init__(self, settings: Settings, catalog: Catalog, table: DatasheetTable) -> None:
        wanted = set()
        for model in settings.models.values():
            for item in model.deployments:
                name = item.deployment.partition("/")[0]
                provider = settings.providers.get(name)
                key = _key(catalog.get(name) if provider is None else vendor_of(name, provider, catalog), item)
                if key is not None:
                    wanted.add(key)
        self._table = table
        self._providers = settings.providers
        self._listed = table.look_up(wanted) if wanted else {}

    def of(self, vendor: Vendor | None, item: DeploymentSettings) -> Datasheet:
        """Return the datasheet of a deployment at ``vendor``: configured fields take precedence over the table's.

        A configured price replaces the table's completely. Only for units without a price do limits still count the
        table's.
        """
        listed = self._look_up(_key(vendor, item))
        if listed.uplifts and (factor := listed.uplifts.get(self._region(vendor, item))) is not None:
            price, others = (None if each is None else uplifted(each, factor) for each in (listed.price, listed.listed))
            listed = msgspec.structs.replace(listed, price=price, listed=others)
        price = _configured_price(item, listed.price or listed.listed)
        capabilities = _configured_capabilities(item, listed.capabilities)
        only = listed.only_api
        if price:
            return Datasheet(price, capabilities, only_api=only)
        return Datasheet(listed.price, capabilities, listed.listed, only_api=only)

    def _region(self, vendor: Vendor | None, item: DeploymentSettings) -> str:
        """Return the region for which a vendor adds a surcharge, by the deployment's address or fields."""
        if item.extra_body.get("inference_geo") == "us":
            return "us"
        provider = self._providers.get(item.deployment.partition("/")[0])
        host = urlsplit((provider and provider.base_url) or (vendor and vendor.base_url) or "").hostname or ""
        if host.endswith(".api.openai.com"):
            return host.partition(".")[0]
        return "endpoint" if host.endswith("-aiplatform.googleapis.com") else ""

    def _look_up(self, key: ModelKey | None) -> Datasheet:
        if key is None:
            return UNLISTED
        return self._listed[key] if key in self._listed else self._table.look_up([key])[key]


def apis_at(
    item: DeploymentSettings, provider: ProviderSettings, vendor: Vendor | None, only: str | None = None
) -> tuple[Api, ...]:
    """Return the APIs of a deployment: as configured, else its provider's; of those that are raced ``only`` one.

    ``only``: the table knows that the deployment's model has no other API.
    """
    if item.apis:
        return item.apis
    apis = provider.apis or apis_of(vendor, provider.kind, provider.base_url)
    if vendor is not None and vendor.only and not provider.apis:
        model = item.same_as or item.deployment.partition("/")[2]
        apis = tuple(api for api in apis if vendor.only.get(api, "") in model) or apis  # a name may not tell
    return tuple(api for api in apis if api == only or api not in DIALECTS) if only in apis else apis


def bills_on(item: DeploymentSettings, vendor: Vendor | None) -> bool | None:
    """Whether the whole answer is billed after a disconnect; None if unknown. The configuration takes precedence."""
    if item.bills_after_disconnect is not None:
        return item.bills_after_disconnect
    return vendor.bills_after_disconnect if vendor else None


def _configured_price(item: DeploymentSettings, listed_price: Price | None) -> Price | None:
    own = item.price_per_mtok
    if own is None:
        return None
    searches = {} if own.web_search is None else {"web_search": own.web_search}
    listed = {("", -1): _usd_per_unit(own) | searches}
    listed |= {("", above): _usd_per_unit(change) for above, change in own.above_tokens.items()}
    for word, tier in own.tiers.items():
        name = tier_of(word) or ""
        listed[name, -1] = _usd_per_unit(tier)
        listed |= {(name, above): _usd_per_unit(change) for above, change in tier.above_tokens.items()}
    dearest = () if listed_price is None else listed_price.dearest
    return msgspec.structs.replace(price_of(listed, as_text=True), dearest=dearest, is_configured=True)


def _configured_capabilities(item: DeploymentSettings, listed: Capabilities) -> Capabilities:
    own = {name: value for name, value in item.capabilities.model_dump().items() if value is not None}
    return msgspec.structs.replace(listed, **own) if own else listed


def _usd_per_unit(own: ConfiguredPrice | PriceChange) -> dict[str, float]:
    """Return the configured prices of tokens, by unit."""
    units = {name: usd for name in PriceChange.model_fields if (usd := getattr(own, name, None)) is not None}
    return {unit: usd / 1e6 for unit, usd in units.items() if unit != "above_tokens"}


def _key(vendor: Vendor | None, item: DeploymentSettings) -> ModelKey | None:
    if vendor is None or vendor.litellm_prefix is None:
        return None
    name = item.deployment.partition("/")[2].removeprefix("models/")  # Gemini lists and accepts the name so
    return vendor.litellm_prefix, name
