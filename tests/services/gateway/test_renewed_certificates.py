"""Certificates of the stores that change while the gateway runs: each new connection goes by the files of then."""

import asyncio
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import asyncpg
import pytest
import trustme
from redis.exceptions import ConnectionError as RedisConnectionError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from gateway.ledger import create_engine
from gateway.topology import Nodes, connect
from tests.patience import PATIENCE_S
from tests.services.topology.test_tls import Fronts
from tests.support import servers

FORMER, OURS, CLIENTS = trustme.CA(), trustme.CA(), trustme.CA()


CLIENT = "select client_serial from pg_stat_ssl where pid = pg_backend_pid()"


def write_pair(folder: Path, name: str, authority: trustme.CA) -> dict[str, str]:
    """Write a certificate of ``authority`` and its key; return where they are."""
    issued = authority.issue_cert("127.0.0.1")
    files = {"cert": folder / f"{name}.pem", "key": folder / f"{name}.key"}
    files["cert"].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    files["key"].write_bytes(issued.private_key_pem.bytes())
    files["key"].chmod(0o600)
    return {kind: str(path) for kind, path in files.items()}


@pytest.fixture
def front() -> Iterator[Fronts]:
    """TLS before a Redis, which asks for a client's certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    OURS.issue_cert("127.0.0.1").configure_cert(context)
    CLIENTS.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    made = Fronts(context)
    yield made
    made.close()


async def is_reached(nodes: Nodes) -> bool:
    try:
        return await nodes.run("", [("ECHO", "here")]) == ["here"]
    except (RedisConnectionError, ssl.SSLError):
        return False


async def test_redis_is_reached_with_the_authority_and_the_pair_of_now(front: Fronts, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    FORMER.cert_pem.write_to_path(str(authority))
    pair = write_pair(tmp_path, "client", FORMER)
    with servers.redis_server() as plain:
        query = {"ssl_ca_certs": str(authority), "ssl_certfile": pair["cert"], "ssl_keyfile": pair["key"]}
        port = front.of(int(plain.rpartition(":")[2].partition("/")[0]))
        nodes = connect(f"rediss://127.0.0.1:{port}/0?{urlencode(query)}", PATIENCE_S)
        assert not await is_reached(nodes)
        OURS.cert_pem.write_to_path(str(authority))
        assert not await is_reached(nodes)
        write_pair(tmp_path, "client", CLIENTS)
        assert await is_reached(nodes)
        await nodes.aclose()


@pytest.mark.parametrize("by_environment", [False, True])
async def test_postgres_is_reached_with_the_authority_and_the_pair_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_environment: bool
) -> None:
    with servers.postgres() as url:
        server = await asyncpg.connect(url)
        await asyncio.to_thread(_encrypt, Path(await server.fetchval("show data_directory")))
        for setting in ("ssl = on", "ssl_ca_file = 'clients.pem'"):
            await server.execute(f"alter system set {setting}")
        await server.execute("select pg_reload_conf()")
        authority = tmp_path / "ca.pem"
        FORMER.cert_pem.write_to_path(str(authority))
        pair = write_pair(tmp_path, "client", FORMER)
        tls = {"sslmode": "verify-ca", "sslrootcert": str(authority), "sslcert": pair["cert"], "sslkey": pair["key"]}
        if by_environment:
            monkeypatch.setenv("SSL_CERT_FILE", tls.pop("sslrootcert"))
            tls["sslrootcert"] = "system"
        engine = create_engine(url.replace("localhost", "127.0.0.1") + f"?{urlencode(tls)}")

        async def asked() -> str:
            try:
                async with engine.connect() as connection:
                    rows = await connection.execute(text(CLIENT))
                    return str(rows.scalar())
            except (DBAPIError, OSError) as error:
                return type(error).__name__
            finally:
                await engine.dispose()

        assert await asked() == "SSLCertVerificationError"
        OURS.cert_pem.write_to_path(str(authority))
        assert "rror" in await asked()  # the server refuses the pair
        write_pair(tmp_path, "client", CLIENTS)
        assert (await asked()).isdecimal()
        await server.close()


def _encrypt(data: Path) -> None:
    """Put a certificate into a server's folder, and an authority of its clients."""
    owner = data.stat()
    CLIENTS.cert_pem.write_to_path(str(data / "clients.pem"))
    write_pair(data, "server", OURS)
    (data / "server.pem").rename(data / "server.crt")
    for name in ("clients.pem", "server.crt", "server.key"):
        os.chown(data / name, owner.st_uid, owner.st_gid)
