"""What a peer is to the comparison: a title, and a way to run it in front of the mock upstream."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarks.harness import gateways, servers
from benchmarks.harness.gateways import MeasuredServers
from benchmarks.harness.installing import UnavailableError
from benchmarks.harness.load import Question
from benchmarks.harness.servers import Server

BEHAVIOURS = ("burst", "paced", "crowd")  # the providers a peer is configured with
PROVIDER_KEY = "sk-mock-0123456789abcdef"


class Route(msgspec.Struct, frozen=True):
    """How a peer is asked for one behaviour of the mock."""

    path: str
    model: str
    headers: Mapping[str, str] = {}
    launched: int | None = None


class Asked(msgspec.Struct, frozen=True):
    """A peer that runs, and how it is asked for each behaviour."""

    server: Server
    routes: Mapping[str, Route]

    def question(self, behaviour: str, *, streamed: bool) -> Question:
        """Return what the load generator is to ask."""
        route = self.routes[behaviour]
        return Question(
            port=self.server.port,
            path=route.path,
            model=route.model,
            headers={**self.server.headers, **route.headers},
            launched=route.launched,
            streamed=streamed,
        )


class Start(Protocol):
    """Installs a peer if need be, and runs it until the block ends."""

    def __call__(self, measured: MeasuredServers, folder: Path) -> AbstractContextManager[Asked]: ...


class Peer(msgspec.Struct, frozen=True):
    """A row of the table."""

    title: str
    start: Start


def plain(name: str) -> Peer:
    """Return a measured proxy that knows nothing of models."""

    @contextmanager
    def start(measured: MeasuredServers, folder: Path) -> Iterator[Asked]:
        del folder
        routes = {behaviour: Route(f"/{behaviour}{gateways.PATH}", "benchmark-model") for behaviour in BEHAVIOURS}
        yield Asked(measured[name], routes)

    return Peer(name, start)


def holeshot(title: str, name: str, suffix: str) -> Peer:
    """Return the gateway of that name, asked for the models with that suffix."""

    @contextmanager
    def start(measured: MeasuredServers, folder: Path) -> Iterator[Asked]:
        del folder
        models = {behaviour: f"{behaviour}-{suffix}" for behaviour in BEHAVIOURS}
        yield Asked(
            measured[name],
            {
                behaviour: Route(gateways.PATH, model, launched=len(gateways.RACES[model]))
                for behaviour, model in models.items()
            },
        )

    return Peer(title, start)


@contextmanager
def serving(
    name: str, command: Callable[[int], list[str]], environment: Mapping[str, str], log: Path, limit_s: float
) -> Iterator[Server]:
    """Run a peer's server on a free port, what it says going to ``log``, until the block ends.

    Raises:
        UnavailableError: it does not start; with its last words.

    """
    port = servers.free_port()
    with log.open("wb") as output, servers.running(command(port), environment, output) as process:
        try:
            servers.wait_until_listening(process, port, limit_s)
        except RuntimeError as error:
            words = log.read_text(errors="replace").strip().splitlines()
            raise UnavailableError(f"does not start: {words[-1] if words else error}") from error
        yield Server(name, process.pid, port)
