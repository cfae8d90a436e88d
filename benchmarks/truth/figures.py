"""Each figure of the ledger beside the truth, and whether it may be that far off."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from benchmarks.truth.course import PATIENCE_S, Course
from benchmarks.truth.fleet import PROMPT_TOKENS, Draw, Fleet

SLO_MS = 500.0
BENT = 1.2


class Figure(msgspec.Struct, frozen=True):
    """One comparison. ``holds`` says whether the measured value may be so far from the truth."""

    name: str
    truth: float
    measured: float
    goal: str
    holds: bool


def within(name: str, truth: float, measured: float, share: float) -> Figure:
    """Compare two values that may differ by a share of the truth."""
    return Figure(name, truth, measured, f"± {share:.0%}", abs(measured - truth) <= share * abs(truth) + 1e-9)


def same(name: str, truth: float, measured: float) -> Figure:
    """Compare two values that must be the same, but for rounding."""
    return Figure(name, truth, measured, "the same", abs(measured - truth) <= 1e-6 * max(1.0, abs(truth)))


def between(name: str, truth: float, low: float, high: float) -> Iterator[Figure]:
    """See that two bounds enclose the truth; each is a figure of its own."""
    yield Figure(f"{name}, at least", truth, low, "≤ truth", low <= truth * (1 + 1e-9))
    yield Figure(f"{name}, at most", truth, high, "≥ truth", high >= truth * (1 - 1e-9))


class Ledger:
    """The rows and views of one run. ``bend`` names a column whose numbers are made 20 % larger as they are read."""

    def __init__(self, path: Path, bend: str | None = None) -> None:
        self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        self._connection.row_factory = sqlite3.Row
        self._bend = bend

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        return [
            {key: self._read(key, row[key]) for key in row.keys()}  # noqa: SIM118 - a row iterates over its values
            for row in self._connection.execute(sql, values)
        ]

    def _read(self, column: str, value: Any) -> Any:
        return value * BENT if column == self._bend and isinstance(value, int | float) else value


def figures(ledger: Ledger, fleet: Fleet, todo: Course) -> Iterator[Figure]:
    """Yield every comparison."""
    yield from _rows(ledger, todo)
    yield from _savings(ledger, fleet)
    yield from _curves(ledger, fleet)
    yield from _speeds(ledger, fleet, todo)
    yield from _bills(ledger, fleet)
    yield from _answers(ledger, todo)
    yield from _patience(ledger, fleet, todo)


def _rows(ledger: Ledger, todo: Course) -> Iterator[Figure]:
    [row] = ledger.rows("select count(*) as n, count(distinct request_id) as calls from calls")
    yield same("rows of calls", todo.slow.stop, row["n"])
    yield same("calls that have one", todo.slow.stop, row["calls"])


def _savings(ledger: Ledger, fleet: Fleet) -> Iterator[Figure]:
    """Compare what racing saved with what each call's primary would have taken: its draw, which the fleet knows."""
    raced = ledger.rows(
        "select calls.request_id, calls.ttft_ms, attempts.provider, attempts.token_ms, attempts.launch_offset_ms "
        "from calls join attempts on attempts.call_id = calls.id and attempts.number = 1 "
        "where calls.model = 'race' and calls.ttft_ms is not null"
    )
    over_ms = _overhead_ms(fleet, raced)
    alone = [fleet.drawn(int(row["request_id"]), row["provider"]).ttft_s * 1000 + over_ms for row in raced]
    seen = [row["ttft_ms"] for row in raced]
    saved = sum(own - ttft for own, ttft in zip(alone, seen, strict=True)) / len(raced)
    [value] = ledger.rows("select * from race_value where model = 'race'")
    yield within("saved by racing, ms a call", saved, value["saved_ms_per_call"], 0.15)
    low, high = value["saved_low_ms_per_call"], value["saved_high_ms_per_call"]
    yield from between("saved, 95 % interval", saved, low, high)
    yield within("first token with racing, mean ms", fmean(seen), value["ttft_mean_ms"], 0.01)
    yield within("first token without racing, mean ms", fmean(alone), value["alone_mean_ms"], 0.07)
    for q in (50, 95):
        yield within(f"first token with racing, p{q} ms", _quantile(seen, q), value[f"ttft_p{q}_ms"], 0.06)
        yield within(f"first token without racing, p{q} ms", _quantile(alone, q), value[f"alone_p{q}_ms"], 0.15)


def _overhead_ms(fleet: Fleet, raced: Sequence[dict[str, Any]]) -> float:
    """Return what lies between a draw and the gateway's clock: timers that are late, and the network."""
    late: list[float] = [
        row["token_ms"] + row["launch_offset_ms"] - fleet.drawn(int(row["request_id"]), row["provider"]).ttft_s * 1000
        for row in raced
        if row["token_ms"] is not None
    ]
    return median(late)


