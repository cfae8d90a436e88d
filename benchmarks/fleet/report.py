"""The findings as tables and sentences."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from benchmarks.fleet.findings import Lateness, Published, Recovery, Standing
from benchmarks.harness.command import Told
from benchmarks.harness.report import Grid, shown


class Report(msgspec.Struct, frozen=True):
    """All that was found, as it is kept."""

    climate: str
    seed: int
    calls: int
    rate_per_s: float
    standings: list[Standing]
    published: list[Published]
    replicas_agree: bool
    recoveries: list[Recovery]
    failed: int  # calls of gateways without a whole answer
    broken_off: int  # of these: begun, and a provider was drawn to break off
    made: int  # calls that reached a gateway, those sent again included
    rows: int  # calls in the ledger
    interrupted: int  # of these
    cpu_share: dict[str, float]  # of a core, while the load was steady
    lateness: list[Lateness]  # how much later they reached the clients


def told(report: Report) -> Told:
    grids = [_standings(report.standings), _published(report.published), _recoveries(report.recoveries)]
    return Told(facts=report, grids=grids, lines=list(_lines(report)))


def _lines(report: Report) -> Iterator[str]:
    cores = ", ".join(f"{kind} {share:.2f}" for kind, share in report.cpu_share.items())
    yield f"Cores in use under the steady load: {cores}."
    for each in report.lateness:
        late = " / ".join(map(shown, each.late_ms))
        yield f"First tokens reached the clients {late} ms late (p50 / p95 / p99) {each.way}."
    yield f"The four replicas {'publish' if report.replicas_agree else 'do NOT publish'} the same medians."
    yield (
        f"Calls of gateways without a whole answer: {report.failed}, "
        f"of which a provider broke off in the middle as drawn: {report.broken_off}."
    )
    yield (
        f"Calls that reached a gateway: {report.made}; rows in the ledger: {report.rows}, "
        f"of which interrupted: {report.interrupted}."
    )


def _standings(standings: Sequence[Standing]) -> Grid:
    quantiles = ("p50", "p95", "p99", "oracle p50", "p95", "p99", "p50 / oracle", "p95 /", "p99 /", "own p50/p99")
    rows = []
    for each in standings:
        ratios = [
            shown(ours / best if ours and best else None, ".2f")
            for ours, best in zip(each.ttft_ms, each.oracle_ms, strict=True)
        ]
        own = "/".join(shown(each.overhead_ms[number], ".1f") for number in (0, 2))
        figures = map(shown, (*each.ttft_ms, *each.oracle_ms))
        attempts = shown(each.attempts_per_call, ".2f")
        rows.append([each.arm, str(each.calls), str(each.failed), attempts, *figures, *ratios, own])
    title = "TTFT at the client against the best that the fleet had drawn for the same calls, ms"
    return Grid(title, ("way", "calls", "failed", "attempts", *quantiles), rows)


def _published(published: Iterable[Published]) -> Grid:
    names = ("model", "provider", "quantile", "seen", "cut", "published", "interval", "true", "error", "inside")
    rows = [
        [
            *(each.model, each.provider + (" (biased)" if each.biased else ""), f"p{each.quantile * 100:.0f}"),
            *(str(each.events), str(each.censored), shown(each.published_ms)),
            f"{shown(each.low_ms)} to {shown(each.high_ms)}",
            *(shown(each.true_ms), shown(each.error, "+.1%")),
            {True: "yes", False: "no", None: "-"}[each.inside],
        ]
        for each in published
    ]
    return Grid("The leaderboard against the truth, ms", names, rows, words=2)


def _recoveries(recoveries: Iterable[Recovery]) -> Grid:
    names = (
        *("fault", "policy", "calls", "failed", "sent again", "worst p95", "oracle's", "p50 at end", "usual"),
        "p95 well",
    )
    rows = []
    for each in recoveries:
        counts = map(str, (each.calls, each.failed, each.retried))
        figures = map(shown, (each.worst_p95_ms, each.oracle_p95_ms, each.p50_at_end_ms, each.usual_p50_ms))
        well = f"after {each.recovered_s:.0f} s" if each.recovered_s else "at once"
        rows.append([each.fault, each.arm, *counts, *figures, well])
    title = "Faults, each until the next one, ms; p95 in windows of 5 s, p50 in the last 10 s"
    return Grid(title, names, rows, words=2)
