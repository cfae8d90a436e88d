"""Addresses and keys of LiteLLM's deployments, and the providers made from them."""

import re
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gateway.cli.import_litellm.notes import Notes, Variables, is_reference
from gateway.settings import Catalog, Place
from providers import Vendor

# Finds the vendor and model that LiteLLM means by a name such as ``together_ai/meta-llama/Llama-3``.

# Other names of vendors in the catalog.
_ALIASES: Mapping[str, str] = {
    "azure_text": "azure",
    "bedrock_converse": "bedrock",
    "cohere_chat": "cohere",
    "hosted_vllm": "vllm",
    "lambda": "lambda_ai",
    "ollama_chat": "ollama",
    "text-completion-openai": "openai",
    "vertex_ai_beta": "vertex_ai",
}

# Names for any OpenAI-compatible server.
_OWN_SERVERS = frozenset({
    "aiohttp_openai",
    "custom_openai",
    "docker_model_runner",
    "infinity",
    "lemonade",
    "litellm_proxy",
    "llamafile",
    "openai_like",
    "xinference",
})  # fmt: skip

# Vendors that only litellm can reach.
_LITELLM_ONLY = frozenset({
    "ai21", "ai21_chat", "aiml", "amazon_nova", "anthropic_text", "azure_ai", "chutes", "clarifai", "cloudflare",
    "codestral", "cometapi", "compactifai", "databricks", "datarobot", "deepgram", "elevenlabs", "fal_ai",
    "featherless_ai", "galadriel", "gigachat", "github", "github_copilot", "gradient_ai", "heroku", "huggingface",
    "inception", "jina_ai", "lambda_ai", "maritalk", "meta_llama", "modelscope", "morph", "nlp_cloud", "oci",
    "ovhcloud", "parasail", "petals", "poe", "predibase", "publicai", "recraft", "sagemaker", "sagemaker_chat",
    "sagemaker_nova", "sap", "scaleway", "snowflake", "synthetic", "text-completion-codestral", "topaz", "triton", "v0",
    "vercel_ai_gateway", "volcengine", "voyage", "wandb", "watsonx", "watsonx_text", "xiaomi_mimo",
})  # fmt: skip

# Models that LiteLLM recognises without a vendor's name.
_BARE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(gpt-|chatgpt-|o\d|text-embedding-|(text|omni)-moderation|dall-e|whisper-|tts-|ft:)"), "openai"),
    (re.compile(r"claude"), "anthropic"),
    (re.compile(r"gemini"), "vertex_ai"),
    (re.compile(r"(command|rerank|embed)-"), "cohere"),
)

# LiteLLM's infixes between vendor and model, which select one of the vendor's APIs.
_CHOSEN_API: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "openai": {"responses/": ("responses",), "chat/": ("chat",)},
    "azure": {"responses/": ("responses",), "o_series/": (), "gpt5_series/": ()},
}


class ResolvedModel(msgspec.Struct, frozen=True):
    """The vendor and model that a name of LiteLLM's refers to."""

    model: str  # the vendor's name for it
    vendor: Vendor | None = None  # from the catalog
    prefix: str | None = None  # LiteLLM's name for a vendor that is not in the catalog; None for one's own server
    apis: tuple[str, ...] = ()  # the APIs that the name selects; empty if none


def resolve(model: str, custom: str, catalog: Catalog) -> ResolvedModel | None:
    """Return what LiteLLM's name ``model`` refers to; None if unknown. ``custom`` is its ``custom_llm_provider``."""
    first, slash, rest = model.partition("/")
    if custom:
        prefix, name = custom, rest if slash and first == custom else model
    elif slash and rest and _is_known(first, catalog):
        prefix, name = first, rest
    elif (bare := next((vendor for pattern, vendor in _BARE if pattern.match(model)), None)) is not None:
        prefix, name = bare, model
    else:
        return None
    if prefix in _OWN_SERVERS:
        return ResolvedModel(name)
    vendor = by_prefix(prefix, catalog)
    if vendor is None:
        return ResolvedModel(name, prefix=prefix) if prefix in _LITELLM_ONLY else None
    apis: tuple[str, ...] = ("completions",) if prefix == "text-completion-openai" else ()
    for start, chosen in _CHOSEN_API.get(vendor.name, {}).items():
        if name.startswith(start):
            name, apis = name.removeprefix(start), chosen
    return ResolvedModel(name, vendor, apis=apis)


