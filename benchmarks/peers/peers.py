"""The gateways that are compared: how each is installed, run in front of the mock upstream, and asked."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.support.measured import gateways, servers
from tests.support.measured.answers import MESSAGES, NAMED
from tests.support.measured.gateways import MeasuredServers
from tests.support.measured.load import Question
from tests.support.measured.servers import Server, wait_for
from tests.support.servers import free_port
from tools import installing
from tools.installing import UnavailableError

BEHAVIOURS = ("burst", "paced", "crowd", "first")  # the providers a peer is configured with, as models of these names
# Beside them the model "hang": its first provider is "never", and one that answers is to be asked after HANG_S.
HANG_S = 2
MODEL, KEY = "benchmark-model", "sk-mock-0123456789abcdef"
START_S = 120.0


class Route(msgspec.Struct, frozen=True):
    """How a peer is asked for one behaviour of the mock."""

    path: str
    model: str
    headers: Mapping[str, str] = {}
    launched: int | None = None


class Asked(msgspec.Struct, frozen=True):
    """A peer that runs, and how it is asked for each behaviour."""

    server: Server
    routes: Mapping[str, Route]

    def question(self, behaviour: str, *, streamed: bool) -> Question:
        """Return what the load generator is to ask.

        Raises:
            KeyError: the peer has no such thing.

        """
        route = self.routes[behaviour]
        return Question(
            port=self.server.port,
            path=route.path,
            model=route.model,
            headers={**self.server.headers, **route.headers},
            launched=route.launched,
            streamed=streamed,
            more={"max_tokens": 200},
        )


Start = Callable[[MeasuredServers, Path], AbstractContextManager[Asked]]  # until the block ends; installs it


class Peer(msgspec.Struct, frozen=True):
    """A row of the table."""

    title: str
    start: Start
    note: str = ""


def plain(name: str) -> Peer:
    """Return a measured server that knows nothing of models."""

    @contextmanager
    def start(measured: MeasuredServers, _: Path) -> Iterator[Asked]:
        routes = {behaviour: Route(f"/{behaviour}{gateways.PATH}", MODEL) for behaviour in BEHAVIOURS}
        yield Asked(measured[name], routes | {MESSAGES: Route(f"/{MESSAGES}/v1/messages", MODEL)})

    return Peer(name, start)


def holeshot(title: str, name: str, suffix: str, hang: str) -> Peer:
    """Return the gateway of that name, asked for the models with that suffix, and for ``hang`` where one hangs."""

    @contextmanager
    def start(measured: MeasuredServers, _: Path) -> Iterator[Asked]:
        models = {behaviour: f"{behaviour}-{suffix}" for behaviour in (*BEHAVIOURS, MESSAGES)}
        routes = {
            behaviour: Route(
                "/v1/messages" if behaviour == MESSAGES else gateways.PATH, model, launched=len(gateways.RACES[model])
            )
            for behaviour, model in models.items()
        }
        yield Asked(measured[name], routes | {"hang": Route(gateways.PATH, hang)})

    return Peer(title, start)


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """How a peer is run and asked. ``config`` and ``routes`` are given the address of the mock."""

    install: Callable[[], Path]
    command: Callable[[Path, Path, int, str], Sequence[str]]  # what was installed, its configuration, a port, the mock
    config: Callable[[str], str] = lambda _: ""
    routes: Callable[[str], Mapping[str, Route]]
    environment: Mapping[str, str] = {}
    chooses_port: bool = False  # itself, and writes it into a file beside its configuration


def served(title: str, how: Served, note: str = "") -> Peer:
    """Return a peer that is started from the command line.

    Its start raises UnavailableError if it cannot be installed, or does not start: with its last words.
    """

    @contextmanager
    def start(measured: MeasuredServers, folder: Path) -> Iterator[Asked]:
        origin, binaries = f"http://127.0.0.1:{measured.upstream.port}", how.install()
        place = folder / title.replace(" ", "-")
        place.mkdir()
        config, log, told, port = place / "config.yaml", place / "log", place / "port", free_port()
        config.write_text(how.config(origin))
        command, environment = how.command(binaries, config, port, origin), {**os.environ, **how.environment}
        with log.open("wb") as output, servers.running(command, environment, output) as process:
            try:
                if how.chooses_port:
                    wait_for(lambda: told.exists() and bool(told.read_text()), process, START_S)
                    port = int(told.read_text())
                servers.wait_until_listening(process, port, START_S)
            except (RuntimeError, OSError) as error:
                words = log.read_text(errors="replace").strip().splitlines()
                raise UnavailableError(f"does not start: {words[-1] if words else error}") from error
            yield Asked(Server(title, process.pid, port), how.routes(origin))

    return Peer(title, start, note)


def routes(headers: Mapping[str, str], *others: str, path: str = gateways.PATH, model: str = "{}") -> dict[str, Route]:
    """Return the routes to models that are called as behaviours are, and to ``others``."""
    return {
        name: Route("/v1/messages" if name == MESSAGES else path, model.format(name), headers)
        for name in (*BEHAVIOURS, "hang", *others)
    }


# LiteLLM: since 1.110 its router is Rust; LITELLM_RUST has it take what else of it is.

# Its extra "proxy" wants litellm-proxy, which the index does not have: so what else is in that extra, by name.
_LITELLM_NEEDS = """
uvicorn gunicorn granian uvloop fastapi<1 starlette<2 backoff pyyaml rq orjson hiredis apscheduler fastapi-sso<1
pyjwt<3 python-multipart cryptography<51 pynacl websockets<16 boto3 azure-identity azure-storage-blob mcp>=2.3,<3
httpx2<3 restrictedpython rich<14 inquirerpy tomlkit polars soundfile<1 expression<6 backports-zstd<2 semver<4
"""
_MASTER_KEY = "sk-benchmark-0123456789abcdef0123456789abcdef"


def _litellm_config(origin: str) -> str:
    def deployment(called: str, behaviour: str, **more: Any) -> dict[str, Any]:
        to = {"model": f"openai/{MODEL}", "api_base": f"{origin}/{behaviour}/v1", "api_key": KEY, **more}
        return {"model_name": called, "litellm_params": to}

    anthropic = {"model": "anthropic/claude-sonnet-4-5", "api_base": f"{origin}/{MESSAGES}"}
    return yaml.safe_dump(
        {
            "model_list": [
                *(deployment(name, name) for name in BEHAVIOURS),
                deployment("hang", "never", timeout=HANG_S, stream_timeout=HANG_S),
                deployment(MESSAGES, MESSAGES, **anthropic),
            ],
            "router_settings": {"fallbacks": [{"hang": ["burst"]}], "num_retries": 0},
            "general_settings": {"master_key": _MASTER_KEY},
        }
    )


def litellm(version: str, rust: str) -> Peer:
    """Return LiteLLM's proxy, with ``LITELLM_RUST`` as given."""
    options = ("--host", "127.0.0.1", "--num_workers", "1", "--telemetry", "False")
    return served(
        f"LiteLLM {version}{', LITELLM_RUST' if rust == 'true' else ''}",
        Served(
            install=lambda: installing.python_tool("litellm", f"litellm=={version}", *_LITELLM_NEEDS.split()),
            command=lambda binaries, config, port, _: [
                str(binaries / "litellm"),
                "--config",
                str(config),
                *options,
                "--port",
                str(port),
            ],
            config=_litellm_config,
            routes=lambda _: routes({"authorization": f"Bearer {_MASTER_KEY}"}, MESSAGES),
            environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_RUST": rust},
        ),
    )


