"""The rules of servers that one runs oneself (vLLM, llama.cpp's, Ollama), from their source; read on 2026-11-27.

They pass over fields that they do not know; what they refuse are types, combinations, and what the model's own template
for its prompts does not have.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from strict_vendors.shapes import Anything, Decimal, Flag, ListOf, MapOf, Record, Text, Whole

Json = dict[str, Any]

VLLM_CHAT = "https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/openai/chat_completion/protocol.py"
VLLM_PARSERS = "https://github.com/vllm-project/vllm/issues/9986"
VLLM_CONTEXT = "https://github.com/vllm-project/vllm/issues/33418"
VLLM_ROUTES = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html"
LLAMA_CPP = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-common.cpp"
LLAMA_CPP_ROUTES = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"
LLAMA_CPP_CONTEXT = "https://github.com/ggml-org/llama.cpp/pull/15780"
LLAMA_CPP_TEMPLATE = "https://github.com/ggml-org/llama.cpp/issues/27367"
OLLAMA_CHAT = "https://github.com/ollama/ollama/blob/main/openai/openai.go"
OLLAMA_ROUTES = "https://github.com/ollama/ollama/blob/main/server/routes.go"
OLLAMA_NO_TOOLS = "https://github.com/louisho5/picobot/issues/6"
OLLAMA_NO_THINKING = "https://github.com/Gitlawb/openclaude/issues/1371"
OLLAMA_MESSAGES = "https://docs.ollama.com/api/anthropic-compatibility"  # since 0.14; Responses since 0.13.3
OLLAMA_RESPONSES = "https://github.com/ollama/ollama/blob/main/openai/responses.go"
OLLAMA_ANTHROPIC = "https://github.com/ollama/ollama/blob/main/middleware/anthropic.go"
VLLM_RESPONSES = "https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/openai/responses/protocol.py"
VLLM_STORE = "https://github.com/vllm-project/vllm/pull/22137"
VLLM_MESSAGES = "https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/anthropic/protocol.py"
VLLM_BEARER = "https://github.com/vllm-project/vllm/issues/51572"  # Messages, too, takes no x-api-key
LLAMA_CPP_REASONING = "https://github.com/ggml-org/llama.cpp/pull/28737"
LLAMA_CPP_ITEMS = "https://github.com/ggml-org/llama.cpp/issues/26394"
ONE_SYSTEM = "https://github.com/vllm-project/vllm/issues/43590"
ALTERNATING = "https://github.com/OpenSecretCloud/opensecret/issues/120"

# What templates of models refuse, as marks of a model.
FIRST_SYSTEM, ALTERNATES, NO_SYSTEM = "system message first", "roles alternate", "no system message"

_TEMPLATES = {
    FIRST_SYSTEM: "System message must be at the beginning.",
    ALTERNATES: "Conversation roles must alternate user/assistant/user/assistant/...",
    NO_SYSTEM: "System role not supported",
}
_TEMPLATE_PAGES = {FIRST_SYSTEM: ONE_SYSTEM, ALTERNATES: ALTERNATING, NO_SYSTEM: ALTERNATING}


def refused_by_template(messages: Sequence[Json], marks: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    """Yield what a model's template raises: its words, the name of the rule, its page."""
    roles = ["system" if message["role"] == "developer" else message["role"] for message in messages]
    turns = roles[1:] if roles[:1] == ["system"] else roles
    spoken = [role for role in turns if role != "tool"]
    expected = [("user", "assistant")[place % 2] for place in range(len(turns))]
    broken = {
        FIRST_SYSTEM: "system" in roles[1:],
        ALTERNATES: turns != expected if "tool" not in turns else spoken[:1] != ["user"],
        NO_SYSTEM: "system" in roles,
    }
    for mark, is_broken in broken.items():
        if is_broken and mark in marks:
            yield _TEMPLATES[mark], mark, _TEMPLATE_PAGES[mark]


_text = Text(nullable=True)
_call = Record(
    open=True,
    fields={
        "id": Text(),
        "function": Record(open=True, fields={"name": Text(), "arguments": Anything()}, needed=["name"]),
    },
    needed=["function"],
)
_message = Record(
    open=True,
    fields={
        "role": Text(),
        "content": Anything(),
        "tool_calls": ListOf(of=_call, nullable=True),
        "tool_call_id": _text,
    },
    needed=["role"],
)
_tool = Record(
    open=True,
    fields={
        "type": Text(only=["function"]),
        "function": Record(
            open=True,
            fields={"name": Text(), "description": _text, "parameters": MapOf(nullable=True)},
            needed=["name"],
        ),
    },
    needed=["function"],
)
_COMMON = {
    "model": _text,
    "messages": ListOf(of=_message),
    "frequency_penalty": Decimal(nullable=True),
    "presence_penalty": Decimal(nullable=True),
    "max_tokens": Whole(nullable=True),
    "seed": Whole(nullable=True),
    "stop": Anything(),
    "stream": Flag(nullable=True),
    "stream_options": Record(open=True, nullable=True, fields={"include_usage": Flag(nullable=True)}),
    "temperature": Decimal(nullable=True),
    "top_p": Decimal(nullable=True),
    "tools": ListOf(of=_tool, nullable=True),
    "tool_choice": Anything(),
    "response_format": Record(open=True, nullable=True, fields={"type": Text()}),
}
VLLM = Record(
    open=True,
    page=VLLM_CHAT,
    fields={
        **_COMMON,
        "logit_bias": MapOf(nullable=True),
        "logprobs": Flag(nullable=True),
        "top_logprobs": Whole(nullable=True),
        "max_completion_tokens": Whole(nullable=True),
        "n": Whole(nullable=True),
        "response_format": Record(
            open=True,
            nullable=True,
            fields={"type": Text(only=["text", "json_object", "json_schema", "structural_tag"])},
        ),
        "reasoning_effort": Text(nullable=True, only=["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
        "include_reasoning": Flag(),
        "parallel_tool_calls": Flag(nullable=True),
        "user": _text,
        "chat_template_kwargs": MapOf(nullable=True),
    },
    needed=["messages"],
)
LLAMA = Record(open=True, page=LLAMA_CPP, fields={"messages": ListOf(of=_message), "stream": Flag(nullable=True)})
OLLAMA = Record(
    open=True,
    page=OLLAMA_CHAT,
    fields={
        **_COMMON,
        "messages": ListOf(
            nullable=True,
            of=Record(
                open=True,
                fields={"role": _text, "content": Anything(), "tool_calls": ListOf(of=_call, nullable=True)},
            ),
        ),
        "reasoning_effort": _text,
        "reasoning": Record(open=True, nullable=True, fields={"effort": _text}),
        "logprobs": Flag(nullable=True),
        "top_logprobs": Whole(nullable=True),
    },
)
