"""Anthropic's rules: its models, and the fields of Messages.

Fields, types and bounds are those of https://platform.claude.com/docs/en/api/messages and of the SDK made from its
OpenAPI document (https://github.com/anthropics/anthropic-sdk-python, src/anthropic/types); where its servers are
stricter, the page is beside the rule.
"""

import re

from msgspec import structs

from strict_vendors.apis.bound_thoughts import ACCOUNT, PAGE, PREFIX
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

API = "https://platform.claude.com/docs/en/api/messages"
SDK = "https://github.com/anthropics/anthropic-sdk-python/tree/main/src/anthropic/types"
TOOL_ID = Text(pattern="^[a-zA-Z0-9_-]+$", page="https://github.com/maximhq/bifrost/issues/5097")
CACHE = Record(
    fields={"type": Text(only=("ephemeral",)), "ttl": Text(only=("5m", "1h"))}, needed=("type",), nullable=True
)
_TOOL_NAME = Text(
    pattern="^[a-zA-Z0-9_-]{1,128}$",
    page="https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use",
)


def _block(*needed: str, **fields: Shape) -> Record:
    return Record(
        fields={"type": Text(), "cache_control": CACHE, **fields}, needed=needed, page=f"{SDK}/content_block_param.py"
    )


_SOURCE = ByTag(
    shapes={
        "base64": Record(
            fields={
                "type": Text(),
                "media_type": Text(only=("image/jpeg", "image/png", "image/gif", "image/webp")),
                "data": Text(),
            },
            needed=("media_type", "data"),
        ),
        "url": Record(fields={"type": Text(), "url": Text()}, needed=("url",)),
        "file": Record(fields={"type": Text(), "file_id": Text()}, needed=("file_id",)),
    }
)
_DOCUMENT = ByTag(
    shapes={
        "base64": Record(
            fields={"type": Text(), "media_type": Text(only=("application/pdf",)), "data": Text()},
            needed=("media_type", "data"),
        ),
        "text": Record(
            fields={"type": Text(), "media_type": Text(only=("text/plain",)), "data": Text()},
            needed=("media_type", "data"),
        ),
        "content": Record(fields={"type": Text(), "content": Either(shapes=(Text(), ListOf()))}, needed=("content",)),
        "url": Record(fields={"type": Text(), "url": Text()}, needed=("url",)),
        "file": Record(fields={"type": Text(), "file_id": Text()}, needed=("file_id",)),
    }
)
TEXT = _block("text", text=Text(), citations=ListOf(nullable=True))
_IMAGE = _block("source", source=_SOURCE)
_PAPER = _block(
    "source", source=_DOCUMENT, citations=MapOf(nullable=True), context=Text(nullable=True), title=Text(nullable=True)
)
_FOUND = _block("content", "source", "title", content=ListOf(of=TEXT), source=Text(), title=Text(), citations=MapOf())
_REFERENCE = _block("tool_name", tool_name=Text())
# A browser's tabs after a call: types/beta/beta_browser_state_block_param.py of anthropic 2.14, read on 2026-11-29.
_BROWSER_STATE = _block("tabs", tabs=ListOf(of=MapOf()), state_changes=ListOf(of=MapOf()))
_HOSTED = Record(
    fields={"type": Text()}, open=True, page=f"{SDK}/content_block_param.py: what Anthropic's own tools gave"
)
BLOCKS = {
    "text": TEXT,
    "image": _IMAGE,
    "document": _PAPER,
    "search_result": _FOUND,
    "thinking": Record(
        fields={"type": Text(), "thinking": Text(), "signature": Text()},
        needed=("signature", "thinking"),
        page="https://github.com/JohnnyZ93/oai-compatible-copilot/issues/217",
    ),
    "redacted_thinking": Record(fields={"type": Text(), "data": Text()}, needed=("data",)),
    "tool_use": _block("id", "name", "input", id=TOOL_ID, name=Text(shortest=1, longest=200), input=MapOf(), caller=MapOf(), toolset_name=Text(nullable=True)),
    "tool_result": _block(
        "tool_use_id",
        tool_use_id=TOOL_ID,
        is_error=Flag(),
        toolset_name=Text(nullable=True),
        content=Either(
            shapes=(
                Text(),
                ListOf(
                    of=ByTag(
                        shapes={
                            "text": TEXT,
                            "image": _IMAGE,
                            "document": _PAPER,
                            "search_result": _FOUND,
                            "tool_reference": _REFERENCE,
                            "browser_state": _BROWSER_STATE,
                        }
                    )
                ),
            )
        ),
    ),
    **dict.fromkeys(
        (
            "server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
            "bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result",
            "container_upload", "mcp_tool_use", "mcp_tool_result", "compaction", "advisor_tool_result", "tool_addition",
            "tool_removal", "mcp_tool_listing", "fallback",
        ),
        _HOSTED,
    ),
}  # fmt: skip
MESSAGE = Record(
    fields={
        "role": Text(only=("user", "assistant")),
        "content": Either(shapes=(Text(), ListOf(of=ByTag(shapes=BLOCKS)))),
    },
    needed=("role", "content"),
    page=f"{API}#body-messages",
)
# Instructions within messages, and what a single turn is told beside its content:
# https://platform.claude.com/docs/build-with-claude/mid-conversation-system-messages, read on 2026-11-29. Claude Code
# 2.1.332 asks for both by their betas.
WITHIN = "system within messages"
PER_TURN = ("per-turn-control", "mid-conversation-output-config")
CLEARING = "mid-conversation-system-clear-at"
TOOL_CHANGES = "mid-conversation-tool-changes", "inline-tools"
ROLES_WITH_SYSTEM = Text(only=("user", "assistant", "system"))
_CALLERS = ListOf(of=Text())
_CUSTOM = Record(
    fields={
        "type": Text(nullable=True),
        "name": _TOOL_NAME,
        "description": Text(),
        "input_schema": Record(fields={"type": Text(only=("object",))}, needed=("type",), open=True),
        "cache_control": CACHE,
        "strict": Flag(),
        "defer_loading": Flag(),
        "allowed_callers": _CALLERS,
        "eager_input_streaming": Flag(nullable=True),
        "input_examples": ListOf(of=MapOf()),
    },
    needed=("name", "input_schema"),
    page=f"{SDK}/tool_param.py",
)
_OWN = Record(fields={"type": Text(), "name": Text(), "cache_control": CACHE}, needed=("name",), open=True)
_TOOLSET = Record(fields={"type": Text(), "cache_control": CACHE}, open=True)
TOOL = ByTag(
    usual="custom",
    shapes={
        "custom": _CUSTOM,
        **dict.fromkeys(
            (
                "bash_20250124", "code_execution_20250522", "code_execution_20250825", "code_execution_20260120",
                "code_execution_20260521", "memory_20250818", "text_editor_20250124", "text_editor_20250429",
                "text_editor_20250728", "web_search_20250305", "web_fetch_20250910", "web_search_20260209",
                "web_fetch_20260209", "web_fetch_20260309", "web_search_20260318", "web_fetch_20260318",
                "tool_search_tool_bm25_20251119", "tool_search_tool_regex_20251119", "computer_20250124",
                "computer_20251124", "bash_20241022", "text_editor_20241022", "computer_20241022", "advisor_20260301",
            ),
            _OWN,
        ),
        # https://platform.claude.com/docs/agents-and-tools/tool-use/tool-reference, read on 2026-11-29
        **dict.fromkeys(("computer_toolset_20260801", "browser_toolset_20260801", "mcp_toolset"), _TOOLSET),
    },
    page=f"{SDK}/tool_union_param.py",
)  # fmt: skip
_NOT_PARALLEL = {"type": Text(), "disable_parallel_tool_use": Flag()}
THINKING = ByTag(
    shapes={
        "enabled": Record(
            fields={
                "type": Text(),
                "budget_tokens": Whole(least=1024, page="https://github.com/themaximalist/llm.js/issues/30"),
                "display": Text(only=("summarized", "omitted"), nullable=True),
            },
            needed=("budget_tokens",),
        ),
        "adaptive": Record(fields={"type": Text(), "display": Text(only=("summarized", "omitted"), nullable=True)}),
        "between_tools": Record(fields={"type": Text()}),
        "disabled": Record(fields={"type": Text()}),
    },
    page=f"{API}#body-thinking",
)
_BOTH: dict[str, Shape] = {  # what counting takes too
    "model": Text(shortest=1, longest=256),
    "messages": ListOf(of=MESSAGE, most=100_000),
    "system": Either(shapes=(Text(), ListOf(of=ByTag(shapes={"text": TEXT})))),
    "cache_control": CACHE,
    "output_config": Record(
        fields={
            "effort": Text(only=("low", "medium", "high", "xhigh", "max"), nullable=True),
            "format": ByTag(
                shapes={"json_schema": Record(fields={"type": Text(), "schema": MapOf()}, needed=("schema",))},
                nullable=True,
            ),
            "task_budget": MapOf(nullable=True),
        },
        page=f"{SDK}/output_config_param.py",
    ),
    "thinking": THINKING,
    "tool_choice": ByTag(
        shapes={
            "auto": Record(fields=_NOT_PARALLEL),
            "any": Record(fields=_NOT_PARALLEL),
            "tool": Record(fields={**_NOT_PARALLEL, "name": Text()}, needed=("name",)),
            "none": Record(fields={"type": Text()}),
        }
    ),
    "tools": ListOf(of=TOOL),
}
MESSAGES = Record(
    fields={
        **_BOTH,
        "max_tokens": Whole(least=1),
        "metadata": Record(fields={"user_id": Text(longest=256, nullable=True)}),
        "container": Anything(),
        "inference_geo": Text(nullable=True),
        "speed": Text(only=("standard", "fast"), nullable=True),
        "diagnostics": Anything(),
        "service_tier": Text(only=("auto", "standard_only")),
        "stop_sequences": ListOf(of=Text()),
        "stream": Flag(),
        "temperature": Decimal(least=0, most=1),
        "top_k": Whole(least=0),
        "top_p": Decimal(least=0, most=1),
    },
    needed=("model", "messages", "max_tokens"),
    page=API,
)
COUNT = Record(
    fields=_BOTH, needed=("model", "messages"), page="https://platform.claude.com/docs/en/api/messages-count-tokens"
)
# Fields that only a beta has: which word its header must hold (SDK, types/beta/message_create_params.py).
_SDK = "https://github.com/anthropics/anthropic-sdk-python, 2.14"
_THREAD = ByTag(
    shapes={
        "create": Record(fields={"type": Text()}, needed=("type",), page=_SDK),
        "continue": Record(
            fields={"type": Text(), "previous_message_id": Text()}, needed=("type", "previous_message_id"), page=_SDK
        ),
    }
)
BETA_FIELDS: dict[str, tuple[tuple[str, ...], Shape]] = {
    "context_management": (("context-management", "compact"), MapOf(nullable=True)),  # compact-2026-01-12 of the SDK
    "mcp_servers": (("mcp-client",), ListOf(of=MapOf())),
    "output_format": (("structured-outputs",), MapOf(nullable=True)),
    "fallbacks": (("server-side-fallback",), Anything()),
    # user_profile_id and workspace_id of the SDK are headers: anthropic-user-profile-id, anthropic-workspace-id.
    "billing_policy": (("user-profiles",), MapOf(nullable=True)),
    "compaction": (
        ("compact-2026-09",),
        Record(fields={"type": Text(only=("summarize",)), "instructions": Text(nullable=True)}, needed=("type",)),
    ),
    "fallback_credit_token": (
        ("fallback-credit",),
        Either(shapes=(Text(), Record(fields={"token": Text(), "mode": Text()}, needed=("token",)))),
    ),
    "thread": (("message-threads",), _THREAD),
}
# Thoughts are bound for all, but only the beta has the field that says what becomes of those that fail (``REASONS`` of
# apis/bound_thoughts.py: "400 thinking.adaptive.block_binding: Extra inputs are not permitted").
_BINDING = Record(
    fields={
        "prefix_mismatch_behavior": Text(only=("error", "drop_block"), nullable=True),
        "bind_to_additional_organizations": ListOf(nullable=True),
        "bind_to_end_user": Flag(nullable=True),
    },
    nullable=True,
)
# Short words on how it gets on are shown with a beta only (SDK, types/anthropic_beta_param.py, read on 2026-11-29); Claude
# Code 2.1.332 asks for them where its answers are read as a stream.
UPDATES = "thinking-display-updates"


