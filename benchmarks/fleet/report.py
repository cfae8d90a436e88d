"""The findings as tables on the terminal."""

from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.fleet.findings import Lateness, Losers, Published, Recovery, Standing
from benchmarks.harness.report import grid

_UNKNOWN = "-"


class Report(msgspec.Struct, frozen=True):
    """All that was found, as it is written to ``fleet.json``."""

    climate: str
    seed: int
    calls: int
    rate_per_s: float
    standings: list[Standing]
    published: list[Published]
    replicas_agree: bool
    losers: list[Losers]
    recoveries: list[Recovery]
    failed: int  # calls of gateways without a whole answer
    broken_off: int  # of these: begun, and a provider was drawn to break off
    made: int  # calls that reached a gateway, those sent again included
    rows: int  # calls in the ledger
    interrupted: int  # of these
    cpu_share: dict[str, float]  # of a core, while the load was steady
    sent_late_p99_ms: float | None  # how much later than drawn first tokens left the providers
    lateness: list[Lateness]  # how much later they reached the clients
    misdrawn: int  # logged draws that are not what the benchmark computes


def show(report: Report, console: Console) -> None:
    """Print everything."""
    console.print(_standings(report.standings))
    console.print(_published(report.published))
    console.print(_errors(report.published))
    console.print(_losers(report.losers))
    console.print(_recoveries(report.recoveries))
    cores = ", ".join(f"{kind} {share:.2f}" for kind, share in report.cpu_share.items())
    console.print(f"Cores in use under the steady load: {cores}.")
    console.print(f"First tokens left the providers up to {_ms(report.sent_late_p99_ms)} ms late (p99).")
    for each in report.lateness:
        late = " / ".join(map(_ms, each.late_ms))
        console.print(f"They reached the clients {late} ms late (p50 / p95 / p99) {each.way}.")
    console.print(f"Logged draws that differ from the computed ones: {report.misdrawn}.")
    agree = "publish the same medians" if report.replicas_agree else "do NOT publish the same medians"
    console.print(f"The four replicas {agree}.")
    console.print(
        f"Calls of gateways without a whole answer: {report.failed}, "
        f"of which a provider broke off in the middle as drawn: {report.broken_off}."
    )
    console.print(
        f"Calls that reached a gateway: {report.made}; rows in the ledger: {report.rows}, "
        f"of which interrupted: {report.interrupted}."
    )


def _standings(standings: Sequence[Standing]) -> Table:
    quantiles = ("p50", "p95", "p99", "oracle p50", "p95", "p99", "p50 / oracle", "p95 /", "p99 /", "own p50/p99")
    names = ("way", "calls", "failed", "attempts", *quantiles)
    title = "TTFT at the client against the best that the fleet had drawn for the same calls, ms"
    table = grid(title, names, ())
    for each in standings:
        ratios = [
            f"{ours / best:.2f}" if ours and best else _UNKNOWN
            for ours, best in zip(each.ttft_ms, each.oracle_ms, strict=True)
        ]
        attempts = _UNKNOWN if each.attempts_per_call is None else f"{each.attempts_per_call:.2f}"
        own = _UNKNOWN if each.overhead_ms[0] is None else f"{each.overhead_ms[0]:.1f}/{each.overhead_ms[2]:.1f}"
        figures = [_ms(value) for value in (*each.ttft_ms, *each.oracle_ms)]
        table.add_row(each.arm, str(each.calls), str(each.failed), attempts, *figures, *ratios, own)
    return table


def _published(published: Iterable[Published]) -> Table:
    names = ("model", "provider", "quantile", "seen", "cut", "published", "interval", "true", "error", "inside")
    table = grid("The leaderboard against the truth, ms", names, (), words=2)
    for each in published:
        interval = (
            _UNKNOWN if each.low_ms is None or each.high_ms is None else f"{each.low_ms:.0f} to {each.high_ms:.0f}"
        )
        table.add_row(
            each.model,
            each.provider + (" (biased)" if each.biased else ""),
            f"p{each.quantile * 100:.0f}",
            str(each.events),
            str(each.censored),
            _ms(each.published_ms),
            interval,
            _ms(each.true_ms),
            _UNKNOWN if each.error is None else f"{each.error:+.1%}",
            {True: "yes", False: "no", None: _UNKNOWN}[each.inside],
        )
    return table


def _errors(published: Sequence[Published]) -> Table:
    names = ("model", "quantile", "mean of |error|", "largest", "inside its interval")
    table = grid("The leaderboard's error over the providers", names, ())
    for model, q in sorted({(each.model, each.quantile) for each in published}):
        some = [each for each in published if (each.model, each.quantile) == (model, q)]
        errors = [abs(each.error) for each in some if each.error is not None]
        known = [each.inside for each in some if each.inside is not None]
        table.add_row(
            model,
            f"p{q * 100:.0f}",
            f"{sum(errors) / len(errors):.1%}" if errors else _UNKNOWN,
            f"{max(errors):.1%}" if errors else _UNKNOWN,
            f"{sum(known)} of {len(known)}",
        )
    return table


def _losers(losers: Iterable[Losers]) -> Table:
    names = ("provider", "requests", "attempts", "cut before 1st token", "rows lost", "cut later", "rows superseded")
    table = grid("Losers, before the faults: as the providers counted them and as the ledger has them", names, ())
    total = [0] * 6
    for each in losers:
        row = list(msgspec.structs.astuple(each))[1:]
        total = [sum(pair) for pair in zip(total, row, strict=True)]
        table.add_row(each.provider, *map(str, row))
    table.add_row("all", *map(str, total))
    return table


def _recoveries(recoveries: Iterable[Recovery]) -> Table:
    names = (
        "fault",
        "policy",
        "calls",
        "failed",
        "sent again",
        "worst p95",
        "oracle's",
        "p50 at end",
        "usual",
        "p95 well",
    )
    title = "Faults, each until the next one, ms; p95 in windows of 5 s, p50 in the last 10 s"
    table = grid(title, names, (), words=2)
    for each in recoveries:
        counts = map(str, (each.calls, each.failed, each.retried))
        figures = map(_ms, (each.worst_p95_ms, each.oracle_p95_ms, each.p50_at_end_ms, each.usual_p50_ms))
        well = f"after {each.recovered_s:.0f} s" if each.recovered_s else "at once"
        table.add_row(each.fault, each.arm, *counts, *figures, well)
    return table


def _ms(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.0f}"
