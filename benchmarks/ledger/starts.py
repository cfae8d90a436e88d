"""How long a gateway takes from its command until it serves, beside a ledger with many calls and one with none.

Its clients, teams and end users have limits in dollars, so that all is read which a start reads. The two take turns.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

import msgspec

STARTS = 9  # of each
GOAL = 1.1  # times as long at most
_CLIENTS = 8  # as in ``rows``
_LIMITS = {"usd_per_day": 1e6, "usd_per_month": 1e7}


class Starts(msgspec.Struct, frozen=True):
    """How long starts took until ready, in milliseconds."""

    with_calls_ms: float
    with_none_ms: float

    @property
    def times(self) -> float:
        return self.with_calls_ms / self.with_none_ms


async def measured_starts(url: str, empty_url: str) -> Starts:
    """Start a gateway beside each of two migrated ledgers, in turns."""
    taken: dict[str, list[float]] = {url: [], empty_url: []}
    for turn in range(STARTS + 1):
        for each, found in taken.items():
            ready_ms = await _ready_ms(each)
            if turn:  # the first reads programs and tables from disk
                found.append(ready_ms)
    return Starts(median(taken[url]), median(taken[empty_url]))


async def _ready_ms(url: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gateway.json"
        path.write_text(json.dumps(_configuration(url, folder)), encoding="utf-8")
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLESHOT_")}
        begun = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.cli", "serve", "--config", str(path)),
            env=clean,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        said = b""
        try:
            while (line := await process.stderr.readline()) and b'"gateway.started"' not in line:
                said += line
            ready_ms = (time.perf_counter() - begun) * 1000
            if not line:
                raise RuntimeError(f"the gateway did not start: {said.decode(errors='replace')[-2000:]}")
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()
        return ready_ms


def _configuration(url: str, folder: str) -> dict[str, object]:
    return {
        "database_url": url,
        "spool_dir": f"{folder}/spool",
        "port": 0,
        "log_format": "json",
        "page": {"signing_key": "k" * 64},
        "providers": {"own": {"base_url": "http://127.0.0.1:9/v1", "api_key": "not-a-real-key"}},
        "models": {f"model-{number}": {"deployments": [f"own/m{number}"], "usd_per_day": 1e6} for number in range(5)},
        "clients": {
            f"client-{number}": {"key_sha256": f"{number:064x}", "team": "all", **_LIMITS} for number in range(_CLIENTS)
        },
        "teams": {"all": _LIMITS},
        "end_users": _LIMITS,
    }
