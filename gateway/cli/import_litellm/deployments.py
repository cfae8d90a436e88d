"""Converts the entries of LiteLLM's ``model_list`` to deployments, at the providers that their addresses become."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gateway.cli.import_litellm.source import (
    ELSEWHERE,
    ENVIRON,
    Function,
    LiteLlmSection,
    is_reference,
    put,
    remark_if_set,
    table,
    unused,
    walk,
)
from gateway.settings import Catalog, Place
from providers import Vendor

# Finds the vendor and model that LiteLLM means by a name such as ``together_ai/meta-llama/Llama-3``.


class LiteLlmModel(msgspec.Struct, frozen=True):
    """The vendor and model to which a name of LiteLLM's refers."""

    model: str  # the vendor's name for the model
    vendor: Vendor | None = None  # from the catalog
    prefix: str | None = None  # LiteLLM's name for a vendor that is not in the catalog; None for one's own server
    apis: tuple[str, ...] = ()  # the APIs that the name selects; empty if none

    @property
    def is_through_litellm(self) -> bool:
        """Whether the litellm library is used for the vendor."""
        return self.prefix is not None or (self.vendor is not None and self.vendor.kind == "litellm")


def resolve(model: str, custom: str, catalog: Catalog) -> LiteLlmModel | None:
    """Return what LiteLLM's name ``model`` refers to; None: unknown. ``custom``: its ``custom_llm_provider``."""
    vendors = table().vendors
    known = vendors.own_servers | vendors.litellm_only
    first, slash, rest = model.partition("/")
    if custom:
        prefix, name = custom, rest if slash and first == custom else model
    elif slash and rest and (first in known or by_prefix(first, catalog) is not None):
        prefix, name = first, rest
    elif (bare := next((vendor for start, vendor in vendors.bare.items() if re.match(start, model)), None)) is not None:
        prefix, name = bare, model
    else:
        return None
    if prefix in vendors.own_servers:
        return LiteLlmModel(name)
    vendor = by_prefix(prefix, catalog)
    if vendor is None:
        return LiteLlmModel(name, prefix=prefix) if prefix in known else None
    apis = vendors.prefix_apis.get(prefix, ())
    for start, chosen in vendors.infixes.get(vendor.name, {}).items():
        if name.startswith(start):
            name, apis = name.removeprefix(start), chosen
    return LiteLlmModel(name, vendor, apis=apis)


def by_prefix(prefix: str, catalog: Catalog) -> Vendor | None:
    """Return the catalog's row for LiteLLM's vendor ``prefix``."""
    prefix = table().vendors.aliases.get(prefix, prefix)
    return next((row for row in catalog.values() if row.litellm_prefix == prefix), None) or catalog.get(prefix)


def by_host(url: str, catalog: Catalog) -> Vendor | None:
    """Return the vendor to which the host of ``url`` belongs."""
    host = _host(url)
    return next((row for row in catalog.values() if host and row.base_url and _host(row.base_url) == host), None)


def server_name(url: str) -> str:
    """Return a provider's name for the server at ``url``: the distinctive part of its host."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:  # an incomplete IPv6 address: reported when the file is loaded
        return "server"
    if not host or host.replace(".", "").isdigit() or ":" in host:
        return "server"
    labels = [label for label in host.split(".") if label not in ("api", "www", "inference")]
    name = re.sub(r"[^a-z0-9-]+", "-", labels[0] if labels else host)
    return "local" if name == "localhost" else name


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    # On this machine, ports distinguish servers.
    return url if port is not None and parts.hostname in ("localhost", "127.0.0.1") else parts.hostname


# Placeholders for the key of a server without authentication.
_NO_KEY = re.compile(r"(?i)(sk-)?(none|null|dummy|empty|fake|fake-key|no-?key|not-?needed|na|n/a|x+|anything|test)")
_TOKENS = ("azure_ad_token", "tenant_id", "client_id", "client_secret")
# Versions by which LiteLLM selects Azure's newer API. That API has other paths.
_AZURE_V1 = frozenset({"v1", "latest", "preview"})
_VERSIONED = "api-version"  # the name of the query parameter


class ProviderAddress(msgspec.Struct, frozen=True):
    """Everything that identifies a provider except its key. Values are as Holeshot's file has them."""

    vendor: str | None = None  # in the catalog
    prefix: str | None = None  # LiteLLM's name for a vendor that is not in the catalog
    kind: str | None = None  # if the kind differs from the vendor's row
    base_url: str | None = None  # if the URL differs from the vendor's
    organization: str | None = None
    api_version: str | None = None  # if the version differs from the vendor's row


