"""Certificate authorities that change while the gateway runs: new connections trust what the files have then."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import structlog
import trustme
from aiohttp import web
from pydantic import SecretStr

from gateway.alerts import Alert, AlertEvent, AlertKind, AlertMessage, Sender, Severity
from gateway.keys import IssuerError, Web
from gateway.ledger import ClickHouse, DatabaseUnreachableError
from gateway.server.tls import Authorities
from gateway.settings import Format, TracingSettings, WebhookSettings
from gateway.tracing.exporting import OtlpExporter
from providers.http import TlsContexts
from providers.simulator import ScriptedProvider
from tests.app.gateway.process import GatewayProcess, started
from tests.app.gateway.running_gateway import MODEL, chat_body, configuration
from tests.patience import eventually
from tests.unit.alerts.inside.world import START

FORMER, OURS = trustme.CA(), trustme.CA()


def write(path: Path, *authorities: trustme.CA) -> None:
    path.write_bytes(b"".join(each.cert_pem.bytes() for each in authorities))


def server_side(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


async def called(gateway: GatewayProcess) -> int:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response,
    ):
        await response.read()
        return response.status


async def test_a_provider_with_a_new_authority_is_reached_without_a_restart(tmp_path: Path) -> None:
    trusted = tmp_path / "authorities.pem"
    write(trusted, FORMER)
    async with ScriptedProvider(tls=server_side(OURS)) as provider:
        config = configuration(tmp_path, {"alpha": provider.base_url})
        config["models"][MODEL]["deployments"] = ["alpha/m"]
        async with started(config, tmp_path, SSL_CERT_FILE=str(trusted)) as gateway:
            assert await called(gateway) == 502
            write(trusted, FORMER, OURS)
            await gateway.event("tls.authorities_reloaded")
            assert await called(gateway) == 200
            trusted.write_text("half a fi")
            await gateway.event("tls.authorities_invalid")
            assert await called(gateway) == 200


class Watched:
    """Authorities in files of ``folder``, and how often they were read again."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.renewed = 0
        self._authorities = Authorities(self._renew, environ)

    def _renew(self) -> None:
        self.renewed += 1

    def look(self, *, times: int = 2, at_once: bool = False) -> list[str]:
        """Look as often, and return what was logged."""
        with structlog.testing.capture_logs() as logged:
            for _ in range(times):
                self._authorities.look(at_once=at_once)
        return [entry["event"] for entry in logged]


def test_a_file_is_read_again_once_nobody_writes_it_any_more(tmp_path: Path) -> None:
    trusted = tmp_path / "authorities.pem"
    write(trusted, FORMER)
    watched = Watched({"SSL_CERT_FILE": str(trusted)})
    assert watched.look() == []
    write(trusted, FORMER, OURS)
    assert watched.look(times=1) == []
    assert watched.look(times=3) == ["tls.authorities_reloaded"]
    assert watched.renewed == 1


@pytest.mark.parametrize("broken", ["", "half a fi", None])
def test_a_file_that_cannot_be_used_leaves_the_ones_before_trusted(tmp_path: Path, broken: str | None) -> None:
    trusted = tmp_path / "authorities.pem"
    write(trusted, FORMER)
    watched = Watched({"SSL_CERT_FILE": str(trusted)})
    trusted.unlink() if broken is None else trusted.write_text(broken)
    assert watched.look(times=5) == ["tls.authorities_invalid"]
    assert watched.renewed == 0
    write(trusted, OURS)
    assert watched.look() == ["tls.authorities_reloaded"]


def test_a_signal_has_them_read_again_though_nothing_changed(tmp_path: Path) -> None:
    watched = Watched({"SSL_CERT_FILE": str(tmp_path / "none")})
    assert watched.look(times=1, at_once=True) == ["tls.authorities_invalid"]
    write(tmp_path / "none", OURS)
    watched.look()
    assert watched.look(times=1, at_once=True) == []
    assert watched.renewed == 2


def test_a_folder_is_watched_with_its_files(tmp_path: Path) -> None:
    folder, other = tmp_path / "one", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    write(other / "1a2b3c4d.0", FORMER)
    watched = Watched({"SSL_CERT_DIR": f"{folder}:{other}"})
    write(folder / "5e6f7a8b.0", OURS)
    assert watched.look(times=3) == ["tls.authorities_reloaded"]
    write(other / "1a2b3c4d.0", FORMER, OURS)  # in place: the folder has the same names
    assert watched.look(times=3) == ["tls.authorities_reloaded"]
    assert watched.look(times=3) == []


@asynccontextmanager
async def secure_server() -> AsyncIterator[str]:
    async def answer(_: web.Request) -> web.Response:
        response = web.json_response({"issuer": "x"})
        response.force_close()
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_side(OURS)).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


MESSAGE = AlertMessage(
    id="1",
    alert=Alert(
        id="1",
        kind=AlertKind.MODEL_OUT,
        subject="m",
        severity=Severity.PAGE,
        summary="down",
        figures={},
        sql="",
        opened_at=START,
        seen_at=START,
        replica="r",
    ),
    webhook="ops",
    event=AlertEvent.OPENED,
    created_at=START,
)


class Alarm:
    """Sends a message."""

    def __init__(self, tls: TlsContexts) -> None:
        self._sender = Sender(unix_clock=lambda: 0.0, user_agent="tests", tls=tls)

    async def said(self, url: str) -> str:
        webhook = WebhookSettings(url=SecretStr(url), format=Format.SLACK)
        return (await self._sender.send(webhook, MESSAGE)).delivery.answer

    async def aclose(self) -> None:
        await self._sender.aclose()


class Keys:
    """Asks an issuer."""

    def __init__(self, tls: TlsContexts) -> None:
        self._web = Web("tests", tls)

    async def said(self, url: str) -> str:
        try:
            return str(await self._web.get(url))
        except IssuerError as error:
            return str(error)

    async def aclose(self) -> None:
        await self._web.aclose()


class Rows:
    """Asks ClickHouse."""

    def __init__(self, tls: TlsContexts) -> None:
        self._tls = tls
        self._server: ClickHouse | None = None

    async def said(self, url: str) -> str:
        server = self._server = self._server or ClickHouse(url, self._tls)
        try:
            return await server.run("select 1")
        except DatabaseUnreachableError as error:
            return str(error)

    async def aclose(self) -> None:
        if self._server is not None:
            await self._server.aclose()


@pytest.mark.parametrize("kind", [Alarm, Keys, Rows])
async def test_whoever_speaks_https_trusts_the_new_authority(
    kind: Callable[[TlsContexts], Alarm | Keys | Rows], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, tls = tmp_path / "authorities.pem", TlsContexts()
    write(trusted, FORMER)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    caller = kind(tls)
    async with secure_server() as url:
        assert "ertificate" in await caller.said(url)
        write(trusted, OURS)
        assert "ertificate" in await caller.said(url)
        tls.renew()
        assert "ertificate" not in await caller.said(url)
        await caller.aclose()


async def test_traces_go_to_a_collector_with_a_new_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted = tmp_path / "authorities.pem"
    write(trusted, FORMER)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(trusted))
    async with secure_server() as url:
        exporter = OtlpExporter(TracingSettings(enabled=True, endpoint=url, timeout_s=0.5), instance="i", peers={})
        assert not await _exported(exporter)
        write(trusted, OURS)
        await eventually(lambda: _exported(exporter))
        exporter.shutdown()


async def _exported(exporter: OtlpExporter) -> bool:
    return await asyncio.to_thread(exporter.export, []) is None
