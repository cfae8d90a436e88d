"""The configuration of the gateway that is soaked, again and again with another fleet of the same providers."""

import hashlib
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness.gateways import KEY, Stores
from benchmarks.soak.provider import MEDIAN_S

NOWHERE = "nowhere"  # a provider whose port is closed
STALL_S = 1.0  # between two events
TTFT_S = 3.0  # also the time in which a call may go from one provider to the next: long enough for one that stalled
HEDGE_S = 0.03  # among the usual times to the first token


def write(path: Path, *, ports: tuple[int, int, int], stores: Stores, spool: Path, generation: int = 0) -> None:
    """Write the file. ``ports``: the gateway's, the fleet's, and one that is closed.

    Each ``generation`` differs in what all providers are sent, so that a reload makes new upstreams of all of them.
    """
    port, fleet_port, closed_port = ports
    names = [*MEDIAN_S, NOWHERE]
    deployments = [f"{name}/m" for name in names]
    races: dict[str, dict[str, Any]] = {
        "raced": {"mode": "race", "width": 2, "budget": 1.0},
        "hedged": {"mode": "hedge", "hedge_delay_s": HEDGE_S, "budget": 1.0},
        "single": {"mode": "single"},
        "relayed": {"mode": "single"},
    }
    config = {
        "host": "127.0.0.1",
        "port": port,
        "database_url": stores.database_url,
        "redis_url": stores.redis_url,
        "spool_dir": str(spool),
        "replica": "soaked",
        "log_level": "warning",
        "log_format": "json",
        "lame_duck_s": 0,  # nobody balances
        "timeouts": {"connect_timeout_s": STALL_S, "ttft_timeout_s": TTFT_S, "stall_timeout_s": STALL_S},
        "clients": {"soak": {"key_sha256": hashlib.sha256(KEY.encode()).hexdigest(), "admin": True}},
        "providers": {
            name: {
                "kind": "openai_compatible",
                "base_url": f"http://127.0.0.1:{closed_port if name == NOWHERE else fleet_port}/{name}/v1",
                "api_key": f"sk-soak-{name}",
                "headers": {"x-generation": str(generation)},
            }
            for name in names
        },
        "models": {model: {"deployments": deployments, "race": race} for model, race in races.items()},
    }
    # Renamed into place: the gateway also looks at the file by itself.
    written = path.with_suffix(".new")
    written.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    written.replace(path)
