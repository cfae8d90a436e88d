"""A cancelled loser, counted by its own upstream: over plain HTTP and TLS behind nginx, before and after headers.

nginx notices a client that leaves by its TCP connection only. A gateway that said goodbye over TLS and waited for the
answer would leave the upstream at work, and be billed for it: the upstream's count would stay at zero.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import openai
import trustme
import yaml

from providers.simulator import Gate, Hang, RoleOnly, ScriptedProvider, Step, answer
from tests.real.checks import Checks
from tests.real.programs import running
from tests.support.servers import free_port

CALLS = 20  # of each kind
WAIT_S = 10.0
HEADERS_S = 0.05  # what a loser's headers take to get through nginx to the gateway, generously
HOST = "127.0.0.1"

# A loser's deployment, by how it is reached and when it is cut.
LOSERS: Mapping[str, list[Step]] = {
    "http-before-headers": [Hang()],
    "http-after-headers": [RoleOnly(), Hang()],
    "https-before-headers": [Hang()],
    "https-after-headers": [RoleOnly(), Hang()],
}

NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  ssl_certificate {folder}/nginx.pem;
  ssl_certificate_key {folder}/nginx.pem;
  ssl_protocols TLSv1.3;
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  proxy_buffering off;
  {servers}
}}
"""
NGINX_SERVER = "server {{ listen {host}:{port}{ssl}; location / {{ proxy_pass {upstream}; }} }}"

LOST = """
select deployment, count(*) as lost, count(headers_ms) as with_headers
from attempts where outcome = 'lost' group by deployment
"""


def check(checks: Checks, folder: Path, say: Callable[[str], None]) -> None:
    """Race a fast upstream against ones that never answer; compare what these saw with the ledger."""
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if nginx is None:
        say("skipped: losers behind nginx, over TLS (there is no nginx; on Debian: apt-get install nginx-light)")
        return
    say(f"cutting {CALLS} losers of each kind behind nginx ...")
    home = folder / "nginx"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    asyncio.run(_check(checks, nginx, home))


async def _check(checks: Checks, nginx: str, home: Path) -> None:
    async with AsyncExitStack() as stack:
        fast = await stack.enter_async_context(ScriptedProvider(models=["m"]))
        losers = {
            name: await stack.enter_async_context(ScriptedProvider(script, models=["m"]))
            for name, script in LOSERS.items()
        }
        with ExitStack() as programs:
            base_urls = _start_nginx(programs, nginx, home, losers)
            environ = _configure(home, {"fast": fast.base_url, **base_urls})
            port = free_port()
            programs.enter_context(
                running(
                    [_program(), "serve", "--port", str(port)],
                    log=home / "gateway.log",
                    health_url=f"http://{HOST}:{port}/health/ready",
                    environ=environ,
                )
            )
            client = openai.AsyncOpenAI(base_url=f"http://{HOST}:{port}/v1", api_key="none", max_retries=0)
            for name, loser in losers.items():
                for number in range(CALLS):
                    await _race(client, name, fast, loser, number)
            for loser in losers.values():
                with suppress(TimeoutError):
                    async with asyncio.timeout(WAIT_S):
                        await loser.reach(disconnects=CALLS)
            await client.close()
        for row in _lost(environ):  # the gateway has ended, so all rows are in
            _compare(checks, row, losers.pop(row["deployment"].partition("/")[0]))
    checks.that(not losers, f"every kind of loser has rows{', but ' + ', '.join(losers) if losers else ''}")


async def _race(
    client: openai.AsyncOpenAI, model: str, fast: ScriptedProvider, loser: ScriptedProvider, number: int
) -> None:
    """Make one call; its winner speaks once the loser is as far as it shall get."""
    go = asyncio.Event()
    fast.once([RoleOnly(), Gate(go), *answer("Hello", " there", "!")[1:]])
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(
            client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hello"}])
        )
        await loser.reach(requests=number + 1)
        await asyncio.sleep(HEADERS_S)
        go.set()
        await asked


def _compare(checks: Checks, row: Mapping[str, Any], loser: ScriptedProvider) -> None:
    counts, lost = loser.counts, row["lost"]
    name = row["deployment"].partition("/")[0]
    saw = f"saw {counts.disconnects} clients leave and {counts.completions} stay"
    checks.that(
        counts.disconnects == lost == CALLS and not counts.completions and not counts.in_flight,
        f"{name}: {lost} attempts lost ({row['with_headers']} after their headers), the upstream {saw}",
    )
    before = name.endswith("before-headers")
    checks.that(bool(row["with_headers"]) != before, f"{name}: cut where it says")


def _start_nginx(programs: ExitStack, nginx: str, home: Path, losers: Mapping[str, ScriptedProvider]) -> dict[str, str]:
    """Run nginx in front of the losers; return their base URLs behind it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(home / "ca.pem")
    authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(home / "nginx.pem")
    health = free_port()
    servers = [f"server {{ listen {HOST}:{health}; return 200; }}"]
    base_urls = {}
    for name, loser in losers.items():
        scheme, port = name.partition("-")[0], free_port()
        upstream = loser.base_url.removesuffix("/v1")
        ssl = " ssl" if scheme == "https" else ""
        servers.append(NGINX_SERVER.format(host=HOST, port=port, ssl=ssl, upstream=upstream))
        base_urls[name] = f"{scheme}://{HOST}:{port}/v1"
    configuration = home / "nginx.conf"
    configuration.write_text(NGINX.format(folder=home, servers="\n  ".join(servers)))
    command = [nginx, "-e", str(home / "nginx-error.log"), "-p", str(home), "-c", str(configuration)]
    url = f"http://{HOST}:{health}/"
    programs.enter_context(running(command, log=home / "nginx.log", health_url=url, environ=os.environ))
    return base_urls


def _configure(home: Path, base_urls: Mapping[str, str]) -> dict[str, str]:
    """Write the gateway's configuration; return the environment of its processes, which trust the private authority."""
    race = {"mode": "race", "width": 2}
    settings = {
        "database_url": f"sqlite:///{home}/ledger.db",
        "spool_dir": str(home / "spool"),
        "lame_duck_s": 0,
        "providers": {name: {"kind": "openai_compatible", "base_url": url} for name, url in base_urls.items()},
        "models": {
            name: {"deployments": ["fast/m", f"{name}/m"], "race": race} for name in base_urls if name != "fast"
        },
    }
    path = home / "gateway.yaml"
    path.write_text(yaml.safe_dump(settings))
    return {**os.environ, "HOLESHOT_CONFIG": str(path), "SSL_CERT_FILE": str(home / "ca.pem")}


def _lost(environ: Mapping[str, str]) -> list[Mapping[str, Any]]:
    command = [_program(), "sql", "--json", LOST]
    rows = subprocess.run(command, check=True, capture_output=True, env=dict(environ)).stdout
    return msgspec.json.decode(rows, type=list[Mapping[str, Any]])


def _program() -> str:
    return str(Path(sys.executable).with_name("holeshot"))
