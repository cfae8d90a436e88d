"""The demo: five simulated providers over real HTTP in their own process, for users without a key."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.request import getproxies_environment

import msgspec
import structlog

from gateway.core import processes
from gateway.settings import Settings
from providers.http import is_direct
from providers.simulator import CHAT_MODEL, DEMO_FLEET, EMBEDDING_MODEL

START_LIMIT_S = 20.0
# The share of audited calls. By default it is one in twenty, because a loser that runs on is paid for. Here it costs
# nothing, and so the first hundred calls show what racing saves. One in ten is not, so that it remains an estimate.
AUDIT_SHARE = 0.9
_LONGEST_COMPLAINT_BYTES = 8192
_HOST = "127.0.0.1"
_ANY_PORT = 0  # a host that no entry of NO_PROXY names
_NOT_THERE = f"http://{_HOST}:1"


class DemoFailedError(Exception):
    """There is no provider to race; the message says what to do."""


@asynccontextmanager
async def simulated_fleet(seed: int = 0) -> AsyncIterator[Mapping[str, str]]:
    """Run the simulated providers and yield their base URLs by name; ``seed`` determines latencies and failures.

    Raises:
        DemoFailedError: they do not start.

    """
    process = await asyncio.create_subprocess_exec(
        *processes.command("providers.simulator", "--seed", str(seed)),
        start_new_session=True,  # Ctrl-C is for this process only, which lets streams end and then stops the child
        stdin=asyncio.subprocess.PIPE,  # closed however this process ends, which ends the child
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,  # ours may be a pipe without a reader
        env=processes.environment(),
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
        with past_any_proxy():
            yield msgspec.json.decode(line, type=dict[str, str])
    finally:
        process.stdin.close()
        await process.wait()
        await complaints


@contextmanager
def past_any_proxy() -> Iterator[None]:
    """Reach the simulated providers directly: a proxy of the environment cannot reach this machine's loopback."""
    proxies = getproxies_environment()
    if not proxies or is_direct("http", _HOST, _ANY_PORT):
        yield
        return
    before = os.environ.get("no_proxy")
    os.environ["no_proxy"] = ",".join(filter(None, (proxies.get("no"), _HOST)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["no_proxy"]
        else:
            os.environ["no_proxy"] = before


async def _log_complaints(stderr: asyncio.StreamReader) -> None:
    """Write the child's standard error to our log."""
    while said := await stderr.read(_LONGEST_COMPLAINT_BYTES):
        # Event demo.complained: The simulated providers wrote this to standard error.
        # Do: If the demo does not work, configure a provider.
        structlog.get_logger().error("demo.complained", problem=said.decode(errors="replace").rstrip())


def demo_before_it_runs(settings: Settings) -> Settings:
    """Return the result of ``with_demo`` before the simulated providers run: nothing listens at their addresses."""
    return with_demo(settings, {persona.name: _NOT_THERE for persona in DEMO_FLEET})


def with_demo(settings: Settings, base_urls: Mapping[str, str]) -> Settings:
    """Return ``settings`` with the simulated providers and their models."""
    prices = {
        persona.name: {"input": persona.input_usd_per_mtok, "output": persona.output_usd_per_mtok}
        for persona in DEMO_FLEET
    }

    def model(upstream_model: str) -> dict[str, object]:
        deployments = [{"deployment": f"{name}/{upstream_model}", "price_per_mtok": prices[name]} for name in base_urls]
        return {"deployments": deployments, "race": {"audit_share": AUDIT_SHARE}}

    # Existing settings are kept; the demo only adds.
    values = {name: getattr(settings, name) for name in settings.model_fields_set}
    values["providers"] = {name: {"apis": ["chat", "embeddings"], "base_url": url} for name, url in base_urls.items()}
    values["models"] = {CHAT_MODEL: model(CHAT_MODEL), EMBEDDING_MODEL: model(EMBEDDING_MODEL)}
    return Settings.model_validate(values)
