"""The families of metrics of calls and attempts: names, help texts, kinds, labels and buckets."""

from gateway.watching.series import Family

# Seconds. Dense in the range of first tokens, up to the default first-token timeout.
TTFT_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 60, 120)
TPS_BUCKETS = (5, 10, 20, 30, 45, 60, 80, 100, 150, 200, 300, 500, 1000, 2000)
QUEUE_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)
# Every half octave where answers stream, else every octave: edges of the ledger's buckets, so that counts carry over.
GAP_EDGES = (-24, -16, *range(-12, 33, 4), 40, 48, 56, 64, 72, 80)  # numbers of the ledger's buckets
GAP_BUCKETS = tuple(0.01 * 2 ** (edge / 8) for edge in GAP_EDGES)
OVERHEAD_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25)

BROKEN = "broken"  # the status of a call whose stream broke after it had begun, with a status of 200
CALLS = Family(
    "holeshot_calls_total",
    "Finished calls; status broken: a stream that broke.",
    "counter",
    ("mode", "model", "status"),
)
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
CLIENT_CALLS = Family(
    "holeshot_client_calls_total",
    "Finished calls of a client; status broken: a stream that broke.",
    "counter",
    ("client", "status"),
)
CLIENT_TOKENS = Family(
    "holeshot_client_tokens_total", "Tokens of a client's answers, as reported.", "counter", ("client", "kind")
)
CLIENT_COST = Family(
    "holeshot_client_cost_usd_total",
    "US dollars at list price of a client's calls; losers as lower bounds.",
    "counter",
    ("client",),
)
SHED = Family(
    "holeshot_shed_calls_total",
    "Calls refused under overload: by reason (queue_full, queue_timeout, displaced), and by what set the limit.",
    "counter",
    ("limit", "reason"),
)
PROBES = Family(
    "holeshot_probes_total", "Probes of quiet deployments by how they ended.", "counter", ("deployment", "outcome")
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
SENTENCE = Family(
    "holeshot_attempt_first_sentence_seconds",
    "Attempt launched to the end of the first clause that can be spoken, of models with win_on: sentence.",
    "histogram",
    ("deployment",),
    TTFT_BUCKETS,
)
VALID = Family(
    "holeshot_win_on_valid_calls_total",
    "Calls with win_on: valid, by whether the answer that began first was: valid, invalid or (cut before) unknown.",
    "counter",
    ("first", "model"),
)
TAKEOVERS = Family(
    "holeshot_takeovers_total",
    "Streamed answers that broke where takeover is on: finished by another deployment, or why not.",
    "counter",
    ("end", "model"),
)
KEPT = Family(
    "holeshot_kept_rivals_total",
    "Attempts that ran on behind a winner (keep_rival): outcome won means that it broke, and they answered.",
    "counter",
    ("deployment", "outcome"),
)
DRIBBLED = Family(
    "holeshot_would_take_over_total",
    "Streamed answers that for 5 s came at less than a fifth of their deployment's slowest usual speed: only counted.",
    "counter",
    ("deployment",),
)
DECODE = Family("holeshot_decode_tokens_per_second", "Decode speed.", "histogram", ("deployment",), TPS_BUCKETS)
GAPS = Family(
    "holeshot_gap_seconds",
    "Gaps between the chunks of answers with a meaningful delta (inter-token latency); several tokens may be in one.",
    "histogram",
    ("deployment",),
    GAP_BUCKETS,
)
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
ALERTS = Family("holeshot_alerts_total", "Alerts that this process opened.", "counter", ("kind",))
ALERTS_RESOLVED = Family("holeshot_alerts_resolved_total", "Alerts that this process resolved.", "counter", ("kind",))
ALERT_MESSAGES = Family(
    "holeshot_alert_messages_total",
    "Attempts to send a message about an alert: sent, failed (and repeated) or given_up.",
    "counter",
    ("result", "webhook"),
)

TARGET_CALLS = Family(
    "holeshot_target_calls", "Calls that count for a target, in its window.", "gauge", ("target",), merge="max"
)
TARGET_BAD = Family("holeshot_target_bad_calls", "Those of them that were bad.", "gauge", ("target",), merge="max")
TARGET_BUDGET = Family(
    "holeshot_target_budget_left",
    "The share of a target's error budget that is left in its window; below 0 it is missed.",
    "gauge",
    ("target",),
    merge="min",
)
TARGET_BURN = Family(
    "holeshot_target_burn_rate",
    "The share of bad calls over the share that may be bad, in the last 1h, 6h and 3d.",
    "gauge",
    ("target", "window"),
    merge="max",
)

ACCEPTED = Family("holeshot_connections_accepted_total", "Connections from clients that were accepted.", "counter")
CUT = Family(
    "holeshot_connections_cut_total",
    "Connections closed for a limit (address, strangers, descriptors, late_head, large_head, stalled) or an ended key.",
    "counter",
    ("reason",),
)
