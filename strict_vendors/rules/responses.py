"""OpenAI's Responses: the fields of a request, its items and its tools.

Fields, types and bounds are those of https://github.com/openai/openai-openapi (openapi.yaml, CreateResponse); where its
servers are stricter than the document, the page is beside the rule.
"""

from collections.abc import Mapping

from strict_vendors.rules.openai import BREAKPOINT, COMMON, EFFORT, SCHEMA, SPEC, VERBOSITY
from strict_vendors.shapes import (
    Anything,
    ByTag,
    Either,
    Flag,
    ListOf,
    MapOf,
    Record,
    Shape,
    Text,
    Whole,
)

NAME = Text(shortest=1, longest=128, pattern="^[a-zA-Z0-9_-]+$", page=f"{SPEC} FunctionToolParam.name")
CALL_ID = Text(shortest=1, longest=64, page="https://github.com/AnswerDotAI/fastllm/issues/45")
ID = Text(longest=64, nullable=True, page="https://github.com/ranxianglei/billion-context/issues/1052")
STATUS = Text(only=("in_progress", "completed", "incomplete"), nullable=True)
CALLER = MapOf(nullable=True, page=f"{SPEC} ToolCallCaller")
_LONG = Text(longest=10_485_760)
_INPUT_PARTS: Mapping[str, Shape] = {
    "input_text": Record(
        fields={"type": Text(), "text": _LONG, "prompt_cache_breakpoint": BREAKPOINT}, needed=("text",)
    ),
    "input_image": Record(
        fields={
            "type": Text(),
            "image_url": Text(longest=20_971_520, nullable=True),
            "file_id": Text(nullable=True),
            "detail": Text(only=("auto", "low", "high", "original"), nullable=True),
            "prompt_cache_breakpoint": BREAKPOINT,
        }
    ),
    "input_file": Record(
        fields={
            "type": Text(),
            "file_id": Text(nullable=True),
            "filename": Text(nullable=True),
            "file_data": Text(longest=73_400_320, nullable=True),
            "file_url": Text(nullable=True),
            "detail": Text(only=("auto", "low", "high"), nullable=True),
            "prompt_cache_breakpoint": BREAKPOINT,
        }
    ),
}
_OUTPUT_PARTS: Mapping[str, Shape] = {
    "output_text": Record(
        fields={"type": Text(), "text": _LONG, "annotations": ListOf(nullable=True), "logprobs": ListOf(nullable=True)},
        needed=("text",),
        page=f"{SPEC} OutputTextContent; what SDKs add is refused: https://github.com/openai/openai-python/pull/3146",
    ),
    "refusal": Record(fields={"type": Text(), "refusal": Text()}, needed=("refusal",)),
}


def _message(parts: Mapping[str, Shape]) -> Record:
    return Record(
        fields={
            "type": Text(),
            "role": Text(),
            "id": ID,
            "status": STATUS,
            "phase": Text(only=("commentary", "final_answer"), nullable=True),
            "content": Either(shapes=(_LONG, ListOf(of=ByTag(shapes=parts)))),
        },
        needed=("content",),
        page=f"{SPEC} EasyInputMessage, InputMessage, OutputMessage",
    )


_OUTPUT = Either(shapes=(_LONG, ListOf(of=ByTag(shapes=_INPUT_PARTS))))


def _hosted(*needed: str, **fields: Shape) -> Record:
    """Return an item of a tool that OpenAI runs: what is in it is its own."""
    return Record(fields={"type": Text(), "id": ID, "status": STATUS, **fields}, needed=needed, open=True)


