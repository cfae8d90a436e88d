"""The commented configuration that ``holeshot init`` writes: the found providers, and a race between them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.settings.doors import name_at
from gateway.settings.market import Market
from gateway.settings.model import Settings
from gateway.settings.patterns import is_pattern
from gateway.settings.presets import VARIABLE, filled, usual_address, usual_key
from gateway.settings.vendor_models import NAMED_BY_REGION, SAME_MODEL_BUDGET, Called, ProposedModel, proposed_models
from providers import DatasheetTable, Price, Vendor

_COLUMN = 44  # where comments begin, if there is room

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

_STARS = """
  # All other names that begin so, as programs ask for them; the longer one and exact names win.
"""

# How models of one size are raced, and what that costs.
_BY_SIZE = """\
  # By size: different models of your vendors race, and the sooner answer wins, so any of them may answer.
  # Each of the named vendors may see a prompt. A budget of 0.1 asks a second one in about one call in ten, so it costs
  # about a tenth more at most, at the prices of those that are asked. 1.0 would race each call, 0 none.
"""

_SAME_MODEL = """
  # The same model at several vendors.
"""

_OWN_NAMES = """
  # The vendors' own names. The model itself answers; if it fails or is late, its fallback, which the
  # header x-holeshot-fallback names. Claude Code asks for claude-*; in Codex (`model`) and Cursor (Models) you set one.
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
# What is promised of all calls: there is an alert (`holeshot alerts`, the page, the log) when far more of them fail.
slo:
  answered: { objective: 0.99 }

# Who may call. Without clients the gateway listens on this machine only; `holeshot keys new NAME` prints an entry.
# clients:
#   my-team: { key_sha256: "..." }
# host: 0.0.0.0
"""


def starter_text(
    found: Sequence[Vendor],
    environ: Mapping[str, str],
    market: Market | None = None,
    table: DatasheetTable | None = None,
) -> str:
    """Return a configuration that loads with the present ``environ``.

    ``found`` are vendors with a key in ``environ``, or other credentials; at least one. ``market`` has these vendors'
    lists of models; without lists, well-known models are proposed. ``table`` has the prices that stand beside models
    that race by size.
    """
    vendors = [vendor.name for vendor in found]
    called = _called({vendor.name: vendor for vendor in found}, environ, table)
    if market is None:
        proposed = proposed_models(vendors, called=called)
    else:
        sold = {each.name: each.providers for each in market.raced}
        proposed = proposed_models(vendors, market.may_sell, sold, called)
    prices = {} if table is None else _prices(proposed, {vendor.name: vendor for vendor in found}, table)
    return "".join([
        _HEAD,
        _PROVIDERS,
        *(_provider(vendor, environ, market, proposed) for vendor in found),
        _MORE_PROVIDERS,
        _models_section(proposed, market, prices),
        _TAIL,
    ])  # fmt: skip


def _provider(
    vendor: Vendor, environ: Mapping[str, str], market: Market | None, proposed: Iterable[ProposedModel]
) -> str:
    silence = market.silent.get(vendor.name) if market is not None else None
    note = f"  # {silence}" if silence else ""
    address = None if vendor.base_url is not None else usual_address(vendor, environ)
    key = usual_key(vendor, environ)
    credentials = f"  # by the usual credentials of {vendor.title}: leave it out if they are for other services"
    if address is not None and not any(
        name.startswith(f"{vendor.name}/") for each in proposed for name in each.deployments
    ):
        note = note or f"  # no model below uses it yet: ask for {vendor.name}/MODEL"
    told = [f'api_key: "${{{key}}}"'] if key is not None else []
    if address is not None and _is_literal(address, environ):
        told.insert(0, f'base_url: "{address}"')
    return f"  {vendor.name}: {{ {', '.join(told)} }}{note or ('' if key else credentials)}\n"


def _is_literal(address: str, environ: Mapping[str, str]) -> bool:
    """Whether an address stays the same when its variables are filled in: some hosts do not begin with their region."""
    return filled(address, environ) == VARIABLE.sub(lambda found: environ[found[1]], address)


def _called(found: Mapping[str, Vendor], environ: Mapping[str, str], table: DatasheetTable | None) -> Called:
    """Return the models' names at each of the ``found`` vendors: at Bedrock a name depends on the region."""

    def called(vendor: str, model: str) -> str | None:
        if vendor not in NAMED_BY_REGION:
            return model
        address = usual_address(found[vendor], environ)
        if is_pattern(model) or address is None:
            return None
        return name_at(model, filled(address, environ), found[vendor], table or DatasheetTable.shipped())

    return called


