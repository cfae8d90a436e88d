"""The commented configuration that ``holeshot init`` writes: the found providers, and a race between them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway.settings.market import Market
from gateway.settings.model import Settings
from gateway.settings.presets import usual_key
from providers import Vendor

# Open-weight models that several vendors sell, with each vendor's name for them: data for ``holeshot init``. The names
# are those of litellm's price table and the vendors' own lists. They change; ``holeshot check --live`` checks them.


class Equivalent(msgspec.Struct, frozen=True):
    """One model and its names. ``names``: the vendor's name in the catalog → the model's name at the vendor."""

    model: str  # the proposed public name
    names: Mapping[str, str]


# The first one that at least two of the found vendors sell is raced.
EQUIVALENTS = (
    Equivalent(
        "gpt-oss-120b",
        {
            "groq": "openai/gpt-oss-120b",
            "cerebras": "gpt-oss-120b",
            "sambanova": "gpt-oss-120b",
            "together": "openai/gpt-oss-120b",
            "fireworks": "accounts/fireworks/models/gpt-oss-120b",
            "deepinfra": "openai/gpt-oss-120b",
            "baseten": "openai/gpt-oss-120b",
            "nebius": "openai/gpt-oss-120b",
            "novita": "openai/gpt-oss-120b",
            "nvidia_nim": "openai/gpt-oss-120b",
            "openrouter": "openai/gpt-oss-120b",
        },
    ),
    Equivalent(
        "llama-3.3-70b",
        {
            "cerebras": "llama-3.3-70b",
            "sambanova": "Meta-Llama-3.3-70B-Instruct",
            "together": "meta-llama/Llama-3.3-70B-Instruct-Turbo",
            "fireworks": "accounts/fireworks/models/llama-v3p3-70b-instruct",
            "deepinfra": "meta-llama/Llama-3.3-70B-Instruct",
            "hyperbolic": "meta-llama/Llama-3.3-70B-Instruct",
            "nebius": "meta-llama/Llama-3.3-70B-Instruct",
            "novita": "meta-llama/llama-3.3-70b-instruct",
            "nscale": "meta-llama/Llama-3.3-70B-Instruct",
            "nvidia_nim": "meta/llama-3.3-70b-instruct",
            "openrouter": "meta-llama/llama-3.3-70b-instruct",
        },
    ),
    Equivalent(
        "kimi-k2.6",
        {
            "moonshot": "kimi-k2.6",
            "together": "moonshotai/Kimi-K2.6",
            "fireworks": "accounts/fireworks/models/kimi-k2p6",
            "deepinfra": "moonshotai/Kimi-K2.6",
            "baseten": "moonshotai/Kimi-K2.6",
            "nebius": "moonshotai/Kimi-K2.6",
            "novita": "moonshotai/kimi-k2.6",
            "openrouter": "moonshotai/kimi-k2.6",
        },
    ),
)

# One well-known model of each vendor that sells none of the above.
EXAMPLES: Mapping[str, str] = {
    "openai": "gpt-4.1-mini",
    "anthropic": "claude-haiku-5-5",
    "gemini": "gemini-3.5-flash",
    "mistral": "mistral-small-latest",
    "deepseek": "deepseek-v4-flash",
    "xai": "grok-4.5",
    "perplexity": "sonar",
    "cohere": "command-a-03-2025",
    "dashscope": "qwen-plus",
    "minimax": "MiniMax-M3",
    "zai": "glm-4.6",
}


_HEAD = """\
# Holeshot's configuration, written by `holeshot init`; `holeshot check` validates it, `holeshot init --example` writes
# a file that shows every setting. ${NAME} comes from the environment, so this file has no keys.

# Where calls and attempts are logged. In production: postgresql://user:password@host/holeshot
database_url: sqlite:///var/holeshot.db

