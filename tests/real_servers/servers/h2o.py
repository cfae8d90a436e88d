"""h2o."""

from typing import ClassVar

from tests.real_servers.servers.server import Server
from tests.real_servers.site import AUTO_TLS, HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS, Site


class H2o(Server):
    name = "h2o"
    package = "Debian: h2o"
    deaf = dict.fromkeys(
        (HTTP1, HTTP1_TLS, AUTO_TLS), "over HTTP/1.1 it does not look at its client while the application is silent"
    )
    cannot: ClassVar[dict[str, str]] = {
        "limit": "it has no limit of requests per connection",
        "reload": "it is reloaded by start_server, a program of its own",
    }

    def configure(self, site: Site) -> list[str]:
        idle_s = site.limits.idle_s or 300
        pem = f"{{certificate-file: {site.certificate}, key-file: {site.certificate}}}"
        listens = "\n".join(
            f"listen: {{host: 127.0.0.1, port: {site.ports[way]}{f', ssl: {pem}' if way.over_tls else ''}}}"
            for way in (HTTP1, HTTP2, HTTP1_TLS, HTTP2_TLS)
        )
        path = site.write(
            "h2o.yaml",
            f"""
num-threads: 1
pid-file: {site.folder}/pid
http1-request-timeout: {idle_s}
http2-idle-timeout: {idle_s}
proxy.timeout.io: 60000
{listens}
hosts:
  default:
    paths:
      "/":
        proxy.reverse.url: "http://127.0.0.1:{site.application_port}/"
""",
        )
        program = self.program()
        assert program is not None
        return [program, "-c", str(path)]
