"""Callers listen to answers of two providers that are late, dribble, crawl and reset: when does the voice begin?

    python -m benchmarks.voice [--calls 300] [--seed 1] [--setups voice] [--json]

One gateway in its own process, two scripted providers for each cell, real sockets. A first token takes 0.55 s in the
median (lognormal, sigma 0.3), a word 25 ms, an answer has five sentences. Of the requests to each provider, by itself,
4 % begin after 5 to 10 s, 3 % take 3.7 to 8.9 s for their first five words, 2 % have 0.6 words a second from somewhere
in their first twenty on, 1 % are reset. Six callers of each cell wait a little between their calls. It takes five
minutes. Each setup is tried at servers that continue a text, and at such that refuse to; `profile: voice` also at
such that refuse to and both say the same, as hosts of one model may.

  first clause  when the voice can begin: p99 with `profile: voice` at most 2.5 s
  silence       the longest pause of the voice after that, until an answer that is not whole has ended. p99 with
                `profile: voice` at most 1 s where a text can be continued
  requests      that the providers got, for each call: as many as the ledger has attempts, else it fails
  cut           answers that are not whole, and those of them that end within a sentence
  wrong         answers with a word twice, or of two texts: none

It exits with 1 when a bar is missed.
"""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.replicas import alone
from benchmarks.harness.report import Grid, bad, quantile
from benchmarks.voice.callers import Caller, Heard, Provider

CALLS, BESIDE = 300, 6
NAMES = ("ann", "bob")
MOST_CLAUSE_S, MOST_SILENCE_S, SILENT_S = 2.5, 1.0, 1.0
BY_HAND = {
    "race": {"profile": "voice", "win_on": "sentence", "sentence_words": 12, "ttft_ms": 500},
    "timeouts": {"ttft_timeout_s": 4, "stall_timeout_s": 4},
    "takeover": {"when": "always", "slow": True},
}


class Setup(msgspec.Struct, frozen=True):
    """How a model is configured, and which headers its calls have."""

    model: Mapping[str, Any]
    headers: Mapping[str, str] = {}
    has_bars: bool = False


SETUPS: Mapping[str, Setup] = {
    "single": Setup({"race": {"mode": "single"}}),
    "voice": Setup({"race": {"profile": "voice"}}, has_bars=True),
    "voice by a header": Setup({}, {"x-holeshot-race": "voice"}),
    "voice, budget 0.3": Setup({"race": {"profile": "voice", "budget": 0.3}}),
    "all by hand": Setup(BY_HAND),
}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one cell: seconds, and requests a call."""

    setup: str
    continues: bool
    alike: bool
    calls: int
    clause_p50_s: float
    clause_p95_s: float
    clause_p99_s: float
    silent_share: float
    silence_p99_s: float
    requests: float
    in_ledger: float
    cut_short: int
    cut_within: int
    unanswered: int
    untold: int
    wrong: int

    @property
    def missed(self) -> Sequence[str]:
        """The bars that are missed."""
        named = f"{self.setup}, {'continued' if self.continues else 'not continued'}"
        has_bars, found = SETUPS[self.setup].has_bars, []
        if has_bars and self.clause_p99_s > MOST_CLAUSE_S:
            found.append(f"{named}: first clause p99 {self.clause_p99_s:.1f} s")
        if has_bars and self.continues and self.silence_p99_s > MOST_SILENCE_S:
            found.append(f"{named}: silence p99 {self.silence_p99_s:.1f} s")
        if self.untold or self.wrong:
            found.append(f"{named}: {self.untold} not told, {self.wrong} wrong")
        if round(self.requests * self.calls) != round(self.in_ledger * self.calls):
            found.append(f"{named}: {self.requests:.3f} requests, {self.in_ledger:.3f} in the ledger")
        return found


def row(setup: str, heard: Sequence[Heard], *, continues: bool, asked: int, in_ledger: int, alike: bool = False) -> Row:
    """Return the figures of a cell; a call without a clause counts as the longest."""
    clauses = [float("inf") if each.clause_s is None else each.clause_s for each in heard]
    silences, calls = [each.silence_s for each in heard], len(heard)
    return Row(
        setup=setup,
        continues=continues,
        alike=alike,
        calls=calls,
        clause_p50_s=quantile(clauses, 0.5),
        clause_p95_s=quantile(clauses, 0.95),
        clause_p99_s=quantile(clauses, 0.99),
        silent_share=sum(each > SILENT_S for each in silences) / calls,
        silence_p99_s=quantile(silences, 0.99),
        requests=asked / calls,
        in_ledger=in_ledger / calls,
        cut_short=sum(not each.is_whole and each.clause_s is not None for each in heard),
        cut_within=sum(each.is_within for each in heard),
        unanswered=sum(each.clause_s is None for each in heard),
        untold=sum(not each.is_whole and not each.is_told for each in heard),
        wrong=sum(each.is_wrong for each in heard),
    )


class Cell:
    """A setup at two providers of its own."""

    def __init__(self, number: int, setup: str, *, continues: bool, alike: bool, seed: str) -> None:
        self.name, self.setup, self.continues, self.alike = f"cell{number}", setup, continues, alike
        says_as = NAMES[0] if alike else None
        self.providers = {
            name: Provider(name, NAMES, continues=continues, seed=f"{seed}{name} {continues}", says_as=says_as)
            for name in NAMES
        }

    def model(self) -> Mapping[str, Any]:
        """Return its model's settings."""
        way = "prefix" if self.continues else "no"
        deployments = [{"deployment": f"{self.name}-{name}/m", "continues": way} for name in NAMES]
        return {"deployments": deployments, **SETUPS[self.setup].model}


