"""Mistral's rules for chat, from its OpenAPI document: a field that it does not name is a 422, ``extra_forbidden``."""

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

# ChatCompletionRequest and what it refers to, of public/openapi.yaml, each with additionalProperties: false; read on
# 2026-11-27.
OPENAPI = "https://github.com/mistralai/platform-docs-public/blob/main/public/openapi.yaml"
# The order of roles, the forms of ids and names; read on 2026-11-27. The API was still seen to refuse a user's message
# after a tool's when the library already let it pass (https://github.com/NousResearch/hermes-agent/issues/20154).
ORDER = "https://github.com/mistralai/mistral-common/blob/main/src/mistral_common/protocol/instruct/validator.py"
USER_AFTER_TOOL = "https://github.com/onyx-dot-app/onyx/issues/6458"
# Which models take an effort, and which: "none" and "high"; the words for others.
EFFORTS = "https://github.com/anomalyco/models.dev/pull/1986"
NO_EFFORT = "https://github.com/architects-toolkit/SmartHopper/issues/647"
PROMPT_MODE = "https://github.com/earendil-works/pi/issues/3096"

CALL_ID = r"[a-zA-Z0-9]{9}"
NAME = r"[a-zA-Z0-9_-]{1,64}"

_string = Text(nullable=True)
_text = Record(fields={"type": Text(only=["text"]), "text": Text()}, needed=["text"])
_thinking = Record(
    fields={
        "type": Text(only=["thinking"]),
        "thinking": ListOf(of=ByTag(shapes={"text": _text, "reference": Anything(), "tool_reference": Anything()})),
        "signature": _string,
        "closed": Flag(),
    },
    needed=["thinking"],
)
_image = Record(
    fields={
        "type": Text(only=["image_url"]),
        "image_url": Either(
            shapes=[
                Text(),
                Record(
                    fields={"url": Text(), "detail": Text(nullable=True, only=["low", "auto", "high"])}, needed=["url"]
                ),
            ]
        ),
    },
    needed=["image_url"],
)
_chunks = ByTag(
    usual="text",
    shapes={
        "text": _text,
        "thinking": _thinking,
        "image_url": _image,
        "document_url": Record(
            fields={"type": Text(), "document_url": Text(), "document_name": _string}, needed=["document_url"]
        ),
        "file": Record(fields={"type": Text(), "file_id": Text()}, needed=["file_id"]),
        "input_audio": Record(fields={"type": Text(), "input_audio": Text()}, needed=["input_audio"]),
        "reference": Record(fields={"type": Text(), "reference_ids": ListOf()}, needed=["reference_ids"]),
    },
)
_content = Either(nullable=True, shapes=[Text(), ListOf(of=_chunks)])
_call = Record(
    fields={
        "id": Text(),
        "type": Text(only=["function"]),
        "function": Record(
            fields={"name": Text(), "arguments": Either(shapes=[Text(), MapOf()])}, needed=["name", "arguments"]
        ),
        "index": Whole(),
    },
    needed=["function"],
)
_MESSAGES: dict[str, Shape] = {
    "system": Record(
        fields={
            "role": Text(),
            "content": Either(shapes=[Text(), ListOf(of=ByTag(shapes={"text": _text, "thinking": _thinking}))]),
        },
        needed=["content"],
    ),
    "user": Record(fields={"role": Text(), "content": _content}, needed=["content"]),
    "assistant": Record(
        fields={
            "role": Text(),
            "content": _content,
            "tool_calls": ListOf(of=_call, nullable=True),
            "prefix": Flag(),
        }
    ),
    "tool": Record(
        fields={"role": Text(), "content": _content, "tool_call_id": _string, "name": _string}, needed=["content"]
    ),
}
_tool = ByTag(
    usual="function",
    shapes={
        "function": Record(
            fields={
                "type": Text(),
                "function": Record(
                    fields={
                        "name": Text(),
                        "description": Text(),
                        "strict": Flag(),
                        "parameters": MapOf(),
                    },
                    needed=["name", "parameters"],
                ),
            },
            needed=["function"],
        ),
        **{
            hosted: Record(fields={"type": Text()}, open=True)
            for hosted in (
                "web_search",
                "web_search_premium",
                "code_interpreter",
                "image_generation",
                "document_library",
                "connector",
            )
        },
    },
)
CHAT = Record(
    page=OPENAPI,
    fields={
        "model": Text(),
        "temperature": Decimal(nullable=True, least=0, most=1.5),
        "top_p": Decimal(nullable=True, least=0, most=1),
        "max_tokens": Whole(nullable=True, least=0),
        "stream": Flag(),
        "stop": Either(nullable=True, shapes=[Text(), ListOf(of=Text())]),
        "random_seed": Whole(nullable=True, least=0),
        "metadata": MapOf(nullable=True),
        "messages": ListOf(of=ByTag(tag="role", shapes=_MESSAGES)),
        "response_format": Record(
            nullable=True,
            fields={
                "type": Text(only=["text", "json_object", "json_schema"]),
                "json_schema": Record(
                    nullable=True,
                    fields={"name": Text(), "description": _string, "schema": MapOf(), "strict": Flag()},
                    needed=["name", "schema"],
                ),
            },
        ),
        "tools": ListOf(of=_tool, nullable=True),
        "tool_choice": Either(
            shapes=[
                Text(only=["auto", "none", "any", "required"]),
                Record(
                    fields={
                        "type": Text(only=["function"]),
                        "function": Record(fields={"name": Text()}, needed=["name"]),
                    },
                    needed=["function"],
                ),
            ]
        ),
        "presence_penalty": Decimal(nullable=True, least=-2, most=2),
        "frequency_penalty": Decimal(nullable=True, least=-2, most=2),
        "n": Whole(nullable=True, least=1),
        "prediction": Record(fields={"type": Text(only=["content"]), "content": Text()}),
        "parallel_tool_calls": Flag(),
        "reasoning_effort": Text(nullable=True, only=["none", "minimal", "low", "medium", "high", "xhigh"]),
        "prompt_mode": Text(nullable=True, only=["reasoning"]),
        "guardrails": ListOf(nullable=True),
        "prompt_cache_key": _string,
        "service_tier": _string,
        "safe_prompt": Flag(),
    },
    needed=["messages", "model"],
)
