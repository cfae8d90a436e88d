"""The board for a first look: whether calls are answered, how fast, at what cost, and whether anything is broken."""

from monitoring.board import INSTANCE, JOB, Board, Kind, Panel, Query, Row, Variable, gauge, quantile, rate

_MODEL = 'model=~"$model"'
_ANSWERED = 'model=~"$model",status!~"5..|424|429|broken"'
_NOT_OK = 'state!="ok"'
_NO_FAULT = "these series begin with the first such event."

OVERVIEW = Board(
    uid="holeshot-overview",
    title="Holeshot: overview",
    description="Are calls answered, how fast, at what cost, and is anything broken?",
    variables=(JOB, INSTANCE, Variable("model", "model", 'holeshot_ttft_seconds_count{job=~"$job"}')),
    rows=(
        Row(
            "Now",
            (
                Panel(
                    title="Gateways",
                    description="Gateways that Prometheus reaches.",
                    kind=Kind.STAT,
                    width=4,
                    queries=(Query('sum (up{job=~"$job",instance=~"$instance"})'),),
                ),
                Panel(
                    title="Calls",
                    description="Finished calls per second.",
                    kind=Kind.STAT,
                    unit="reqps",
                    width=4,
                    queries=(Query(rate("holeshot_calls_total", _MODEL)),),
                ),
                Panel(
                    title="Answered",
                    description="Finished calls that did not fail: no status of 500 or more, 424 or 429, and no stream "
                    "that broke. Calls that a limit refused are not among them: see refusals.",
                    kind=Kind.STAT,
                    unit="percentunit",
                    width=4,
                    queries=(
                        Query(f"{rate('holeshot_calls_total', _ANSWERED)} / {rate('holeshot_calls_total', _MODEL)}"),
                    ),
                ),
                Panel(
                    title="TTFT, median",
                    description="From the call received to its first token, racing included.",
                    kind=Kind.STAT,
                    unit="s",
                    width=4,
                    queries=(
                        Query(f"histogram_quantile(0.5, {rate('holeshot_ttft_seconds_bucket', _MODEL, by='le')})"),
                    ),
                ),
                Panel(
                    title="Deployments not ok",
                    description="Configured deployments that are cooling, open, half-open or out at one gateway.",
                    kind=Kind.STAT,
                    width=4,
                    red_above=1,
                    queries=(
                        Query(
                            f"count ({gauge('holeshot_deployment_state', _NOT_OK, by='deployment', how='max')} > 0)"
                            " or vector(0)"
                        ),
                    ),
                ),
                Panel(
                    title="Rows not in SQL",
                    description="Entries of the ledger that wait on disk for the database.",
                    kind=Kind.STAT,
                    width=4,
                    red_above=10_000,
                    queries=(Query(gauge("holeshot_ledger_pending")),),
                ),
            ),
        ),
        Row(
            "Calls",
            (
                Panel(
                    title="Calls by model",
                    description="Finished calls per second.",
                    unit="reqps",
                    queries=(Query(rate("holeshot_calls_total", _MODEL, by="model"), "{{model}}"),),
                ),
                Panel(
                    title="Calls by status",
                    description="By the status that the client was sent; 499: it disconnected.",
                    unit="reqps",
                    queries=(Query(rate("holeshot_calls_total", _MODEL, by="status"), "{{status}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Refused requests",
                    description="Refused before they became calls, by reason.",
                    unit="reqps",
                    queries=(Query(rate("holeshot_refusals_total", by="reason, status"), "{{status}} {{reason}}"),),
                    empty_when_healthy=_NO_FAULT,
                ),
                Panel(
                    title="TTFT",
                    description="From the call received to its first token, racing included; of calls that had one.",
                    unit="s",
                    queries=(
                        Query(quantile(0.5, "holeshot_ttft_seconds", _MODEL, by="model"), "{{model}} p50"),
                        Query(quantile(0.95, "holeshot_ttft_seconds", _MODEL, by="model"), "{{model}} p95"),
                    ),
                ),
                Panel(
                    title="The gateway's own share",
                    description="Of the time to the first byte: the gateway's own work, in seconds.",
                    unit="s",
                    queries=(
                        Query(f"histogram_quantile(0.5, {rate('holeshot_overhead_seconds_bucket', by='le')})", "p50"),
                        Query(f"histogram_quantile(0.99, {rate('holeshot_overhead_seconds_bucket', by='le')})", "p99"),
                    ),
                ),
                Panel(
                    title="Cost",
                    description="US dollars an hour at list price; duplicate: what losers cost, at least.",
                    unit="currencyUSD",
                    stacked=True,
                    queries=(Query(f"3600 * {rate('holeshot_cost_usd_total', _MODEL, by='share')}", "{{share}}"),),
                ),
            ),
        ),
        Row(
            "Racing",
            (
                Panel(
                    title="Attempts per call",
                    description="How many upstream requests a finished call started: 1 without races or failovers.",
                    queries=(
                        Query(
                            f"{rate('holeshot_attempts_total')} / {rate('holeshot_calls_total')}", "attempts per call"
                        ),
                    ),
                ),
                Panel(
                    title="Attempts by outcome",
                    description="lost and superseded: another one answered first.",
                    unit="reqps",
                    stacked=True,
                    queries=(Query(rate("holeshot_attempts_total", by="outcome"), "{{outcome}}"),),
                ),
                Panel(
                    title="Extra attempts that were not launched",
                    description="By the reason: budget, usd_per_day, max_in_flight, rate_limits, cooling, ...",
                    unit="reqps",
                    queries=(
                        Query(
                            rate("holeshot_refused_launches_total", _MODEL, by="model, limit"), "{{model}} {{limit}}"
                        ),
                    ),
                    empty_when_healthy=_NO_FAULT,
                ),
            ),
        ),
    ),
)
