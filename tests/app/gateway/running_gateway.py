"""A real gateway on loopback, served as in production, in front of scripted providers."""

import asyncio
import io
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import aiohttp
import msgspec
import openai
import yaml

from gateway.app import Gateway, Runtime
from gateway.core.prompt_classes import MeasuredApi, answer_class
from gateway.server.connections import Connections
from gateway.server.listener import bind, listening
from gateway.settings import RaceSettings, Settings, load
from gateway.steering import EXPLORE_NEW_SHARE, event, event_field
from providers.simulator import Gate, ReceivedRequest, ScriptedProvider, Step, answer
from tests.patience import PATIENCE_S
from tests.support.ledgers import lay, plain, settle

if TYPE_CHECKING:
    from gateway.limits import LeaseTimes

MODEL = "llama"  # the one model, with a deployment at every provider
PROMPT: Sequence[Any] = ({"role": "user", "content": "Say hello."},)


# Which settings and tables are of sums, and which paths are not: the ledger of most tests adds nothing up.
_COUNTED = re.compile("usd|tokens_per|target|alert|webhook")
_SUMS = re.compile("rollup_|target_counts|used_totals")
_WITHOUT_SUMS = ("/v1", "/health", "/metrics", "/live")


class Incurious(Random):
    """Randomness that never explores nor audits: some calls would run otherwise than their test counts on."""

    def random(self) -> float:
        return max(EXPLORE_NEW_SHARE, RaceSettings().audit_share, super().random())


