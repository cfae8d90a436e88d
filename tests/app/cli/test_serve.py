"""``holeshot serve`` where it cannot start: each cause has a sentence of its own, and none a traceback."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from gateway.server.listener import bind
from tests.app.gateway.running_gateway import configuration, write
from tests.patience import PATIENCE_S
from tests.support import warm
from tests.support.ledgers import lay, migrated


async def refused(
    folder: Path, *, descriptors: int | None = None, environ: Mapping[str, str] | None = None, **settings: Any
) -> tuple[int, str]:
    """Start a gateway that cannot; return its exit code and what it said."""
    path = write(configuration(folder, {"alpha": "http://127.0.0.1:9/v1"}, **settings), folder)
    lay(migrated(), folder / "holeshot.db")  # migrating one takes as long as all the rest
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLESHOT_")}
    # A fork of the warm parent has its limits.
    by = (sys.executable, "-P", "-m", "gateway.cli") if descriptors is not None else warm.holeshot()
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'ulimit -n {descriptors or 4096}; exec "$@"', "sh", *by, "serve", "--config", str(path)),
        env={**clean, **(environ or {})},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        _, stderr = await process.communicate()
    assert process.returncode is not None
    said = stderr.decode()
    assert "Traceback" not in said
    return process.returncode, said


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        code, said = await refused(tmp_path, port=port)
    assert code == 1
    assert f"port {port} on 127.0.0.1 is already in use" in said


async def test_a_spool_that_cannot_be_written(tmp_path: Path) -> None:
    code, said = await refused(tmp_path, spool_dir="/dev/null/spool")
    assert code == 1
    assert "spool" in said
    assert "--port" not in said


async def test_a_folder_for_the_database_that_cannot_be_made(tmp_path: Path) -> None:
    code, said = await refused(tmp_path, database_url="sqlite:////dev/null/folder/holeshot.db")
    assert code == 1
    assert "/dev/null/folder" in said
    assert "--port" not in said


async def test_too_few_descriptors(tmp_path: Path) -> None:
    code, said = await refused(tmp_path, descriptors=10)
    assert code == 1
    assert "ulimit -n" in said
    assert "--port" not in said


@pytest.mark.parametrize("what", ["certificate", "key"])
async def test_a_certificate_or_a_key_that_is_missing(tmp_path: Path, what: str) -> None:
    issued = trustme.CA().issue_cert("localhost")
    files = {"certificate": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}
    issued.cert_chain_pems[0].write_to_path(str(files["certificate"]))
    issued.private_key_pem.write_to_path(str(files["key"]))
    files[what].unlink()
    code, said = await refused(tmp_path, tls={name: str(path) for name, path in files.items()})
    assert code == 2  # as every configuration that cannot be used
    assert f"tls.{what}: there is no file {files[what]}" in said
    assert "--port" not in said


async def test_what_no_proxy_has_that_is_not_understood_is_named_at_the_start(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        environ = {"http_proxy": "http://127.0.0.1:9", "no_proxy": "10.0.0.0/8,10.1.*,*.example"}
        _, said = await refused(tmp_path, port=taken.getsockname()[1], environ=environ)
    assert "configuration.no_proxy_not_understood" in said
    assert "10.1.*" in said
    assert "10.0.0.0/8" not in said
    assert "*.example" not in said


async def test_a_proxy_of_a_kind_that_is_not_supported(tmp_path: Path) -> None:
    code, said = await refused(tmp_path, environ={"http_proxy": "socks5://127.0.0.1:9", "no_proxy": ""})
    assert code == 2  # as every configuration that cannot be used: a supervisor need not try again
    assert "HTTP_PROXY must be http://host:port or https://host:port" in said
