"""Where the cases are tried: two upstreams, and the gateways before them, as a user would configure and start them."""

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from tests.clients.case import Target
from tests.clients.gateways import gateway
from tests.clients.installs import CHECKOUT
from tests.clients.upstream.vendors import FORBIDDEN_KEY, KEY

Json = dict[str, Any]

GATEWAY_KEY = "hs-suite-key"
GATEWAY_FORBIDDEN_KEY = "hs-forbidden-key"
WRONG_KEY = "a-wrong-key"
LAPTOPS, AUDIENCE = "laptops", "https://gateway.example.com"  # as the identity provider has them

MODELS = {
    "chat": "gpt-4o",
    "completions": "gpt-3.5-turbo-instruct",
    "responses": "gpt-4.1",
    "messages": "claude-haiku-4-5",
    "gemini": "gemini-2.5-flash",
    "embeddings": "text-embedding-3-small",
    "moderations": "omni-moderation-latest",
    "rerank": "rerank-v3.5",
    "speech": "gpt-4o-mini-tts",
    "transcriptions": "whisper-1",
    "images": "gpt-image-1",
    "decisions": "gpt-6-luna",
}
_TALKING = ("chat", "completions", "responses", "messages", "gemini")
_NATIVE = {surface: surface for surface in _TALKING}
# Which dialect stands behind the gateway for a client's own.
_TRANSLATED = {"chat": "messages", "completions": "chat", "responses": "chat", "messages": "chat", "gemini": "chat"}
_BY_WAY_OF_CHAT = {
    "chat": "responses",
    "completions": "messages",
    "responses": "messages",
    "messages": "responses",
    "gemini": "responses",
}
GATEWAYS = {"native": _NATIVE, "translated": _TRANSLATED, "translated twice": _BY_WAY_OF_CHAT}


def plan_of(targets: list[Target], turns: Mapping[str, Sequence[Json]] | None = None) -> bytes:
    """Return what the programs of the clients read: with ``turns`` (by target) they talk, else run their cases."""
    return msgspec.json.encode({"targets": [asdict(target) for target in targets], "turns": turns})


@asynccontextmanager
async def targets(folder: Path, wanted: frozenset[str], issuer: str) -> AsyncIterator[list[Target]]:
    """Start everything of ``wanted``, where people sign in at ``issuer``; stop it when the block ends."""
    async with AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(_upstream(name)) for name in ("a", "b")]
        found = [_directly(upstreams)] if "directly" in wanted else []
        for name, behind in GATEWAYS.items():
            if name in wanted:
                place = folder / name.replace(" ", "-")
                place.mkdir()
                config = with_people(configuration(behind, upstreams, place), issuer)
                url = await stack.enter_async_context(gateway(config, place))
                found.append(_behind(name, behind, url, upstreams))
        yield found


def configuration(behind: dict[str, str], upstreams: list[str], folder: Path) -> Json:
    """Return the gateway's configuration: each model raced by two deployments that speak the dialect of ``behind``."""
    providers: Json = {}
    for dialect in dict.fromkeys((*behind.values(), "things")):
        for prefix in (dialect, f"troubled-{dialect}"):
            for letter, url in zip("ab", upstreams, strict=True):
                providers[f"{prefix}-{letter}"] = _provider(dialect, url)
    models = {
        model: {
            "deployments": [f"{behind.get(surface, 'things')}-{letter}/{model}" for letter in "ab"],
            "race": {"mode": "race", "width": 2},
        }
        for surface, model in MODELS.items()
    }
    return {
        "port": 0,
        "database_url": f"sqlite:///{folder}/holeshot.db",
        "spool_dir": f"{folder}/spool",
        "lame_duck_s": 0,
        "log_format": "json",
        "providers": providers,
        "models": models,
        "clients": {
            "suite": {"key_sha256": sha256(GATEWAY_KEY), "admin": True, "adhoc": True},
            "nobody": {"key_sha256": sha256(GATEWAY_FORBIDDEN_KEY), "models": []},
        },
    }


def with_people(config: Json, issuer: str) -> Json:
    """Return a configuration where people sign in at ``issuer``, and are the client ``developers``."""
    company = {
        "issuer": issuer,
        "audience": AUDIENCE,
        "client": "developers",
        "end_user": "sub",
        "login": {"client_id": LAPTOPS},
    }
    return {
        **config,
        "clients": {**config["clients"], "developers": {}},
        "end_users": {},
        "issuers": {"company": company},
        "page": {"signing_key": "k" * 32, "people": ["company"]},
    }


def _provider(dialect: str, url: str) -> Json:
    if dialect == "messages":
        return {"kind": "anthropic", "apis": ["messages"], "base_url": f"{url}/v1", "api_key": KEY}
    if dialect == "gemini":
        return {"kind": "gemini", "base_url": f"{url}/v1beta", "api_key": KEY}
    things = ["embeddings", "moderations", "rerank", "audio", "images", "decisions"]
    apis = things if dialect == "things" else [dialect]
    return {"kind": "openai_compatible", "apis": apis, "base_url": f"{url}/v1", "api_key": KEY}


def _directly(upstreams: list[str]) -> Target:
    return Target(
        name="directly",
        url=upstreams[0],
        key=KEY,
        wrong_key=WRONG_KEY,
        forbidden_key=FORBIDDEN_KEY,
        translates=False,
        gateway=False,
        models=MODELS,
        troubled={surface: [] for surface in _TALKING},
        upstreams=upstreams,
    )


def _behind(name: str, behind: dict[str, str], url: str, upstreams: list[str]) -> Target:
    return Target(
        name=name,
        url=url,
        key=GATEWAY_KEY,
        wrong_key=WRONG_KEY,
        forbidden_key=GATEWAY_FORBIDDEN_KEY,
        translates=behind is not _NATIVE,
        gateway=True,
        models=MODELS,
        troubled={surface: [f"troubled-{dialect}-{letter}" for letter in "ab"] for surface, dialect in behind.items()},
        upstreams=upstreams,
    )


@asynccontextmanager
async def _upstream(name: str) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.clients.upstream.server", name),
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


def sha256(key: str) -> str:
    """Return how the configuration has a key."""
    return hashlib.sha256(key.encode()).hexdigest()