class ProviderAddresses:
    """Collects addresses and keys, and makes a provider for each."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._served: dict[ProviderAddress, dict[str | None, list[bytes]]] = {}  # deployments at an address, by key
        self._preferred: dict[tuple[ProviderAddress, str | None], str] = {}
        self._names: dict[tuple[ProviderAddress, str | None], str] = {}
        self.providers: dict[str, dict[str, Any]] = {}

    def read(self, resolved: LiteLlmModel, params: LiteLlmSection) -> tuple[ProviderAddress, str | None] | None:
        """Read address and key from ``params``; return None, with a remark, if there is no address."""
        vendor = resolved.vendor
        is_azure = vendor is not None and vendor.name == "azure"
        url = params.plain("api_base") or params.plain("base_url") or None
        if url is None and is_azure:
            url = params.variables.plain(f"{ENVIRON}AZURE_API_BASE", params.at("api_base"))  # LiteLLM's default
        if url is not None and vendor is not None and vendor.name == "openai":
            vendor = by_host(str(url), self.catalog)  # "openai/" with an address means an OpenAI-compatible API
        url = None if url is None else _trimmed(str(url), vendor)
        if vendor is not None and vendor.base_url is not None and url == vendor.base_url.rstrip("/"):
            url = None
        if url is None and vendor is None and resolved.prefix is None:
            params.remark("has no api_base, so it was left out: give a provider its base_url")
            return None
        token = is_azure and any(field in params.fields for field in _TOKENS)
        organization = params.plain("organization")
        address = ProviderAddress(
            vendor=vendor.name if vendor else None,
            prefix=resolved.prefix,
            kind="litellm" if token else None,
            base_url=url,
            organization=None if organization is None else str(organization),
            api_version=None if token else self._api_version(vendor, params),
        )
        return address, self._key(address, vendor, params)

    def add_use(self, address: ProviderAddress, key: str | None, deployment: bytes) -> None:
        """Record that ``deployment`` is at ``address`` and uses ``key``."""
        self._served.setdefault(address, {}).setdefault(key, []).append(deployment)

    def prefer(self, address: ProviderAddress, key: str | None, name: str) -> None:
        """Prefer ``name`` for the provider at ``address``, because clients use it."""
        self._preferred.setdefault((address, key), name)

    def name_all(self) -> None:
        """Make a provider for each address and key; keys of the same deployments become one's ``api_keys``."""
        for address, keys in self._served.items():
            same = len({frozenset(deployments) for deployments in keys.values()}) == 1 and None not in keys
            for group in [list(keys)] if same else [[key] for key in keys]:
                self._add(address, group)

    def name_of(self, address: ProviderAddress, key: str | None) -> str | None:
        """Return the provider for ``address`` and ``key``; None if no provider can be made."""
        return self._names.get((address, key))

    def _add(self, address: ProviderAddress, keys: list[str | None]) -> None:
        name = self._free(address, keys)
        if address.prefix is not None and name != address.prefix:
            return  # litellm recognises a vendor outside the catalog only by the provider's name
        entry: dict[str, Any] = {}
        if address.vendor is not None and name != address.vendor:
            entry["preset"] = address.vendor
        if address.prefix is not None or address.kind is not None:
            entry["kind"] = "litellm"
        if address.base_url is not None:
            entry["base_url"] = address.base_url
        known = [key for key in keys if key is not None]
        if len(known) > 1:
            entry["api_keys"] = known
        elif known:
            entry["api_key"] = known[0]
        if address.organization is not None:
            entry["organization"] = address.organization
        if address.api_version is not None:
            entry["query"] = {_VERSIONED: address.api_version}
        self.providers[name] = entry
        self._names.update({(address, key): name for key in keys})

    def _api_version(self, vendor: Vendor | None, params: LiteLlmSection) -> str | None:
        """Read the API version from ``params``, if the vendor has versions, and this is not its row's."""
        if vendor is None or _VERSIONED not in vendor.query:
            return None
        given, sent = params.plain("api_version"), vendor.query[_VERSIONED]
        if given is None:
            return params.variables.default("AZURE_API_VERSION")  # LiteLLM's default
        if str(given) in _AZURE_V1:
            params.remark(
                f"left out, {sent} is sent: Azure's v1 API is a provider without a preset,"
                " base_url: https://RESOURCE.openai.azure.com/openai/v1",
                "api_version",
            )
            return None
        return None if str(given) == sent else str(given)

    def _free(self, address: ProviderAddress, keys: list[str | None]) -> str:
        preferred = next((self._preferred[address, key] for key in keys if (address, key) in self._preferred), None)
        wanted = preferred or address.vendor or address.prefix
        if wanted is None:
            wanted = "server" if is_reference(address.base_url) else server_name(address.base_url or "")
            wanted = f"{wanted}-server" if wanted in self.catalog else wanted
        return unused(wanted, self.providers)

    def _key(self, address: ProviderAddress, vendor: Vendor | None, params: LiteLlmSection) -> str | None:
        """Read the key from ``params``, or use the variable from which LiteLLM takes it."""
        raw, own_host = params.get("api_key"), address.base_url is not None or vendor is not None
        needed = vendor is not None and vendor.key_required
        if raw is None or raw == "":
            params.take("api_key")
            if vendor is None or not needed:
                return None
            if address.base_url is None or vendor.base_url is None:  # a host of the vendor's own
                usual = _usual(vendor)
                return usual and params.variables.plain(f"{ENVIRON}{usual}", params.at("api_key"))
            params.remark(
                f"{vendor.title}'s key is not sent to another host unless the provider says so: give its api_key",
                "api_base",
            )
            return None
        if not needed and own_host and isinstance(raw, str) and _NO_KEY.fullmatch(raw):
            params.take("api_key")
            params.remark("a placeholder, left out: your own server needs no key", "api_key")
            return None
        if vendor is not None and vendor.key_env:
            return params.secret("api_key", vendor.key_env[0])
        name = address.prefix or (vendor.name if vendor else None) or server_name(address.base_url or "")
        return params.secret("api_key", re.sub(r"[^A-Za-z0-9]+", "_", name).upper() + "_API_KEY")