# Portkey: each request says where to.


def _portkey_routes(origin: str) -> dict[str, Route]:
    def target(behaviour: str, provider: str = "openai", **more: Any) -> dict[str, Any]:
        return {"provider": provider, "custom_host": f"{origin}/{behaviour}/v1", "api_key": KEY, **more}

    configs = {name: target(name) for name in BEHAVIOURS}
    configs[MESSAGES] = target(MESSAGES, "anthropic")
    configs["hang"] = {
        "strategy": {"mode": "fallback"},
        "targets": [target("never", request_timeout=HANG_S * 1000), target("burst")],
    }
    return {
        name: Route(
            "/v1/messages" if name == MESSAGES else gateways.PATH,
            MODEL,
            {"x-portkey-config": msgspec.json.encode(config).decode()},
        )
        for name, config in configs.items()
    }


def _node(module: str, script: str, version: str, overrides: Mapping[str, str]) -> Callable[[], Path]:
    def install() -> Path:
        if shutil.which("node") is None:
            raise UnavailableError("needs node")
        return (
            installing.node_tool(module.split("/", maxsplit=1)[0].removeprefix("@"), {module: version}, overrides)
            / module
            / script
        )

    return install


PORTKEY = served(
    "Portkey 1.15.2",
    Served(
        # From 1.14.1 on, every stream of this version ends in "TypeError: immutable" (Portkey-AI/gateway#1389).
        install=_node("@portkey-ai/gateway", "build/start-server.js", "1.15.2", {"@hono/node-server": "1.14.0"}),
        command=lambda script, _, port, __: ["node", str(script), f"--port={port}", "--headless"],
        routes=_portkey_routes,
        environment={"TRUSTED_CUSTOM_HOSTS": "127.0.0.1"},
    ),
)

