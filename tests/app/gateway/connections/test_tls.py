"""HTTPS on the gateway's own port: real clients, a new certificate while it runs, and those who speak no TLS."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import openai
import pytest
import trustme

from providers.simulator import ScriptedProvider
from tests.app.gateway.key_desk import sha256
from tests.app.gateway.process import GatewayProcess, started
from tests.app.gateway.running_gateway import MODEL, PROMPT, configuration
from tests.patience import PATIENCE_S

CA = trustme.CA()
TRUST = ssl.create_default_context()
CA.configure_trust(TRUST)


def issue(folder: Path) -> dict[str, str]:
    """Write a new certificate and its key, and return the settings."""
    issued = CA.issue_cert("127.0.0.1")
    files = {"certificate": folder / "fullchain.pem", "key": folder / "privkey.pem"}
    files["certificate"].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    files["key"].write_bytes(issued.private_key_pem.bytes())
    return {name: str(path) for name, path in files.items()}


@asynccontextmanager
async def https_gateway(folder: Path, **settings: Any) -> AsyncIterator[GatewayProcess]:
    tls = issue(folder) | settings.pop("tls", {})
    async with ScriptedProvider() as provider:
        config = configuration(folder, {"alpha": provider.base_url}, tls=tls, **settings)
        async with started(config, folder) as gateway:
            assert gateway.url.startswith("https://127.0.0.1:")
            yield gateway


def port_of(gateway: GatewayProcess) -> int:
    return int(gateway.url.rpartition(":")[2])


async def presented(gateway: GatewayProcess) -> bytes:
    """Return the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(gateway), ssl=TRUST)
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return certificate


async def test_the_openai_sdk_calls_and_streams(folder: Path) -> None:
    async with (
        https_gateway(folder) as gateway,
        httpx.AsyncClient(verify=TRUST) as http,
        openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key="unused", http_client=http, timeout=PATIENCE_S, max_retries=0
        ) as sdk,
    ):
        whole = await sdk.chat.completions.create(model=MODEL, messages=list(PROMPT))
        stream = await sdk.chat.completions.create(model=MODEL, messages=list(PROMPT), stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_curl_calls(folder: Path) -> None:
    CA.cert_pem.write_to_path(str(folder / "ca.pem"))
    async with https_gateway(folder) as gateway:
        curl = await asyncio.create_subprocess_exec(
            *("curl", "--silent", "--show-error", "--noproxy", "*", "--cacert", str(folder / "ca.pem")),
            *("--write-out", " %{http_version} %{http_code}", f"{gateway.url}/health/live"),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await curl.communicate()
    assert said.endswith(b" 1.1 200")


async def test_a_session_is_for_tls_alone(folder: Path) -> None:
    clients = {"admin": {"key_sha256": sha256("hs-admin"), "role": "admin"}}
    async with https_gateway(folder, clients=clients) as gateway, httpx.AsyncClient(verify=TRUST) as http:
        own = {"origin": gateway.url}  # as an old browser says it
        made = await http.post(f"{gateway.url}/api/session", json={"key": "hs-admin"}, headers=own)
        assert (made.status_code, made.headers["set-cookie"].endswith("; Secure")) == (204, True)
        looked = await http.get(f"{gateway.url}/api/session")
        assert looked.json()["user"] == {"name": "admin", "role": "admin"}
        plain = {"origin": gateway.url.replace("https:", "http:")}
        assert (await http.delete(f"{gateway.url}/api/session", headers=plain)).status_code == 403


async def test_http_1_1_is_agreed_on_with_who_could_speak_http_2(folder: Path) -> None:
    context = ssl.create_default_context()
    CA.configure_trust(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with https_gateway(folder) as gateway:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(gateway), ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.close()


async def test_who_speaks_older_tls_than_the_settings_ask_for_is_refused(folder: Path) -> None:
    context = ssl.create_default_context()
    CA.configure_trust(context)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with https_gateway(folder, tls={"min_version": "1.3"}) as gateway:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port_of(gateway), ssl=context)
        await presented(gateway)


async def test_who_speaks_no_tls_is_hung_up_on_without_a_line_in_the_log(folder: Path) -> None:
    async with https_gateway(folder) as gateway:
        for sent in (b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"a" * 70_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(gateway))
            writer.write(sent)
            try:
                answered = await reader.read()
            except ConnectionResetError:
                answered = b""
            assert b"HTTP/" not in answered
            writer.close()
        await presented(gateway)  # and everybody else is served
    assert not [entry for entry in gateway.logged if entry["level"] in {"error", "warning"}]


async def test_a_handshake_that_is_never_ended_is_cut(folder: Path) -> None:
    async with https_gateway(folder, connections={"headers_timeout_s": 0.3}) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(gateway))
        writer.write(b"\x16\x03\x01")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


async def test_a_new_certificate_is_shown_to_new_connections_and_kept_ones_go_on(folder: Path) -> None:
    async with (
        https_gateway(folder) as gateway,
        aiohttp.ClientSession(gateway.url, connector=aiohttp.TCPConnector(ssl=TRUST, limit=1)) as http,
    ):
        async with http.get("/health/live") as response:
            await response.read()
        old = await presented(gateway)
        issue(folder)
        await gateway.event("tls.reloaded")
        assert await presented(gateway) != old
        async with http.get("/health/live") as response:
            assert response.status == 200


async def test_a_pair_that_does_not_belong_together_changes_nothing_and_says_so(folder: Path) -> None:
    async with https_gateway(folder) as gateway:
        old = await presented(gateway)
        certificate = (folder / "fullchain.pem").read_bytes()
        issue(folder)
        (folder / "fullchain.pem").write_bytes(certificate)  # the key alone is new
        told = await gateway.event("tls.invalid")
        assert "does not belong to the certificate" in told["problem"]
        assert await presented(gateway) == old
        issue(folder)
        await gateway.event("tls.reloaded")
        assert await presented(gateway) != old
