"""nginx, as a reverse proxy with buffering off."""

from tests.real_servers.servers.server import Server
from tests.real_servers.site import HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS, Site

_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


class Nginx(Server):
    name = "nginx"
    package = "Debian: nginx-light"

    def configure(self, site: Site) -> list[str]:
        temporary = " ".join(f"{name}_temp_path {site.folder}/{name};" for name in _TEMPORARY)
        site.write(
            "nginx.conf",
            f"""
            daemon off; worker_processes 1; pid {site.folder}/pid; error_log {site.folder}/error.log;
            events {{ worker_connections 1024; }}
            http {{
              access_log off; {temporary}
              client_max_body_size 50m; client_body_buffer_size 1m;
              keepalive_requests {site.limits.requests or 100_000};
              keepalive_timeout {site.limits.idle_s or 300}s;
              ssl_certificate {site.certificate}; ssl_certificate_key {site.certificate};
              upstream application {{ server 127.0.0.1:{site.application_port}; keepalive 64; }}
              server {{
                listen 127.0.0.1:{site.ports[HTTP1]};
                listen 127.0.0.1:{site.ports[HTTP2]} http2;
                listen 127.0.0.1:{site.ports[HTTP1_TLS]} ssl http2;
                listen 127.0.0.1:{site.ports[HTTP2_TLS]} ssl http2;
                location / {{
                  proxy_pass http://application;
                  proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
                }}
              }}
            }}
            """,
        )
        program = self.program()
        assert program is not None
        error_log = f"{site.folder}/error.log"
        return [program, "-p", str(site.folder), "-c", f"{site.folder}/nginx.conf", "-e", error_log]
