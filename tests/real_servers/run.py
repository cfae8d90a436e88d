"""Put our HTTP client through real servers: ``make test WHAT=servers SERVERS="nginx node"``.

Every server runs from a generated configuration, on free ports of loopback, in a temporary folder, as ``nobody`` when
root starts it, and in front of one application that counts what becomes of each call. What is not installed is skipped.
"""

import argparse
import asyncio
import itertools
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import trustme
import uvloop

from providers import UpstreamError
from tests.real_servers.application import Application
from tests.real_servers.bench import Bench, FailedError
from tests.real_servers.cases import CASES, Case
from tests.real_servers.servers import wheels
from tests.real_servers.servers.apache import Apache
from tests.real_servers.servers.caddy import Caddy
from tests.real_servers.servers.envoy import Envoy
from tests.real_servers.servers.h2o import H2o
from tests.real_servers.servers.haproxy import HAProxy
from tests.real_servers.servers.hypercorn import Hypercorn
from tests.real_servers.servers.nginx import Nginx
from tests.real_servers.servers.node import Node
from tests.real_servers.servers.proxies import ForwardProxy, Squid, Tinyproxy
from tests.real_servers.servers.server import Server
from tests.real_servers.site import ALL_WAYS, Limits, Process, ServerFailedError, Site, site, unprivileged_user
from tests.real_servers.table import Cell, Table
from tests.real_servers.watched import Watched, Way, WrongAnswerError, open_sockets

SERVERS: Sequence[Server] = (
    *(Nginx(), HAProxy(), Envoy(), Node(), Hypercorn(), Apache(), H2o(), Caddy()),
    *(Tinyproxy(), Squid()),
)
CASE_TIMEOUT_S = 120.0
SEED = 4


def main() -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers", nargs="*", choices=[[], *(server.name for server in SERVERS)], metavar="SERVER")
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES])
    parser.add_argument("--way", action="append", choices=[str(way) for way in ALL_WAYS])
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    wheels.install()
    servers = [server for server in SERVERS if not asked.servers or server.name in asked.servers]
    cases = [case for case in CASES if not asked.case or case.name in asked.case]
    ways = [way for way in ALL_WAYS if not asked.way or str(way) in asked.way]
    table = Table([case.name for case in cases])
    factory = uvloop.new_event_loop if asked.loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_Suite(table, cases, ways, asked.seed).run(servers))
    table.show()
    return 1 if table.failed else 0


class _Suite:
    def __init__(self, table: Table, cases: Sequence[Case], ways: Sequence[Way], seed: int) -> None:
        self._table = table
        self._cases = cases
        self._ways = ways
        self._seed = seed
        self._numbers: Iterator[int] = itertools.count(1)
        self._authority = trustme.CA()
        self._complaints: list[str] = []

    async def run(self, servers: Iterable[Server]) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self._complaints.append(f"{context['message']} {context.get('exception') or ''}")
        )
        async with Application().serving() as application:
            for server in servers:
                if server.program() is None:
                    self._table.leave_out(server.name, f"not installed ({server.package})")
                    continue
                for limits in dict.fromkeys(case.limits for case in self._cases):
                    cases = [case for case in self._cases if case.limits == limits]
                    await self._serve(server, limits, cases, application)

    async def _serve(self, server: Server, limits: Limits, cases: Sequence[Case], application: Application) -> None:
        todo: list[tuple[Case, Way]] = []
        for case, way in itertools.product(cases, self._ways):
            if way not in server.ways or not case.only(way):
                continue
            reason = server.why_not(case.name, way)
            if reason is None:
                todo.append((case, way))
            else:
                self._table.put(server.name, way, case.name, Cell("skip", reason))
        if not todo:
            return
        try:
            async with AsyncExitStack() as stack:
                place = await stack.enter_async_context(site(application.port, self._authority, limits))
                if isinstance(server, ForwardProxy):
                    if server.behind.program() is None:
                        self._table.leave_out(server.name, f"{server.behind.name} is to be behind it, and is not here")
                        return
                    await _start(stack, server.behind, place)
                process = await _start(stack, server, place)
                for case, way in todo:
                    cell = await self._try(case, way, server, place, process, application=application)
                    self._table.put(server.name, way, case.name, cell)
        except ServerFailedError as error:
            self._table.leave_out(server.name, str(error), failed=True)

    async def _try(
        self, case: Case, way: Way, server: Server, place: Site, process: Process, *, application: Application
    ) -> Cell:
        client = Watched(place.ports[way], way, place.trust, place.proxies)
        chance = random.Random(f"{self._seed} {server.name} {way} {case.name}")
        bench = Bench(server, place, process, way, application, client, chance, self._numbers)
        before, first = asyncio.all_tasks(), next(self._numbers)
        self._complaints.clear()
        problem, words = "", ""
        try:
            async with asyncio.timeout(CASE_TIMEOUT_S):
                words = await case.run(bench)
        except (FailedError, UpstreamError, WrongAnswerError, ServerFailedError, TimeoutError) as error:
            problem = f"{type(error).__name__}: {error}"
        except ExceptionGroup as group:
            problem = "; ".join(f"{type(error).__name__}: {error}" for error in group.exceptions)
        problem = problem or await self._leaks(client, application, before, server.listens_on(place))
        await client.aclose()
        if case.ends_process and problem:  # it may have ended in the middle of it
            await process.kill()
            await process.start()
        twice = sum(count > 1 for number, count in application.begun.items() if number > first)
        if twice:  # its connection broke before the answer: the client cannot know that it had arrived
            words += f"; {twice} BEGUN TWICE"
        return Cell("FAIL" if problem else "pass", problem or words, client)

    async def _leaks(
        self, client: Watched, application: Application, before: set[asyncio.Task[Any]], ports: set[int]
    ) -> str:
        """Close ``client`` and return what is left of it, nothing in the best case."""
        if not await client.quiet(application):
            return "the client still has something under way"
        await client.aclose()

        def left() -> tuple[int, int]:
            answering = {task for task in asyncio.all_tasks() if "_Connection" in repr(task.get_coro())}
            return len(asyncio.all_tasks() - before - answering), open_sockets(ports)

        if not await application.until(lambda: left() == (0, 0)):
            tasks, sockets = left()
            return f"left behind: {tasks} tasks, {sockets} sockets"
        return "; ".join(self._complaints)


async def _start(stack: AsyncExitStack, server: Server, place: Site) -> Process:
    command = server.configure(place)
    user = None if server.in_our_folder else unprivileged_user()
    if user is not None:
        place.hand_over(user)
    process = Process(command, place, user, server.listens_on(place))
    stack.push_async_callback(process.stop)
    await process.start()
    return process


if __name__ == "__main__":
    sys.exit(main())
