"""How the requests to a simulated provider ended, as it saw them itself: this proves that losers are cancelled."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from aiohttp import web

Ending = Literal["completions", "errors", "rate_limited"]


class Counts(msgspec.Struct):
    """Running totals of one provider. Every request ends in exactly one of the fields after ``most_in_flight``."""

    requests: int = 0
    in_flight: int = 0
    most_in_flight: int = 0  # the maximum so far
    completions: int = 0  # answered completely
    errors: int = 0  # answered with an error status, or broken off by the provider itself
    rate_limited: int = 0  # answered 429
    disconnects_before_first_token: int = 0  # the client hung up
    disconnects_mid_stream: int = 0

    @property
    def disconnects(self) -> int:
        """How often a client hung up."""
        return self.disconnects_before_first_token + self.disconnects_mid_stream


class Visit:
    """One request that is being answered."""

    def __init__(self) -> None:
        self.first_token_sent = False
        self.ending: Ending = "completions"


class Tally:
    """The counts of one provider while it answers. A test can wait until they reach what it expects."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.requested = asyncio.Event()  # set by the first request
        self.disconnected = asyncio.Event()  # set by the first client to hang up
        self._pulse = asyncio.Event()
        self._answering: set[asyncio.Task[object]] = set()
        self._closing = False

    async def answer(self, give: Callable[[Visit], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        """Run an answer and count it: as the visit's ``ending``, or as a disconnect.

        When the client hangs up, the server cancels this, or the next write fails.
        """
        task = asyncio.current_task()
        assert task is not None, "requests are answered in tasks"
        self._answering.add(task)
        visit = Visit()
        self._add("requests", "in_flight")
        self.counts.most_in_flight = max(self.counts.most_in_flight, self.counts.in_flight)
        self.requested.set()
        try:
            response = await give(visit)
        except asyncio.CancelledError:
            if not self._closing:
                self._count_disconnect(visit)
            raise
        except ConnectionError:
            self._count_disconnect(visit)
            return web.Response()  # cannot be delivered
        else:
            self._add(visit.ending)
            return response
        finally:
            self._answering.discard(task)
            self.counts.in_flight -= 1

    async def reach(self, **at_least: int) -> None:
        """Wait until every named count (also ``disconnects``) is at least the given number."""
        while any(getattr(self.counts, name) < least for name, least in at_least.items()):
            await self._pulse.wait()

    async def close(self) -> None:
        """Cancel all running answers, and wait for their end; they are not counted as disconnects."""
        self._closing = True
        for task in self._answering:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)

    def _count_disconnect(self, visit: Visit) -> None:
        self._add("disconnects_mid_stream" if visit.first_token_sent else "disconnects_before_first_token")
        self.disconnected.set()

    def _add(self, *names: str) -> None:
        for name in names:
            setattr(self.counts, name, getattr(self.counts, name) + 1)
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()