class RunningGateway:
    """What a test has in its hands: the gateway, its providers, and clients of it."""

    def __init__(
        self,
        *,
        gateway: Gateway,
        connections: Connections,
        config: dict[str, Any],
        folder: Path,
        url: str,
        providers: Mapping[str, ScriptedProvider],
        http: aiohttp.ClientSession,
        key: str,
        plain_ledger: Path | None = None,
    ) -> None:
        self.suffix = ""  # of a row's providers and models: see ``shared_gateway.py``
        self.gateway = gateway
        self._plain_ledger = plain_ledger
        self.connections = connections
        self.config = config
        self.folder = folder
        self.url = url
        self.providers = providers
        self.http = http
        self._key = key

    def __getitem__(self, provider: str) -> ScriptedProvider:
        return self.providers[provider]

    def received(self, provider: str) -> list[ReceivedRequest]:
        """Return the requests that ``provider`` got with its key."""
        key = f"upstream-{provider}-secret{self.suffix}"
        return [each for each in self[provider].received if any(it.endswith(key) for it in each.headers.values())]

    def replace_key(self, provider: str, key: str) -> None:
        """Reload with another key of ``provider``: its former one is known until one of the two has answered."""
        providers = {**self.config["providers"], provider: {**self.config["providers"][provider], "api_key": key}}
        self.gateway.reload(read({**self.config, "providers": providers}, self.folder))

    @cached_property
    def sdk(self) -> openai.AsyncOpenAI:
        """A client of OpenAI's. Few tests ask for it, and reading the authorities that it trusts takes long."""
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key=self._key, max_retries=0, timeout=PATIENCE_S)

    @cached_property
    def _ledger(self) -> sqlite3.Connection:
        """A connection to read by: each reads the schema first, which takes longer than most queries."""
        connection = sqlite3.connect(self.folder / "holeshot.db", isolation_level=None)
        connection.row_factory = sqlite3.Row
        return connection

    async def close(self) -> None:
        """Close what was made on the way."""
        if "sdk" in vars(self):
            await self.sdk.close()
        if "_ledger" in vars(self):
            self._ledger.close()

    @property
    def requests(self) -> int:
        """How many requests reached any provider."""
        return sum(provider.counts.requests for provider in self.providers.values())

    def post(self, body: Any = None, /, path: str = "/v1/chat/completions", **options: Any) -> Any:
        """Post ``body``: JSON, or these very bytes."""
        if isinstance(body, bytes | io.BytesIO):
            options["headers"] = {"content-type": "application/json", **options.get("headers", {})}
            return self.http.post(self.url + path, data=body, **options)
        return self.http.post(self.url + path, json=body, **options)

    def chat(self, headers: Mapping[str, str] | None = None, **fields: Any) -> Any:
        """Ask for a chat completion: ``async with running.chat(stream=True) as response``."""
        return self.post(chat_body(**fields), headers=headers or {})

    def get(self, path: str, **options: Any) -> Any:
        if not path.startswith(_WITHOUT_SUMS):
            self._settle()
        return self.http.get(self.url + path, **options)

    def _settle(self) -> None:
        """Have the ledger add up its rows, if it does not yet: sums are about to be read."""
        if self._plain_ledger is not None and not settle(self._plain_ledger):
            self._plain_ledger = None

    def prefer(self, *providers: str, model: str = MODEL, name_there: str = "m", first_s: float = 0.02) -> None:
        """Teach the leaderboard who is fast, in this order and in every way, so that the next plan is known.

        The fastest has its first token after ``first_s``: where that is long, no hedge is due on a busy machine.
        """
        known = {name for each in self.gateway.context.fleet.models.values() for name in each.deployments}
        names = {f"{name}{self.suffix}/{name_there}" for name in providers}
        assert names & known, f"none of {names} is asked: nothing would be taught"
        for place, name in enumerate(providers):
            deployment = f"{name}{self.suffix}/{name_there}"
            samples = {event_field(deployment, answer_class(size), first_s * 4**place): 50.0 for size in range(3)}
            samples[event(deployment, MeasuredApi.ANSWERS, first_s * 4**place)] = (
                50.0  # the policy's own; the others are published
            )
            samples |= {f"{deployment}|tok": 1000.0, f"{deployment}|sec": 0.1 * 10.0**place}
            self.gateway.steering._board.add(model + self.suffix, samples, time.time())

    def answer_once_all_are_asked(self, script: Sequence[Step] | None = None) -> None:
        """Have no provider answer before every one has its request: a loser may be cut before it was sent any."""
        gates = [Gate(provider.requested) for provider in self.providers.values()]
        for provider in self.providers.values():
            provider.script = [*gates, *(script or answer("Hello"))]

    async def rows(self, query: str) -> list[dict[str, Any]]:
        """Return what the ledger in SQLite answers once all that was recorded is in it."""
        await self.gateway.ledger.flush()
        if _SUMS.search(query):
            self._settle()
        return [dict(row) for row in self._ledger.execute(query)]

    async def attempts(self) -> list[tuple[str, str, str]]:
        """Return provider, role and outcome of each attempt."""
        rows = await self.rows("select provider, role, outcome from attempts order by number")
        return [(row["provider"], row["role"], row["outcome"]) for row in rows]

    async def answered_by(self, **fields: Any) -> tuple[int, str | None]:
        """Make a call; return its status, and the model that answered in place of the one asked for."""
        async with self.chat(**fields) as response:
            await response.read()
            return response.status, response.headers.get("x-holeshot-fallback")

    async def call(self) -> dict[str, Any]:
        """Return the row of the only call there was."""
        [row] = await self.rows(f"select * from calls where model like '%{self.suffix}'")
        return row

    async def outcomes(self) -> dict[str, str]:
        """Return how the attempts ended, by provider."""
        return {row["provider"]: row["outcome"] for row in await self.rows("select provider, outcome from attempts")}


Serve = Callable[..., AbstractAsyncContextManager[RunningGateway]]  # the fixture ``serve``


def configuration(folder: Path, base_urls: Mapping[str, str], **settings: Any) -> dict[str, Any]:
    """Return a configuration that races everybody at once; ``settings`` are laid over it, sections merged."""
    config: dict[str, Any] = {
        "database_url": f"sqlite:///{folder / 'holeshot.db'}",
        "spool_dir": str(folder / "spool"),
        "replica": "here",
        "port": 0,
        "log_format": "json",
        "lame_duck_s": 0,  # nobody balances
        # Client, gateway and providers may stand still between two turns.
        "connections": {"headers_timeout_s": PATIENCE_S},
        "timeouts": {"connect_timeout_s": PATIENCE_S},
        "providers": {name: {"base_url": url, "api_key": f"upstream-{name}-secret"} for name, url in base_urls.items()},
        "models": {
            MODEL: {
                "deployments": [f"{name}/m" for name in base_urls],
                "race": {"mode": "race", "width": max(1, len(base_urls))},
            }
        },
    }
    return _merged(config, settings)


def chat_body(**fields: Any) -> dict[str, Any]:
    """Return the body of a chat completion with ``fields``."""
    return {"model": MODEL, "messages": list(PROMPT), **fields}


