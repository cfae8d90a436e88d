"""The gateway's answers, in the notation of ``schemas.schema``, by their names in /openapi.json."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from gateway.admin.openapi.schemas import OBJECT, Made, nullable, of_type, ref, schema
from gateway.core.reports import Window
from gateway.keys.stored import State
from gateway.limits import Standing
from gateway.settings import Role

# Answers of models: the fields that all have. Providers may send more, which are passed on.

UNIX_SECONDS = (int, "Unix seconds.")
_CHAT_USAGE = {"prompt_tokens completion_tokens total_tokens": int}
_USAGE = {"input_tokens output_tokens": int}
_CHAT_MESSAGE = {"role": Literal["assistant"], "content?": str | None, "tool_calls?": [OBJECT]}
_OF_MODELS: Mapping[str, Any] = {
    "ChatCompletion": (
        {
            "id": str,
            "object": Literal["chat.completion"],
            "created": UNIX_SECONDS,
            "model": (str, "The model that was asked for, or what the provider calls it."),
            "choices": [{"index": int, "message": _CHAT_MESSAGE, "finish_reason": str | None}],
            "usage?": _CHAT_USAGE,
        },
        "OpenAI's chat completion.",
    ),
    "Completion": (
        {
            "id": str,
            "object": Literal["text_completion"],
            "choices": [{"index": int, "text": str, "finish_reason": str | None}],
            "created?": UNIX_SECONDS,
            "model?": str,
            "usage?": _CHAT_USAGE,
        },
        "OpenAI's completion.",
    ),
    "Message": (
        {
            "id": str,
            "type": Literal["message"],
            "role": Literal["assistant"],
            "model": str,
            "content": [OBJECT],
            "stop_reason": str | None,
            "usage": _USAGE,
            "stop_sequence?": str | None,
        },
        "Anthropic's message.",
    ),
    "GenerateContentResponse": (
        {
            "candidates?": [{"content?": OBJECT, "finishReason?": str, "index?": int}],
            "promptFeedback?": OBJECT,
            "usageMetadata?": OBJECT,
            "modelVersion? responseId?": str,
        },
        "Google's answer.",
    ),
    "Response": (
        {
            "id": str,
            "object": Literal["response"],
            "status model": str,
            "output": [OBJECT],
            "created_at?": (float, "Unix seconds."),
            "usage?": nullable(_USAGE),
        },
        "OpenAI's response.",
    ),
    "Embeddings": (
        {
            "object": Literal["list"],
            "data": [{"index": int, "embedding": Made(type=["array", "string"])}],
            "model": str,
            "usage?": {"prompt_tokens total_tokens": int},
        },
        "OpenAI's embeddings.",
    ),
    "Error": (
        {
            "error": {
                "message": (str, "What happened, and what to do."),
                "type": (str | None, "The kind of error, as OpenAI names them."),
                "param": (str | None, "The field that is at fault, if it is one."),
                "code": (str | None, "The word to decide on."),
            }
        },
        "An error in OpenAI's format. Where a provider says that the request is invalid, its own object is sent.",
    ),
    "MessagesError": (
        {
            "type": Literal["error"],
            "error": {"type": (str, "As Anthropic names them."), "message": (str, "What happened.")},
            "request_id?": str | None,
        },
        "An error in Anthropic's format.",
    ),
    "GeminiError": (
        {
            "error": {
                "code": (int, "The HTTP status."),
                "message": (str, "What happened."),
                "status": (str, "As Google names it."),
                "details?": [OBJECT],
            }
        },
        "An error in Google's format.",
    ),
    "GoogleModel": (
        {
            "name baseModelId version displayName": str,
            "supportedGenerationMethods": [str],
            "inputTokenLimit? outputTokenLimit?": int,
        },
        "A model in Google's format.",
    ),
    "Model": (
        {
            "id": str,
            "object": Literal["model"],
            "created": (int, "Always 0: a configured name has no date."),
            "owned_by": Literal["holeshot"],
            "deployments": [str],
            "name": str,
            "context_length?": (int, "The smallest of all deployments, in tokens."),
            "top_provider?": {"context_length? max_completion_tokens?": int},
            "pricing?": (dict[str, str], "US dollars per token, the highest of all deployments."),
            "supported_parameters?": [str],
            "architecture?": {"input_modalities output_modalities": [str]},
        },
        "A model in OpenAI's format, with what is known about it in OpenRouter's fields.",
    ),
    "AnthropicModel": (
        {
            "type": Literal["model"],
            "id display_name": str,
            "created_at": datetime,
            "lifecycle": str,
            "max_input_tokens max_tokens": int | None,
        },
        "A model in Anthropic's format.",
    ),
}

# Health, and clients with their keys.

NEW_KEY = (str, "`hs-…`")
_CLIENT = {
    "name": str,
    "source": (Literal["file", "database"], "Where the client is described."),
    "expires": datetime | None,
    "keys": ["ClientKey"],
    "shadowed?": (bool, "The file has a client of this name, and that one counts."),
}
_OF_KEYS: Mapping[str, Any] = {
    "Readiness": {
        "status": (
            Literal["ok", "degraded", "keys_not_loaded", "stopping"],
            "`degraded`: a worker has stopped, or rows can be neither stored nor spooled.",
        ),
        "database": {
            "connected": (bool | None, "Unknown until it was asked."),
            "answered_s_ago": float | None,
            "pending": (int, "Rows that wait to be stored."),
            "oldest_pending_s": float | None,
        },
        "clock": {
            "ahead_s": (float | None, "Of the database's; negative: behind. Null: unknown, or SQLite."),
            "is_off": (bool, "By more than two seconds."),
        },
        "spool": {"problem": str | None, "lost": (int, "Rows.")},
        "redis": nullable(
            {
                "connected": (bool, "Whether all of it answered last time."),
                "topology": (str, "What it consists of, like `redis cluster, 3 masters`."),
            }
        ),
        "workers": nullable({"stopped": ([int], "Process ids of workers whose event loop stands still.")}),
        "keys": nullable((OBJECT, "Of the database; null without `keys: database`.")),
        "models": int,
    },
    "ClientKey": (
        {
            "state": State,
            "id?": str,
            "hint?": (str, "Its last characters."),
            "created_at?": datetime,
            "created_by?": str,
            "last_used_at?": datetime | None,
            "retires_at?": (datetime | None, "When a rotated key ends."),
            "revoked_at?": datetime | None,
        },
        "A key; of those in the file only the state is known.",
    ),
    "Client": Made(
        description="A client: its settings as far as they are set, and its keys.",
        allOf=[ref("ClientSettings"), schema(_CLIENT)],
    ),
    "ClientWithKey": Made(
        description="A client with its new key, which is never shown again.",
        allOf=[ref("Client"), schema({"key": NEW_KEY})],
    ),
}

# The answers of the page's API.

SQL = (str, "One statement that gives the same figures in `holeshot sql`.")
NEXT = (str | None, "What to ask with as `after` for the next page; null on the last one.")
ROW = (dict[str, Any], "All columns of its table: docs/sql.md.")
WORTH = (dict[str, Any], "`model` or `client`, and the columns of the view `race_value`: docs/sql.md.")
REPLAYED = (
    dict[str, Any],
    "What other settings would have done, in milliseconds and US dollars per call: docs/measuring.md.",
)
_SETTINGS = (dict[str, Any], "As in the configuration file, with defaults; secrets are `***`.")
_BOARD_ROW = {
    "price": "PagePrice",
    "itl_p50_ms": (float | None, "Gaps between chunks, of the last 24 hours."),
    "itl_p95_ms": float | None,
}
_OUTAGE = {
    "deployment": str,
    "from": datetime,
    "to": (datetime | None, "Null while it lasts, and if its end was not seen."),
    "may_last": (bool, "No end is known, and it began less than a day ago."),
    "reason replica": str | None,
}
_OUTAGE_OF_DAY = {
    **{name: _OUTAGE[name] for name in ("deployment", "from", "to", "may_last")},
    "reason": str | None,
    "replicas": [(str, "One that saw it.")],
}
_BUILDING = {
    "key kind subject": str,
    "severity": Literal["page", "ticket"],
    "summary": str,
    "sql": SQL,
    "since": datetime,
    "after_s": (float, "It opens an alert so long after `since`."),
    "opens_in_s": (float, "So long from now."),
}
_SLOWDOWN = {
    "id deployment model": str,
    "metric": (Literal["ttft", "tps", "itl", "errors"], "What got worse."),
    "began_at noticed_at": datetime,
    "ended_at": (datetime | None, "Null while it lasts."),
    "ending": (Literal["as_usual", "new_usual", "no_calls"] | None, "Why it is over."),
    "ratio": (float, "How many times as slow, or as many errors, as expected."),
    "low": (float, "The lower end of its interval of 95 %."),
    "high": (float, "The upper end."),
    "n": (int, "First tokens, answers or attempts it was noticed by."),
    "evidence_sql": SQL,
}
_CELL = {"weekday": (int, "0 is Monday."), "hour": (int, "UTC."), "value": float | None, "n": (int, "Attempts.")}
_SEEN = "first_seen_at last_seen_at"
_REFUSAL = {"client": str | None, "status_code": int, "reason": str, "n n_addresses": int, _SEEN: datetime}
_WRONG_KEYS = {"address": str | None, "n n_minutes peak_per_minute": int, _SEEN: datetime}
_USED = {
    "client": str | None,
    "calls failed": int,
    "prompt_tokens completion_tokens": int | None,
    "cost_usd duplicate_cost_usd": float | None,
    "limits": [of_type(Standing)],
}
_TEAM = {
    "team": (str | None, "Null: keys without a team, in calls that named an end user."),
    "configured": (bool, "False: it is in the ledger only."),
    "calls failed": int,
    "prompt_tokens completion_tokens": int | None,
    "cost_usd": float | None,
    "limits": [of_type(Standing)],
    "end_users": (int, "How many called."),
    "dearest": (
        [
            {
                "end_user": (str, "The keyed hash, as in the tag `end_user`."),
                "name": (str | None, "Of one in `named`; of others only the hash is known."),
                "client": (str | None, "Whose key it used; null in a team."),
                "calls failed": int,
                "prompt_tokens completion_tokens": int | None,
                "cost_usd": float | None,
            }
        ],
        "The ten end users that cost most.",
    ),
}
_OF_PAGE: Mapping[str, Any] = {
    "Session": {
        "user": {"name": str | None, "role": Role},
        "authentication": (Literal["none", "key"], "Whether a key is needed."),
        "version replica": str,
        "region": str | None,
        "stores": {
            "database": Literal["sqlite", "postgresql"],
            "database_ok": bool | None,
            "clock_off_s": (
                float | None,
                "By how much this replica's clock is off the database's, if that is too much.",
            ),
            "replica": (
                nullable({"connected": bool, "lag_s": float | None}),
                "Of `reports_database_url`, if it is set.",
            ),
            "redis": bool,
        },
        "trusted_header": (bool, "Whether a proxy in front has said who it is."),
        "sign_in": (bool, "Whether people can sign in at a provider."),
        "demo": (bool, "Whether the providers are the simulated ones, as no key was found."),
        "models deployments clients": [str],
        "payers": (bool, "Whether there are `teams`, or limits of `end_users`."),
        "calls_ever": (bool | None, "Whether there has ever been a call; null: the database cannot say."),
    },
    "PagePrice": nullable({"prompt": (float, "US dollars per million tokens."), "completion": float}),
    "PageBoard": {
        "model": str,
        "window_s": (float, "Attempts launched within so many seconds."),
        "prompt_class": (int, "Of the scores."),
        "deployments": [Made(allOf=[ref("LeaderboardRow"), schema(_BOARD_ROW)])],
        "narrowed": Made(
            nullable(ref("Narrowing")),
            description="Since when most of its calls have fewer attempts than asked for, and why; null: not so.",
        ),
    },
    "ListedCall": {
        "id": str,
        "started_at": datetime,
        "client": str | None,
        "model": (str, "As asked for."),
        "answered_model": (str | None, "The one that answered."),
        "api": (str, "`chat`, `messages`, `embeddings` …"),
        "streamed": bool | None,
        "mode": str | None,
        "status_code": int | None,
        "error_kind": str | None,
        "ttft_ms total_ms": float | None,
        "launched": (int | None, "Attempts."),
        "extras": (int | None, "Of these, those that started while another one of the call ran."),
        "width_asked": (
            int | None,
            "Attempts that its mode, width and budget would start with; null: it is not raced.",
        ),
        "narrowed": (str | None, "Why there were fewer of them, or a later extra one was refused."),
        "deployment": (str | None, "The winner's."),
        "prompt_tokens completion_tokens": int | None,
        "tokens_source": (str | None, "Who counted them: `reported`, `estimated` …"),
        "decode_tps": (float | None, "Tokens per second after the first."),
        "cost_usd": float | None,
        "duplicate_cost_usd": (float | None, "Of its losers."),
        "tags": dict[str, str] | None,
        "request_id replica": str | None,
        "is_stored": (bool, "False: from memory, as its row is not in the database yet."),
        "attempts?": [(dict[str, Any], "With `attempts=true`: some columns of its table.")],
    },
    "Alerts": (
        {
            "enabled": (bool, "False: `alerts.enabled` is off."),
            "webhooks": [(str, "A name in `alerts.webhooks`.")],
            "open": [ROW],
            "building": ([_BUILDING], "What opens an alert if it goes on."),
            "data": nullable([ROW]),
            "sql outages_sql": nullable(SQL),
            "outages": (nullable([_OUTAGE_OF_DAY]), "Of the last day, however short; the newest first."),
        },
        "`open` and `building` are what this process knows, also while the database is away; then the rest is null.",
    ),
    "HistorySeries": (
        {
            "model deployment provider": str,
            "t": [(int, "The start of the step, in seconds since 1970.")],
            "n errors rate_limited won first_tokens": [int],
            "ttft_p50_ms ttft_p95_ms ttft_p99_ms tps_p50 tps_p95 itl_p50_ms itl_p95_ms": [float | None],
        },
        "One deployment of one model: columns of equal length.",
    ),
    "History": {
        "window": nullable(of_type(Window)),
        "from to": datetime,
        "step_s": int,
        "series": ["HistorySeries"],
        "outages": [_OUTAGE],
        "sql outages_sql": SQL,
    },
    "Slowdowns": {
        "data": [_SLOWDOWN],
        "sql": SQL,
    },
    "Heat": {"metric": str, "rows": [{"deployment model": str, "cells": [_CELL]}], "sql": SQL},
    "Refused": {"data": [_REFUSAL], "wrong_keys": [_WRONG_KEYS], "sql wrong_keys_sql": SQL},
    "Usage": {
        "data": [_USED],
        "teams": (
            [{"team": str, "limits": [of_type(Standing)]}],
            "Of the configuration; what they used is in `GET /api/teams`.",
        ),
        "sums_trail_s": float | None,
        "replica_lag_s": (float | None, "How far behind the replica of `reports_database_url` is; null without one."),
        "sql": SQL,
    },
    "Teams": {
        "data": [_TEAM],
        "sql": (nullable(SQL), "Null where there are neither teams nor limits of end users."),
    },
    "Configuration": {"settings": _SETTINGS, "models providers": [_SETTINGS]},
}
# The state of a target.
_BURN = {
    "window_s": (int, "Of the last so many seconds."),
    "calls bad": int,
    "burn_rate": (float | None, "1 spends the budget just within the target's days; null without calls."),
    "sql": SQL,
}
STANDING = {
    "name": str,
    "model": (str | None, "Whose calls; null: any."),
    "client profile": str | None,
    "ttft_ms": (float | None, "The first token comes sooner."),
    "tok_s": (float | None, "At least, after it."),
    "gap_ms": (float | None, "The longest between two chunks."),
    "objective": (float, "The share of calls that is to be good."),
    "days": (int, "Over how long."),
    "subject": (str, "Whose calls, in words."),
    "condition": (str, "What a good call is, in words."),
    "calls": (int, "That count: docs/monitoring.md#targets."),
    "bad": int,
    "failed": (int, "Of the bad ones."),
    "late": (int, "Of the bad ones: the first token came too late, or the client left before it."),
    "slow": (int, "Of the bad ones."),
    "halting": (int, "Of the bad ones: with too long a gap."),
    "good_share": float | None,
    "budget_left": (float | None, "The share of the error budget; below 0 the target is missed."),
    "burns": [_BURN],
    "verdict": (str, "Whether it is kept, in words."),
    "sql": SQL,
    "misses_sql": (str, "A statement that lists its newest bad calls."),
}
ANSWERS: Mapping[str, Any] = {**_OF_MODELS, **_OF_KEYS, **_OF_PAGE}
