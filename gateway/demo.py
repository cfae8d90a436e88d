"""The demo: five simulated providers over real HTTP in a process of their own, for those who have no key at hand."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import msgspec
import structlog

from gateway import children
from gateway.settings.model import Settings
from providers.simulator.persona import CHAT_MODEL, DEMO_FLEET, EMBEDDING_MODEL

START_LIMIT_S = 20.0
_LONGEST_COMPLAINT_BYTES = 8192


class DemoFailedError(Exception):
    """There is nobody to race; the message has what to do."""


@asynccontextmanager
async def simulated_fleet(seed: int = 0) -> AsyncIterator[Mapping[str, str]]:
    """Run the fleet and give its base URLs by provider; ``seed`` draws its latencies and failures.

    Raises:
        DemoFailedError: it does not start.

    """
    process = await asyncio.create_subprocess_exec(
        *children.command("providers.simulator", "--seed", str(seed)),
        start_new_session=True,  # Ctrl-C is for this process, which lets streams end and then ends the fleet
        stdin=asyncio.subprocess.PIPE,  # closing it, by whatever end of this process, ends the fleet
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,  # ours may be a pipe that nobody reads
        env=children.environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    complaints = asyncio.get_running_loop().create_task(_log_complaints(process.stderr))
    try:
        line = b""
        with suppress(TimeoutError):
            line = await asyncio.wait_for(process.stdout.readline(), START_LIMIT_S)
        if not line:
            raise DemoFailedError("the simulated providers did not start: see above, or configure a provider")
        yield msgspec.json.decode(line, type=dict[str, str])
    finally:
        process.stdin.close()
        await process.wait()
        await complaints


async def _log_complaints(stderr: asyncio.StreamReader) -> None:
    """Put what the fleet says on its standard error into our log."""
    while said := await stderr.read(_LONGEST_COMPLAINT_BYTES):
        structlog.get_logger().error("demo.complained", problem=said.decode(errors="replace").rstrip())


def with_demo(settings: Settings, base_urls: Mapping[str, str]) -> Settings:
    """Return ``settings`` with the simulated providers and the models they serve."""
    prices = {
        persona.name: {"input": persona.input_usd_per_mtok, "output": persona.output_usd_per_mtok}
        for persona in DEMO_FLEET
    }

    def model(upstream_model: str) -> dict[str, object]:
        deployments = [{"deployment": f"{name}/{upstream_model}", "price_per_mtok": prices[name]} for name in base_urls]
        return {"deployments": deployments}

    # What was given is kept, set or not; the demo only adds.
    values = {name: getattr(settings, name) for name in settings.model_fields_set}
    values["providers"] = {name: {"apis": ["chat", "embeddings"], "base_url": url} for name, url in base_urls.items()}
    values["models"] = {CHAT_MODEL: model(CHAT_MODEL), EMBEDDING_MODEL: model(EMBEDDING_MODEL)}
    return Settings.model_validate(values)
