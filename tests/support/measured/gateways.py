"""The gateway as it is measured, and everything else that is, by name: started when it is first asked for."""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.support.measured import load, nginx, servers
from tests.support.measured.answers import BEHAVIOURS, MESSAGES, NAMED
from tests.support.measured.nginx import Origin
from tests.support.measured.servers import FOLDER, Server, running, wait_until_listening
from tests.support.servers import free_port, postgres, redis_server

KEY = "hs-benchmark"
HEADERS = {"authorization": f"Bearer {KEY}"}
PATH = load.PATH
VIEWER_KEY = "hs-viewer"  # makes no calls
VIEWER_HEADERS = {"authorization": f"Bearer {VIEWER_KEY}"}

# A model for each way of racing: the behaviours of its deployments. One deployment is asked alone.
RACES: Mapping[str, tuple[str, ...]] = {
    "burst-single": ("burst",),
    "burst-race": ("burst", "late"),
    "first-single": ("first",),
    "first-race": ("first", "late"),
    "soon-single": ("soon",),
    "soon-race": ("soon", "late"),
    "soon-tie": ("soon", "soon-too"),
    "three": ("soon", "late", "late-too"),
    "paced-single": ("paced",),
    "paced-race": ("paced", "paced-too"),
    "turned-single": ("turned",),
    "crowd-single": ("crowd",),
    "crowd-race": ("crowd", "crowd-late"),
    "steady-single": ("steady",),
    "at-once-single": ("at-once",),
    "sure-race": ("burst", "never"),
    "messages-single": (MESSAGES,),
    "messages-race": (MESSAGES, "late"),
}
_TOO = "-too"  # a second provider that behaves alike
VERSIONS = ("1.1", "auto", "2")  # of HTTP over TLS
_EVER = 1_000_000  # tokens: prompts of any length are raced
ONE_WAY_S = 0.02  # to the far side: a round trip of 40 ms


class Tls(msgspec.Struct, frozen=True):
    """How the mock is reached over TLS: straight, and from far away. ``authority`` vouches for it."""

    port: int
    far_port: int
    authority: Path


class Stores(msgspec.Struct, frozen=True):
    """Where rows and standings go. Without Redis, standings stay in memory."""

    database_url: str
    redis_url: str | None = None


def gateway_command(config: Path) -> list[str]:
    """Return the command of the gateway installed beside this Python."""
    return [str(Path(sys.executable).parent / "holeshot"), "serve", "--config", str(config)]


def environment(tls: Tls | None = None) -> dict[str, str]:
    """Return the environment of a gateway: nothing of the user's own settings, no proxy for this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLESHOT_")}
    trust = {"SSL_CERT_FILE": str(tls.authority)} if tls is not None else {}
    return {**kept, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **trust}


@contextmanager
def gateway(
    name: str,
    upstream_port: int,
    folder: Path,
    stores: Stores,
    *,
    tls: Tls | None = None,
    workers: int = 1,
    more: Mapping[str, Any] = {},
    core: int | None = None,
) -> Iterator[Server]:
    """Run the gateway as its users do, ledger, leaderboard, metrics, log line and client keys on; on ``core`` alone."""
    port = free_port()
    config = write_config(folder, upstream_port, port, stores, tls=tls, workers=workers, more=more)
    with running(gateway_command(config), {**environment(tls), "HOLESHOT_LAME_DUCK_S": "0"}) as process:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})  # before it has other threads
        wait_until_listening(process, port)
        yield Server(name, process.pid, port, HEADERS, workers)


def production(stack: ExitStack) -> Stores:
    """Run Postgres and Redis until ``stack`` ends, the ledger's tables made."""
    redis_url, database_url = stack.enter_context(redis_server()), stack.enter_context(postgres())
    migrate(database_url)
    return Stores(database_url, redis_url)


def provider(base_url: str, api_key: str) -> dict[str, Any]:
    """Return the section of a provider."""
    return {"kind": "openai_compatible", "base_url": base_url, "api_key": api_key}


def hashed(key: str) -> str:
    """Return what the configuration has of a client's key."""
    return hashlib.sha256(key.encode()).hexdigest()