def _usual(vendor: Vendor) -> str | None:
    """Return the variable from which LiteLLM takes the vendor's key, if the catalog has it; else the most usual one."""
    if not vendor.key_env:
        return None
    litellms = f"{(vendor.litellm_prefix or '').upper()}_API_KEY"
    return litellms if litellms in vendor.key_env else vendor.key_env[0]


def _trimmed(url: str, vendor: Vendor | None) -> str:
    """Return ``url`` in the form of Holeshot's base URLs: up to where the paths of the API begin."""
    url = url.rstrip("/").removesuffix("/chat/completions")
    if vendor is None:
        return url
    if vendor.name == "azure":
        return url.partition("/openai")[0] if "/openai/" in f"{url}/" else url
    # For these two vendors LiteLLM itself adds the version.
    if vendor.name in ("ollama", "anthropic") and vendor.kind != "litellm" and not url.endswith("/v1"):
        return f"{url}/v1"
    return url


# The entries of ``model_list``: each becomes a deployment, and settings of its model.

_OF_LITELLM = frozenset({"chat", "embeddings"})  # the APIs of vendors for which the litellm library is used


class ModelListEntry(msgspec.Struct):
    """An entry of ``model_list``. Values are as Holeshot's file has them."""

    place: Place
    name: str  # the model's public name
    model: str  # the vendor's name
    address: ProviderAddress
    key: str | None
    through_litellm: bool  # whether the litellm library is used for the vendor
    deployment: dict[str, Any] = {}  # as in Holeshot's file, without the deployment's name
    params: dict[str, Any] = {}  # parameters of requests: LiteLLM's defaults
    numbers: dict[str, float] = {}  # weight, order, rpm, tpm

    @property
    def timeouts(self) -> dict[str, Any]:
        """The time-outs of the model, if its entries agree."""
        found: dict[str, Any] = self.deployment.get("timeouts", {})
        return found

    @property
    def rate(self) -> float | None:
        """LiteLLM's weight if the entries have no weight."""
        return self.numbers.get("rpm") or self.numbers.get("tpm")

    @property
    def order(self) -> float:
        """LiteLLM's order: entries with a higher order are used when the entries before have failed."""
        return self.numbers.get("order") or 1

    @property
    def same(self) -> bytes:
        """A value that is equal for two entries if they are one deployment with two keys."""
        what = (self.name, self.model, self.deployment, self.params, self.numbers.get("weight"), self.order)
        return msgspec.json.encode(what, order="sorted")

    @property
    def is_wildcard(self) -> bool:
        """Whether the name is a pattern for any model of a provider (``groq/*``)."""
        return ("*" in self.name or "*" in self.model) and not self.is_begun

    @property
    def is_begun(self) -> bool:
        """Whether the name is a pattern for names with this beginning, as in ``models``: ``claude-*``."""
        begin, star, rest = self.name.partition("*")
        is_of_provider = not begin or begin.find("/") == len(begin) - 1  # openai/*
        return bool(star) and not rest and not is_of_provider and "*" not in self.model[:-1]


