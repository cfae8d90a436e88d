"""Traces of real processes: each worker exports its own, and no collector delays the end by much."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from providers.simulator import ScriptedProvider
from tests.app.gateway.collector import collecting
from tests.app.gateway.process import CHECKOUT, started
from tests.app.gateway.running_gateway import configuration
from tests.services.gateway.test_workers import chat

CALLS = 24


async def test_each_worker_exports_its_own_calls(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url, "workers": 2}
    async with ScriptedProvider() as provider, collecting() as collector:
        config = configuration(tmp_path, {"alpha": provider.base_url}, **stores)
        config["tracing"] = {"enabled": True, "endpoint": collector.url}
        async with started(config, tmp_path) as gateway:
            await gateway.event("gateway.started", 2)
            made = await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
        assert sorted(span.attributes["holeshot.call_id"] for span in collector.calls) == sorted(made)
        instances = {span.resource["service.instance.id"] for span in collector.spans}
    assert 1 <= len(instances) <= 2
    assert all(instance.startswith("here-") for instance in instances)
    traces = {line["id"]: line["trace_id"] for line in gateway.events("call.finished")}
    assert traces == {call_id: call_id.replace("-", "") for call_id in made}


async def test_a_hanging_collector_does_not_hold_up_the_end(tmp_path: Path, postgres_url: str) -> None:
    async with ScriptedProvider() as provider, collecting() as collector:
        collector.hangs = True
        config = configuration(tmp_path, {"alpha": provider.base_url}, database_url=postgres_url)
        config["tracing"] = {"enabled": True, "endpoint": collector.url, "timeout_s": 3600}
        async with started(config, tmp_path) as gateway:
            await chat(gateway)
            await collector.asked.wait()
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0  # the collector would have held it for an hour
    assert gateway.events("garbled") == []


@pytest.mark.parametrize(("enabled", "imported"), [("false", "False"), ("true", "True")])
def test_opentelemetry_is_imported_only_where_traces_are_on(tmp_path: Path, enabled: str, imported: str) -> None:
    program = (
        "import sys; from pathlib import Path; import gateway.server.server; from gateway.app.gateway import Gateway;"
        "from gateway.settings import load;"
        f"Gateway(load(Path({str(tmp_path / 'gateway.yaml')!r}), {{}}));"
        "print('opentelemetry' in sys.modules, 'google.protobuf' in sys.modules)"
    )
    (tmp_path / "gateway.yaml").write_text(
        f"spool_dir: {tmp_path / 'spool'}\n"
        f"database_url: sqlite:///{tmp_path / 'a.db'}\n"
        f"tracing: {{enabled: {enabled}}}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.stdout == f"{imported} {imported}\n", done.stderr
