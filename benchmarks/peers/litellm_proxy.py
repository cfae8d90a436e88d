"""LiteLLM's proxy, one worker, without a database."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from benchmarks.harness import gateways, installing
from benchmarks.harness.gateways import MeasuredServers
from benchmarks.peers.peer import BEHAVIOURS, PROVIDER_KEY, Asked, Peer, Route, serving

VERSION = "1.106.2"
_KEY = "sk-benchmark-0123456789abcdef0123456789abcdef"
_START_S = 120.0


@contextmanager
def start(measured: MeasuredServers, folder: Path) -> Iterator[Asked]:
    """Install and run it."""
    binaries = installing.python_tool("litellm", f"litellm[proxy]=={VERSION}")
    config = folder / "litellm.yaml"
    config.write_text(yaml.safe_dump(_config(measured.upstream.port)))
    command = [str(binaries / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--num_workers", "1"]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with serving(
        "LiteLLM",
        lambda port: [*command, "--telemetry", "False", "--port", str(port)],
        environment,
        folder / "litellm.log",
        _START_S,
    ) as running:
        headers = {"authorization": f"Bearer {_KEY}"}
        yield Asked(running, {name: Route(gateways.PATH, name, headers) for name in BEHAVIOURS})


def _config(upstream_port: int) -> dict[str, object]:
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


LITELLM = Peer(f"LiteLLM {VERSION}", start)
