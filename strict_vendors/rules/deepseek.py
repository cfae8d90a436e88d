"""DeepSeek's rules for chat, from https://api-docs.deepseek.com and its errors; read on 2026-11-27.

Its server reads the body into types of Rust: fields that these do not have are passed over, other types are refused.
"""

from strict_vendors.apis.messages_like import BLOCKS, IMAGE, block, table
from strict_vendors.shapes import Anything, Decimal, Flag, ListOf, MapOf, Record, Text, Whole

CHAT_PAGE = "https://api-docs.deepseek.com/api/create-chat-completion"
THINKING = "https://api-docs.deepseek.com/guides/thinking_mode"
PRICING = "https://api-docs.deepseek.com/quick_start/pricing"
PREFIX = "https://api-docs.deepseek.com/guides/chat_prefix_completion"
JSON_MODE = "https://api-docs.deepseek.com/guides/json_mode"
SEQUENCE = "https://github.com/BerriAI/litellm/issues/6642"
ROLES = "https://github.com/icebear0828/codex-proxy/issues/589"
PASSED_BACK = "https://github.com/JohnnyZ93/oai-compatible-copilot/issues/215"
CHOICE = "https://github.com/deepseek-ai/DeepSeek-V3/issues/1376"
FOLLOWED = "https://github.com/langgenius/dify/issues/32222"
MAX_TOKENS = "https://github.com/MoonshotAI/kimi-code/issues/509"
CONTEXT = "https://github.com/evalstate/fast-agent/issues/621"
FORMAT = "https://github.com/llm-exe/llm-exe/issues/662"
NO_FIELD = "https://github.com/EKKOLearnAI/hermes-studio/issues/323"

ROLES_IT_HAS = ("system", "user", "assistant", "tool", "latest_reminder")
# How its page maps the efforts of other vendors to its own; "none" is one of its Responses only.
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max", "ultra")

_call = Record(
    open=True,
    fields={
        "id": Text(),
        "type": Text(only=["function"]),
        "function": Record(open=True, fields={"name": Text(), "arguments": Text()}, needed=["name", "arguments"]),
    },
    needed=["id", "type", "function"],
)
_message = Record(
    open=True,
    fields={
        "role": Text(only=ROLES_IT_HAS),
        "content": Anything(),  # looked at by its own words
        "name": Text(nullable=True),
        "prefix": Flag(nullable=True),
        "reasoning_content": Text(nullable=True),
        "tool_calls": ListOf(of=_call, nullable=True),
        "tool_call_id": Text(nullable=True),
    },
    needed=["role"],
)
CHAT = Record(
    open=True,
    page=CHAT_PAGE,
    fields={
        "messages": ListOf(of=_message, fewest=1),
        "model": Text(),
        "thinking": Record(
            open=True, nullable=True, fields={"type": Text(only=["enabled", "disabled"])}, needed=["type"]
        ),
        "reasoning_effort": Text(nullable=True, only=EFFORTS),
        "frequency_penalty": Decimal(nullable=True, least=-2, most=2),
        "presence_penalty": Decimal(nullable=True, least=-2, most=2),
        "max_tokens": Whole(nullable=True),
        "response_format": Record(open=True, nullable=True, fields={"type": Text()}, needed=["type"]),
        "stop": Anything(),
        "stream": Flag(nullable=True),
        "stream_options": MapOf(nullable=True),
        "temperature": Decimal(nullable=True, least=0, most=2),
        "top_p": Decimal(nullable=True, least=0, most=1),
        "tools": ListOf(
            nullable=True,
            most=128,
            of=Record(
                open=True,
                fields={
                    "type": Text(only=["function"]),
                    "function": Record(
                        open=True,
                        fields={
                            "name": Text(longest=64, pattern=r"^[a-zA-Z0-9_-]+$"),
                            "description": Text(nullable=True),
                            "parameters": MapOf(nullable=True),
                            "strict": Flag(nullable=True),
                        },
                        needed=["name"],
                    ),
                },
                needed=["type", "function"],
            ),
        ),
        "tool_choice": Anything(),
        "logprobs": Flag(nullable=True),
        "top_logprobs": Whole(nullable=True, least=0, most=20),
    },
    needed=["messages", "model"],
)

# Its Messages: https://api-docs.deepseek.com/api/create-message, read on 2026-11-29. Blocks of other types are refused,
# redacted thoughts among them; a signature of thoughts may be anybody's, or missing.
MESSAGES_PAGE = "https://api-docs.deepseek.com/api/create-message"
THOUGHTS_IN_MESSAGES = "https://github.com/OEvortex/aether/issues/31"
MESSAGES = table(
    MESSAGES_PAGE,
    {**BLOCKS, "image": IMAGE, "server_tool_use": block(), "web_search_tool_result": block()},
    max_tokens=Whole(least=1, most=393_216),
)