ITEM = ByTag(
    shapes={
        "message": ByTag(
            tag="role",
            shapes={
                "user": _message(_INPUT_PARTS),
                "system": _message(_INPUT_PARTS),
                "developer": _message(_INPUT_PARTS),
                "assistant": _message(_OUTPUT_PARTS),
            },
        ),
        "reasoning": Record(
            fields={
                "type": Text(),
                "id": ID,
                "summary": ListOf(
                    of=ByTag(
                        shapes={"summary_text": Record(fields={"type": Text(), "text": Text()}, needed=("text",))}
                    )
                ),
                "encrypted_content": Text(nullable=True),
                "content": ListOf(
                    most=0,
                    nullable=True,
                    page="https://github.com/musistudio/claude-code-router/issues/1783: no thoughts in the clear",
                ),
            },
            needed=("summary",),
            page="https://github.com/1jehuang/jcode/issues/1028: no status",
        ),
        "function_call": Record(
            fields={
                "type": Text(),
                "id": ID,
                "call_id": CALL_ID,
                "name": NAME,
                "arguments": Text(),
                "status": STATUS,
                "namespace": Text(nullable=True),
                "caller": CALLER,
                "async": Flag(),  # SDK 3.57, types/responses/response_function_tool_call_param.py, read on 2026-11-29
            },
            needed=("call_id", "name", "arguments"),
            page=f"{SPEC} FunctionToolCall",
        ),
        "function_call_output": Record(
            fields={
                "type": Text(),
                "id": ID,
                "call_id": CALL_ID,
                "output": _OUTPUT,
                "status": STATUS,
                "name": Text(nullable=True),
                "namespace": Text(nullable=True),
                "caller": CALLER,
            },
            needed=("call_id", "output"),
            page=f"{SPEC} FunctionCallOutputItemParam",
        ),
        "custom_tool_call": Record(
            fields={
                "type": Text(),
                "id": ID,
                "call_id": CALL_ID,
                "name": NAME,
                "input": Text(),
                "status": STATUS,
                "namespace": Text(nullable=True),
                "caller": CALLER,
            },
            needed=("call_id", "name", "input"),
            page=f"{SPEC} CustomToolCall",
        ),
        "custom_tool_call_output": Record(
            fields={"type": Text(), "id": ID, "call_id": CALL_ID, "output": _OUTPUT, "status": STATUS, "caller": CALLER},
            needed=("call_id", "output"),
            page=f"{SPEC} CustomToolCallOutput",
        ),
        "item_reference": Record(fields={"type": Text(), "id": Text(longest=64)}, needed=("id",)),
        "compaction": Record(
            fields={"type": Text(), "id": ID, "encrypted_content": Text()}, needed=("encrypted_content",)
        ),
        # SDK 3.57, types/responses/response_configuration_update_item_param_param.py, read on 2026-11-29
        "configuration_update": Record(
            fields={
                "type": Text(),
                "id": ID,
                "reasoning": Record(fields={"effort": EFFORT}),
                "text": Record(fields={"format": MapOf()}, needed=("format",)),
            }
        ),
        "local_shell_call": _hosted("call_id", "action", call_id=CALL_ID),
        "local_shell_call_output": _hosted("output"),
        "shell_call": _hosted("call_id", "action", call_id=CALL_ID),
        "shell_call_output": _hosted("call_id", "output", call_id=CALL_ID),
        "apply_patch_call": _hosted("call_id", call_id=CALL_ID),
        "apply_patch_call_output": _hosted("call_id", call_id=CALL_ID),
        **{
            name: _hosted()
            for name in (
                "file_search_call", "web_search_call", "computer_call", "computer_call_output", "image_generation_call",
                "code_interpreter_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call",
                "tool_search_call", "tool_search_output", "additional_tools", "compaction_trigger", "program",
                "program_output",
            )
        },
    },
    page=f"{SPEC} InputItem",
)  # fmt: skip
ID_PREFIXES = {  # https://github.com/continuedev/continue/issues/11494, https://github.com/openai/codex/issues/33176
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "compaction": "cmp",
}