def _curves(ledger: Ledger, fleet: Fleet) -> Iterator[Figure]:
    """Compare the leaderboard of the race with the draws of all who were launched in it."""
    launched = ledger.rows(
        "select calls.request_id, attempts.provider, attempts.deployment from attempts "
        "join calls on calls.id = attempts.call_id "
        "where attempts.model = 'race' and attempts.role in ('primary', 'race', 'explore')"
    )
    for board in ledger.rows("select * from leaderboard where model = 'race' order by deployment"):
        draws = [
            fleet.drawn(int(row["request_id"]), row["provider"]).ttft_s * 1000 + 2.5
            for row in launched
            if row["deployment"] == board["deployment"]
        ]
        if len(draws) < 200 or board["ttft_p50_ms"] is None:
            continue
        yield within(f"leaderboard, {board['deployment']}, p50 ms", _quantile(draws, 50), board["ttft_p50_ms"], 0.10)
        if board["ttft_p95_ms"] is not None:
            yield within(
                f"leaderboard, {board['deployment']}, p95 ms", _quantile(draws, 95), board["ttft_p95_ms"], 0.25
            )


def _speeds(ledger: Ledger, fleet: Fleet, todo: Course) -> Iterator[Figure]:
    """Compare decode speeds with the providers' own, by tokens a chunk."""
    for name in todo.alone:
        persona = fleet.personas[name]
        found = ledger.rows(
            "select decode_tps from attempts where model = 'pool' and provider = ? and decode_tps is not null", name
        )
        if not found or persona.overstates != 1:
            continue
        speeds = [row["decode_tps"] / persona.tps for row in found]
        yield within(f"tok/s at {persona.per_chunk} a chunk, median of measured / true", 1.0, median(speeds), 0.03)
        worst = _quantile([abs(speed - 1) for speed in speeds], 95)
        yield Figure(f"tok/s at {persona.per_chunk} a chunk, p95 of the error", 0.0, worst, "≤ 0.10", worst <= 0.10)


def _bills(ledger: Ledger, fleet: Fleet) -> Iterator[Figure]:
    """Compare costs with the providers' own bills."""
    rows = ledger.rows(
        "select calls.request_id, calls.winner_attempt_id = attempts.id as won, attempts.* from attempts "
        "join calls on calls.id = attempts.call_id"
    )
    rows = [row for row in rows if fleet.personas[row["provider"]].overstates == 1]
    won = [row for row in rows if row["outcome"] == "won"]
    tokens = sum(row["prompt_tokens"] for row in won)
    yield same("winners' prompt tokens", PROMPT_TOKENS * len(won), tokens)
    truth = sum(_true_cost(fleet, row) for row in won)
    yield within("winners' cost, $", truth, sum(row["cost_usd"] for row in won), 0.001)
    cut = [row for row in rows if row["outcome"] != "won" and _draw(fleet, row) and row["cost_low_usd"] is not None]
    low, high = sum(row["cost_low_usd"] for row in cut), sum(row["cost_high_usd"] for row in cut)
    yield from between("losers' cost, $", sum(_true_cost(fleet, row) for row in cut), low, high)
    off = [
        row for row in cut if not row["cost_low_usd"] * 0.999 <= _true_cost(fleet, row) <= row["cost_high_usd"] * 1.001
    ]
    yield same(f"losers whose bill is not within its bounds, of {len(cut)}", 0, len(off))
    [told] = ledger.rows(
        "select sum(prompt_tokens) as prompt_tokens, count(*) as n from calls where tokens_source = 'reported'"
    )
    yield same("calls' prompt tokens", PROMPT_TOKENS * told["n"], told["prompt_tokens"])
    [alone] = ledger.rows("select coalesce(sum(duplicate_cost_usd), 0) as usd from calls where launched = 1")
    yield same("duplicate cost of calls without a duplicate, $", 0, alone["usd"])


def _draw(fleet: Fleet, row: dict[str, Any]) -> Draw | None:
    return fleet.draws.get((int(row["request_id"]), row["provider"]))


def _true_cost(fleet: Fleet, row: dict[str, Any]) -> float:
    draw = _draw(fleet, row)
    return 0.0 if draw is None else draw.cost_usd(fleet.personas[row["provider"]])


def _answers(ledger: Ledger, todo: Course) -> Iterator[Figure]:
    """Compare what the answers were."""
    [row] = ledger.rows(
        "select count(*) filter (where tool_calls = 1) as asked, "
        "count(*) filter (where tool_calls_valid = 1) as valid, "
        "count(*) filter (where is_truncated) as cut from calls"
    )
    yield same("answers with a tool call", len(todo.tools) + len(todo.broken), row["asked"])
    yield same("of which the arguments parse", len(todo.tools), row["valid"])
    yield same("answers cut short", len(todo.cut), row["cut"])
    found = ledger.rows("select deployment from provider_errors where error_kind = 'usage_far_off'")
    yield same("providers that overstate, found", 1, sum(row["deployment"] == "liar/m" for row in found))
    yield same("others that are taken for such", 0, sum(row["deployment"] != "liar/m" for row in found))


def _patience(ledger: Ledger, fleet: Fleet, todo: Course) -> Iterator[Figure]:
    """Compare the share of calls within the objective with the truth: of those whose end is known."""
    good = bad = 0
    for number in todo.slow:
        left = number - todo.slow.start < todo.leave
        due_ms = fleet.drawn(number, "slow").ttft_s * 1000
        if due_ms < SLO_MS:
            good += 1
        elif not left or PATIENCE_S * 1000 > SLO_MS:
            bad += 1
    [row] = ledger.rows("select * from slo where model = 'slow'")
    yield within("calls within 500 ms though many give up, share", good / (good + bad), row["ttft_ok_share"], 0.10)


def _quantile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round((len(ordered) - 1) * percent / 100))]