# TensorZero: its gateway is started by its Python client.

_TENSORZERO = """
import pathlib, sys, threading
from openai import OpenAI
from tensorzero import patch_openai_client
config = pathlib.Path(sys.argv[1]).rename(pathlib.Path(sys.argv[1]).with_suffix(".toml"))
client = patch_openai_client(OpenAI(api_key="none"), config_file=str(config), async_setup=False)
config.with_name("port").write_text(str(client.base_url.port))
threading.Event().wait()
"""


def _tensorzero_config(origin: str) -> str:
    def provider(model: str, name: str, more: str = "") -> str:
        return f"""
[models.{model}.providers.{name}]
type = "openai"
model_name = "{MODEL}"
api_base = "{origin}/{name}/v1/"
api_key_location = "env::BENCHMARK_KEY"
{more}"""

    limit = f"timeouts = {{ streaming.ttft_ms = {HANG_S * 1000}, non_streaming.total_ms = {HANG_S * 1000} }}\n"
    return "\n".join(
        [
            "[gateway]\nobservability.enabled = false\n",
            *(f'[models.{name}]\nrouting = ["{name}"]\n{provider(name, name)}' for name in BEHAVIOURS),
            '[models.hang]\nrouting = ["never", "burst"]\n',
            provider("hang", "never", limit),
            provider("hang", "burst"),
        ]
    )


TENSORZERO = served(
    "TensorZero 2026.6.0",
    Served(
        install=lambda: installing.python_tool("tensorzero", "tensorzero==2026.6.0", "openai==2.54.0"),
        command=lambda binaries, config, *_: [str(binaries / "python"), "-W", "ignore", "-c", _TENSORZERO, str(config)],
        config=_tensorzero_config,
        routes=lambda _: routes({}, path=f"/openai{gateways.PATH}", model="tensorzero::model_name::{}"),
        environment={"BENCHMARK_KEY": KEY},
        chooses_port=True,
    ),
    "no Messages",
)

# Ferro: one address for each vendor, so it is the model's name that says how the mock answers.

_FERRO_KEY = "fgw_0123456789abcdef0123456789abcdef"
_FERRO_CONFIG = {
    "strategy": {"mode": "fallback"},
    "targets": [
        {"virtual_key": "groq", "model_map": {"hang": "never"}, "timeout": f"{HANG_S}s"},
        {"virtual_key": "openai", "model_map": {**{name: name for name in BEHAVIOURS}, "hang": "burst"}},
    ],
}


def _ferro(binaries: Path, config: Path, port: int, origin: str) -> list[str]:
    base = f"{origin}/{NAMED}/v1"
    told = {"GATEWAY_CONFIG": config, "PORT": port, "OPENAI_BASE_URL": base, "GROQ_BASE_URL": base}
    return ["env", *(f"{name}={value}" for name, value in told.items()), str(binaries / "ferrogw"), "serve"]


FERRO = served(
    "Ferro 1.5.10",
    Served(
        install=lambda: installing.python_tool("ferro", "ferrogw==1.5.10"),
        command=_ferro,
        config=lambda _: yaml.safe_dump(_FERRO_CONFIG),
        routes=lambda _: routes({"authorization": f"Bearer {_FERRO_KEY}"}),
        environment={"OPENAI_API_KEY": KEY, "GROQ_API_KEY": KEY, "MASTER_KEY": _FERRO_KEY, "RATE_LIMIT_RPS": "0"},
    ),
    "no Messages",
)

PEERS = (
    plain("nginx"),
    plain("pass-through"),
    holeshot("Holeshot, single", "gateway", "single", "hang-single"),
    holeshot("Holeshot, race of two", "crowded", "race", "sure-race"),
    TENSORZERO,
    FERRO,
    PORTKEY,
    litellm("1.110.2", "true"),
)
