"""HAProxy, with a master and its workers."""

import signal
from typing import ClassVar

from tests.real_servers.servers.server import Server
from tests.real_servers.site import HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS, Process, Site


class HAProxy(Server):
    name = "haproxy"
    package = "Debian: haproxy"
    cannot: ClassVar[dict[str, str]] = {"limit": "it has no limit of requests per connection"}

    def configure(self, site: Site) -> list[str]:
        idle_s = site.limits.idle_s or 300
        tls = f"ssl crt {site.certificate} alpn h2,http/1.1"
        path = site.write(
            "haproxy.cfg",
            f"""
global
  stats socket {site.folder}/admin.sock mode 600 level admin expose-fd listeners
defaults
  mode http
  timeout connect 5s
  timeout client {idle_s if site.limits.idle_s else 60}s
  timeout server 60s
  timeout http-keep-alive {idle_s}s
  option abortonclose
frontend front
  bind 127.0.0.1:{site.ports[HTTP1]}
  bind 127.0.0.1:{site.ports[HTTP2]} proto h2
  bind 127.0.0.1:{site.ports[HTTP1_TLS]} {tls}
  bind 127.0.0.1:{site.ports[HTTP2_TLS]} {tls}
  default_backend application
backend application
  server only 127.0.0.1:{site.application_port}
""",
        )
        program = self.program()
        assert program is not None
        return [program, "-W", "-db", "-p", f"{site.folder}/pid", "-f", str(path)]

    async def reload(self, process: Process, site: Site) -> None:
        process.signal(signal.SIGUSR2)