def _mode(_entry: ModelListEntry, info: LiteLlmSection, field: str, remark: str) -> None:
    if str(info.get(field)) in table().apis:
        info.take(field)
    remark_if_set(info, field, remark)


def _number(entry: ModelListEntry, section: LiteLlmSection, field: str, remark: str) -> None:
    if (number := section.number(field)) is not None:
        entry.numbers.setdefault(field, number)
        if remark:
            section.remark(remark, field)


def _timeouts(entry: ModelListEntry, params: LiteLlmSection, _field: str, _remark: str) -> None:
    if found := clocks(params):
        entry.deployment["timeouts"] = found


def _headers(entry: ModelListEntry, params: LiteLlmSection, field: str, _remark: str) -> None:
    headers = params.within(field)
    for name in headers.fields:
        value = params.variables.named(name, str(headers.take(name)), headers.at(name))
        entry.deployment.setdefault("extra_headers", {})[name] = str(value)


def _body(entry: ModelListEntry, params: LiteLlmSection, field: str, _remark: str) -> None:
    body = params.within(field)
    if body.fields:
        entry.deployment["extra_body"] = {name: body.named(name) for name in body.fields}


def _region(entry: ModelListEntry, params: LiteLlmSection, field: str, remark: str) -> None:
    """Read a region; for some vendors the region is one of the credentials, too."""
    value = params.get(field)
    if value and isinstance(value, str):
        put(entry.deployment, "region", params.variables.plain(value, params.at(field)))
        if field == "region_name" or not entry.through_litellm:
            params.take(field)
            if entry.through_litellm:
                params.remark("became the region of the deployment only: set the vendor's own region too", field)
    _credential(entry, params, field, remark)