_CALLERS = ListOf(of=Text(only=("direct", "programmatic")), nullable=True)
_FUNCTION = Record(
    fields={
        "type": Text(),
        "name": NAME,
        "description": Text(nullable=True),
        "parameters": MapOf(nullable=True),
        "strict": Flag(nullable=True),
        "output_schema": MapOf(nullable=True),
        "defer_loading": Flag(),
        "async": Flag(nullable=True),  # developers.openai.com/api/docs/guides/latest-model, read on 2026-11-29
        "allowed_callers": _CALLERS,
    },
    needed=("name",),
    page=f"{SPEC} FunctionTool",
)
_CUSTOM = Record(
    fields={
        "type": Text(),
        "name": NAME,
        "description": Text(),
        "format": ByTag(
            shapes={
                "text": Record(fields={"type": Text()}),
                "grammar": Record(
                    fields={"type": Text(), "syntax": Text(only=("lark", "regex")), "definition": Text()},
                    needed=("syntax", "definition"),
                ),
            }
        ),
        "defer_loading": Flag(),
        "async": Flag(nullable=True),  # developers.openai.com/api/docs/guides/latest-model, read on 2026-11-29
        "allowed_callers": _CALLERS,
    },
    needed=("name",),
    page=f"{SPEC} CustomToolParam",
)


def _tool(*needed: str, **fields: Shape) -> Record:
    return Record(fields={"type": Text(), "allowed_callers": _CALLERS, **fields}, needed=needed, page=f"{SPEC} Tool")


