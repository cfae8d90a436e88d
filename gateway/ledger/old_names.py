"""The former names of views' columns, from before all were named by one rule: deprecated, and still there.

docs/reference/ledger.md has the rule, and lists these names.
"""

from collections.abc import Mapping

RENAMED_SINCE = "0051"  # the revision

_THROUGHPUT = {  # the p95 of a speed was the speed that 95 % of answers reach
    "decode_tps_p05": "decode_p05_tps",
    "decode_tps_p50": "decode_p50_tps",
    "decode_tps_p95": "decode_p05_tps",
    "decode_tps_p99": "decode_p01_tps",
    "e2e_tps_p50": "e2e_p50_tps",
    "e2e_tps_p95": "e2e_p05_tps",
    "e2e_tps_p99": "e2e_p01_tps",
}
# By the text of a view: each former name with the name of today.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "leaderboard": {
        "events": "n_first_token",
        "censored": "n_censored",
        "rate_limited": "n_rate_limited",
        "audited": "n_audited",
        "judged": "n_judged",
        "biased": "is_biased",
        "buffered": "is_buffered",
        "decode_tps": "decode_mean_tps",
        "e2e_tps": "e2e_mean_tps",
    },
    "race_value": {
        "calls": "n",
        "calls_with_extra": "n_raced",
        "launched": "n_launched",
        "overtaken": "n_overtaken",
        "rescued": "n_rescued",
        "n_audits": "n_audited",
        "n_audits_failed": "n_audited_failed",
        "saved_ms_per_call": "saved_per_call_ms",
        "saved_low_ms_per_call": "saved_per_call_low_ms",
        "saved_high_ms_per_call": "saved_per_call_high_ms",
        "held_ms_per_call": "held_per_call_ms",
        "calls_more": "n_more",
    },
    "slo": {"n_tps": "n_decode", "tps_ok_share": "decode_ok_share"},
    "throughput": _THROUGHPUT,
    "throughput_lately": _THROUGHPUT,
    "throughput_5m": _THROUGHPUT,
    "speed": {
        "decode_tps_p05": "decode_p05_tps",
        "decode_tps_p50": "decode_p50_tps",
        "decode_tps_p95": "decode_p05_tps",
    },
    "answer_quality": {"share": "flawed_share", "share_low": "flawed_low_share", "share_high": "flawed_high_share"},
    "cache_value": {
        "calls": "n",
        "calls_7d": "n_7d",
        "cached_share_7d": "cached_7d_share",
        "cache_saved_usd_7d": "cache_saved_7d_usd",
        "calls_24h": "n_24h",
        "cached_share_24h": "cached_24h_share",
        "cache_saved_usd_24h": "cache_saved_24h_usd",
    },
    "cache_value_lately": {"calls": "n"},
    "load_5m": {"requests_s": "load_rps", "tokens_s": "load_tps"},
    "load_peaks": {
        "peak_requests_s": "peak_rps",
        "sustained_requests_s": "sustained_rps",
        "peak_tokens_s": "peak_tps",
        "sustained_tokens_s": "sustained_tps",
    },
    "tag_values": {
        "n_tokens": "n_completion",
        "tokens_mean": "completion_mean_tokens",
        "tokens_variance": "completion_variance",
    },
    "tag_differences": {
        "failed_share_difference": "failed_difference_share",
        "ttft_low_ms": "ttft_difference_low_ms",
        "ttft_high_ms": "ttft_difference_high_ms",
        "total_low_ms": "total_difference_low_ms",
        "total_high_ms": "total_difference_high_ms",
        "tokens_difference": "completion_difference_tokens",
        "tokens_low": "completion_difference_low_tokens",
        "tokens_high": "completion_difference_high_tokens",
        "cost_low_usd": "cost_difference_low_usd",
        "cost_high_usd": "cost_difference_high_usd",
    },
}


def with_old_names(select: str, old: Mapping[str, str]) -> str:
    """Return a SELECT with its columns, and with each column of ``old`` once more under the former name."""
    if not old:
        return select
    again = "".join(f", named.{new} as {name}" for name, new in old.items())
    return f"select named.*{again}\nfrom (\n{select}\n) as named"