def by_prefix(prefix: str, catalog: Catalog) -> Vendor | None:
    """Return the catalog's row for LiteLLM's vendor ``prefix``."""
    prefix = _ALIASES.get(prefix, prefix)
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


def _is_known(prefix: str, catalog: Catalog) -> bool:
    return prefix in _OWN_SERVERS or prefix in _LITELLM_ONLY or by_prefix(prefix, catalog) is not None


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
# Versions by which LiteLLM selects Azure's newer API, which has other paths.
_AZURE_V1 = frozenset({"v1", "latest", "preview"})
_VERSIONED = "api-version"  # the name of the query parameter


class Address(msgspec.Struct, frozen=True):
    """Everything that identifies a provider except its key. Values are as our file has them."""

    vendor: str | None = None  # in the catalog
    prefix: str | None = None  # LiteLLM's name for a vendor that is not in the catalog
    kind: str | None = None  # if it differs from the vendor's row
    base_url: str | None = None  # if it differs from the vendor's
    organization: str | None = None
    api_version: str | None = None  # if it differs from the vendor's row


class Addresses:
    """Collects addresses and keys, and makes a provider for each."""

    def __init__(self, catalog: Catalog, variables: Variables, notes: Notes) -> None:
        self._catalog = catalog
        self._variables = variables
        self._notes = notes
        self._served: dict[Address, dict[str | None, list[Hashable]]] = {}  # deployments there, by key
        self._preferred: dict[tuple[Address, str | None], str] = {}
        self._names: dict[tuple[Address, str | None], str] = {}
        self.providers: dict[str, dict[str, Any]] = {}

    def read(self, resolved: ResolvedModel, params: dict[str, Any], place: Place) -> tuple[Address, str | None] | None:
        """Read address and key from ``params``; return None, with a remark, if there is no address."""
        base_url = params.pop("api_base", None) or params.pop("base_url", None)
        params.pop("base_url", None)
        organization = params.pop("organization", None)
        raw_key = params.pop("api_key", None)
        vendor = resolved.vendor
        if base_url is None and vendor is not None and vendor.name == "azure":
            base_url = "os.environ/AZURE_API_BASE"  # LiteLLM's default
        url = None if base_url is None else str(self._variables.plain(base_url, (*place, "api_base")))
        if url is not None and vendor is not None and vendor.name == "openai":
            vendor = by_host(url, self._catalog)  # "openai/" with an address means an OpenAI-compatible API
        url = None if url is None else _trimmed(url, vendor)
        if vendor is not None and vendor.base_url is not None and url == vendor.base_url.rstrip("/"):
            url = None
        if url is None and vendor is None and resolved.prefix is None:
            self._notes.add(place, "has no api_base, so it was left out: give a provider its base_url")
            return None
        token = any(name in params for name in _TOKENS) and vendor is not None and vendor.name == "azure"
        address = Address(
            vendor=vendor.name if vendor else None,
            prefix=resolved.prefix,
            kind="litellm" if token else None,
            base_url=url,
            organization=None if organization is None else str(self._variables.plain(organization, place)),
            api_version=None if token else self._api_version(vendor, params, place),
        )
        return address, self._key(raw_key, address, vendor, place)

    def add_use(self, address: Address, key: str | None, deployment: Hashable) -> None:
        """Record that ``deployment`` is at ``address`` and uses ``key``."""
        self._served.setdefault(address, {}).setdefault(key, []).append(deployment)

    def prefer(self, address: Address, key: str | None, name: str) -> None:
        """Prefer ``name`` for the provider at ``address``, because clients use it."""
        self._preferred.setdefault((address, key), name)

    def name_all(self) -> None:
        """Make a provider for each address and key; keys that serve the same become one provider's ``api_keys``."""
        for address, keys in self._served.items():
            same = len({frozenset(deployments) for deployments in keys.values()}) == 1 and None not in keys
            for group in [list(keys)] if same else [[key] for key in keys]:
                self._add(address, group)

    def name_of(self, address: Address, key: str | None) -> str | None:
        """Return the provider for ``address`` and ``key``; None if there cannot be one."""
        return self._names.get((address, key))

    def _add(self, address: Address, keys: list[str | None]) -> None:
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

    def _api_version(self, vendor: Vendor | None, params: dict[str, Any], place: Place) -> str | None:
        """Read the API version from ``params``, if the vendor has one and it is not that of its row."""
        if vendor is None or _VERSIONED not in vendor.query:
            return None
        sent, where = vendor.query[_VERSIONED], (*place, "api_version")
        given = params.pop("api_version", None)
        if given is None:
            return self._variables.default("AZURE_API_VERSION")  # LiteLLM's default
        version = str(self._variables.plain(given, where))
        if version in _AZURE_V1:
            self._notes.add(
                where,
                f"left out, {sent} is sent: Azure's v1 API is a provider without a preset,"
                " base_url: https://RESOURCE.openai.azure.com/openai/v1",
            )
            return None
        return None if version == sent else version

    def _free(self, address: Address, keys: list[str | None]) -> str:
        preferred = next((self._preferred[address, key] for key in keys if (address, key) in self._preferred), None)
        wanted = preferred or address.vendor or address.prefix
        if wanted is None:
            wanted = "server" if is_reference(address.base_url) else server_name(address.base_url or "")
            wanted = f"{wanted}-server" if wanted in self._catalog else wanted
        return _numbered(wanted, self.providers)

    def _key(self, raw: Any, address: Address, vendor: Vendor | None, place: Place) -> str | None:
        where = (*place, "api_key")
        if raw in (None, "") and vendor is not None and vendor.key_required and _is_own(address, vendor):
            raw = f"os.environ/{_usual(vendor)}" if vendor.key_env else None
        if raw is None or raw == "":
            if vendor is not None and vendor.key_required and not _is_own(address, vendor):
                self._notes.add(
                    (*place, "api_base"),
                    f"{vendor.title}'s key is not sent to another host unless the provider says so: give its api_key",
                )
            return None
        if vendor is None or not vendor.key_required:
            own_host = address.base_url is not None or vendor is not None
            if own_host and isinstance(raw, str) and _NO_KEY.fullmatch(raw):
                self._notes.add(where, "a placeholder, left out: your own server needs no key")
                return None
        usual = vendor.key_env[0] if vendor is not None and vendor.key_env else None
        if usual is None:
            name = address.prefix or (vendor.name if vendor else None) or server_name(address.base_url or "")
            usual = re.sub(r"[^A-Za-z0-9]+", "_", name).upper() + "_API_KEY"
        return self._variables.secret(raw, where, usual)


