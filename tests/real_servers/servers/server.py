"""What the suite knows of a kind of server."""

import os
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from tests.real_servers.site import ALL_WAYS, Process, Site
from tests.real_servers.watched import Way


class Server(ABC):
    """A kind of server. ``configure`` writes its files; the rest is what it can and cannot, in words for the table."""

    name: ClassVar[str]
    package: ClassVar[str]  # how to get it
    ways: ClassVar[Sequence[Way]] = ALL_WAYS
    in_our_folder = False  # its program may be unreadable to others, so it runs as whoever runs the suite
    cannot: ClassVar[Mapping[str, str]] = {}  # case → why this server cannot be asked for it
    cannot_on: ClassVar[Mapping[tuple[str, Way], str]] = {}  # likewise, on one way only
    deaf: ClassVar[Mapping[Way, str]] = {}  # ways on which it does not pass on that the client has gone

    abandons: ClassVar[Collection[Way]] = ()  # ways on which it breaks off calls that nobody asked it to

    def why_not(self, case: str, way: Way) -> str | None:
        """Return why it cannot be asked for ``case``, if so."""
        return self.cannot.get(case) or self.cannot_on.get((case, way))

    def program(self) -> str | None:
        """Return its path, None when it is not here."""
        return which(self.name)

    @abstractmethod
    def configure(self, site: Site) -> list[str]:
        """Write the configuration and return the command."""

    def listens_on(self, site: Site) -> set[int]:
        """Return the ports that tell whether it is up."""
        return {site.ports[way] for way in self.ways}

    async def reload(self, process: Process, site: Site) -> None:
        """Let it read its configuration again while it serves."""
        process.signal(signal.SIGHUP)


def which(name: str) -> str | None:
    """Return the path of a program; servers are where not every user's PATH leads."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin{os.pathsep}/usr/local/sbin")
