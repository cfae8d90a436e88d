"""The fields of Google's interactions: of a request, of its steps and contents, as its SDK for Python has them.

Of google-genai 3.6.1 (google/genai/_gaos/types/interactions), read on 2026-11-29.
"""

from strict_vendors.shapes import Anything, ByTag, Decimal, Either, Flag, ListOf, MapOf, Record, Shape, Text, Whole

PAGE = "https://ai.google.dev/gemini-api/docs/interactions"
STREAMS = "https://ai.google.dev/gemini-api/docs/streaming"
CALLS = "https://ai.google.dev/gemini-api/docs/function-calling"
BACKGROUND = "https://ai.google.dev/gemini-api/docs/background-execution"
REPLAYED = "https://github.com/earendil-works/pi/pull/2172"  # read on 2026-11-29
ONLY_HERE = "https://github.com/mlcommons/modelbench/issues/1655"  # likewise
AGENTS = ("deep-research-preview-04-2026", "antigravity-preview-09-2026")

_signature = Text()
_file: dict[str, Shape] = {"data": Text(), "mime_type": Text(), "uri": Text(), "processing": Anything()}
_CONTENTS: dict[str, Shape] = {
    "text": Record(fields={"type": Text(), "text": Text(), "annotations": ListOf(of=MapOf())}, needed=["text"]),
    "image": Record(fields={"type": Text(), **_file, "resolution": Text()}),
    "audio": Record(fields={"type": Text(), **_file, "channels": Whole(), "sample_rate": Whole()}),
    "document": Record(fields={"type": Text(), **_file, "resolution": Text()}),
    "video": Record(fields={"type": Text(), **_file, "resolution": Text(), "name": Text()}),
}
_CONTENT = ByTag(shapes=_CONTENTS)
_OF_TOOLS = (
    *("code_execution", "file_search", "google_maps", "google_search", "mcp_server_tool", "processing", "retrieval"),
    *("tool_search", "url_context"),
)
_STEPS: dict[str, Shape] = {
    "user_input": Record(fields={"type": Text(), "content": ListOf(of=_CONTENT)}),
    "model_output": Record(fields={"type": Text(), "content": ListOf(of=_CONTENT), "error": MapOf()}),
    "thought": Record(fields={"type": Text(), "signature": _signature, "summary": ListOf(of=_CONTENT)}),
    "function_call": Record(
        fields={"type": Text(), "id": Text(shortest=1), "name": Text(shortest=1), "arguments": MapOf()},
        needed=["id", "name", "arguments"],
    ),
    "function_result": Record(
        fields={
            "type": Text(),
            "call_id": Text(shortest=1),
            "name": Text(),
            "is_error": Flag(),
            "result": Either(shapes=[Text(), ListOf(of=_CONTENT), MapOf()]),
        },
        needed=["call_id", "result"],
    ),
    **{f"{tool}_{what}": MapOf() for tool in _OF_TOOLS for what in ("call", "result")},
}
_TOOL = ByTag(
    shapes={
        "function": Record(
            fields={
                "type": Text(),
                "name": Text(pattern=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),
                "description": Text(),
                "short_description": Text(),
                "defer_loading": Flag(),
                "parameters": Anything(),
            },
            needed=["name"],
        ),
        **dict.fromkeys(
            (
                *("code_execution", "computer_use", "file_search", "google_maps", "google_search", "mcp_server"),
                *("retrieval", "tool_search", "url_context"),
            ),
            MapOf(),
        ),
    }
)
_MODE = Text(only=["auto", "any", "none", "validated"])
_CHOICE = Record(fields={"allowed_tools": Record(fields={"mode": _MODE, "tools": ListOf(of=Text())})})
_FORMAT = ByTag(
    shapes={
        "text": Record(fields={"type": Text(), "mime_type": Text(), "schema": MapOf()}),
        **dict.fromkeys(("audio", "image", "video"), MapOf()),
    }
)
CREATE = Record(
    page=PAGE,
    fields={
        "model": Text(),
        "agent": Text(),
        "agent_config": MapOf(),
        "background": Flag(),
        "cached_content": Text(),
        "continuation_token": Text(),
        "environment": Either(shapes=[Text(), MapOf()]),
        "generation_config": Record(
            fields={
                "max_output_tokens": Whole(least=1),
                "seed": Whole(),
                "stop_sequences": ListOf(of=Text()),
                "temperature": Decimal(least=0, most=2),
                "top_p": Decimal(least=0, most=1),
                "thinking_level": Text(only=["minimal", "low", "medium", "high", "xhigh"]),
                "thinking_summaries": Text(only=["auto", "none"]),
                "tool_choice": Either(shapes=[_MODE, _CHOICE]),
                **dict.fromkeys(("image_config", "transcription_config", "video_config"), MapOf()),
                "speech_config": Anything(),
            }
        ),
        "input": Either(shapes=[Text(), _CONTENT, ListOf(of=ByTag(shapes=_CONTENTS | _STEPS))]),
        "labels": MapOf(of=Text()),
        "previous_interaction_id": Text(),
        "response_format": Either(shapes=[_FORMAT, ListOf(of=_FORMAT)]),
        "response_mime_type": Text(),
        "response_modalities": ListOf(of=Text(only=["text", "image", "audio", "video", "document"])),
        "safety_settings": ListOf(
            of=Record(fields={"type": Text(), "threshold": Text(), "method": Text()}, needed=["type", "threshold"])
        ),
        "service_tier": Text(only=["flex", "standard", "priority", "deferred"]),
        "store": Flag(),
        "stream": Flag(),
        "system_instruction": Text(),
        "tools": ListOf(of=_TOOL),
        "webhook_config": MapOf(),
    },
)
