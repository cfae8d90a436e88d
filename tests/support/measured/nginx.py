"""nginx, one worker process, in front of the mock upstream: the baseline, and the origin that speaks TLS and HTTP/2."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import trustme

from tests.support.measured.servers import FILES, Server, fetch, running, wait_until_listening
from tests.support.servers import free_port

_MAIN = """
{user}
worker_processes 1;
worker_rlimit_nofile {files};
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections {files}; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 64m;
  client_body_buffer_size 1m;
  upstream mock {{
    server 127.0.0.1:{upstream_port};
    keepalive 4096;
    keepalive_requests 1000000;
  }}
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  proxy_buffering off;
  proxy_read_timeout 600s;
{servers}}}
"""
_BASELINE = """
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    keepalive_requests 1000000;
    location / {{ proxy_pass http://mock; }}
  }}
"""
# Requests per connection, streams per connection and windows are nginx's own defaults: what an origin in the wild has.
_ORIGIN = """
  server {{
    listen 127.0.0.1:{port} ssl http2 backlog=4096;
    ssl_certificate {folder}/chain.pem;
    ssl_certificate_key {folder}/key.pem;
    location / {{ proxy_pass http://mock; }}
  }}
  server {{
    listen 127.0.0.1:{status_port};
    keepalive_timeout 0;
    location / {{ stub_status; }}
  }}
"""


class Missing(Exception):
    """Something that a measurement needs is not on this machine; the message names it."""


class Origin(msgspec.Struct, frozen=True):
    """The TLS origin. ``authority`` is the file of the authority that vouches for it."""

    server: Server
    status_port: int
    authority: Path

    def connections(self) -> int:
        """Return how many connections it accepted so far; looking is one of them."""
        return int(fetch(self.status_port, "/").split()[7])  # the first number after "server accepts handled …"


@contextmanager
def baseline(upstream_port: int, folder: Path) -> Iterator[Server]:
    """Run nginx as a plain proxy.

    Raises:
        Missing: there is none.

    """
    port = free_port()
    with _running("nginx", folder, upstream_port, port, _BASELINE.format(port=port)) as server:
        yield server


@contextmanager
def origin(upstream_port: int, folder: Path) -> Iterator[Origin]:
    """Run nginx as a provider: TLS 1.3, HTTP/1.1 and HTTP/2 by ALPN, in front of the mock.

    Raises:
        Missing: there is no nginx.

    """
    _binary()  # before anything is made in vain
    folder.mkdir(parents=True)
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for part in certificate.cert_chain_pems:
        part.write_to_path(folder / "chain.pem", append=True)
    port, status_port = free_port(), free_port()
    servers = _ORIGIN.format(folder=folder, port=port, status_port=status_port)
    with _running("origin", folder, upstream_port, port, servers) as server:
        yield Origin(server, status_port, folder / "authority.pem")


@contextmanager
def _running(name: str, folder: Path, upstream_port: int, port: int, servers: str) -> Iterator[Server]:
    binary = _binary()
    folder.mkdir(parents=True, exist_ok=True)
    configuration = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""  # the folder is ours alone
    configuration.write_text(
        _MAIN.format(user=user, files=FILES, folder=folder, upstream_port=upstream_port, servers=servers)
    )
    command = [binary, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(configuration)]
    with running(command) as process:
        wait_until_listening(process, port)
        yield Server(name, process.pid, port)


def _binary() -> str:
    """Return where nginx is.

    Raises:
        Missing: nowhere.

    """
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Missing("nginx")
    return found
