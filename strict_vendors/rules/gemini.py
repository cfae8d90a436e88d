"""The rules of Gemini's chat completions (.../v1beta/openai) where they are not those of generateContent."""

from strict_vendors.shapes import Anything, Decimal, Flag, ListOf, MapOf, Record, Text, Whole

GUIDE = "https://ai.google.dev/gemini-api/docs/openai"
UNKNOWN = "https://github.com/Alishahryar1/free-claude-code/issues/542"
SIGNATURES = "https://ai.google.dev/gemini-api/docs/thought-signatures#openai"
UNSIGNED = "https://github.com/securo-finance/securo/issues/884"  # the refusal, in a list of one

_message = Record(
    open=True,  # thoughts of others are passed over: https://github.com/QwenLM/qwen-code/issues/3304
    fields={
        "role": Text(only=["system", "developer", "user", "assistant", "tool", "function"]),
        "content": Anything(),
        "tool_calls": ListOf(nullable=True),
        "tool_call_id": Text(nullable=True),
    },
    needed=["role"],
)
CHAT = Record(
    page=UNKNOWN,
    fields={
        "model": Text(),
        "messages": ListOf(of=_message),
        "audio": MapOf(nullable=True),
        "extra_body": Record(
            nullable=True,
            fields={
                "google": Record(
                    fields={
                        "thinking_config": Record(
                            fields={
                                "include_thoughts": Flag(nullable=True),
                                "thinking_budget": Whole(nullable=True),
                                "thinking_level": Text(nullable=True),
                            }
                        ),
                        "cached_content": Text(nullable=True),
                    }
                )
            },
        ),
        "logit_bias": MapOf(nullable=True),
        "logprobs": Flag(nullable=True),
        "max_completion_tokens": Whole(nullable=True),
        "max_tokens": Whole(nullable=True),
        "metadata": MapOf(nullable=True),
        "modalities": ListOf(nullable=True),
        "n": Whole(nullable=True),
        "parallel_tool_calls": Flag(nullable=True),
        "reasoning_effort": Text(nullable=True, only=["none", "minimal", "low", "medium", "high"]),
        "response_format": MapOf(nullable=True),
        "service_tier": Text(nullable=True),
        "stop": Anything(),
        "store": Flag(nullable=True),  # https://ai.google.dev/gemini-api/docs/logs-datasets, read on 2026-11-29
        "stream": Flag(nullable=True),
        "stream_options": Record(nullable=True, fields={"include_usage": Flag()}),
        "temperature": Decimal(nullable=True, least=0, most=2),
        "tool_choice": Anything(),
        "tools": ListOf(nullable=True),
        "top_logprobs": Whole(nullable=True),
        "top_p": Decimal(nullable=True),
        "user": Text(nullable=True),
        "web_search_options": MapOf(nullable=True),
    },
    needed=["model", "messages"],
)
# https://ai.google.dev/gemini-api/docs/openai#thinking: what an effort is in tokens, for models without levels
BUDGETS = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
