"""Every fault in every setup, at once: one gateway as its users run it, two providers a cell, over real sockets."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.harness.replicas import alone
from benchmarks.harness.report import quantile
from providers.simulator import (
    Delta,
    Done,
    Drop,
    Finish,
    Hang,
    Headers,
    Pause,
    Raw,
    RoleOnly,
    ScriptedProvider,
    Status,
    Step,
    UsageChunk,
    error,
)
from tests.support.behaviour import NEVER_S, Behaviour
from tests.support.faults import (
    FAULTS,
    KNOWN_S,
    LIMIT_S,
    SETUPS,
    WELL,
    WORDS,
    Fault,
    Outcome,
    Setup,
    Verdict,
    judged_in_turn,
)

TEXT = " ".join(f"word{number}" for number in range(1, WORDS + 1))
APART_S = 0.3  # between the beginnings of two cells, so that they do not wait for the processor
WARMING = 4  # calls at a time
MACHINE_S = 0.5  # that it may be late, as it runs ninety providers and their clients


def script(behaviour: Behaviour, begun: str) -> list[Step]:
    """Return a behaviour as the steps of an answer; ``begun`` is what the request begins it with."""
    if behaviour.opens_s >= NEVER_S:
        return [Hang()]
    opened: list[Step] = [Pause(behaviour.opens_s)]
    if behaviour.refusal == "disconnected":
        return [*opened, Drop()]
    if begun and behaviour.habit == "refuses":
        return [*opened, Status(400, error("The last message must not be an assistant's.", kind="invalid_request"))]
    status = 400 if behaviour.refusal == "bad_request" else behaviour.status
    if status is not None:
        wait_s = behaviour.retry_after_s
        headers = {} if wait_s is None else {"retry-after": f"{wait_s:g}"}
        return [*opened, Status(status, error(behaviour.says or "", code=status), headers)]
    words = [f" {word}" for word in TEXT.removeprefix(begun).split()]
    if not begun:
        words[0] = words[0][1:]
    events: list[Step] = [RoleOnly(), *map(Delta, words)]
    if behaviour.lie == "garbage":
        events.insert(1 + WORDS // 2, Raw(b"data: {broken\n\n"))
    ending: list[Step] = [Finish(), UsageChunk(), *([Done()] if behaviour.done else [])]
    if behaviour.breaks_at is not None:
        events, ending = events[: behaviour.breaks_at], [Drop()]
    elif behaviour.stalls_at is not None:
        events, ending = events[: behaviour.stalls_at], [Hang()]
    paced = [step for event in events[1:] for step in (Pause(behaviour.gap_s), event)]
    return [*opened, Headers(), Pause(behaviour.first_s), events[0], *paced, *ending]


class Provider(ScriptedProvider):
    """One of the two providers of a cell."""

    def __init__(self, cell: "Cell") -> None:
        super().__init__()
        self.answers = self._script
        self._cell = cell
        self.since_fault = 0
        self.well_at: list[float] = []  # since the fault began: requests that it answers as it should

    def _script(self, body: Any) -> Sequence[Step]:
        """Return what the fault has it do; the one that is asked first fails."""
        cell, last = self._cell, body["messages"][-1]
        behaviour = cell.behaviour(self)
        refuses = behaviour.status is not None or behaviour.refusal is not None
        if cell.began_s is not None:
            self.since_fault += 1
            if not refuses:
                self.well_at.append(time.monotonic() - cell.began_s)
        return script(behaviour, str(last["content"]) if last["role"] == "assistant" else "")


class Cell:
    """A fault in a setup."""

    def __init__(self, number: int, fault: str, setup: str) -> None:
        self.name = f"cell{number}"
        self.fault_name, self.setup_name = fault, setup
        self.fault: Fault = FAULTS[fault]
        self.setup: Setup = SETUPS[setup]
        self.providers = Provider(self), Provider(self)
        self.first: Provider | None = None  # that was asked first
        self.began_s: float | None = None  # the fault

    def behaviour(self, provider: Provider) -> Behaviour:
        """Return what a provider does with a request that it got now."""
        self.first = self.first or provider
        is_first = provider is self.first
        if self.began_s is None:
            return WELL if is_first else self.fault.other
        found = self.fault.behaviour(provider.since_fault, is_first=is_first)
        if found.recovers_s is not None and time.monotonic() - self.began_s >= found.recovers_s:
            return msgspec.structs.replace(found, status=None, recovers_s=None)
        return found

    async def run(self, http: aiohttp.ClientSession, url: str) -> "Row":
        """Have the fault happen, and return what was seen."""
        known = []
        for _ in range(0, self.fault.known, WARMING):
            known += await asyncio.gather(*[self._call(http, url) for _ in range(WARMING)])
        ttfts_s = [each.ttft_s for each in known if each.ttft_s is not None]
        first_token_s = self.fault.first_token_s
        if first_token_s == KNOWN_S:
            first_token_s = 3 * quantile(ttfts_s, 0.95) + self.fault.other.first_s
        fault = msgspec.structs.replace(self.fault, first_token_s=first_token_s + MACHINE_S)
        self.began_s = time.monotonic()
        outcomes = []
        for number in range(self.fault.calls):
            await asyncio.sleep(self.began_s + number * self.fault.every_s - time.monotonic())
            outcomes.append(await self._call(http, url))
        recovers_s = self.fault.first[-1].recovers_s
        back = [] if self.first is None or recovers_s is None else [at - recovers_s for at in self.first.well_at]
        verdict = judged_in_turn(fault, outcomes, {TEXT}, min((at for at in back if at >= 0), default=None))
        asked = sum(each.since_fault for each in self.providers)
        return Row(self.fault_name, self.setup_name, verdict, tuple(outcomes), asked)

    async def _call(self, http: aiohttp.ClientSession, url: str) -> Outcome:
        before = [each.since_fault for each in self.providers]
        seen = await called(http, url, self.name)
        asked = [each.since_fault - count for each, count in zip(self.providers, before, strict=True)]
        first = asked[self.providers.index(self.first)] if self.first is not None else 0
        return msgspec.structs.replace(seen, asked=sum(asked), asked_first=first)


class Row(msgspec.Struct, frozen=True):
    """What became of a fault in a setup. ``asked``: requests to its providers."""

    fault: str
    setup: str
    verdict: Verdict
    outcomes: tuple[Outcome, ...]
    asked: int


async def called(http: aiohttp.ClientSession, url: str, model: str) -> Outcome:
    """Ask for a streamed answer, and return what came of it within ``LIMIT_S``."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Say sixty words."}]}
    began_s, said_at, text = time.monotonic(), [], ""
    status, finished, done, failed, ended = None, False, False, None, True
    try:
        async with asyncio.timeout(LIMIT_S), http.post(f"{url}/v1/chat/completions", json=body) as response:
            status = response.status
            async for line in response.content:
                data = line.removeprefix(b"data: ").strip()
                done = done or data == b"[DONE]"
                if not data.startswith(b"{"):
                    continue
                chunk = msgspec.json.decode(data)
                if "error" in chunk:
                    failed = chunk["error"]["code"]
                for choice in chunk.get("choices", ()):
                    finished = finished or choice["finish_reason"] is not None
                    if said := choice["delta"].get("content"):
                        text += said
                        said_at.append(time.monotonic())
    except TimeoutError:
        ended = False
    except aiohttp.ClientError as broken:
        failed = type(broken).__name__
    ended_s = time.monotonic()
    pauses = [later - earlier for earlier, later in pairwise([*said_at, ended_s])]
    return Outcome(
        status=status,
        text=text,
        is_whole=finished and done,
        error=failed,
        ttft_s=said_at[0] - began_s if said_at else None,
        end_s=ended_s - began_s if ended else None,
        pause_s=max(pauses, default=0.0),
    )


