"""Finds the vendor and model that LiteLLM means by a name such as ``together_ai/meta-llama/Llama-3``."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from gateway.settings.presets import Catalog
from providers.catalog import Vendor

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

# What LiteLLM allows between vendor and model to select one of the vendor's APIs.
_CHOSEN_API: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "openai": {"responses/": ("responses",), "chat/": ("chat",)},
    "azure": {"responses/": ("responses",), "o_series/": (), "gpt5_series/": ()},
}


class Meant(msgspec.Struct, frozen=True):
    """The provider and model to ask."""

    model: str  # the vendor's name for it
    vendor: Vendor | None = None  # from the catalog
    prefix: str | None = None  # LiteLLM's name for a vendor that is not in the catalog; None for one's own server
    apis: tuple[str, ...] = ()  # the APIs that the name selects; empty if none


def meant(model: str, custom: str, catalog: Catalog) -> Meant | None:
    """Return LiteLLM's meaning of ``model``; None if unknown. ``custom`` is its ``custom_llm_provider``, if any."""
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
        return Meant(name)
    vendor = by_prefix(prefix, catalog)
    if vendor is None:
        return Meant(name, prefix=prefix) if prefix in _LITELLM_ONLY else None
    apis: tuple[str, ...] = ("completions",) if prefix == "text-completion-openai" else ()
    for start, chosen in _CHOSEN_API.get(vendor.name, {}).items():
        if name.startswith(start):
            name, apis = name.removeprefix(start), chosen
    return Meant(name, vendor, apis=apis)


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
