"""The scripts of the image, beside a gateway as they run beside it there: its health, and its first start."""

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
import trustme
import yaml

from providers.simulator import ScriptedProvider
from tests.app.gateway.process import CHECKOUT, GatewayProcess, started
from tests.app.gateway.running_gateway import configuration

SCRIPTS = CHECKOUT / "config" / "container"


async def run(script: str, *arguments: str, **environ: str) -> tuple[int | None, str]:
    """Run one of the image's scripts; return its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", str(SCRIPTS / script), *arguments, env=environ, stderr=asyncio.subprocess.PIPE
    )
    _, complaint = await process.communicate()
    return process.returncode, complaint.decode().strip()


def port_of(gateway: GatewayProcess) -> str:
    return gateway.url.rpartition(":")[2]


@pytest.mark.parametrize("has_tls", [False, True], ids=["http", "tls"])
async def test_a_gateway_that_takes_calls_is_healthy_until_it_is_told_to_stop(folder: Path, has_tls: bool) -> None:
    settings: dict[str, object] = {"lame_duck_s": 600, "host": "127.0.0.1"}
    if has_tls:
        pair = trustme.CA().issue_cert("gateway.example.com")
        pair.private_key_pem.write_to_path(str(folder / "key.pem"))
        pair.cert_chain_pems[0].write_to_path(str(folder / "chain.pem"))
        settings["tls"] = {"certificate": str(folder / "chain.pem"), "key": str(folder / "key.pem")}
    async with ScriptedProvider() as provider:
        config = configuration(folder, {"alpha": provider.base_url}, **settings)
        async with started(config, folder) as gateway:
            assert await run("health.py", HOLESHOT_PORT=port_of(gateway)) == (0, "")
            assert await run("health.py", HOLESHOT_PORT=port_of(gateway), http_proxy="http://127.0.0.1:9") == (0, "")
            gateway.send(signal.SIGTERM)
            await gateway.event("gateway.stopping")
            assert await run("health.py", HOLESHOT_PORT=port_of(gateway)) == (1, "/health/ready says 503")
            gateway.send(signal.SIGTERM)


async def test_nobody_on_the_port_is_unhealthy(unused_tcp_port: int) -> None:
    code, complaint = await run("health.py", HOLESHOT_PORT=str(unused_tcp_port))
    assert code == 1
    assert "refused" in complaint


async def test_compose_s_gateway_races_simulated_providers_for_the_key_that_was_made(folder: Path) -> None:
    assert await run("make_secrets.py", str(folder)) == (0, "")
    text = (CHECKOUT / "config" / "compose.yaml").read_text(encoding="utf-8")
    config = yaml.safe_load(text.replace("/etc/holeshot/secrets", str(folder)))
    stores = {"database_url": f"sqlite:///{folder / 'holeshot.db'}", "spool_dir": str(folder / "spool")}
    key = (folder / "owner_key").read_text()
    config |= {**stores, "host": "0.0.0.0", "port": 0, "log_format": "json"}
    async with started(config, folder) as gateway:
        url = f"http://127.0.0.1:{port_of(gateway)}/v1/chat/completions"
        body = {"model": "demo-chat", "messages": [{"role": "user", "content": "Why race?"}]}
        async with aiohttp.ClientSession() as http:
            async with http.post(url, json=body) as refused:
                assert refused.status == 401
            async with http.post(url, json=body, headers={"authorization": f"Bearer {key}"}) as answered:
                assert answered.status == 200
                assert (await answered.json())["choices"][0]["message"]["content"]