async def all_rows(names: Sequence[str], calls: int, folder: Path, seed: str = "") -> list[Row]:
    """Run every setup at both kinds of servers, all beside each other. ``seed``: of the providers' draws."""
    kinds = [(name, *kind) for name in names for kind in ((True, False), (False, False), (False, True))]
    cells = [
        Cell(number, name, continues=continues, alike=alike, seed=seed)
        for number, (name, continues, alike) in enumerate(kinds)
        if SETUPS[name].has_bars or not alike
    ]
    async with AsyncExitStack() as stack:
        urls = {}
        for cell in cells:
            for name, provider in cell.providers.items():
                await stack.enter_async_context(provider)
                urls[f"{cell.name}-{name}"] = provider.base_url
        settings: Mapping[str, Any] = {
            "connections": {"max_per_address": 4096},
            "overload": {"loop_delay_ms": 0},  # the machine may be busy with other things
            "providers": {name: {"base_url": url, "api_key": f"key-of-{name}"} for name, url in urls.items()},
            "models": {cell.name: cell.model() for cell in cells},
        }
        async with alone(folder, settings) as gateway, aiohttp.ClientSession(timeout=_UNLIMITED) as http:
            url = f"http://127.0.0.1:{gateway.port}"
            callers = [Caller(url, cell.name, NAMES, SETUPS[cell.setup].headers) for cell in cells]
            runs = [each.run(http, calls, BESIDE, cell.name) for each, cell in zip(callers, cells, strict=True)]
            found = await asyncio.gather(*runs)
    # The gateway has ended, so that all its rows are in SQL.
    with closing(sqlite3.connect(folder / "ledger.db")) as ledger:
        sums = "select model, sum(sends) from attempts group by model"
        stored: Mapping[str, int] = dict(ledger.execute(sums).fetchall())
    return [
        row(
            cell.setup,
            heard,
            continues=cell.continues,
            alike=cell.alike,
            asked=sum(each.asked for each in cell.providers.values()),
            in_ledger=stored.get(cell.name, 0),
        )
        for cell, heard in zip(cells, found, strict=True)
    ]


_UNLIMITED = aiohttp.ClientTimeout(total=None)


def _cells(row: Row) -> Sequence[str]:
    return (
        row.setup,
        "continue" if row.continues else "say the same" if row.alike else "do not",
        f"{row.clause_p50_s:.2f}",
        f"{row.clause_p95_s:.2f}",
        bad(f"{row.clause_p99_s:.2f}", any("clause" in each for each in row.missed)),
        f"{row.silent_share:.1%}",
        bad(f"{row.silence_p99_s:.2f}", any("silence" in each for each in row.missed)),
        f"{row.requests:.2f}",
        str(row.cut_short),
        str(row.cut_within),
        str(row.unanswered),
    )


def told(run: Run) -> Told:
    named = [name for name in SETUPS if not run.options.setups or name in run.options.setups]
    rows = asyncio.run(all_rows(named, run.options.calls, run.folder, run.options.seed))
    columns = (
        "setup",
        "servers",
        "p50 s",
        "p95 s",
        "p99 s",
        "silent > 1 s",
        "p99 s",
        "requests",
        "cut",
        "within",
        "unanswered",
    )
    caption = "First clause: p50, p95, p99. Silence after it: share of calls over 1 s, p99. Cut: within a sentence."
    grid = Grid("The voice begins, and falls silent", columns, [_cells(row) for row in rows], words=2, caption=caption)
    return Told(facts=rows, grids=[grid], missed=[each for row in rows for each in row.missed])


def main() -> None:
    parser = command("voice", __doc__)
    parser.add_argument("--calls", type=int, default=CALLS, help="of each cell")
    parser.add_argument("--seed", default="", help="other draws of the providers")
    parser.add_argument("--setups", nargs="+", default=[], choices=[*SETUPS], help="only these")
    carry_out(parser, told)


if __name__ == "__main__":
    main()
