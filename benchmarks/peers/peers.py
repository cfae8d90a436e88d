"""The gateways that are compared: how each is installed, run in front of the mock upstream, and asked."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec
import yaml

from tests.support.measured import gateways, servers
from tests.support.measured.gateways import MeasuredServers
from tests.support.measured.load import Question
from tests.support.measured.servers import Server, running, wait_for
from tests.support.servers import free_port
from tools import installing
from tools.installing import UnavailableError

BEHAVIOURS = ("burst", "paced", "crowd")  # the providers a peer is configured with
PROVIDER_KEY = "sk-mock-0123456789abcdef"
LITELLM_VERSION = "1.106.2"
_KEY = "sk-benchmark-0123456789abcdef0123456789abcdef"
LITELLM_START_S = 120.0
PORTKEY_VERSION = "1.15.2"
# From 1.14.1 on, every stream of this version of Portkey ends in "TypeError: immutable" (Portkey-AI/gateway#1389).
_OVERRIDES = {"@hono/node-server": "1.14.0"}
START_S = 30.0
TENSORZERO_VERSION = "2026.6.0"
_REQUIREMENTS = (f"tensorzero=={TENSORZERO_VERSION}", "openai==2.54.0")
START_S = 30.0
# Run by the peer's own Python; the gateway takes a port of its own choice, which is written to a file.
_LAUNCHER = """
import pathlib, sys, threading
from openai import OpenAI
from tensorzero import patch_openai_client
client = patch_openai_client(OpenAI(api_key="none"), config_file=sys.argv[1], async_setup=False)
pathlib.Path(sys.argv[2]).write_text(str(client.base_url.port))
threading.Event().wait()
"""


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
        """Return what the load generator is to ask."""
        route = self.routes[behaviour]
        return Question(
            port=self.server.port,
            path=route.path,
            model=route.model,
            headers={**self.server.headers, **route.headers},
            launched=route.launched,
            streamed=streamed,
        )


Start = Callable[[MeasuredServers, Path], AbstractContextManager[Asked]]  # until the block ends; installs it


class Peer(msgspec.Struct, frozen=True):
    """A row of the table."""

    title: str
    start: Start


def plain(name: str) -> Peer:
    """Return a measured proxy that knows nothing of models."""

    @contextmanager
    def start(measured: MeasuredServers, folder: Path) -> Iterator[Asked]:
        del folder
        routes = {behaviour: Route(f"/{behaviour}{gateways.PATH}", "benchmark-model") for behaviour in BEHAVIOURS}
        yield Asked(measured[name], routes)

    return Peer(name, start)


def holeshot(title: str, name: str, suffix: str) -> Peer:
    """Return the gateway of that name, asked for the models with that suffix."""

    @contextmanager
    def start(measured: MeasuredServers, folder: Path) -> Iterator[Asked]:
        del folder
        models = {behaviour: f"{behaviour}-{suffix}" for behaviour in BEHAVIOURS}
        yield Asked(
            measured[name],
            {
                behaviour: Route(gateways.PATH, model, launched=len(gateways.RACES[model]))
                for behaviour, model in models.items()
            },
        )

    return Peer(title, start)


@contextmanager
def serving(
    name: str, command: Callable[[int], list[str]], environment: Mapping[str, str], log: Path, limit_s: float
) -> Iterator[Server]:
    """Run a peer's server on a free port, what it says going to ``log``, until the block ends.

    Raises:
        UnavailableError: it does not start; with its last words.

    """
    port = free_port()
    with log.open("wb") as output, servers.running(command(port), environment, output) as process:
        try:
            servers.wait_until_listening(process, port, limit_s)
        except RuntimeError as error:
            words = log.read_text(errors="replace").strip().splitlines()
            raise UnavailableError(f"does not start: {words[-1] if words else error}") from error
        yield Server(name, process.pid, port)


@contextmanager
def start_litellm(measured: MeasuredServers, folder: Path) -> Iterator[Asked]:
    """Install and run it."""
    binaries = installing.python_tool("litellm", f"litellm[proxy]=={LITELLM_VERSION}")
    config = folder / "litellm.yaml"
    config.write_text(yaml.safe_dump(_litellm_config(measured.upstream.port)))
    command = [str(binaries / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--num_workers", "1"]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with serving(
        "LiteLLM",
        lambda port: [*command, "--telemetry", "False", "--port", str(port)],
        environment,
        folder / "litellm.log",
        LITELLM_START_S,
    ) as running:
        headers = {"authorization": f"Bearer {_KEY}"}
        yield Asked(running, {name: Route(gateways.PATH, name, headers) for name in BEHAVIOURS})


def _litellm_config(upstream_port: int) -> dict[str, object]:
    return {
        "model_list": [
            {
                "model_name": name,
                "litellm_params": {
                    "model": "openai/benchmark-model",
                    "api_base": f"http://127.0.0.1:{upstream_port}/{name}/v1",
                    "api_key": PROVIDER_KEY,
                },
            }
            for name in BEHAVIOURS
        ],
        "general_settings": {"master_key": _KEY},
    }


LITELLM = Peer(f"LiteLLM {LITELLM_VERSION}", start_litellm)


@contextmanager
def start_portkey(measured: MeasuredServers, folder: Path) -> Iterator[Asked]:
    """Install and run it."""
    modules = installing.node_tool("portkey", {"@portkey-ai/gateway": PORTKEY_VERSION}, _OVERRIDES)
    node = shutil.which("node")
    if node is None:
        raise UnavailableError("needs node")
    server = str(modules / "@portkey-ai" / "gateway" / "build" / "start-server.js")
    environment = {**os.environ, "TRUSTED_CUSTOM_HOSTS": "127.0.0.1"}
    with serving(
        "Portkey",
        lambda port: [node, server, f"--port={port}", "--headless"],
        environment,
        folder / "portkey.log",
        START_S,
    ) as running:
        headers = {"x-portkey-provider": "openai", "authorization": f"Bearer {PROVIDER_KEY}"}
        host = f"http://127.0.0.1:{measured.upstream.port}"
        yield Asked(
            running,
            {
                name: Route(gateways.PATH, "benchmark-model", {**headers, "x-portkey-custom-host": f"{host}/{name}/v1"})
                for name in BEHAVIOURS
            },
        )


PORTKEY = Peer(f"Portkey {PORTKEY_VERSION}", start_portkey)


@contextmanager
def start_tensorzero(measured: MeasuredServers, folder: Path) -> Iterator[Asked]:
    """Install and run it."""
    binaries = installing.python_tool("tensorzero", *_REQUIREMENTS)
    config, port_file, log = folder / "tensorzero.toml", folder / "tensorzero.port", folder / "tensorzero.log"
    config.write_text(_tensorzero_config(measured.upstream.port))
    command = [str(binaries / "python"), "-W", "ignore", "-c", _LAUNCHER, str(config), str(port_file)]
    with (
        log.open("wb") as output,
        running(command, {**os.environ, "BENCHMARK_KEY": PROVIDER_KEY}, output) as process,
    ):
        if not wait_for(lambda: port_file.exists() and bool(port_file.read_text()), process, START_S):
            raise UnavailableError(f"does not start_tensorzero: {log.read_text(errors='replace')[-300:]}")
        routes = {name: Route(f"/openai{gateways.PATH}", f"tensorzero::model_name::{name}") for name in BEHAVIOURS}
        yield Asked(Server("TensorZero", process.pid, int(port_file.read_text())), routes)


def _tensorzero_config(upstream_port: int) -> str:
    models = [
        f"[models.{name}]\n"
        'routing = ["mock"]\n'
        f"[models.{name}.providers.mock]\n"
        'type = "openai"\n'
        'model_name = "benchmark-model"\n'
        f'api_base = "http://127.0.0.1:{upstream_port}/{name}/v1/"\n'
        'api_key_location = "env::BENCHMARK_KEY"\n'
        for name in BEHAVIOURS
    ]
    return "\n".join(["[gateway]\nobservability.enabled = false\n", *models])


TENSORZERO = Peer(f"TensorZero {TENSORZERO_VERSION}", start_tensorzero)
