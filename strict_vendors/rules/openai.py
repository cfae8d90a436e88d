"""OpenAI's rules: its models, and the fields of chat completions and embeddings.

Fields, types and bounds are those of its OpenAPI document (https://github.com/openai/openai-openapi, openapi.yaml);
where its servers are stricter than the document, the page is beside the rule.
"""

from msgspec import structs

from strict_vendors.apis.bound_reasoning import BOUND, GUIDE
from strict_vendors.models import Model, Models, alike
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

SPEC = "https://github.com/openai/openai-openapi/blob/main/openapi.yaml"
STRICT = "https://platform.openai.com/docs/guides/structured-outputs#supported-schemas"
NAME = Text(longest=64, shortest=1, pattern="^[a-zA-Z0-9_-]+$", page=f"{SPEC} FunctionObject.name")
SCHEMA = MapOf(page=SPEC)
METADATA = MapOf(
    of=Text(longest=512), most=16, longest_key=64, nullable=True, page=f"{SPEC} Metadata: 16 pairs, keys 64, values 512"
)
EFFORT = Text(
    only=("none", "minimal", "low", "medium", "high", "xhigh", "max"), nullable=True, page=f"{SPEC} ReasoningEffort"
)
VERBOSITY = Text(only=("low", "medium", "high"), nullable=True, page=f"{SPEC} Verbosity")
TIER = Text(  # the last one: https://openai.com/index/previewing-ultrafast
    only=("auto", "default", "flex", "scale", "priority", "fast", "ultrafast"),
    nullable=True,
    page=f"{SPEC} ServiceTier",
)
CACHE = Record(
    fields={"ttl": Text(), "mode": Text(), "comparison_response_id": Text(nullable=True), "prewarm": Flag()},
    page=f"{SPEC} PromptCacheOptionsParam",
)
BREAKPOINT = MapOf(nullable=True, page=f"{SPEC} PromptCacheBreakpointParam")

COMMON = {  # ModelResponseProperties
    "metadata": METADATA,
    "temperature": Decimal(least=0, most=2, nullable=True),
    "top_p": Decimal(least=0, most=1, nullable=True),
    "top_logprobs": Whole(least=0, most=20, nullable=True),
    "user": Text(nullable=True),  # LlamaIndex sends null: https://github.com/run-llama/llama_index, OpenAIResponses
    "safety_identifier": Text(longest=64, nullable=True),
    "prompt_cache_key": Text(longest=64, nullable=True),
    "prompt_cache_retention": Text(only=("in_memory", "24h"), nullable=True),
    "prompt_cache_options": CACHE,
    "service_tier": TIER,
    "store": Flag(nullable=True),
    "stream": Flag(nullable=True),
    "parallel_tool_calls": Flag(),
    "moderation": Record(fields={"model": Text(), "policy": Anything()}, needed=("model",), nullable=True),
}


def _part(kind: str, inner: Shape) -> Record:
    fields = {"type": Text(), kind: inner, "prompt_cache_breakpoint": BREAKPOINT}
    return Record(fields=fields, needed=("type", kind), page=f"{SPEC} ChatCompletionRequest…ContentPart")


_TEXT_PART = _part("text", Text())
_PARTS = {
    "text": _TEXT_PART,
    "image_url": _part(
        "image_url",
        Record(
            fields={"url": Text(shortest=1), "detail": Text(only=("auto", "low", "high", "original"))}, needed=("url",)
        ),
    ),
    "input_audio": _part(
        "input_audio",
        Record(fields={"data": Text(), "format": Text(only=("wav", "mp3"))}, needed=("data", "format")),
    ),
    "file": _part("file", Record(fields={"filename": Text(), "file_data": Text(), "file_id": Text()})),
}
_LONG = Text(
    longest=10_485_760, page="https://github.com/gptscript-ai/clio/issues/41 (1048576 then, ten times that since)"
)


def _content(*parts: str, nullable: bool = False) -> Shape:
    shapes = {name: ({**_PARTS, "refusal": _part("refusal", Text())})[name] for name in parts}
    return Either(shapes=(_LONG, ListOf(of=ByTag(shapes=shapes), fewest=1)), nullable=nullable)


_CALL = ByTag(
    shapes={
        "function": Record(
            fields={
                "id": Text(longest=40, page="https://github.com/vercel/ai/issues/5171"),
                "type": Text(),
                "function": Record(fields={"name": NAME, "arguments": Text()}, needed=("name", "arguments")),
            },
            needed=("id", "type", "function"),
            page=f"{SPEC} ChatCompletionMessageToolCall",
        ),
        "custom": Record(
            fields={
                "id": Text(longest=40),
                "type": Text(),
                "custom": Record(fields={"name": NAME, "input": Text()}, needed=("name", "input")),
            },
            needed=("id", "type", "custom"),
            page=f"{SPEC} ChatCompletionMessageCustomToolCall",
        ),
    }
)


