"""The schemas of what the API of the page answers."""

from collections.abc import Mapping

from gateway.ingress.openapi.operation import (
    TEXT,
    Schema,
    array,
    count,
    flag,
    instant,
    nullable,
    number,
    record,
    ref,
    text,
)
from gateway.ingress.openapi.structs import of_type
from gateway.limits.limits import Standing
from gateway.reports import Window
from gateway.settings.role import Role

SQL = text("One statement that gives the same figures in `holeshot sql`.")
NEXT = nullable(text("What to ask with as `after` for the next page; null on the last one."))
ROW: Schema = {"type": "object", "description": "All columns of its table: docs/sql.md.", "additionalProperties": True}
WORTH: Schema = {
    "type": "object",
    "description": "`model` or `client`, and the columns of the view `race_value`: docs/sql.md.",
    "additionalProperties": True,
}
REPLAYED: Schema = {
    "type": "object",
    "description": "What other settings would have done, in milliseconds and US dollars per call: docs/replay.md.",
    "additionalProperties": True,
}
SETTINGS: Schema = {
    "type": "object",
    "description": "As in the configuration file, with defaults; secrets are `***`.",
    "additionalProperties": True,
}
_COUNTS = array(count())
_FIGURES = array(nullable(number()))

SCHEMAS: Mapping[str, Schema] = {
    "Session": record(
        {
            "user": record({"name": nullable(TEXT), "role": text(one_of=tuple(Role))}),
            "authentication": text("Whether a key is needed.", one_of=("none", "key")),
            "version": TEXT,
            "replica": TEXT,
            "region": nullable(TEXT),
            "stores": record(
                {"database": text(one_of=("sqlite", "postgresql")), "database_ok": nullable(flag()), "redis": flag()}
            ),
            "trusted_header": flag("Whether a proxy in front has said who it is."),
            "demo": flag("Whether the providers are the simulated ones, as no key was found."),
            "models": array(TEXT),
            "clients": array(TEXT),
            "calls_ever": nullable(flag("Whether there has ever been a call; null: the database cannot say.")),
        }
    ),
    "PagePrice": nullable(record({"prompt": number("US dollars per million tokens."), "completion": number()})),
    "PageBoard": record(
        {
            "model": TEXT,
            "window_s": number("Attempts launched within so many seconds."),
            "prompt_class": count("Of the scores."),
            "deployments": array(
                {
                    "allOf": [
                        ref("LeaderboardRow"),
                        record(
                            {
                                "price": ref("PagePrice"),
                                "itl_p50_ms": nullable(number("Gaps between chunks, of the last 24 hours.")),
                                "itl_p95_ms": nullable(number()),
                            }
                        ),
                    ]
                }
            ),
        }
    ),
    "ListedCall": record(
        {
            "id": text(),
            "started_at": instant(),
            "client": nullable(TEXT),
            "model": text("As asked for."),
            "answered_model": nullable(text("The one that answered.")),
            "api": text("`chat`, `messages`, `embeddings` …"),
            "streamed": nullable(flag()),
            "mode": nullable(TEXT),
            "status_code": nullable(count()),
            "error_kind": nullable(TEXT),
            "ttft_ms": nullable(number()),
            "total_ms": nullable(number()),
            "launched": nullable(count("Attempts.")),
            "deployment": nullable(text("The winner's.")),
            "prompt_tokens": nullable(count()),
            "completion_tokens": nullable(count()),
            "decode_tps": nullable(number("Tokens per second after the first.")),
            "cost_usd": nullable(number()),
            "duplicate_cost_usd": nullable(number("Of its losers.")),
            "tags": nullable({"type": "object", "additionalProperties": TEXT}),
            "request_id": nullable(TEXT),
            "replica": nullable(TEXT),
            "is_stored": flag("False: from memory, as its row is not in the database yet."),
        },
        optional={"attempts": array({**ROW, "description": "With `attempts=true`: some columns of its table."})},
    ),
    "Alerts": record(
        {
            "enabled": flag("False: `alerts.enabled` is off."),
            "webhooks": array(text("A name in `alerts.webhooks`.")),
            "open": array(ROW),
            "data": nullable(array(ROW)),
            "sql": nullable(SQL),
        },
        about="`open` is what this process knows, also while the database is away; then `data`, its rows, is null.",
    ),
    "HistorySeries": record(
        {
            "model": TEXT,
            "deployment": TEXT,
            "provider": TEXT,
            "t": array(count("The start of the step, in seconds since 1970.")),
            **dict.fromkeys(("n", "errors", "rate_limited", "won", "first_tokens"), _COUNTS),
            **dict.fromkeys(("ttft_p50_ms", "ttft_p95_ms", "ttft_p99_ms"), _FIGURES),
            **dict.fromkeys(("tps_p50", "tps_p95", "itl_p50_ms", "itl_p95_ms"), _FIGURES),
        },
        about="One deployment of one model: columns of equal length.",
    ),
    "History": record(
        {
            "window": of_type(Window),
            "from": instant(),
            "to": instant(),
            "step_s": count(),
            "series": array(ref("HistorySeries")),
            "outages": array(
                record(
                    {
                        "deployment": TEXT,
                        "from": instant(),
                        "to": nullable(instant("Null while it lasts, and if nobody saw its end.")),
                        "may_last": flag("No end is known, and it began less than a day ago."),
                        "reason": nullable(TEXT),
                        "replica": nullable(TEXT),
                    }
                )
            ),
            "sql": SQL,
            "outages_sql": SQL,
        }
    ),
    "Slowdowns": record(
        {
            "data": array(
                record(
                    {
                        "id": TEXT,
                        "deployment": TEXT,
                        "model": TEXT,
                        "metric": text("What got worse.", one_of=("ttft", "tps", "itl", "errors")),
                        "began_at": instant(),
                        "noticed_at": instant(),
                        "ended_at": nullable(instant("Null while it lasts.")),
                        "ending": nullable(text("Why it is over.", one_of=("as_usual", "new_usual", "no_calls"))),
                        "ratio": number("How many times as slow, or as many errors, as expected."),
                        "low": number("The lower end of its interval of 95 %."),
                        "high": number("The upper end."),
                        "n": count("First tokens, answers or attempts it was noticed by."),
                        "evidence_sql": SQL,
                    }
                )
            ),
            "sql": SQL,
        }
    ),
    "Heat": record(
        {
            "metric": TEXT,
            "rows": array(
                record(
                    {
                        "deployment": TEXT,
                        "model": TEXT,
                        "cells": array(
                            record(
                                {
                                    "weekday": count("0 is Monday."),
                                    "hour": count("UTC."),
                                    "value": nullable(number()),
                                    "n": count("Attempts."),
                                }
                            )
                        ),
                    }
                )
            ),
            "sql": SQL,
        }
    ),
    "Refused": record(
        {
            "data": array(
                record(
                    {
                        "client": nullable(TEXT),
                        "status_code": count(),
                        "reason": TEXT,
                        "n": count(),
                        "n_addresses": count(),
                        "first_seen_at": instant(),
                        "last_seen_at": instant(),
                    }
                )
            ),
            "wrong_keys": array(
                record(
                    {
                        "address": nullable(TEXT),
                        "n": count(),
                        "n_minutes": count(),
                        "peak_per_minute": count(),
                        "first_seen_at": instant(),
                        "last_seen_at": instant(),
                    }
                )
            ),
            "sql": SQL,
            "wrong_keys_sql": SQL,
        }
    ),
    "Usage": record(
        {
            "data": array(
                record(
                    {
                        "client": nullable(TEXT),
                        "calls": count(),
                        "failed": count(),
                        "prompt_tokens": nullable(count()),
                        "completion_tokens": nullable(count()),
                        "cost_usd": nullable(number()),
                        "duplicate_cost_usd": nullable(number()),
                        "limits": array(of_type(Standing)),
                    }
                )
            ),
            "sql": SQL,
        }
    ),
    "Configuration": record({"settings": SETTINGS, "models": array(SETTINGS), "providers": array(SETTINGS)}),
}
