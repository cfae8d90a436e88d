"""What other settings would have done, for the page: replayed in a child process, and kept for minutes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from gateway import children
from gateway.ledger.reports.kept import Kept
from gateway.reports import RETRY_S, ReplayWanted, ReportsUnreachable, ReportTooSlow

KEPT_S = 300.0  # a week's figures hardly change in this time, and are dear
KEPT_TIMES = 10.0  # as long as it took, if that is less: a young ledger's change soon, and take a second or two
TIMEOUT_S = 60.0
TURN_S = 8.0  # one runs at a time; who waits longer is told to ask again
MOST_CALLS = 20_000  # read of a model: enough for the tail, and some seconds of one processor
_CHILD = "gateway.cli.replaying"
_AWAY = "the ledger cannot be read, so nothing can be replayed now; the gateway's log says why"


class Replays:
    """Answers replays. A child does the work, at low priority: it holds up no call, however long it takes."""

    def __init__(self, url: str, *, clock: Callable[[], float], kept_s: float = KEPT_S, turn_s: float = TURN_S) -> None:
        """``url``: of the ledger. ``turn_s``: how long one waits for those before it."""
        self._turn_s = turn_s
        self._url = url
        self._kept = Kept(clock=clock, kept_s=kept_s, times=KEPT_TIMES)
        self._turn = asyncio.Semaphore(1)
        self._log = structlog.get_logger()

    async def get(self, wanted: ReplayWanted) -> msgspec.Raw:
        """Return the answer as JSON.

        Raises:
            ReportsUnreachable: the ledger cannot be read.
            ReportTooSlow: it took too long, and was stopped.

        """
        return await self._kept.get(wanted, lambda: self._ask(wanted))

    async def aclose(self) -> None:
        """Stop what runs."""
        await self._kept.aclose()

    async def _ask(self, wanted: ReplayWanted) -> msgspec.Raw:
        request = {
            "url": self._url,
            "window": wanted.window.value,
            "window_s": wanted.window.length.total_seconds(),
            "model": wanted.model,
            "without": wanted.without,
            "budgets": wanted.budgets,
            "most": MOST_CALLS,
            "busiest": True,
        }
        try:
            async with asyncio.timeout(self._turn_s):
                await self._turn.acquire()
        except TimeoutError as error:
            raise ReportTooSlow(
                f"other replays have run for {self._turn_s:g} s: ask again soon", headers={"retry-after": str(RETRY_S)}
            ) from error
        try:
            written = await self._run(msgspec.json.encode(request))
        finally:
            self._turn.release()
        answer: dict[str, Any] = msgspec.json.decode(written, type=dict[str, msgspec.Raw])
        if "unreachable" in answer:
            self._log.warning("report.failed", cause=msgspec.json.decode(answer["unreachable"]))
            raise ReportsUnreachable(_AWAY, headers={"retry-after": str(RETRY_S)})
        return msgspec.Raw(written)

    async def _run(self, request: bytes) -> bytes:
        child = await asyncio.create_subprocess_exec(
            *children.command(_CHILD),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=children.environment(),
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                written, complaint = await child.communicate(request)
        except TimeoutError as error:
            self._log.warning("report.too_slow", limit_s=TIMEOUT_S, sql=None)
            raise ReportTooSlow(f"the replay took longer than {TIMEOUT_S:g} s: ask for a shorter window") from error
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        if child.returncode or not written:
            self._log.error(
                "report.child_failed", code=child.returncode, said=complaint[-2000:].decode(errors="replace")
            )
            raise ReportsUnreachable(_AWAY, headers={"retry-after": str(RETRY_S)})
        return written