def _message(content: Shape, *needed: str, **fields: Shape) -> Record:
    return Record(
        fields={"role": Text(), "content": content, "name": Text(), **fields},
        needed=("role", *needed),
        page=f"{SPEC} ChatCompletionRequestMessage",
    )


MESSAGE = ByTag(
    tag="role",
    shapes={
        "developer": _message(_content("text"), "content"),
        "system": _message(_content("text"), "content"),
        "user": _message(_content("text", "image_url", "input_audio", "file"), "content"),
        "assistant": _message(
            _content("text", "refusal", nullable=True),
            refusal=Text(nullable=True),
            audio=Record(fields={"id": Text()}, needed=("id",), nullable=True),
            tool_calls=ListOf(of=_CALL, fewest=1, most=128),
            function_call=Record(
                fields={"name": NAME, "arguments": Text()}, needed=("name", "arguments"), nullable=True
            ),
            # Its own answers have it, and SDKs send it back: accepted, though the document does not name it.
            annotations=ListOf(),
        ),
        "tool": _message(_content("text"), "content", "tool_call_id", tool_call_id=Text(longest=40)),
        "function": _message(Text(nullable=True), "content", "name"),
    },
)
_FUNCTION = Record(
    fields={
        "name": NAME,
        # At most 1,024 letters until 2025; of any length since (https://github.com/run-llama/llama_index/pull/18784).
        "description": Text(),
        "parameters": SCHEMA,
        "strict": Flag(nullable=True),
    },
    needed=("name",),
    page=f"{SPEC} FunctionObject",
)
_GRAMMAR = Record(
    fields={"definition": Text(), "syntax": Text(only=("lark", "regex"))}, needed=("definition", "syntax")
)
_CUSTOM = Record(
    fields={
        "name": NAME,
        "description": Text(),
        "format": ByTag(
            shapes={
                "text": Record(fields={"type": Text()}),
                "grammar": Record(fields={"type": Text(), "grammar": _GRAMMAR}, needed=("grammar",)),
            }
        ),
    },
    needed=("name",),
    page=f"{SPEC} CustomToolChatCompletions",
)
_NAMED = Record(fields={"name": NAME}, needed=("name",))
_FORMAT = ByTag(
    shapes={
        "text": Record(fields={"type": Text()}),
        "json_object": Record(fields={"type": Text()}),
        "json_schema": Record(
            fields={
                "type": Text(),
                "json_schema": Record(
                    fields={"name": NAME, "description": Text(), "schema": SCHEMA, "strict": Flag(nullable=True)},
                    needed=("name",),
                ),
            },
            needed=("json_schema",),
        ),
    },
    page=f"{SPEC} ResponseFormatJsonSchema",
)
CHAT = Record(
    fields={
        **COMMON,
        "model": Text(),
        "messages": ListOf(of=MESSAGE, fewest=1),
        "modalities": ListOf(of=Text(only=("text", "audio")), nullable=True),
        "verbosity": VERBOSITY,
        "reasoning_effort": EFFORT,
        "max_completion_tokens": Whole(least=1, nullable=True),
        "max_tokens": Whole(least=1, nullable=True),
        "frequency_penalty": Decimal(least=-2, most=2, nullable=True),
        "presence_penalty": Decimal(least=-2, most=2, nullable=True),
        "web_search_options": Record(
            fields={"user_location": MapOf(nullable=True), "search_context_size": Text(only=("low", "medium", "high"))}
        ),
        "response_format": _FORMAT,
        "audio": Record(fields={"voice": Anything(), "format": Text()}, needed=("voice", "format"), nullable=True),
        "stop": Either(shapes=(Text(), ListOf(of=Text(), fewest=1, most=4)), nullable=True),
        "logit_bias": MapOf(of=Decimal(least=-100, most=100), nullable=True),
        "logprobs": Flag(nullable=True),
        "n": Whole(least=1, most=128, nullable=True),
        "prediction": MapOf(nullable=True),
        "seed": Whole(nullable=True),
        "stream_options": Record(
            fields={"include_usage": Flag(), "include_obfuscation": Flag()}, nullable=True, page=f"{SPEC} StreamOptions"
        ),
        "tools": ListOf(
            of=ByTag(
                shapes={
                    "function": Record(fields={"type": Text(), "function": _FUNCTION}, needed=("function",)),
                    "custom": Record(fields={"type": Text(), "custom": _CUSTOM}, needed=("custom",)),
                }
            ),
            fewest=1,
            most=128,
            page="https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools: at most 128",
        ),
        "tool_choice": Either(
            shapes=(
                Text(only=("none", "auto", "required")),
                ByTag(
                    shapes={
                        "function": Record(fields={"type": Text(), "function": _NAMED}, needed=("function",)),
                        "custom": Record(fields={"type": Text(), "custom": _NAMED}, needed=("custom",)),
                        "allowed_tools": Record(
                            fields={
                                "type": Text(),
                                "allowed_tools": Record(
                                    fields={"mode": Text(only=("auto", "required")), "tools": ListOf()},
                                    needed=("mode", "tools"),
                                ),
                            },
                            needed=("allowed_tools",),
                        ),
                    }
                ),
            )
        ),
        "function_call": Either(shapes=(Text(only=("none", "auto")), _NAMED)),
        "functions": ListOf(of=_FUNCTION.without("strict"), fewest=1, most=128),
    },
    needed=("messages", "model"),
    page=f"{SPEC} CreateChatCompletionRequest",
)
EMBEDDINGS = Record(
    fields={
        "model": Text(),
        "input": Either(
            shapes=(
                Text(shortest=1),
                ListOf(of=Either(shapes=(Text(shortest=1), Whole(), ListOf(of=Whole()))), fewest=1, most=2048),
            )
        ),
        "encoding_format": Text(only=("float", "base64")),
        "dimensions": Whole(least=1),
        "user": Text(nullable=True),  # LlamaIndex sends null by default, and works there
    },
    needed=("input", "model"),
    page=f"{SPEC} CreateEmbeddingRequest",
)