def _is_own(address: Address, vendor: Vendor) -> bool:
    """Whether ``address`` is one of the vendor's hosts, to which its usual key may be sent."""
    return address.base_url is None or vendor.base_url is None


def _usual(vendor: Vendor) -> str:
    """Return the variable from which LiteLLM takes the vendor's key, if the catalog has it, else the most usual one."""
    litellms = f"{(vendor.litellm_prefix or '').upper()}_API_KEY"
    return litellms if litellms in vendor.key_env else vendor.key_env[0]


def _numbered(wanted: str, taken: Collection[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name


def _trimmed(url: str, vendor: Vendor | None) -> str:
    """Return ``url`` in the form of our base URLs: up to where the paths of the API begin."""
    url = url.rstrip("/").removesuffix("/chat/completions")
    if vendor is None:
        return url
    if vendor.name == "azure":
        return url.partition("/openai")[0] if "/openai/" in f"{url}/" else url
    # LiteLLM adds the version for these two itself.
    if vendor.name in ("ollama", "anthropic") and vendor.kind != "litellm" and not url.endswith("/v1"):
        return f"{url}/v1"
    return url


def frozen(value: Any) -> Hashable:
    """Return a hashable value that is equal for equal plain data."""
    if isinstance(value, Mapping):
        return frozenset((key, frozen(item)) for key, item in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(frozen(item) for item in value)
    return (type(value).__name__, value)
