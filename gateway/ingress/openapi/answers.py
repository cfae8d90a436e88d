"""Schemas of model answers: what all of them have. Providers may send more, and it is passed on."""

from collections.abc import Mapping

from gateway.ingress.openapi.operation import TEXT, Schema, array, count, nullable, number, record, text

_CHAT_USAGE = record({"prompt_tokens": count(), "completion_tokens": count(), "total_tokens": count()})
_USAGE = record({"input_tokens": count(), "output_tokens": count()})

SCHEMAS: Mapping[str, Schema] = {
    "ChatCompletion": record(
        {
            "id": TEXT,
            "object": text(one_of=("chat.completion",)),
            "created": count("Unix seconds."),
            "model": text("The model that was asked for, or what the provider calls it."),
            "choices": array(
                record(
                    {
                        "index": count(),
                        "message": record(
                            {"role": text(one_of=("assistant",))},
                            {"content": nullable(TEXT), "tool_calls": array({"type": "object"})},
                        ),
                        "finish_reason": nullable(TEXT),
                    }
                )
            ),
        },
        {"usage": _CHAT_USAGE},
        "OpenAI's chat completion.",
    ),
    "Completion": record(
        {
            "id": TEXT,
            "object": text(one_of=("text_completion",)),
            "choices": array(record({"index": count(), "text": TEXT, "finish_reason": nullable(TEXT)})),
        },
        {"created": count("Unix seconds."), "model": TEXT, "usage": _CHAT_USAGE},
        "OpenAI's completion.",
    ),
    "Message": record(
        {
            "id": TEXT,
            "type": text(one_of=("message",)),
            "role": text(one_of=("assistant",)),
            "model": TEXT,
            "content": array({"type": "object"}),
            "stop_reason": nullable(TEXT),
            "usage": _USAGE,
        },
        {"stop_sequence": nullable(TEXT)},
        "Anthropic's message.",
    ),
    "Response": record(
        {
            "id": TEXT,
            "object": text(one_of=("response",)),
            "status": TEXT,
            "model": TEXT,
            "output": array({"type": "object"}),
        },
        {"created_at": number("Unix seconds."), "usage": nullable(_USAGE)},
        "OpenAI's response.",
    ),
    "Embeddings": record(
        {
            "object": text(one_of=("list",)),
            "data": array(record({"index": count(), "embedding": {"type": ["array", "string"]}})),
            "model": TEXT,
        },
        {"usage": record({"prompt_tokens": count(), "total_tokens": count()})},
        "OpenAI's embeddings.",
    ),
}
