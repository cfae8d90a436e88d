"""A LiteLLM configuration, imported, races the very providers it named."""

from collections.abc import Callable
from pathlib import Path

from structlog.testing import capture_logs
from typer.testing import Result

from gateway.cli.race_run import RacePrompt, open_gateway, run_race
from gateway.cli.race_view import PlainView
from gateway.settings import load
from providers.simulator import Hang, RoleOnly, ScriptedProvider, Status, answer
from tests.support.ledgers import lay, migrated

Holeshot = Callable[..., Result]

CONFIG = """
model_list:
  - model_name: llama
    litellm_params: {{ model: openai/llama-fast, api_base: "{fast}", api_key: os.environ/FAST_KEY }}
  - model_name: llama
    litellm_params: {{ model: openai/llama-slow, api_base: "{slow}", api_key: os.environ/SLOW_KEY }}
  - model_name: broken
    litellm_params: {{ model: openai/llama-broken, api_base: "{broken}" }}
litellm_settings: {{ fallbacks: [{{ "broken": ["llama"] }}] }}
"""


async def test_an_imported_router_group_is_raced_at_the_addresses_it_had(holeshot: Holeshot) -> None:
    async with (
        ScriptedProvider(answer("Hel", "lo")) as fast,
        ScriptedProvider([RoleOnly(), Hang()]) as slow,
        ScriptedProvider([Status(500)]) as broken,
    ):
        _write(CONFIG.format(fast=fast.base_url, slow=slow.base_url, broken=broken.base_url))
        imported = holeshot("import", "litellm", "config.yaml", FAST_KEY="fast-key", SLOW_KEY="slow-key")
        assert imported.exit_code == 0, imported.output
        settings = load(Path("config/gateway.yaml"), {"FAST_KEY": "fast-key", "SLOW_KEY": "slow-key"})

        with capture_logs():  # unless configured, they go to standard output
            async with open_gateway(settings, lambda: None) as gateway:
                await run_race(gateway, RacePrompt("llama", "Why?"), PlainView())

    (asked,) = fast.received
    assert asked.headers["authorization"] == "Bearer fast-key"
    assert asked.body["model"] == "llama-fast"
    assert not broken.received


def _write(text: str) -> None:
    Path("config.yaml").write_text(text)
    Path("var").mkdir()
    lay(migrated(), Path("var/holeshot.db"))  # migrating one takes as long as all the rest
