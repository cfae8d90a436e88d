"""The board of clients and limits: who calls, what it costs, who is refused, and what is left."""

from monitoring.board import FAILED, INSTANCE, JOB, Board, Panel, Query, Row, Variable, gauge, quantile, rate

_THESE = 'client=~"$client"'
_NO_FAULT = "these series begin with the first such event."

CLIENTS = Board(
    uid="holeshot-clients",
    title="Holeshot: clients and limits",
    description="Who calls, what it costs, who is refused, and what is left of limits.",
    variables=(JOB, INSTANCE, Variable("client", "client", 'holeshot_client_calls_total{job=~"$job"}')),
    rows=(
        Row(
            "Clients",
            (
                Panel(
                    title="Calls",
                    description="Finished calls per second.",
                    unit="reqps",
                    width=6,
                    queries=(Query(rate("holeshot_client_calls_total", _THESE, by="client"), "{{client}}"),),
                ),
                Panel(
                    title="Failed calls",
                    description="Finished calls with a status of 500 or more, 424 or 429, and streams that broke; "
                    "per second.",
                    unit="reqps",
                    width=6,
                    queries=(
                        Query(rate("holeshot_client_calls_total", _THESE + f",{FAILED}", by="client"), "{{client}}"),
                    ),
                    empty_when_healthy=_NO_FAULT,
                ),
                Panel(
                    title="Cost",
                    description="US dollars an hour at list price, losers included.",
                    unit="currencyUSD",
                    width=6,
                    queries=(
                        Query(f"3600 * {rate('holeshot_client_cost_usd_total', _THESE, by='client')}", "{{client}}"),
                    ),
                ),
                Panel(
                    title="Tokens",
                    description="Tokens per second of their answers, as reported.",
                    width=6,
                    queries=(
                        Query(rate("holeshot_client_tokens_total", _THESE, by="client, kind"), "{{client}} {{kind}}"),
                    ),
                ),
            ),
        ),
        Row(
            "Refused",
            (
                Panel(
                    title="Refused requests of known clients",
                    description="By client and reason.",
                    unit="reqps",
                    queries=(
                        Query(
                            rate("holeshot_client_refusals_total", _THESE, by="client, reason"), "{{client}} {{reason}}"
                        ),
                    ),
                    empty_when_healthy=_NO_FAULT,
                ),
                Panel(
                    title="Shed under overload",
                    description="Calls refused because the gateway had too many, by reason and by what set the limit.",
                    unit="reqps",
                    queries=(Query(rate("holeshot_shed_calls_total", by="reason, limit"), "{{reason}} {{limit}}"),),
                    empty_when_healthy=_NO_FAULT,
                ),
                Panel(
                    title="Wrong keys",
                    description="Addresses that guess keys, and answers to them that wait.",
                    queries=(
                        Query(gauge("holeshot_guessing_addresses"), "addresses"),
                        Query(gauge("holeshot_waiting_refusals"), "answers that wait"),
                    ),
                ),
            ),
        ),
        Row(
            "Left",
            (
                Panel(
                    title="Clients by what is left of their dollars",
                    description="Clients with a limit in dollars that have called since the start; which ones: the "
                    "page's list of keys, or the view client_usage.",
                    queries=(
                        Query(gauge("holeshot_client_limits", by="limit, left", how="max"), "{{limit}} {{left}}"),
                    ),
                    empty_when_healthy="only clients with a limit in dollars are counted.",
                ),
                Panel(
                    title="Models: dollars left today",
                    description="Of usd_per_day, from the model's first call on.",
                    unit="currencyUSD",
                    queries=(
                        Query(gauge("holeshot_model_left_usd", by="model", how="min"), "{{model}}"),
                        Query(gauge("holeshot_extra_left_usd", by="model", how="min"), "{{model}} extra attempts"),
                    ),
                    empty_when_healthy="only models with usd_per_day are counted.",
                ),
                Panel(
                    title="Extra attempts left",
                    description="What race.budget permits now; below 0 it is overdrawn.",
                    queries=(Query(gauge("holeshot_extra_attempts_left", by="model"), "{{model}}"),),
                ),
            ),
        ),
        Row(
            "Waiting",
            (
                Panel(
                    title="Calls that wait for a deployment",
                    description="Under max_in_flight.",
                    queries=(Query(gauge("holeshot_waiting_calls"), "calls"),),
                ),
                Panel(
                    title="How long they waited",
                    description="Calls that waited under max_in_flight, 95th percentile by model.",
                    unit="s",
                    queries=(Query(quantile(0.95, "holeshot_queue_seconds", by="model"), "{{model}}"),),
                    empty_when_healthy=_NO_FAULT,
                ),
                Panel(
                    title="Without Redis",
                    description="Workers that cannot reach Redis for limits: each allows its own share.",
                    queries=(Query(gauge("holeshot_limits_away"), "workers"),),
                ),
            ),
        ),
    ),
)