def single() -> dict[str, Any]:
    """Return the settings that ask one provider after the other."""
    return {"models": {MODEL: {"race": {"mode": "single"}}}}


def write(config: Mapping[str, Any], folder: Path) -> Path:
    """Write the configuration file and return its path."""
    folder.mkdir(exist_ok=True)
    path = folder / "gateway.yaml"
    path.write_text(yaml.dump(dict(config), Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)), encoding="utf-8")
    return path


def read(config: Mapping[str, Any], folder: Path) -> Settings:
    """Return the settings as the command line reads them, but by YAML's parser in C: a tenth of a test less."""
    path = write(config, folder)
    with patch.object(yaml, "SafeLoader", getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        return load(path, {})


@asynccontextmanager
async def serving(
    folder: Path,
    scripts: Mapping[str, Sequence[Step] | None],
    *,
    key: str = "unused",
    in_one_minute: bool = False,
    lease_times: "LeaseTimes | None" = None,
    utc_now: Callable[[], datetime] | None = None,
    unix_clock: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    random: Random | None = None,
    rows: Sequence[str] = (),
    **settings: Any,
) -> AsyncIterator[RunningGateway]:
    """Serve a gateway with one provider for each script (None: an ordinary answer), until the block ends.

    ``in_one_minute``: no minute that limits count in ends during the test. ``lease_times``: other than usual.
    ``rows``: all providers and models once for each of these suffixes.
    """
    async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
        providers = {
            name: await stack.enter_async_context(ScriptedProvider(script)) for name, script in scripts.items()
        }
        if "database_url" not in settings:
            lay(plain(), folder / "holeshot.db")
        config = configuration(folder, {name: each.base_url for name, each in providers.items()}, **settings)
        if rows:
            config = {**config, **_for_rows(config, rows)}
        database = str(config["database_url"])
        file = Path(database.removeprefix("sqlite:///")) if database.startswith("sqlite:///") else None
        is_plain = (
            file is not None and file.is_file() and settle(file, counts=_COUNTED.search(str(settings)) is not None)
        )
        unix_clock = _since_a_full_minute() if in_one_minute else unix_clock
        runtime = Runtime(
            random=random or Incurious(),
            clock=clock,
            unix_clock=unix_clock,
            lease_times=lease_times,
            prune_after_s=PATIENCE_S,  # a third of what a start costs
        )
        if utc_now is not None:
            runtime = msgspec.structs.replace(runtime, utc_now=utc_now)
        gateway = Gateway(read(config, folder), runtime)
        await gateway.start()
        stack.push_async_callback(gateway.close)
        sock = bind("127.0.0.1", 0)
        connections = await stack.enter_async_context(listening(gateway, sock, grace_s=1.0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        http = await stack.enter_async_context(aiohttp.ClientSession())
        running = RunningGateway(
            gateway=gateway,
            connections=connections,
            config=config,
            folder=folder,
            url=url,
            providers=providers,
            http=http,
            key=key,
            plain_ledger=file if is_plain else None,
        )
        stack.push_async_callback(running.close)
        yield running


def _since_a_full_minute() -> Callable[[], float]:
    """Return a clock that is slow by what has passed of this minute."""
    slow_s = time.time() % 60.0
    return lambda: time.time() - slow_s


def _for_rows(config: Mapping[str, Any], suffixes: Sequence[str]) -> dict[str, Any]:
    """Return providers, each with a key of its own, and models, once for each suffix of their names."""

    def of_a_row(value: Any, suffix: str, field: str) -> Any:
        if isinstance(value, Mapping):
            return {**value, field: of_a_row(value[field], suffix, field)}
        name, slash, name_there = value.partition("/")
        return f"{name}{suffix}{slash}{name_there}"

    made: dict[str, Any] = {"providers": {}, "models": {}}
    for suffix in suffixes:
        for name, provider in config["providers"].items():
            made["providers"][name + suffix] = {**provider, "api_key": provider["api_key"] + suffix}
        for name, model in config["models"].items():
            deployments = [of_a_row(each, suffix, "deployment") for each in model["deployments"]]
            fallbacks = [of_a_row(each, suffix, "model") for each in model.get("fallbacks", ())]
            made["models"][name + suffix] = {**model, "deployments": deployments, "fallbacks": fallbacks}
    return made


def _merged(lower: dict[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(lower)
    for name, value in upper.items():
        below = result.get(name)
        result[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return result
