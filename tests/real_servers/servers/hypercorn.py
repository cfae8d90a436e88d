"""hypercorn, whose HTTP/2 is the h2 package's, serving an ASGI application that passes everything on (asgi.py)."""

from pathlib import Path
from typing import ClassVar

from tests.real_servers.servers import wheels
from tests.real_servers.servers.server import Server
from tests.real_servers.site import HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS, Site

_SOURCE = Path(__file__).with_name("asgi.py")


class Hypercorn(Server):
    name = "hypercorn"
    package = "PyPI: hypercorn"
    in_our_folder = True
    cannot_on = dict.fromkeys(
        (("limit", HTTP2), ("limit", HTTP2_TLS)),
        "after its GOAWAY it never answers what it had accepted (python-hyper/h2 #1181)",
    )
    cannot: ClassVar[dict[str, str]] = {"reload": "it has no graceful reload"}

    def program(self) -> str | None:
        return wheels.program("hypercorn")

    def configure(self, site: Site) -> list[str]:
        site.write("asgi.py", _SOURCE.read_text())
        path = site.write(
            "hypercorn.toml",
            f"""
bind = ["127.0.0.1:{site.ports[HTTP1_TLS]}", "127.0.0.1:{site.ports[HTTP2_TLS]}"]
insecure_bind = ["127.0.0.1:{site.ports[HTTP1]}", "127.0.0.1:{site.ports[HTTP2]}"]
certfile = "{site.certificate}"
keyfile = "{site.certificate}"
workers = 0
keep_alive_timeout = {site.limits.idle_s or 300}
keep_alive_max_requests = {site.limits.requests or 100_000}
""",
        )
        program = self.program()
        assert program is not None
        port = f"APPLICATION_PORT={site.application_port}"
        return ["/usr/bin/env", port, program, "--config", str(path), "asgi:application"]
