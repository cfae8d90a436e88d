"""The commented configuration ``holeshot init`` writes: the providers whose keys were found, and a race among them."""

from collections.abc import Iterator, Mapping, Sequence

from gateway.settings.equivalents import EQUIVALENTS, EXAMPLES
from gateway.settings.presets import usual_key
from providers.catalog import Vendor

_HEAD = """\
# Holeshot's configuration, written by `holeshot init`; `holeshot check` validates it, config/gateway.example.yaml in
# the repository shows every setting. ${NAME} is taken from the environment, so no key stands in this file.

# Where calls and attempts are logged. In production: postgresql://user:password@host/holeshot
database_url: sqlite:///var/holeshot.db

# Share the leaderboard between gateways; without it, each keeps its own in memory.
# redis_url: redis://localhost:6379/0
"""

_PROVIDERS = """
# Who can be asked. What the catalog knows (base URL, quirks, prices) need not be said.
providers:
"""

_MORE_PROVIDERS = """\
  # my-vllm: { base_url: "http://10.0.0.5:8000/v1" }     # any OpenAI-compatible server
  # groq-2: { preset: groq, api_key: ${GROQ_2_API_KEY} } # the same vendor under another key
"""

_NO_PROVIDERS = """
# Who can be asked. No key was found in the environment, so `holeshot serve` starts simulated providers.
# providers:
#   groq: { api_key: ${GROQ_API_KEY} }
#   cerebras: { api_key: ${CEREBRAS_API_KEY} }
#   my-vllm: { base_url: "http://10.0.0.5:8000/v1" }     # any OpenAI-compatible server
"""

_MODELS = """
# What clients ask for, and the deployments (provider/model) that race to answer.
# Names change: `holeshot check --live` asks the providers.
models:
"""

_NO_MODELS = """
# What clients ask for, and the deployments (provider/model) that race to answer.
# models:
#   gpt-oss-120b:
#     deployments: [groq/openai/gpt-oss-120b, cerebras/gpt-oss-120b]
#     race: { mode: auto, budget: 1.0 }   # extra attempts per call: 1.0 races the best two, 0.1 is economy
"""

_TAIL = """
# Who may call. Without clients the gateway listens on this machine only; `holeshot keys new NAME` prints an entry.
# clients:
#   my-team: { key_sha256: "..." }
# host: 0.0.0.0
"""


def starter(found: Sequence[Vendor], environ: Mapping[str, str]) -> str:
    """Return a configuration that loads with ``environ`` as it is; ``found`` are vendors with a key in it."""
    if not found:
        return _HEAD + _NO_PROVIDERS + _NO_MODELS + _TAIL
    keys = [f"  {vendor.name}: {{ api_key: ${{{usual_key(vendor, environ)}}} }}\n" for vendor in found]
    models = list(_models([vendor.name for vendor in found]))
    return "".join(
        [_HEAD, _PROVIDERS, *keys, _MORE_PROVIDERS, *([_MODELS, *models] if models else [_NO_MODELS]), _TAIL]
    )


def _models(vendors: Sequence[str]) -> Iterator[str]:
    """Yield a race for each model that several of ``vendors`` sell, then an example for each vendor in none of them."""
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


def _model(name: str, deployments: Sequence[str]) -> str:
    lines = "".join(f"      - {deployment}\n" for deployment in deployments)
    race = "    race: { mode: auto, budget: 1.0 }   # extra attempts per call: 1.0 races the best two, 0.1 is economy\n"
    return f"  {name}:\n    deployments:\n{lines}{race if len(deployments) > 1 else ''}"