# Share the leaderboard between gateways; without Redis each keeps its own in memory.
# redis_url: redis://localhost:6379/0
"""

_PROVIDERS = """
# The providers. You may leave out what the catalog has (base URL, quirks, prices).
providers:
"""

_MORE_PROVIDERS = """\
  # my-vllm: { base_url: "http://10.0.0.5:8000/v1" }     # any OpenAI-compatible server
  # groq-2: { preset: groq, api_key: "${GROQ_2_API_KEY}" }  # the same vendor with another key
"""

_MODELS = """
# What clients ask for, and the deployments (provider/model) that race to answer.
# Names change: `holeshot check --live` asks the providers.
models:
"""

_MARKET = """
# What clients ask for, and the deployments (provider/model) that race to answer: the models most of your providers
# listed when this was written, and who sells them. `holeshot models --live` asks again.
models:
"""

_MORE_MODELS = """
  # Several of your providers listed these too. Remove the # of those that you want.
"""

_NO_MODELS = """
# What clients ask for, and the deployments (provider/model) that race to answer.
# models:
#   gpt-oss-120b:
#     deployments: [groq/openai/gpt-oss-120b, cerebras/gpt-oss-120b]
#     race: { mode: auto, budget: 1.0 }   # extra attempts per call: 1.0 races the best two, 0.1 is economy
"""

_RACE = "    race: { mode: auto, budget: 1.0 }   # extra attempts per call: 1.0 races the best two, 0.1 is economy\n"

_TAIL = """
# Who may call. Without clients the gateway listens on this machine only; `holeshot keys new NAME` prints an entry.
# clients:
#   my-team: { key_sha256: "..." }
# host: 0.0.0.0
"""


def starter_text(found: Sequence[Vendor], environ: Mapping[str, str], market: Market | None = None) -> str:
    """Return a configuration that loads with the present ``environ``.

    ``found`` are vendors with a key in it, at least one. ``market`` has their lists of models; without it, well-known
    models are proposed.
    """
    return "".join([
        _HEAD,
        _PROVIDERS,
        *(_provider(vendor, environ, market) for vendor in found),
        _MORE_PROVIDERS,
        _models_section([vendor.name for vendor in found], market),
        _TAIL,
    ])  # fmt: skip


def _provider(vendor: Vendor, environ: Mapping[str, str], market: Market | None) -> str:
    silence = market.silent.get(vendor.name) if market is not None else None
    note = f"  # {silence}" if silence else ""
    return f'  {vendor.name}: {{ api_key: "${{{usual_key(vendor, environ)}}}" }}{note}\n'


def _models_section(vendors: Sequence[str], market: Market | None) -> str:
    models = list(_models(vendors) if market is None else _sold(vendors, market))
    if not models:
        return _NO_MODELS
    return "".join([_MODELS if market is None else _MARKET, *models])


def _sold(vendors: Sequence[str], market: Market) -> Iterator[str]:
    """Yield the models that race, an example for each vendor without one, and, as comments, the other models."""
    raced: set[str] = set()
    names = {sold.name for sold in market.raced}
    for sold in market.raced:
        raced.update(sold.providers)
        yield sold.block(_RACE)
    for vendor in vendors:
        example = _example(vendor)
        if vendor in raced or example is None or not market.may_sell(vendor, example):
            continue
        name = example.rpartition("/")[2]
        if name not in names:
            names.add(name)
            yield _model(name, [f"{vendor}/{example}"])
    if market.others:
        yield _MORE_MODELS
        yield from (sold.comment() for sold in market.others)


def _models(vendors: Sequence[str]) -> Iterator[str]:
    """Yield a race for each model that several of ``vendors`` sell, then an example for each vendor without one."""
    raced: set[str] = set()
    for equivalent in EQUIVALENTS:
        sellers = [vendor for vendor in vendors if vendor in equivalent.names]
        if len(sellers) > 1:
            raced.update(sellers)
            yield _model(equivalent.model, [f"{vendor}/{equivalent.names[vendor]}" for vendor in sellers])
    for vendor in vendors:
        if vendor not in raced and (example := _example(vendor)):
            yield _model(example.rpartition("/")[2], [f"{vendor}/{example}"])


def _example(vendor: str) -> str | None:
    sold = (equivalent.names[vendor] for equivalent in EQUIVALENTS if vendor in equivalent.names)
    return EXAMPLES.get(vendor) or next(sold, None)


def _model(name: str, deployments: Iterable[str]) -> str:
    lines = [f"      - {deployment}\n" for deployment in deployments]
    return f"  {name}:\n    deployments:\n{''.join(lines)}{_RACE if len(lines) > 1 else ''}"


# The example configuration: every setting with its default and its purpose.

_NAME = "gateway.example.yaml"


def example() -> str:
    """Return its text."""
    return example_path().read_text(encoding="utf-8")


def example_path() -> Path:
    """Return its path: beside this module in the wheel, in ``config/`` in a checkout."""
    shipped = Path(__file__).with_name(_NAME)
    return shipped if shipped.is_file() else Path(__file__).resolve().parents[2] / "config" / _NAME


# The JSON Schema of the configuration file, for editors: that of ``Settings``, with what the file allows in addition.
# The file may have references in place of numbers (``port: ${PORT}``), and keys without a value. What a schema cannot
# express, such as names that must exist elsewhere in the file, is left to ``holeshot check``.

FILE_NAME = "gateway.schema.json"  # in the folder of the configuration
EDITOR_LINE = f"# yaml-language-server: $schema={FILE_NAME}\n"  # the first line of a configuration: editors look for it
DIALECT = "http://json-schema.org/draft-07/schema#"  # known to all editors
_REFERENCE = "Reference"
_REFERENCES: dict[str, Any] = {
    "type": "string",
    "description": "A reference: ${NAME} or ${NAME:-default}, os.environ/NAME, file:/path, ${exec:command}.",
    "pattern": r"\$\{([A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?|exec:[^{}]+)\}|^os\.environ/.|^file:(/|\./|\.\./)",
}
_NOT_ANY_TEXT = ("enum", "const", "pattern")  # a string with one of these does not accept a reference by itself
_NESTED = ("anyOf", "allOf", "oneOf")


def json_schema() -> dict[str, Any]:
    """Return the schema: unknown keys are rejected, and a reference is allowed for every value."""
    schema = Settings.model_json_schema()
    # A provider of the catalog needs no settings at all: `groq:` alone is enough.
    _allow(schema["properties"]["providers"]["additionalProperties"], {"type": "null"})
    for node in reversed(list(_nodes(schema))):  # the inner ones first: a changed node hides its original
        _loosen(node)
    schema["$defs"][_REFERENCE] = _REFERENCES
    return {"$schema": DIALECT, **schema, "title": "Configuration of Holeshot"}


def _nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield ``schema`` and every schema in it."""
    yield schema
    inner = [*schema.get("$defs", {}).values(), *schema.get("properties", {}).values()]
    inner += [schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]
    inner += [each for key in _NESTED for each in schema.get(key, ())]
    for each in inner:
        yield from _nodes(each)


def _loosen(node: dict[str, Any]) -> None:
    """Allow in ``node`` what the file allows beyond the types; remove pydantic's titles, which repeat the names."""
    for name, field in node.get("properties", {}).items():
        field.pop("title", None)
        if field.get("default") == "**********":  # a secret, masked
            del field["default"]
        if name not in node.get("required", ()):
            _allow(field, {"type": "null"})
    kind = node.get("type")
    if kind in {"integer", "number", "boolean"} or (kind == "string" and any(key in node for key in _NOT_ANY_TEXT)):
        _allow(node, {"$ref": f"#/$defs/{_REFERENCE}"})


def _allow(node: dict[str, Any], alternative: dict[str, Any]) -> None:
    """Make ``node`` accept ``alternative`` too."""
    if "anyOf" not in node:
        about: dict[str, Any] = {key: node.pop(key) for key in ("description", "default", "title") if key in node}
        before = dict(node)
        node.clear()
        node |= {**about, "anyOf": [before]}
    if alternative not in node["anyOf"]:
        node["anyOf"].append(alternative)
