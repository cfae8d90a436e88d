"""Caddy: Go's own HTTP/1.1 and HTTP/2 servers.

Without ``flush_interval -1``, which some set for event streams: with it Caddy 2.6 tells nobody that a client has gone.
"""

import asyncio
from typing import ClassVar

from tests.real_servers.servers.server import Server
from tests.real_servers.site import HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS, Process, Site
from tests.real_servers.watched import Way


class Caddy(Server):
    name = "caddy"
    package = "Debian: caddy"
    cannot_on: ClassVar[dict[tuple[str, Way], str]] = {("reload", HTTP2): "its h2c connections outlive a reload"}
    cannot: ClassVar[dict[str, str]] = {"limit": "it has no limit of requests per connection"}

    def configure(self, site: Site) -> list[str]:
        proxy = f"reverse_proxy 127.0.0.1:{site.application_port}"
        plain = ", ".join(f"http://localhost:{site.ports[way]}" for way in (HTTP1, HTTP2))
        tls = ", ".join(f"https://localhost:{site.ports[way]}" for way in (HTTP1_TLS, HTTP2_TLS))
        path = site.write(
            "Caddyfile",
            f"""{{
 admin unix/{site.folder}/admin.sock
 auto_https off
 skip_install_trust
 storage file_system {site.folder}/storage
 servers {{
  protocols h1 h2 h2c
  timeouts {{
   idle {site.limits.idle_s or 300}s
  }}
 }}
}}
{plain} {{
 {proxy}
}}
{tls} {{
 tls {site.certificate} {site.certificate}
 {proxy}
}}
""",
        )
        program = self.program()
        assert program is not None
        home = f"HOME={site.folder}"
        return ["/usr/bin/env", home, program, "run", "--adapter", "caddyfile", "--config", str(path)]

    async def reload(self, process: Process, site: Site) -> None:
        del process
        program = self.program()
        assert program is not None
        reloading = await asyncio.create_subprocess_exec(
            *(program, "reload", "--force", "--adapter", "caddyfile", "--config", f"{site.folder}/Caddyfile"),
            *("--address", f"unix/{site.folder}/admin.sock"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, words = await reloading.communicate()
        assert reloading.returncode == 0, words.decode(errors="replace")[-500:]