_MODELS = "https://platform.openai.com/docs/models"
_ALONE = frozenset({"responses"})
# What thinking models refuse of chat: https://platform.openai.com/docs/guides/reasoning, with the words of
# https://github.com/huggingface/smolagents/issues/1671 (stop) and https://github.com/nextlevelbuilder/goclaw/pull/213.
_O_SERIES = frozenset({"top_p", "logprobs", "top_logprobs", "presence_penalty", "frequency_penalty", "logit_bias"})
_THINKING = Model(
    context=400_000,
    longest=128_000,
    efforts=("minimal", "low", "medium", "high"),
    usual="medium",
    not_taken=_O_SERIES | {"stop"},
    marks=frozenset({"only temperature 1", "max_completion_tokens"}),
    page=_MODELS,
)
_FROM_5_1 = Model(  # https://platform.openai.com/docs/guides/latest-model: sampling only where it does not think
    context=400_000,
    longest=128_000,
    efforts=("none", "low", "medium", "high"),
    usual="none",
    not_taken=frozenset({"stop", "presence_penalty", "frequency_penalty", "logit_bias"}),
    marks=frozenset({"samples without effort", "max_completion_tokens"}),
    page="https://platform.openai.com/docs/guides/latest-model",
)
_FROM_5_4 = Model(  # tools in chat only without thinking: https://github.com/openai/openai-openapi/issues/541
    context=1_050_000,
    longest=128_000,
    efforts=("none", "low", "medium", "high", "xhigh"),
    usual="none",
    not_taken=_FROM_5_1.not_taken,
    marks=_FROM_5_1.marks | {"no tools with effort in chat"},
    page="https://github.com/pipecat-ai/pipecat/issues/4043",
)
_FROM_5_5 = Model(  # it thinks unasked: https://github.com/BerriAI/litellm/pull/34569
    context=1_050_000,
    longest=128_000,
    efforts=("none", "low", "medium", "high", "xhigh"),
    usual="medium",
    not_taken=_FROM_5_1.not_taken,
    marks=_FROM_5_4.marks,
    page="https://github.com/BerriAI/litellm/pull/34569",
)
# GPT-6: no effort none but for these, so that chat has none with tools: https://github.com/genkit-ai/genkit/pull/6303.
_FROM_6 = Model(
    context=1_050_000,
    longest=128_000,
    efforts=("low", "medium", "high", "xhigh", "max"),
    usual="medium",
    not_taken=_O_SERIES | {"stop"},
    marks=frozenset({"only temperature 1", "max_completion_tokens", "no tools with effort in chat"}),
    page="https://developers.openai.com/api/docs/guides/latest-model",
)
_THINKS_IF_TOLD = structs.replace(_FROM_6, efforts=("none", *_FROM_6.efforts))
_FROM_6_2 = structs.replace(  # of 2026-11-18, read on 2026-11-29
    _FROM_6, marks=_FROM_6.marks | {BOUND, "no flex"}, page=GUIDE
)
_IN_RESPONSES_ALONE = Model(  # https://github.com/docker/docker-agent/issues/313
    apis=_ALONE,
    context=400_000,
    longest=128_000,
    efforts=("low", "medium", "high"),
    usual="medium",
    not_taken=_THINKING.not_taken,
    marks=_THINKING.marks,
    page="https://platform.openai.com/docs/models/gpt-5-codex",
)
_PRO = Model(
    apis=_ALONE,
    context=400_000,
    longest=272_000,
    efforts=("high",),
    usual="high",
    not_taken=_THINKING.not_taken,
    marks=_THINKING.marks,
    page="https://platform.openai.com/docs/models/gpt-5-pro",
)
_LATER_PRO = Model(
    apis=_ALONE,
    context=400_000,
    longest=128_000,
    efforts=("medium", "high", "xhigh"),
    usual="medium",
    not_taken=_THINKING.not_taken,
    marks=_THINKING.marks,
    page="https://platform.openai.com/docs/models/gpt-5.2-pro",
)
_O3 = Model(
    context=200_000,
    longest=100_000,
    efforts=("low", "medium", "high"),
    usual="medium",
    not_taken=_O_SERIES | {"stop", "parallel_tool_calls"},
    marks=_THINKING.marks,
    page="https://platform.openai.com/docs/guides/reasoning",
)
_O1 = Model(
    context=200_000,
    longest=100_000,
    efforts=("low", "medium", "high"),
    usual="medium",
    not_taken=_O_SERIES | {"parallel_tool_calls"},
    marks=_THINKING.marks,
    page="https://platform.openai.com/docs/guides/reasoning",
)
MODELS = Models(
    *alike(("gpt-4o", "gpt-4o-mini", "chatgpt-4o"), Model(page=f"{_MODELS}/gpt-4o")),
    *alike(("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano"), Model(context=1_047_576, longest=32_768, page=f"{_MODELS}/gpt-4.1")),
    Model("gpt-4-turbo", longest=4096, marks=frozenset({"no schemas"}), page=f"{_MODELS}/gpt-4-turbo"),
    Model("gpt-3.5-turbo", context=16_385, longest=4096, marks=frozenset({"no schemas"}), page=f"{_MODELS}/gpt-3.5-turbo"),
    Model("gpt-5-chat", marks=frozenset({"no tools"}), page=f"{_MODELS}/gpt-5-chat-latest"),
    *alike(("o1", "o3-mini"), _O1),
    *alike(("o3", "o4-mini"), _O3),
    *alike(("gpt-5", "gpt-5-mini", "gpt-5-nano"), _THINKING),
    *alike(("gpt-5.1",), _FROM_5_1),
    Model(
        "gpt-5.2",
        context=400_000,
        longest=128_000,
        efforts=("none", "low", "medium", "high", "xhigh"),
        usual="none",
        not_taken=_FROM_5_1.not_taken,
        marks=_FROM_5_1.marks,
        page=_FROM_5_1.page,
    ),
    *alike(("gpt-5.4", "gpt-5.4-mini", "gpt-5.4-nano"), _FROM_5_4),
    *alike(("gpt-6-astra", "gpt-6.1-sol"), _FROM_6),
    *alike(("gpt-6-sol", "gpt-6-luna", "gpt-6.1-terra"), _THINKS_IF_TOLD),
    *alike(("gpt-6.2-astra", "gpt-6.2-sol", "gpt-6.3-sol"), _FROM_6_2),  # the last one is not out yet
    *alike(("gpt-5.5", "gpt-5.6", "gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6-luna"), _FROM_5_5),
    *alike(
        (
            "gpt-5-codex", "gpt-5.1-codex", "gpt-5.1-codex-mini", "gpt-5.1-codex-max", "gpt-5.2-codex", "gpt-5.3-codex",
            "codex-mini",
        ),
        _IN_RESPONSES_ALONE,
    ),
    *alike(("o1-pro", "o3-pro", "o3-deep-research", "o4-mini-deep-research"), _IN_RESPONSES_ALONE),
    *alike(("gpt-5-pro",), _PRO),
    *alike(("gpt-5.2-pro", "gpt-5.4-pro", "gpt-5.5-pro"), _LATER_PRO),
    *alike(
        ("text-embedding-3-small", "text-embedding-3-large", "text-embedding-ada-002"),
        Model(apis=frozenset({"embeddings"}), context=8192, page=f"{_MODELS}/text-embedding-3-small"),
    ),
)  # fmt: skip
