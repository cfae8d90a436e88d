"""OpenRouter's rules, from its reference and its errors; read on 2026-11-27.

It passes over fields that it does not know, and what the vendor behind it refuses comes as ``Provider returned error``.
"""

from strict_vendors.shapes import Anything, Decimal, Flag, ListOf, MapOf, Record, Text, Whole

REFERENCE = "https://openrouter.ai/docs/api-reference/chat-completion"
STATELESS = "https://openrouter.ai/docs/api_reference/responses/error-handling"  # that, not in which words
ERRORS = "https://openrouter.ai/docs/api-reference/errors"
STREAMING = "https://openrouter.ai/docs/api-reference/streaming"
REASONING = "https://openrouter.ai/docs/guides/best-practices/reasoning-tokens"
USAGE = "https://openrouter.ai/docs/use-cases/usage-accounting"
PRESERVED = "https://github.com/microsoft/agent-framework/issues/2947"
NO_TOOLS = "https://github.com/Kilo-Org/kilocode/issues/9006"
NO_PICTURES = "https://github.com/github/app/issues/2163"
NO_CHOICE = "https://github.com/zed-industries/zed/issues/36094"
RAW = "https://github.com/charmbracelet/crush/issues/279"
CORRUPTED = "https://github.com/massgen/MassGen/issues/665"
ROUTING = "https://openrouter.ai/docs/guides/routing/provider-selection"

_message = Record(
    open=True,
    fields={
        "role": Text(only=["system", "developer", "user", "assistant", "tool"]),
        "content": Anything(),
        "tool_calls": ListOf(nullable=True),
        "tool_call_id": Text(nullable=True),
        "reasoning": Text(nullable=True),
        "reasoning_details": ListOf(of=MapOf(), nullable=True),
    },
    needed=["role"],
)
CHAT = Record(
    open=True,
    page=REFERENCE,
    fields={
        "model": Text(),
        "messages": ListOf(of=_message, fewest=1),
        "models": ListOf(of=Text(), nullable=True),
        "frequency_penalty": Decimal(nullable=True, least=-2, most=2),
        "presence_penalty": Decimal(nullable=True, least=-2, most=2),
        "repetition_penalty": Decimal(nullable=True, least=0, most=2),
        "max_tokens": Whole(nullable=True),
        "max_completion_tokens": Whole(nullable=True),
        "reasoning": Record(
            open=True,
            nullable=True,
            fields={
                "effort": Text(nullable=True, only=["max", "xhigh", "high", "medium", "low", "minimal", "none"]),
                "max_tokens": Whole(nullable=True),
                "exclude": Flag(nullable=True),
                "enabled": Flag(nullable=True),
            },
        ),
        "reasoning_effort": Text(nullable=True),
        "include_reasoning": Flag(nullable=True),
        "response_format": Record(open=True, nullable=True, fields={"type": Text()}, needed=["type"]),
        "stop": Anything(),
        "stream": Flag(nullable=True),
        "stream_options": MapOf(nullable=True),
        "temperature": Decimal(nullable=True, least=0, most=2),
        "tool_choice": Anything(),
        "tools": ListOf(nullable=True),
        "top_logprobs": Whole(nullable=True, least=0, most=20),
        "top_p": Decimal(nullable=True, least=0, most=1),
        "provider": MapOf(nullable=True),
        "usage": MapOf(nullable=True),
        "user": Text(nullable=True),
    },
    needed=["messages"],
)
