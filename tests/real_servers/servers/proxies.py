"""Forward proxies: tinyproxy and Squid. For http:// they ask the application itself; https:// is CONNECT to nginx."""

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from tests.real_servers.servers.nginx import Nginx
from tests.real_servers.servers.server import Server, which
from tests.real_servers.site import AUTO_TLS, HTTP1, HTTP1_TLS, HTTP2_TLS, Site
from tests.real_servers.watched import Way
from tests.support.servers import free_port


class ForwardProxy(Server):
    """A proxy that the client is told of by its environment, with nginx behind it where TLS is spoken."""

    ways = (HTTP1, HTTP1_TLS, HTTP2_TLS, AUTO_TLS)
    cannot: ClassVar[dict[str, str]] = dict.fromkeys(("limit", "idle", "reload"), "nginx behind it has shown that")
    behind: ClassVar[Server] = Nginx()
    user = ""  # name:password, where the proxy asks for them

    def __init__(self) -> None:
        self.port = 0

    def configure(self, site: Site) -> list[str]:
        self.port = free_port()
        site.ports[HTTP1] = site.application_port
        url = f"http://{self.user}{'@' if self.user else ''}127.0.0.1:{self.port}"
        site.proxies = {"HTTP_PROXY": url, "HTTPS_PROXY": url}
        return self.configure_proxy(site)

    @abstractmethod
    def configure_proxy(self, site: Site) -> list[str]:
        """Write the configuration of the proxy itself, and return its command."""

    def listens_on(self, site: Site) -> set[int]:
        return {self.port}


class Tinyproxy(ForwardProxy):
    """It asks for a password."""

    name = "tinyproxy"
    package = "Debian: tinyproxy-bin"
    user = "someone:secret"
    deaf: ClassVar[dict[Way, str]] = {HTTP1: "it does not look at its client while the application is silent"}

    def configure_proxy(self, site: Site) -> list[str]:
        name, _, password = self.user.partition(":")
        path = site.write(
            "tinyproxy.conf",
            f"""
Port {self.port}
Listen 127.0.0.1
Timeout 600
MaxClients 400
LogFile "{site.folder}/error.log"
LogLevel Warning
PidFile "{site.folder}/tinyproxy.pid"
BasicAuth {name} {password}
ConnectPort {site.ports[HTTP1_TLS]}
ConnectPort {site.ports[HTTP2_TLS]}
""",
        )
        program = self.program()
        assert program is not None
        return [program, "-d", "-c", str(path)]


class Squid(ForwardProxy):
    name = "squid"
    package = "Debian: squid"

    def configure_proxy(self, site: Site) -> list[str]:
        site.write("mime.conf", "")
        site.folders("errors")
        program = self.program()
        assert program is not None
        errors = next((path for path in Path(program).parents[1].glob("share/squid/errors/templates")), site.folder)
        path = site.write(
            "squid.conf",
            f"""
http_port 127.0.0.1:{self.port}
http_access allow all
cache deny all
access_log none
cache_log {site.folder}/error.log
pid_filename {site.folder}/squid.pid
coredump_dir {site.folder}
mime_table {site.folder}/mime.conf
icon_directory {site.folder}
error_directory {errors}
pinger_enable off
unlinkd_program {which("true")}
shutdown_lifetime 0 seconds
netdb_filename none
max_filedescriptors 4096
""",
        )
        return [program, "-N", "-f", str(path)]
