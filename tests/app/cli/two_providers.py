"""Two scripted providers and a configuration that names them, for tests of ``holeshot bench``."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from providers.simulator import Delta, Done, Finish, ScriptedProvider, Step, UsageChunk
from tests.app.cli.beside import run_beside
from tests.support import warm

ROOT = Path(__file__).parents[3]
SECRET = "sk-secret-of-the-bench"
SAID = "Danube"
ANSWER: list[Step] = [Delta(SAID), Delta(" and"), Finish(), UsageChunk(prompt_tokens=20, completion_tokens=2), Done()]


class Field(NamedTuple):
    """Two providers, and the folder with their configuration."""

    a: ScriptedProvider
    b: ScriptedProvider
    folder: Path

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start the verb as a process."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLESHOT_")}
        return await asyncio.create_subprocess_exec(
            *(*warm.holeshot(), "bench", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env={**environ, "HOLESHOT_CONFIG": "gateway.yaml", "PYTHONPATH": str(ROOT)},
        )

    async def bench(self, *arguments: str) -> tuple[int | str | None, str, str]:
        """Run the verb; return its exit code, standard output and standard error."""
        return await run_beside(self.folder, ("bench", *arguments), {"HOLESHOT_CONFIG": "gateway.yaml"})

    def price(self, usd: float | None) -> None:
        """Set the price of both deployments, per million tokens."""
        path = self.folder / "gateway.yaml"
        config = yaml.safe_load(path.read_text())
        known = {} if usd is None else {"price_per_mtok": {"input": usd, "output": usd}}
        config["models"]["chat"]["deployments"] = [{"deployment": f"{name}/m", **known} for name in "ab"]
        path.write_text(yaml.safe_dump(config))


@asynccontextmanager
async def two_providers(folder: Path) -> AsyncIterator[Field]:
    """Run the two providers until the block ends."""
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(ScriptedProvider(ANSWER))
        b = await stack.enter_async_context(ScriptedProvider(ANSWER))
        config = {
            "database_url": f"sqlite:///{folder}/never.db",
            "providers": {
                name: {"kind": "openai_compatible", "base_url": each.base_url, "api_key": f"{SECRET}-{name}"}
                for name, each in (("a", a), ("b", b))
            },
            "models": {"chat": {"deployments": []}},
        }
        (folder / "gateway.yaml").write_text(yaml.safe_dump(config))
        built = Field(a, b, folder)
        built.price(0)
        yield built