@asynccontextmanager
async def serving(cells: Sequence[Cell], folder: Path) -> AsyncIterator[str]:
    """Run the providers of all cells and a gateway before them; yield its address."""
    async with AsyncExitStack() as stack:
        providers: dict[str, Any] = {}
        models: dict[str, Any] = {}
        for cell in cells:
            names = [f"{cell.name}-{letter}" for letter in "ab"]
            for name, provider in zip(names, cell.providers, strict=True):
                await stack.enter_async_context(provider)
                providers[name] = {"base_url": provider.base_url, "api_key": f"key-of-{name}"}
            models |= cell.setup.models(cell.name, *names)
        settings: Mapping[str, Any] = {
            "connections": {"max_per_address": 4096},
            "overload": {"loop_delay_ms": 0},  # the machine may be busy with other things
            "providers": providers,
            "models": models,
        }
        gateway = await stack.enter_async_context(alone(folder, settings))
        yield f"http://127.0.0.1:{gateway.port}"


async def all_rows(faults: Sequence[str], setups: Sequence[str], folder: Path) -> list[Row]:
    """Run every fault in every setup, those that take longest first."""
    pairs = [(fault, setup) for fault in faults for setup in setups]
    cells = [Cell(number, *pair) for number, pair in enumerate(pairs)]

    async def run(cell: Cell, after_s: float, url: str) -> Row:
        await asyncio.sleep(after_s)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
            return await cell.run(http, url)

    longest_first = sorted(cells, key=lambda cell: (-cell.fault.calls, -cell.fault.known))
    async with serving(cells, folder) as url:
        runs = [run(cell, APART_S * number, url) for number, cell in enumerate(longest_first)]
        rows = await asyncio.gather(*runs)
    found = {(row.fault, row.setup): row for row in rows}
    return [found[pair] for pair in pairs]