def _credential(entry: ModelListEntry, params: LiteLlmSection, field: str, remark: str) -> None:
    """Read a credential that the litellm library needs; the credential is sent in the body."""
    value = params.take(field)
    if value is None:
        return
    if not entry.through_litellm:
        params.remark(remark, field)
        return
    text = msgspec.json.encode(value).decode() if isinstance(value, dict) else value
    if isinstance(value, dict) or field == "vertex_credentials":
        found: Any = params.variables.secret(text, params.at(field), field.upper())
    else:
        found = params.variables.named(field, text, params.at(field))
    entry.deployment.setdefault("extra_body", {})[field] = found


def _only_chat(entry: ModelListEntry, params: LiteLlmSection, field: str, _remark: str) -> None:
    if params.take(field):
        entry.deployment["apis"] = ["chat"]


def _default(entry: ModelListEntry, params: LiteLlmSection, field: str, remark: str) -> None:
    """Read a parameter that LiteLLM sends with every request that does not set it."""
    if (value := params.named(field)) is not None:
        entry.params[field] = value
        if remark:
            params.remark(remark, field)


def _elsewhere(_reader: object, section: LiteLlmSection, field: str, _remark: str) -> None:
    remark_if_set(section, field, ELSEWHERE)


_OF_ENTRIES: Mapping[str, Function[ModelListEntry]] = {
    "address": _elsewhere,  # the fields that Addresses.read has left
    "body": _body,
    "credential": _credential,
    "default": _default,
    "headers": _headers,
    "mode": _mode,
    "number": _number,
    "only_chat": _only_chat,
    "region": _region,
    "timeouts": _timeouts,
}


def clocks(section: LiteLlmSection) -> dict[str, Any]:
    """Return LiteLLM's time-outs as Holeshot's: LiteLLM's limit the wait for the next bytes, not a whole answer."""
    used, found = "", {}
    for field in ("stream_timeout", "timeout", "request_timeout"):
        if (value := section.plain(field)) is None:
            continue
        if not isinstance(value, int | float) and not is_reference(value):
            section.remark("is not a number of seconds: left out", field)
        elif used:
            section.remark(f"calls that do not stream have the same limit: {used} is used", field)
        else:
            used, found = field, {"ttft_timeout_s": value, "stall_timeout_s": value}
    return found


def read_entry(section: LiteLlmSection, addresses: ProviderAddresses, *, drop_params: bool) -> ModelListEntry | None:
    """Return the entry of a section of ``model_list``; None, with a remark, if the section names no provider."""
    params, info, name = section.within("litellm_params"), section.within("model_info"), section.take("model_name")
    model = params.take("model")
    if not model or not name:
        section.remark("has no model_name, or no litellm_params.model: left out")
        return None
    target = resolve(str(model), str(params.take("custom_llm_provider") or ""), addresses.catalog)
    if target is None:
        params.remark("names an unknown vendor: left out; write provider/model under `models`", "model")
        return None
    if (found := addresses.read(target, params)) is None:
        return None
    entry = ModelListEntry(
        section.at(), str(name), target.model, *found, found[0].kind == "litellm" or target.is_through_litellm
    )
    apis = target.apis or table().apis.get(str(info.get("mode")), ())
    if entry.through_litellm and not {*apis} <= _OF_LITELLM:
        section.remark("no counterpart: this vendor supports chat and embeddings only, so the entry is left out")
        return None
    if apis:
        entry.deployment["apis"] = list(apis)
    if drop_params and "drop_params" not in params.fields:
        entry.deployment["drop_params"] = True
    walk("litellm_params", params, entry.deployment, entry, _OF_ENTRIES)
    walk("model_info", info, entry.deployment, entry, _OF_ENTRIES)
    walk("model_list", section, entry.deployment, entry, _OF_ENTRIES)
    price = entry.deployment.get("price_per_mtok", {"input": 0, "output": 0})
    if "input" not in price:
        section.remark("has prices, but none for input tokens: left out")
        del entry.deployment["price_per_mtok"]
    elif "output" not in price:
        section.remark("has no price for output tokens: they count as free, as for embeddings")
        price["output"] = 0.0
    return entry
