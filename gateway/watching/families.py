"""The families of metrics of calls and attempts: names, help texts, kinds, labels and buckets."""

from gateway.watching.series import Family

# Seconds. Dense in the range of first tokens, up to the default first-token timeout.
TTFT_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 60, 120)
TPS_BUCKETS = (5, 10, 20, 30, 45, 60, 80, 100, 150, 200, 300, 500, 1000, 2000)
QUEUE_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)
OVERHEAD_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25)

CALLS = Family("holeshot_calls_total", "Finished calls.", "counter", ("mode", "model", "status"))
ATTEMPTS = Family(
    "holeshot_attempts_total",
    "Ended upstream attempts; outcome lost counts cancelled losers.",
    "counter",
    ("deployment", "outcome", "role"),
)
ERRORS = Family(
    "holeshot_attempt_errors_total", "Failed upstream attempts by cause.", "counter", ("deployment", "kind")
)
REFUSED = Family(
    "holeshot_refused_launches_total",
    "Extra attempts that a limit refused.",
    "counter",
    ("limit", "model"),
)
REFUSALS = Family(
    "holeshot_refusals_total",
    "Requests that the gateway refused before they became calls.",
    "counter",
    ("reason", "status"),
)
CLIENT_REFUSALS = Family(
    "holeshot_client_refusals_total",
    "Requests that the gateway refused before they became calls, of clients whose key is known.",
    "counter",
    ("client", "reason"),
)
SHED = Family(
    "holeshot_shed_calls_total",
    "Calls refused under overload: by reason (queue_full, queue_timeout, displaced), and by what set the limit.",
    "counter",
    ("limit", "reason"),
)
TOKENS = Family("holeshot_tokens_total", "Tokens, as reported.", "counter", ("deployment", "kind"))
FAR_OFF = Family(
    "holeshot_usage_far_off_total",
    "Comparisons, one every 20 answers, with tokens per character far from the other deployments'.",
    "counter",
    ("deployment",),
)
COST = Family(
    "holeshot_cost_usd_total", "US dollars at list price; losers as lower bounds.", "counter", ("model", "share")
)
TTFT = Family("holeshot_ttft_seconds", "Call received to first token.", "histogram", ("model",), TTFT_BUCKETS)
ATTEMPT_TTFT = Family(
    "holeshot_attempt_ttft_seconds",
    "Attempt launched to first token, of those that had one.",
    "histogram",
    ("deployment",),
    TTFT_BUCKETS,
)
DECODE = Family("holeshot_decode_tokens_per_second", "Decode speed.", "histogram", ("deployment",), TPS_BUCKETS)
OVERHEAD = Family(
    "holeshot_overhead_seconds", "The gateway's own share of the TTFT.", "histogram", (), OVERHEAD_BUCKETS
)
WAITED = Family(
    "holeshot_queue_seconds",
    "Calls that waited because of max_in_flight, by the end of the wait: seated, timed_out, left.",
    "histogram",
    ("end", "model"),
    QUEUE_BUCKETS,
)
IN_FLIGHT = Family("holeshot_in_flight_attempts", "Attempts that are running.", "gauge", ("deployment",))

ACCEPTED = Family("holeshot_connections_accepted_total", "Connections from clients that were accepted.", "counter")
CUT = Family(
    "holeshot_connections_cut_total",
    "Connections closed for a limit (address, strangers, descriptors, late_head, large_head, stalled) or an ended key.",
    "counter",
    ("reason",),
)
