"""What a worker has loaded: rooms that are off, and those of operators, come with their first use."""

import inspect
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

import aiohttp

from gateway.admin.routes import Later
from gateway.app.routes import ROUTES
from providers.simulator import ScriptedProvider
from tests.app.gateway.process import GatewayProcess, started
from tests.app.gateway.running_gateway import chat_body, configuration

# A serving process that tells what it has loaded whenever it gets SIGUSR2. What only looks for a module loads none.
TELLING = """
import json, os, signal, sys

def tell(*_):
    os.write(2, json.dumps({"event": "modules", "names": sorted(sys.modules)}).encode() + b"\\n")

signal.signal(signal.SIGUSR2, tell)
from gateway.cli.main import main
main()
"""
LATER = re.compile(
    r"(gateway\.(admin\.(?!operations$|routes$)|bench|cli\.(?!configuration$|main$|serve$|terminal$)"
    r"|keys\.issuers|page|replay|tracing\.exporting)"
    r"|alembic|google|jh2|jsonschema|litellm|opentelemetry|redis|regex|requests|rich|scipy|urllib3)\b.*"
)


@asynccontextmanager
async def worker(folder: Path) -> AsyncIterator[tuple[GatewayProcess, aiohttp.ClientSession]]:
    async with ScriptedProvider() as provider, aiohttp.ClientSession() as http:
        config = configuration(folder, {"alpha": provider.base_url})
        async with started(config, folder, command=(sys.executable, "-P", "-c", TELLING)) as gateway:
            async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response:
                assert response.status == 200
            yield gateway, http


async def loaded(gateway: GatewayProcess) -> list[str]:
    gateway.send(signal.SIGUSR2)
    names: list[str] = (await gateway.event("modules"))["names"]
    return names


async def test_an_idle_worker_has_loaded_nothing_that_is_off_or_for_operators(tmp_path: Path) -> None:
    async with worker(tmp_path) as (gateway, _):
        names = await loaded(gateway)

        assert {"gateway.app.gateway", "gateway.racing.race", "aiohttp.web"} <= set(names)
        assert [name for name in names if LATER.fullmatch(name)] == []


def test_redis_is_loaded_without_what_it_would_measure_itself_with() -> None:
    program = "import sys; from gateway.cli.serve import _import_without as load; load('opentelemetry', 'redis'); "
    program += "print(*{'opentelemetry', 'psutil', 'redis'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "redis\n"


def test_with_postgres_nothing_of_sqlite_is_loaded_but_pythons_own_module() -> None:
    program = "import sys; import gateway.app.gateway; from gateway.ledger import create_engine; "
    program += "create_engine('postgresql://localhost/holeshot'); "
    program += "print(*{'aiosqlite', 'sqlalchemy.dialects.sqlite', 'asyncpg'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "asyncpg\n"


async def test_the_page_is_loaded_with_its_first_request(tmp_path: Path) -> None:
    async with worker(tmp_path) as (gateway, http):
        async with http.get(f"{gateway.url}/api/session") as response:
            assert response.status == 200

        assert "gateway.admin.visitors" in await loaded(gateway)


def test_every_handler_that_is_loaded_later_exists() -> None:
    later: list[tuple[Later, str]] = [
        (known["self"], known["name"])
        for route in ROUTES
        if isinstance((known := inspect.getclosurevars(route.handler).nonlocals).get("self"), Later)
    ]

    assert {each.module.rpartition(".")[2] for each, _ in later} >= {"usage", "keys", "reports", "visitors"}
    for each, name in later:
        module = import_module(each.module)
        assert callable(getattr(getattr(module, each.within) if each.within else module, name))
