"""The commented configuration that ``holeshot init`` writes: the found providers, and a race between them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gateway.settings.equivalents import EQUIVALENTS, EXAMPLES
from gateway.settings.market import Market
from gateway.settings.presets import usual_key
from providers.catalog import Vendor

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

_NO_PROVIDERS = """
# The providers. No key was found in the environment, so `holeshot serve` starts simulated providers.
# providers:
#   groq: { api_key: "${GROQ_API_KEY}" }
#   cerebras: { api_key: "${CEREBRAS_API_KEY}" }
#   my-vllm: { base_url: "http://10.0.0.5:8000/v1" }     # any OpenAI-compatible server
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


def starter(found: Sequence[Vendor], environ: Mapping[str, str], market: Market | None = None) -> str:
    """Return a configuration that loads with ``environ`` as it is; ``found`` are vendors with a key in it.

    ``market`` is what they listed when asked; without it, well-known models are proposed.
    """
    if not found:
        return _HEAD + _NO_PROVIDERS + _NO_MODELS + _TAIL
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
