"""Groq's rules for chat, from its SDK's types, its pages and its errors; read on 2026-11-27.

What its document does not name is a 400: ``property 'x' is unsupported``, with what it takes for a slip of the pen.
"""

from strict_vendors.shapes import (
    Anything,
    ByTag,
    Decimal,
    Either,
    Flag,
    ListOf,
    MapOf,
    Record,
    Shape,
    Text,
    Whole,
)

SDK = "https://github.com/groq/groq-python/blob/main/src/groq/types/chat/completion_create_params.py"
PROPERTY = "https://github.com/fanenr/chatbot/issues/21"
IN_MESSAGES = "https://github.com/tashfeenahmed/freellmapi/issues/1070"
RESPONSES = "https://console.groq.com/docs/responses-api#unsupported-features"  # which, not in which words
COMPATIBLE = "https://console.groq.com/docs/openai"
REASONING = "https://console.groq.com/docs/reasoning"
EFFORT = "https://github.com/earendil-works/pi/issues/3764"
NO_EFFORT = "https://github.com/iamsrikanthnani/pluely/issues/242"
QWENS_EFFORT = "https://github.com/earendil-works/pi/issues/1745"
STRUCTURED = "https://console.groq.com/docs/structured-outputs"
JSON_AND_TOOLS = "https://github.com/vercel/ai/pull/16540"
LONGEST = "https://github.com/khoj-ai/khoj/issues/1236"
CONTEXT = "https://github.com/thepersonalaicompany/amurex-backend/issues/51"
NO_SUCH_TOOL = "https://github.com/BerriAI/litellm/issues/11001"
MODELS = "https://console.groq.com/docs/models"

EFFORTS = ("none", "default", "low", "medium", "high")
_null = Text(nullable=True)
_text = Record(fields={"type": Text(), "text": Text(), "cache_control": Anything()}, needed=["type", "text"])
_parts = ByTag(
    shapes={
        "text": _text,
        "image_url": Record(
            fields={
                "type": Text(),
                "image_url": Record(
                    fields={"url": Text(), "detail": Text(only=["auto", "low", "high"])}, needed=["url"]
                ),
            },
            needed=["type", "image_url"],
        ),
        "document": Record(fields={"type": Text(), "document": MapOf()}, needed=["type", "document"]),
    }
)
_plain = Either(shapes=[Text(), ListOf(of=ByTag(shapes={"text": _text}))])
_function = Record(fields={"name": Text(), "arguments": Text()}, needed=["name", "arguments"])
_call = Record(
    fields={"id": Text(), "type": Text(only=["function"]), "function": _function}, needed=["id", "type", "function"]
)
_system = Record(fields={"role": Text(), "content": _plain, "name": _null}, needed=["role", "content"])
_MESSAGES: dict[str, Shape] = {
    "system": _system,
    "developer": _system,
    "user": Record(
        fields={"role": Text(), "content": Either(shapes=[Text(), ListOf(of=_parts)]), "name": _null},
        needed=["role", "content"],
    ),
    "assistant": Record(
        fields={
            "role": Text(),
            "content": Either(nullable=True, shapes=_plain.shapes),
            "name": _null,
            "reasoning": _null,
            "tool_calls": ListOf(of=_call, nullable=True),
            "function_call": _function,
        },
        needed=["role"],
    ),
    "tool": Record(
        fields={"role": Text(), "content": Either(shapes=[Text(), ListOf(of=_parts)]), "tool_call_id": Text()},
        needed=["role", "content", "tool_call_id"],
    ),
    "function": Record(fields={"role": Text(), "content": _null, "name": Text()}, needed=["role", "name"]),
}
_tool = Record(
    fields={
        "type": Text(),
        "function": Record(
            fields={
                "name": Text(),
                "description": _null,
                "parameters": MapOf(nullable=True),
                "strict": Flag(nullable=True),
            },
            needed=["name"],
        ),
    },
    needed=["type"],
)
CHAT = Record(
    page=SDK,
    fields={
        "messages": ListOf(of=ByTag(tag="role", shapes=_MESSAGES), fewest=1),
        "model": Text(),
        "citation_options": Text(nullable=True, only=["enabled", "disabled"]),
        "compound_custom": MapOf(nullable=True),
        "disable_tool_validation": Flag(),
        "documents": ListOf(nullable=True),
        "exclude_domains": ListOf(of=Text(), nullable=True),
        "frequency_penalty": Decimal(nullable=True, least=-2, most=2),
        "function_call": Anything(),
        "functions": ListOf(nullable=True),
        "include_domains": ListOf(of=Text(), nullable=True),
        "include_reasoning": Flag(nullable=True),
        "logit_bias": MapOf(nullable=True),
        "logprobs": Flag(nullable=True),
        "max_completion_tokens": Whole(nullable=True, least=1),
        "max_tokens": Whole(nullable=True, least=1),
        "metadata": MapOf(of=Text(), nullable=True),
        "n": Whole(nullable=True, least=1, most=1),
        "parallel_tool_calls": Flag(nullable=True),
        "presence_penalty": Decimal(nullable=True, least=-2, most=2),
        "reasoning_effort": Text(nullable=True, only=EFFORTS),
        "reasoning_format": Text(nullable=True, only=["hidden", "raw", "parsed"]),
        "response_format": Record(
            nullable=True,
            fields={
                "type": Text(only=["text", "json_object", "json_schema"]),
                "json_schema": Record(
                    fields={
                        "name": Text(),
                        "description": _null,
                        "schema": MapOf(nullable=True),
                        "strict": Flag(nullable=True),
                    },
                    needed=["name"],
                ),
            },
            needed=["type"],
        ),
        "search_settings": MapOf(nullable=True),
        "seed": Whole(nullable=True),
        "service_tier": Text(nullable=True, only=["auto", "on_demand", "flex", "performance"]),
        "stop": Either(nullable=True, shapes=[Text(), ListOf(of=Text(), most=4)]),
        "store": Flag(nullable=True),
        "stream": Flag(nullable=True),
        "stream_options": Record(nullable=True, fields={"include_usage": Flag(nullable=True)}),
        "temperature": Decimal(nullable=True, least=0, most=2),
        "tool_choice": Either(
            nullable=True,
            shapes=[
                Text(only=["none", "auto", "required"]),
                Record(
                    fields={
                        "type": Text(only=["function"]),
                        "function": Record(fields={"name": Text()}, needed=["name"]),
                    },
                    needed=["type", "function"],
                ),
            ],
        ),
        "tools": ListOf(of=_tool, nullable=True, most=128),
        "top_logprobs": Whole(nullable=True, least=0, most=20),
        "top_p": Decimal(nullable=True, least=0, most=1),
        "user": _null,
    },
    needed=["messages", "model"],
)
