"""node's http, https and http2 modules, in a small reverse proxy (node.js, beside this file)."""

import json
from pathlib import Path
from typing import ClassVar

from tests.real_servers.servers.server import Server
from tests.real_servers.site import HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS, Site

_SOURCE = Path(__file__).with_name("node.js")


class Node(Server):
    name = "node"
    package = "Debian: nodejs"
    cannot: ClassVar[dict[str, str]] = {"reload": "it has no graceful reload"}

    def configure(self, site: Site) -> list[str]:
        settings = {
            "certificate": str(site.certificate),
            "application": site.application_port,
            "requests": site.limits.requests,
            "idle": site.limits.idle_s,
            "http1": site.ports[HTTP1],
            "http1Tls": site.ports[HTTP1_TLS],
            "http2": site.ports[HTTP2],
            "http2Tls": site.ports[HTTP2_TLS],
        }
        path = site.write("settings.json", json.dumps(settings))
        program = self.program()
        assert program is not None
        source = site.write("node.js", _SOURCE.read_text())  # whom it runs as may not read ours
        return [program, str(source), str(path)]
