"""TensorZero: the Rust gateway inside its wheel, without its databases, started by its own Python API."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import gateways, installing
from benchmarks.harness.gateways import MeasuredServers
from benchmarks.harness.installing import UnavailableError
from benchmarks.harness.servers import Server, running, wait_for
from benchmarks.peers.peer import BEHAVIOURS, PROVIDER_KEY, Asked, Peer, Route

VERSION = "2026.6.0"
_REQUIREMENTS = (f"tensorzero=={VERSION}", "openai==2.54.0")
_START_S = 30.0
# Run by the peer's own Python; the gateway takes a port of its own choice, which is written to a file.
_LAUNCHER = """
import pathlib, sys, threading
from openai import OpenAI
from tensorzero import patch_openai_client
client = patch_openai_client(OpenAI(api_key="none"), config_file=sys.argv[1], async_setup=False)
pathlib.Path(sys.argv[2]).write_text(str(client.base_url.port))
threading.Event().wait()
"""


@contextmanager
def start(measured: MeasuredServers, folder: Path) -> Iterator[Asked]:
    """Install and run it."""
    binaries = installing.python_tool("tensorzero", *_REQUIREMENTS)
    config, port_file, log = folder / "tensorzero.toml", folder / "tensorzero.port", folder / "tensorzero.log"
    config.write_text(_config(measured.upstream.port))
    command = [str(binaries / "python"), "-W", "ignore", "-c", _LAUNCHER, str(config), str(port_file)]
    with (
        log.open("wb") as output,
        running(command, {**os.environ, "BENCHMARK_KEY": PROVIDER_KEY}, output) as process,
    ):
        if not wait_for(lambda: port_file.exists() and bool(port_file.read_text()), process, _START_S):
            raise UnavailableError(f"does not start: {log.read_text(errors='replace')[-300:]}")
        routes = {name: Route(f"/openai{gateways.PATH}", f"tensorzero::model_name::{name}") for name in BEHAVIOURS}
        yield Asked(Server("TensorZero", process.pid, int(port_file.read_text())), routes)


def _config(upstream_port: int) -> str:
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


TENSORZERO = Peer(f"TensorZero {VERSION}", start)