def migrate(database_url: str, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
    """Make the ledger's tables; ``environ`` and ``folder`` are those of another checkout's gateway."""
    command = [sys.executable, "-P", "-m", "gateway.cli", "migrate"]
    told = {**(environ or environment()), "HOLESHOT_DATABASE_URL": database_url}
    subprocess.run(command, env=told, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def write_config(
    folder: Path,
    upstream_port: int,
    port: int,
    stores: Stores,
    *,
    tls: Tls | None = None,
    workers: int = 1,
    more: Mapping[str, Any] = {},
) -> Path:
    """Write the gateway's configuration into ``folder``, with the sections ``more``, and return its path.

    A provider for each behaviour of the mock, a model for each way of racing them; and, where the mock is reached over
    TLS, both again over HTTP/1.1 and over what ALPN negotiates, which is HTTP/2; see ``over``.
    """
    providers, models = _over("", f"http://127.0.0.1:{upstream_port}", {})
    models["hang-single"] = {**_model("never/benchmark-model"), "fallbacks": ["burst-single"]}
    for version in VERSIONS if tls is not None else ():
        assert tls is not None
        speaking = {"http_version": version}
        more_providers, more_models = _over(over(version), f"https://127.0.0.1:{tls.port}", speaking)
        providers |= more_providers | {
            f"far{over(version)}": _provider(f"https://127.0.0.1:{tls.far_port}", NAMED) | speaking
        }
        models |= more_models | {
            f"far-single{over(version)}": _model(f"far{over(version)}/burst"),
            f"far-race{over(version)}": _model("near/near", f"far{over(version)}/late"),
        }
    config = {
        "port": port,
        "workers": workers,
        "database_url": stores.database_url,
        **({"redis_url": stores.redis_url} if stores.redis_url is not None else {}),
        "spool_dir": str(folder / "spool"),
        "log_format": "json",
        # A crowd opens all its connections before its first call, from one address: by default a flood.
        "connections": {"max_per_address": 4096},
        # A crowd is measured as it comes, more than a core can serve in time; overload control has a room of its own.
        "overload": {"loop_delay_ms": 0},
        "clients": {
            "benchmark": {"key_sha256": hashed(KEY), "admin": True},  # who may see the metrics
            "viewer": {"key_sha256": hashed(VIEWER_KEY), "role": "viewer"},
        },
        "providers": providers,
        "models": models,
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def over(version: str) -> str:
    """Return what models and providers that are reached over TLS have after their names."""
    return f"-tls-{version}"


def sqlite(folder: Path) -> Stores:
    """Return the stores of a gateway that was given none: a file, and its own memory."""
    return Stores(f"sqlite:///{folder / 'ledger.db'}")


def _over(suffix: str, origin: str, speaking: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [*BEHAVIOURS, *(name for race in RACES.values() for name in race if name.endswith(_TOO))]
    providers = {f"{name}{suffix}": _provider(origin, name.removesuffix(_TOO)) | speaking for name in names}
    models = {
        f"{model}{suffix}": _model(*(f"{name}{suffix}/benchmark-model" for name in race))
        for model, race in RACES.items()
    }
    return providers, models


def _provider(origin: str, behaviour: str) -> dict[str, Any]:
    made = provider(f"{origin}/{behaviour}/v1", f"sk-mock-{behaviour}-0123456789abcdef")
    return made | {"kind": "anthropic"} if behaviour == MESSAGES else made


def _model(*deployments: str) -> dict[str, Any]:
    width = len(deployments)
    if width == 1:
        return {"deployments": list(deployments), "race": {"mode": "single"}}
    # One extra attempt a call more than the race needs: what exploring draws must not make a measured race narrower.
    # No audits: in a share of the races they let losers run on, which here are counted.
    race = {"mode": "race", "width": width, "budget": width, "max_prompt_tokens": _EVER, "audit_share": 0}
    return {"deployments": list(deployments), "race": race}


class Gateway(msgspec.Struct, frozen=True):
    """How one of the gateways differs from the others. ``tls``: its providers are reached that way as well."""

    workers: int = 1
    tls: bool = False
    sqlite: bool = False


GATEWAYS = {
    "gateway": Gateway(),
    "gateway with SQLite": Gateway(sqlite=True),
    "gateway of one": Gateway(),
    "gateway of two": Gateway(workers=2),
    "gateway over TLS": Gateway(tls=True),
    # Memory is told from a fresh one each: what a crowd leaves behind would hide what the next one takes.
    "crowded": Gateway(),
    "crowded by single": Gateway(),
    "crowded by 2,000": Gateway(),
    "crowded over HTTP/1.1": Gateway(tls=True),
    "crowded over HTTP/2": Gateway(tls=True),
}


class MeasuredServers:
    """The servers of one run. Made by ``measured_servers``."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._servers: dict[str, Server] = {}

    def __getitem__(self, name: str) -> Server:
        """Return the server of that name.

        Raises:
            Missing: something it needs is not on this machine.

        """
        if name not in self._servers:
            self._servers[name] = self._start(name)
        return self._servers[name]

    @cached_property
    def upstream(self) -> Server:
        """The mock upstream."""
        return self._stack.enter_context(servers.upstream())

    @cached_property
    def origin(self) -> Origin:
        """The TLS server in front of it.

        Raises:
            Missing: there is no nginx.

        """
        return self._stack.enter_context(nginx.origin(self.upstream.port, self.folder / "origin"))

    @cached_property
    def tls(self) -> Tls:
        """How gateways reach the origin.

        Raises:
            Missing: there is no nginx.

        """
        port = free_port()
        command = [str(FOLDER / "delay.py"), str(port), str(self.origin.server.port), str(ONE_WAY_S)]
        process = self._stack.enter_context(servers.running([sys.executable, *command]))
        servers.wait_until_listening(process, port)
        return Tls(self.origin.server.port, port, self.origin.authority)

    @cached_property
    def _production(self) -> Callable[[], Stores]:
        """Postgres for all, and a Redis database for each: what one gateway learned is none of the others' business."""
        stores = production(self._stack)
        url, databases = str(stores.redis_url).rpartition("/")[0], iter(range(16))
        return lambda: Stores(stores.database_url, f"{url}/{next(databases)}")

    def stores(self) -> Stores:
        """Return stores for one more gateway, as in production."""
        return self._production()

    def _start(self, name: str) -> Server:
        folder = self.folder / name.replace(" ", "-").replace("/", "-")
        if name == "upstream":
            return self.upstream
        if name == "pass-through":
            return self._stack.enter_context(servers.passthrough(self.upstream.port))
        if name == "nginx":
            return self._stack.enter_context(nginx.baseline(self.upstream.port, folder))
        kind = GATEWAYS[name]
        tls = self.tls if kind.tls else None
        stores = sqlite(folder) if kind.sqlite else self.stores()
        return self._stack.enter_context(
            gateway(name, self.upstream.port, folder, stores, tls=tls, workers=kind.workers)
        )


@contextmanager
def measured_servers() -> Iterator[MeasuredServers]:
    """Run what is asked for, in a folder that goes with it, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="holeshot-bench-") as folder, ExitStack() as stack:
        yield MeasuredServers(Path(folder), stack)


class Way(msgspec.Struct, frozen=True):
    """One kind of call. ``model`` is one of ``RACES``; ``calls`` are enough for a mean that repeats."""

    model: str
    streamed: bool = True
    calls: int = 200
    api: str = "chat"

    def question(self, server: Server) -> load.Question:
        """Return what a load generator is to ask the gateway."""
        asked = load.asking(
            server.port, server.headers, self.model, streamed=self.streamed, launched=len(RACES[self.model])
        )
        if self.api == "chat":
            return msgspec.structs.replace(asked, more={"user": "somebody"})
        path, prompted, more = _APIS[self.api]
        return msgspec.structs.replace(asked, path=path.format(self.model), prompted=prompted, more=more)


# By their names: the path, with the model if it is there, the field of the prompt, and what else a request needs.
_APIS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "messages": ("/v1/messages", "messages", {"max_tokens": 1000}),
    "responses": ("/v1/responses", "input", {}),
    "gemini": ("/v1beta/models/{}:streamGenerateContent?alt=sse", "contents", {}),
}


WAYS: Mapping[str, Way] = {
    "stream": Way("burst-single"),
    "trickle": Way("turned-single", calls=40),
    "json": Way("burst-single", streamed=False),
    "race": Way("sure-race"),
    **{f"stream-{api}": Way("burst-single", api=api) for api in _APIS},
    **{f"trickle-{api}": Way("turned-single", calls=40, api=api) for api in _APIS},
}
