"""Apache httpd with mod_http2 and mod_proxy, on the event MPM."""

import signal
from pathlib import Path

from tests.real_servers.servers.server import Server, which
from tests.real_servers.site import ALL_WAYS, HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS, Process, Site

_MODULES = ("/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/lib/httpd/modules")
_WANTED = ("mpm_event", "authz_core", "ssl", "http2", "proxy", "proxy_http")
_UNHEARING = "mod_proxy looks at its client only when it has something to say to it"


class Apache(Server):
    name = "apache"
    package = "Debian: apache2-bin"
    cannot_on = dict.fromkeys((("limit", HTTP2), ("limit", HTTP2_TLS)), "over HTTP/2 it has no limit of requests")
    # An answer to a stream that was just reset makes it end the whole session ("not sent FRAME … proto error").
    abandons = (HTTP2, HTTP2_TLS)
    deaf = dict.fromkeys(ALL_WAYS, _UNHEARING)

    def program(self) -> str | None:
        return which("apache2") or which("httpd")

    def configure(self, site: Site) -> list[str]:
        modules = next((path for path in map(Path, _MODULES) if path.is_dir()), Path(_MODULES[0]))
        loads = "\n".join(f"LoadModule {name}_module {modules}/mod_{name}.so" for name in _WANTED)
        path = site.write(
            "apache.conf",
            f"""
ServerRoot {site.folder}
DefaultRuntimeDir {site.folder}
ServerName localhost
PidFile {site.folder}/pid
ErrorLog {site.folder}/error.log
Mutex file:{site.folder}
{loads}
Listen 127.0.0.1:{site.ports[HTTP1]}
Listen 127.0.0.1:{site.ports[HTTP2]}
Listen 127.0.0.1:{site.ports[HTTP1_TLS]} https
Listen 127.0.0.1:{site.ports[HTTP2_TLS]} https
StartServers 2
MinSpareThreads 64
ThreadsPerChild 64
MaxRequestWorkers 512
GracefulShutdownTimeout 10
KeepAlive On
MaxKeepAliveRequests {site.limits.requests or 0}
KeepAliveTimeout {site.limits.idle_s or 300}
Protocols h2 h2c http/1.1
H2MaxWorkers 128
SSLCertificateFile {site.certificate}
<VirtualHost *:{site.ports[HTTP1_TLS]}>
SSLEngine on
</VirtualHost>
<VirtualHost *:{site.ports[HTTP2_TLS]}>
SSLEngine on
</VirtualHost>
ProxyTimeout 60
ProxyPass / http://127.0.0.1:{site.application_port}/ flushpackets=on
<Proxy *>
Require all granted
</Proxy>
""",
        )
        program = self.program()
        assert program is not None
        return [program, "-DFOREGROUND", "-f", str(path)]

    async def reload(self, process: Process, site: Site) -> None:
        process.signal(signal.SIGUSR1)
