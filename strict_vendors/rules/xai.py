"""xAI's rules for chat, from its reference and its errors; read on 2026-11-27. Fields that it does not know it passes over."""

from strict_vendors.shapes import Anything, Decimal, Flag, ListOf, MapOf, Record, Text, Whole

REFERENCE = "https://docs.x.ai/docs/api-reference#chat-completions"
REASONING = "https://docs.x.ai/developers/model-capabilities/text/reasoning"
EFFORT = "https://github.com/chenyme/grok2api/issues/814"
PENALTIES = "https://github.com/miaoxworld/NativeTavern/issues/83"
STOP = "https://github.com/mnfst/modelparams.dev/pull/330"
CONTENT = "https://github.com/charmbracelet/crush/issues/964"
CONTEXT = "https://github.com/chenyme/grok2api/issues/693"
MODELS = "https://docs.x.ai/docs/models"
RESPONSES = "https://docs.x.ai/docs/guides/chat"  # kept for 30 days
INSTRUCTIONS = "https://github.com/10-X-eng/vibecad/issues/4"
SEALED = "https://github.com/Wei-Shaw/sub2api/issues/4535"
SUMMARY = "https://github.com/chenyme/grok2api/pull/689"
FUNCTIONS = "https://docs.x.ai/docs/guides/function-calling"
# Quoted from its 422 of 2026-08-21; read on 2026-11-30.
OF_TOOLS = "https://github.com/architectds/modeldock/blob/main/test/codex-wire-full-xai.test.mjs"
TOOL_TYPES = (
    *("function", "web_search", "x_search", "image_generation", "collections_search", "file_search"),
    *("code_execution", "code_interpreter", "mcp", "shell"),
)

_message = Record(
    open=True,
    fields={
        "role": Text(only=["system", "developer", "user", "assistant", "tool", "function"]),
        "content": Anything(),
        "tool_calls": ListOf(nullable=True),
        "tool_call_id": Text(nullable=True),
    },
    needed=["role"],
)
CHAT = Record(
    open=True,
    page=REFERENCE,
    fields={
        "model": Text(),
        "messages": ListOf(of=_message, fewest=1),
        "frequency_penalty": Decimal(nullable=True, least=-2, most=2),
        "logprobs": Flag(nullable=True),
        "max_completion_tokens": Whole(nullable=True),
        "max_tokens": Whole(nullable=True),
        "n": Whole(nullable=True),
        "parallel_tool_calls": Flag(nullable=True),
        "presence_penalty": Decimal(nullable=True, least=-2, most=2),
        "reasoning_effort": Text(nullable=True),
        "response_format": Record(
            open=True,
            nullable=True,
            fields={"type": Text(only=["text", "json_object", "json_schema"])},
            needed=["type"],
        ),
        "seed": Whole(nullable=True),
        "stop": Anything(),
        "stream": Flag(nullable=True),
        "stream_options": MapOf(nullable=True),
        "temperature": Decimal(nullable=True, least=0, most=2),
        "tool_choice": Anything(),
        "tools": ListOf(nullable=True, most=200),
        "top_logprobs": Whole(nullable=True, least=0, most=8),
        "top_p": Decimal(nullable=True, least=0, most=1),
        "user": Text(nullable=True),
    },
    needed=["model", "messages"],
)