def _prices(proposed: Iterable[ProposedModel], found: Mapping[str, Vendor], table: DatasheetTable) -> dict[str, Price]:
    """Return the known prices of the deployments that race by size, or are hedged."""
    keys = {}
    shown = (each for each in proposed if each.is_by_size or each.is_hedged)
    for deployment in (name for each in shown for name in each.deployments):
        vendor, _, model = deployment.partition("/")
        if (prefix := found[vendor].litellm_prefix) is not None:
            keys[deployment] = (prefix, model)
    sheets = table.look_up(keys.values()) if keys else {}
    known = ((deployment, sheets[key].price) for deployment, key in keys.items())
    return {deployment: price for deployment, price in known if price is not None}


def _in_words(price: Price) -> str:
    return f"${price.input_usd * 1e6:.3g} in, ${price.output_usd * 1e6:.3g} out per million tokens"


def _models_section(proposed: Sequence[ProposedModel], market: Market | None, prices: Mapping[str, Price]) -> str:
    sold = () if market is None else market.raced
    if not proposed and not sold:
        return _NO_MODELS
    by_size = [each for each in proposed if each.is_by_size]
    same = [each for each in proposed if not each.is_by_size and each.budget is not None and not is_pattern(each.name)]
    own = [each for each in proposed if each.budget is None and not is_pattern(each.name)]
    stars = [each for each in proposed if is_pattern(each.name)]
    parts = [_MODELS if market is None else _MARKET]
    if by_size:
        parts += [_BY_SIZE, *(_model(each, prices) for each in by_size)]
    if by_size and (same or sold):
        parts.append(_SAME_MODEL)
    parts += [*(each.block(_RACE) for each in sold), *(_model(each, prices) for each in same)]
    if by_size and own:
        parts.append(_OWN_NAMES)
    parts += [_model(each, prices) for each in own]
    parts += [_STARS, *(_model(each, prices) for each in stars)] if stars else []
    if market is not None and market.others:
        parts += [_MORE_MODELS, *(each.comment() for each in market.others)]
    return "".join(parts)


def _model(model: ProposedModel, prices: Mapping[str, Price]) -> str:
    """Return a model's lines: one line if it has a fallback and one deployment, which is asked first."""
    if model.fallback is not None and model.budget is None:
        return f"  {model.name}: {{ deployments: [{model.deployments[0]}], fallbacks: [{model.fallback}] }}\n"
    lines = [
        f"{f'      - {name}':{_COLUMN}}  # {_in_words(prices[name])}\n"
        if model.is_by_size and name in prices
        else f"      - {name}\n"
        for name in model.deployments
    ]
    race = _RACE if model.budget == SAME_MODEL_BUDGET else f"    race: {{ mode: auto, budget: {model.budget} }}\n"
    if model.is_hedged:
        race = _hedge(model, prices)
    fallbacks = "" if model.fallback is None else f"    fallbacks: [{model.fallback}]\n"
    return f"  {model.name}:\n    deployments:\n{''.join(lines)}{race if len(lines) > 1 else ''}{fallbacks}"


def _hedge(model: ProposedModel, prices: Mapping[str, Price]) -> str:
    """Return the race of one model at several sellers, with what it would cost to race each call."""
    known = [prices[each] for each in model.deployments if each in prices]
    dearest = max(known, key=lambda price: price.output_usd, default=None)
    twice = "the price of each loser's prompt, and of what it wrote" if dearest is None else _in_words(dearest)
    return (
        "    # One seller answers, and keeps a session: its cache and thoughts are there. The next is asked if it is\n"
        f"    # late. To race each call (mode: race) costs up to as much again: {twice}.\n"
        f"    race: {{ mode: hedge, budget: {model.budget} }}\n"
    )


# The example configuration: every setting with its default and its purpose.

_NAME = "gateway.example.yaml"


def example() -> str:
    """Return the example's text."""
    return example_path().read_text(encoding="utf-8")


def example_path() -> Path:
    """Return the example's path: beside this module in the wheel, in ``config/`` in a checkout."""
    shipped = Path(__file__).with_name(_NAME)
    return shipped if shipped.is_file() else Path(__file__).resolve().parents[2] / "config" / _NAME


# The JSON Schema of the configuration file, for editors: the schema of ``Settings``, and what the file allows besides.
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
