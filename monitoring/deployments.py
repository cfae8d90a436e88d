"""The board of deployments: which are used, how fast they are, what is wrong with them."""

from monitoring.board import INSTANCE, JOB, Board, Kind, Panel, Query, Row, Variable, gauge, quantile, rate

_THESE = 'deployment=~"$deployment"'
_NO_FAULT = "these series begin with the first such event."

DEPLOYMENTS = Board(
    uid="holeshot-deployments",
    title="Holeshot: deployments",
    description="Which deployments are used, how fast they are, and what is wrong with them.",
    variables=(JOB, INSTANCE, Variable("deployment", "deployment", 'holeshot_deployment_state{job=~"$job"}')),
    rows=(
        Row(
            "State",
            (
                Panel(
                    title="State",
                    description="How many workers see a deployment in which state: ok, cooling (rate-limited), open or "
                    "half-open (breaker), out (key or model rejected).",
                    kind=Kind.STATES,
                    width=12,
                    queries=(
                        Query(
                            gauge("holeshot_deployment_state", _THESE, by="deployment, state") + " > 0",
                            "{{deployment}} {{state}}",
                        ),
                    ),
                ),
                Panel(
                    title="Breaker",
                    description="Workers whose breaker is open or half-open.",
                    width=4,
                    queries=(Query(gauge("holeshot_breaker_open", _THESE, by="deployment"), "{{deployment}}"),),
                ),
                Panel(
                    title="Cool-down",
                    description="Seconds until it is used again after a rate limit.",
                    unit="s",
                    width=4,
                    queries=(
                        Query(gauge("holeshot_cooling_seconds", _THESE, by="deployment", how="max"), "{{deployment}}"),
                    ),
                ),
                Panel(
                    title="Headroom",
                    description="The unused part of the provider's rate limit, as it reports it; 1 if it reports none.",
                    unit="percentunit",
                    width=4,
                    queries=(
                        Query(gauge("holeshot_headroom_ratio", _THESE, by="deployment", how="min"), "{{deployment}}"),
                    ),
                ),
            ),
        ),
        Row(
            "Speed",
            (
                Panel(
                    title="TTFT",
                    description="Attempt launched to first token, only of attempts that had one: losers that were cut "
                    "before are missing, so it looks better than it is. The ledger's view corrects for them.",
                    unit="s",
                    queries=(
                        Query(
                            quantile(0.5, "holeshot_attempt_ttft_seconds", _THESE, by="deployment"),
                            "{{deployment}} p50",
                        ),
                        Query(
                            quantile(0.95, "holeshot_attempt_ttft_seconds", _THESE, by="deployment"),
                            "{{deployment}} p95",
                        ),
                    ),
                ),
                Panel(
                    title="Decode speed",
                    description="Tokens per second after the first chunk, by the provider's own count.",
                    unit="tok/s",
                    queries=(
                        Query(
                            quantile(0.5, "holeshot_decode_tokens_per_second", _THESE, by="deployment"),
                            "{{deployment}} p50",
                        ),
                        Query(
                            quantile(0.05, "holeshot_decode_tokens_per_second", _THESE, by="deployment"),
                            "{{deployment}} p5",
                        ),
                    ),
                ),
                Panel(
                    title="Gaps between chunks",
                    description="Inter-token latency as a client sees it: a chunk may hold several tokens.",
                    unit="s",
                    queries=(
                        Query(quantile(0.5, "holeshot_gap_seconds", _THESE, by="deployment"), "{{deployment}} p50"),
                        Query(quantile(0.99, "holeshot_gap_seconds", _THESE, by="deployment"), "{{deployment}} p99"),
                    ),
                ),
            ),
        ),
        Row(
            "Use",
            (
                Panel(
                    title="In flight",
                    description="Attempts that are running.",
                    queries=(Query(gauge("holeshot_in_flight_attempts", _THESE, by="deployment"), "{{deployment}}"),),
                ),
                Panel(
                    title="Won",
                    description="The part of its ended attempts that answered a call.",
                    unit="percentunit",
                    queries=(
                        Query(
                            rate("holeshot_attempts_total", _THESE + ',outcome="won"', by="deployment")
                            + " / "
                            + rate("holeshot_attempts_total", _THESE, by="deployment"),
                            "{{deployment}}",
                        ),
                    ),
                ),
                Panel(
                    title="Tokens",
                    description="Tokens per second of all attempts, as reported.",
                    queries=(
                        Query(rate("holeshot_tokens_total", _THESE, by="deployment, kind"), "{{deployment}} {{kind}}"),
                    ),
                ),
            ),
        ),
        Row(
            "Faults",
            (
                Panel(
                    title="Errors",
                    description="Failed attempts per second, by cause.",
                    unit="reqps",
                    queries=(
                        Query(
                            rate("holeshot_attempt_errors_total", _THESE, by="deployment, kind"),
                            "{{deployment}} {{kind}}",
                        ),
                    ),
                    empty_when_healthy=_NO_FAULT,
                ),
                Panel(
                    title="Failed",
                    description="The part of its ended attempts that failed, timed out or stalled.",
                    unit="percentunit",
                    queries=(
                        Query(
                            rate(
                                "holeshot_attempts_total",
                                _THESE + ',outcome=~"failed|timeout|stalled"',
                                by="deployment",
                            )
                            + " / "
                            + rate("holeshot_attempts_total", _THESE, by="deployment"),
                            "{{deployment}}",
                        ),
                    ),
                    empty_when_healthy=_NO_FAULT,
                ),
                Panel(
                    title="Counts tokens unlike the others",
                    description="Comparisons in the last hour that found its tokens per character far off.",
                    queries=(
                        Query(
                            'sum by (deployment) (increase(holeshot_usage_far_off_total{job=~"$job",'
                            'instance=~"$instance",deployment=~"$deployment"}[1h]))',
                            "{{deployment}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