def thinking_with(*, controls: bool, updates: bool) -> Shape:
    """Return the field with what betas add to it."""
    display = {"display": Text(only=("summarized", "omitted", "updates"), nullable=True)} if updates else {}
    added: dict[str, dict[str, Shape]] = {
        "adaptive": {**display, **({"block_binding": _BINDING} if controls else {})},
        "enabled": {**display},
    }
    return ByTag(
        shapes={
            name: shape.also((), **added.get(name, {})) if isinstance(shape, Record) else shape
            for name, shape in THINKING.shapes.items()
        },
        page=THINKING.page,
    )


BETA = re.compile(r"[a-z0-9-]+-20\d\d-?\d\d-?\d\d")

# Marks of this autumn's models: thinking cannot be turned off; a call of a tool cannot be forced.
ALWAYS_THINKS, NO_FORCED_TOOLS = "always thinks", "no forced tools"
_MODELS = "https://platform.claude.com/docs/en/about-claude/models/overview"
_MANUAL = Model(
    apis=frozenset({"messages"}),
    context=200_000,
    longest=64_000,
    efforts=("enabled",),
    marks=frozenset({"one of temperature and top_p"}),
    page=_MODELS,
)
_AT_4_6 = Model(  # https://platform.claude.com/docs/en/about-claude/models/whats-new-claude-4-6: no prefill any more
    apis=frozenset({"messages"}),
    context=1_000_000,
    longest=128_000,
    efforts=("enabled", "adaptive"),
    marks=frozenset({"one of temperature and top_p", "effort", "max", "no prefill"}),
    page="https://platform.claude.com/docs/en/about-claude/models/whats-new-claude-4-6",
)
_FROM_4_7 = Model(  # https://github.com/stippi/code-assistant/pull/119, https://github.com/UKGovernmentBEIS/inspect_ai/issues/3721
    apis=frozenset({"messages"}),
    context=1_000_000,
    longest=128_000,
    efforts=("adaptive",),
    not_taken=frozenset({"temperature", "top_p", "top_k"}),
    marks=frozenset({"effort", "max", "xhigh", "no prefill", "omits thoughts"}),
    page="https://github.com/stippi/code-assistant/pull/119",
)
_FROM_5 = Model(  # it thinks unasked: https://github.com/pydantic/pydantic-ai/pull/7991
    apis=frozenset({"messages"}),
    context=1_000_000,
    longest=128_000,
    efforts=("adaptive",),
    usual="adaptive",
    not_taken=_FROM_4_7.not_taken,
    marks=_FROM_4_7.marks,
    page="https://github.com/pydantic/pydantic-ai/pull/7991",
)
_OPUS_5_5_PAGE = "https://platform.claude.com/docs/en/models/opus-5-5/migration-guide"
_OPUS_5_5 = Model(  # read on 2026-11-29; Opus 5.5 is of 2026-09-22
    apis=frozenset({"messages"}),
    context=1_000_000,
    longest=128_000,
    efforts=("adaptive",),
    usual="adaptive",
    not_taken=_FROM_4_7.not_taken,
    marks=_FROM_4_7.marks | {ALWAYS_THINKS, NO_FORCED_TOOLS, PREFIX, WITHIN},
    page=_OPUS_5_5_PAGE,
)
_SONNET_5_5 = structs.replace(  # of 2026-09-28
    _OPUS_5_5,
    efforts=("adaptive", "between_tools"),
    marks=_OPUS_5_5.marks | {ACCOUNT},
    page="https://platform.claude.com/docs/en/models/sonnet-5-5/migration-guide",
)
_HAIKU_5_5 = structs.replace(  # it takes disabled, and a forced tool
    _OPUS_5_5,
    efforts=("adaptive", "disabled"),
    marks=_SONNET_5_5.marks - {ALWAYS_THINKS, NO_FORCED_TOOLS},
    page="https://platform.claude.com/docs/en/models/haiku-5-5/migration-guide",
)
MODELS = Models(
    *alike(("claude-haiku-4-5", "claude-sonnet-4-5"), _MANUAL),
    Model(
        "claude-opus-4-5",
        apis=_MANUAL.apis,
        context=200_000,
        longest=64_000,
        efforts=("enabled",),
        marks=_MANUAL.marks | {"effort"},
        page=_MODELS,
    ),
    Model(
        "claude-opus-4-1",
        apis=_MANUAL.apis,
        context=200_000,
        longest=32_000,
        efforts=("enabled",),
        marks=_MANUAL.marks,
        page=_MODELS,
    ),
    *alike(("claude-opus-4-6", "claude-sonnet-4-6"), _AT_4_6),
    *alike(("claude-opus-4-7", "claude-opus-4-8"), _FROM_4_7),
    *alike(("claude-opus-5", "claude-sonnet-5", "claude-fable-5", "claude-mythos-5"), _FROM_5),
    *alike(
        # The last one is not out yet: who meets a model of tomorrow has to take it for its family's newest.
        ("claude-opus-5-5", "claude-fable-5-1", "claude-fable-5-2", "claude-mythos-5-2", "claude-opus-5-7"),
        _OPUS_5_5,
        dict.fromkeys(("claude-fable-5-1", "claude-fable-5-2", "claude-mythos-5-2"), PAGE),
    ),
    *alike(("claude-sonnet-5-5",), _SONNET_5_5),
    *alike(("claude-haiku-5-5",), _HAIKU_5_5),
)
