"""Viewers of a simulated gateway: one that reads, one that comes and goes, one that never reads."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.core.errors import ShuttingDown
from gateway.live import Live, Wanted

if TYPE_CHECKING:
    from tests.schedules.simulation import Evidence

COMES_EVERY_S = 0.37


class Look(Enum):
    """How somebody looks."""

    READS = "reads"
    COMES_AND_GOES = "comes and goes"
    NEVER_READS = "never reads"


class Spectator:
    """Looks from the start of a gateway until its streams are ended. ``events`` are those of its last stream."""

    def __init__(self, live: Live, look: Look) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.streams = 0
        self._live = live
        self._look = look

    async def run(self) -> None:
        with suppress(ShuttingDown):  # it came back while the gateway stopped
            await self._look_again_and_again()

    async def _look_again_and_again(self) -> None:
        loop = asyncio.get_running_loop()
        is_over = False
        while not is_over:
            with self._live.watch(Wanted()) as viewer:
                self.events.clear()
                self.streams += 1
                if self._look is Look.NEVER_READS:
                    ended = asyncio.Event()
                    viewer.on_end(ended.set)
                    await ended.wait()
                    return
                leaves_at = loop.time() + COMES_EVERY_S
                while self._look is Look.READS or loop.time() < leaves_at:
                    events = await viewer.take(COMES_EVERY_S)
                    if events is None:
                        is_over = True
                        break
                    self._keep(events)

    def wrong(self, evidence: "Evidence") -> Iterator[str]:
        """Yield what it was told and is not so, and what it was not told."""
        if not self.streams:
            yield "it never looked"
        if self._live.own is not None or len(self._live.hub) or self._live.viewers:
            yield "something is kept although nobody looks"
        if self._look is Look.READS:
            yield from self._is_all(evidence)

    def _is_all(self, evidence: "Evidence") -> Iterator[str]:
        if self._of("gap"):
            return
        records = {each.id: each for each in evidence.witness.finished}
        done = {each["id"]: each for each in self._of("done")}
        running = (each["id"] for hello in self._of("hello") for each in hello["running"])  # when it began to look
        began = [*running, *(each["id"] for each in self._of("call"))]
        if len(done) != len(self._of("done")) or len(set(began)) != len(began):
            yield "a call began or ended twice"
        for name, end in done.items():
            record = records[name]
            if (end["status"], end["winner"], end["error"]) != (
                record.status_code,
                record.winner_attempt_id,
                record.error_kind,
            ):
                yield f"call {name}: told as {end}"
            if name not in began:
                yield f"call {name} ended and had not begun"
        ended = {each["attempt"]: each for each in self._of("end")}
        launched = [each["attempt"] for each in self._of("launch")]
        if len(ended) != len(self._of("end")) or sorted(launched) != sorted(set(launched)):
            yield "an attempt began or ended twice"
        for attempt in evidence.witness.ended:
            told = ended.get(attempt.id)
            if told is not None and (told["outcome"], told["error"], told["call"]) != (
                attempt.outcome,
                attempt.error_kind,
                attempt.call_id,
            ):
                yield f"attempt {attempt.id}: told as {told}"
        if evidence.scenario.shutdown_s is None:  # else streams end before the last calls do
            if missing := records.keys() - done.keys():
                yield f"calls {sorted(missing)} were not told of"
            if missing := {each.id for each in evidence.witness.ended} - ended.keys():
                yield f"the ends of {sorted(missing)} were not told of"
            firsts = {(each["attempt"], round(each["ttft_ms"], 3)) for each in self._of("first")}
            if firsts != {(name, round(ttft_s * 1000, 3)) for name, ttft_s in evidence.witness.tokens}:
                yield "other first tokens than there were"

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [data for each, data in self.events if each == kind]

    def _keep(self, events: bytes) -> None:
        for block in filter(None, events.decode().split("\n\n")):
            kind, _, data = block.partition("\ndata: ")
            self.events.append((kind.removeprefix("event: "), msgspec.json.decode(data)))