_WEB = _tool(
    external_web_access=Flag(nullable=True),
    filters=MapOf(nullable=True),
    user_location=MapOf(nullable=True),
    search_context_size=Text(only=("low", "medium", "high")),
    search_content_types=ListOf(),
)
TOOL = ByTag(
    shapes={
        "function": _FUNCTION,
        "custom": _CUSTOM,
        **dict.fromkeys(
            ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"), _WEB
        ),
        "file_search": _tool(
            "vector_store_ids",
            vector_store_ids=ListOf(of=Text()),
            max_num_results=Whole(least=1, most=50),
            ranking_options=MapOf(),
            filters=MapOf(nullable=True),
        ),
        "mcp": _tool(
            "server_label",
            server_label=Text(),
            server_url=Text(),
            connector_id=Text(),
            tunnel_id=Text(),
            authorization=Text(),
            server_description=Text(),
            headers=MapOf(nullable=True),
            allowed_tools=Anything(),
            require_approval=Anything(),
            defer_loading=Flag(),
        ),
        "code_interpreter": _tool("container", container=Either(shapes=(Text(), MapOf()))),
        "image_generation": Record(fields={"type": Text()}, open=True),
        "computer": _tool(),
        "computer_use_preview": _tool(
            "environment",
            "display_width",
            "display_height",
            environment=Text(),
            display_width=Whole(),
            display_height=Whole(),
        ),
        "local_shell": _tool(),
        "shell": _tool(environment=MapOf(nullable=True)),
        "apply_patch": _tool(),
        "programmatic_tool_calling": _tool(),
        "tool_search": _tool(
            execution=Text(only=("server", "client")), description=Text(nullable=True), parameters=MapOf(nullable=True)
        ),
        "namespace": _tool(
            "name",
            "description",
            "tools",
            name=Text(shortest=1),
            description=Text(),
            tools=ListOf(of=ByTag(shapes={"function": _FUNCTION, "custom": _CUSTOM}), fewest=1),
        ),
    },
    page=f"{SPEC} Tool",
)
INCLUDE = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
)
_CHOICE = ByTag(
    shapes={
        "function": Record(fields={"type": Text(), "name": Text()}, needed=("name",)),
        "custom": Record(fields={"type": Text(), "name": Text()}, needed=("name",)),
        "allowed_tools": Record(
            fields={"type": Text(), "mode": Text(only=("auto", "required")), "tools": ListOf()}, needed=("mode", "tools")
        ),
        "mcp": Record(fields={"type": Text(), "server_label": Text(), "name": Text(nullable=True)}),
        **{
            name: Record(fields={"type": Text()})
            for name in (
                "file_search", "web_search", "web_search_preview", "web_search_preview_2025_03_11", "computer",
                "computer_use_preview", "computer_use", "image_generation", "code_interpreter",
                "programmatic_tool_calling", "apply_patch", "shell",
            )
        },
    }
)  # fmt: skip
RESPONSES = Record(
    fields={
        **COMMON,
        "parallel_tool_calls": Flag(nullable=True),
        "model": Text(),
        "input": Either(shapes=(_LONG, ListOf(of=ITEM))),
        "instructions": Text(nullable=True),
        "previous_response_id": Text(nullable=True),
        "conversation": Either(shapes=(Text(), Record(fields={"id": Text()}, needed=("id",))), nullable=True),
        "background": Flag(nullable=True),
        "max_tool_calls": Whole(least=1, nullable=True),
        "max_output_tokens": Whole(
            least=16, nullable=True, page="https://github.com/experientiallabs/experiential/pull/799: sub-16 is refused"
        ),
        "reasoning": Record(
            fields={
                "mode": Text(),
                "effort": EFFORT,
                "summary": Text(only=("auto", "concise", "detailed"), nullable=True),
                "generate_summary": Text(only=("auto", "concise", "detailed"), nullable=True),
                "context": Text(only=("auto", "current_turn", "all_turns"), nullable=True),
            },
            nullable=True,
            page=f"{SPEC} Reasoning",
        ),
        "text": Record(
            fields={
                "format": ByTag(
                    shapes={
                        "text": Record(fields={"type": Text()}),
                        "json_object": Record(fields={"type": Text()}),
                        "json_schema": Record(
                            fields={
                                "type": Text(),
                                "name": Text(shortest=1, longest=64, pattern="^[a-zA-Z0-9_-]+$"),
                                "schema": SCHEMA,
                                "description": Text(),
                                "strict": Flag(nullable=True),
                            },
                            needed=("name", "schema"),
                        ),
                    },
                    nullable=True,
                ),
                "verbosity": VERBOSITY,
            },
            nullable=True,
            page=f"{SPEC} ResponseTextParam",
        ),
        "tools": ListOf(of=TOOL),
        "tool_choice": Either(shapes=(Text(only=("none", "auto", "required")), _CHOICE)),
        "include": ListOf(of=Text(only=INCLUDE), nullable=True, page=f"{SPEC} IncludeEnum"),
        "truncation": Text(only=("auto", "disabled"), nullable=True),
        "prompt": Record(
            fields={"id": Text(), "version": Text(nullable=True), "variables": MapOf(nullable=True)},
            needed=("id",),
            nullable=True,
        ),
        "stream_options": Record(fields={"include_obfuscation": Flag()}, nullable=True),
        "context_management": ListOf(of=MapOf(), nullable=True),
        # https://github.com/openai/openai-python, 3.57, types/responses/response_create_params.py, read on 2026-11-29
        "access_programs": Record(fields={"cyber": Text(only=("standard", "daybreak_blue", "daybreak_red"))}),
        "image": Record(fields={"context_compression": Text(only=("auto", "enabled", "disabled"))}),
        "background_options": Record(
            fields={"completion_window": Text(only=("soonest", "2h", "8h")), "continuation_id": Text()}
        ),
        "client_metadata": MapOf(
            nullable=True, page="https://github.com/openai/codex: what Codex sends in its own calls"
        ),
    },
    page=f"{SPEC} CreateResponse",
)
MOVED = {  # what chat calls otherwise: https://platform.openai.com/docs/guides/migrate-to-responses
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
CONVERSATION = Record(
    fields={"items": ListOf(of=ITEM, most=20, nullable=True), "metadata": COMMON["metadata"]},
    page=f"{SPEC} CreateConversationBody: up to 20 items at a time",
)
