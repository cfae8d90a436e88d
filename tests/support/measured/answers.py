"""What the mock upstream answers, 100 tokens as a stream and as JSON; what proves it whole; and how, by name.

Chat completions, and for the path ``/messages`` a stream of Anthropic's Messages.
"""

import json
import re
from collections.abc import Mapping
from math import inf
from typing import Any

import msgspec

from tests.support.measured.serving import LAST_CHUNK, framed, response

TOKENS = 100
TOKEN = " token"
TOKEN_MARK = b'" token"'  # once per token in a stream, whoever wrote its JSON
DONE = b"data: [DONE]\n\n"

_STOPPED = re.compile(rb'"finish_reason": ?"stop"')
# The last events of Messages, Responses and Gemini.
_ENDED = re.compile(rb'("type": ?"message_stop"\}|"completed_at":\d+\}\}|"finishReason": ?"STOP".*\})\s*$')
_ID = "chatcmpl-9f2c4f6e8b0d4a1c"
_CREATED = 1_760_000_000
_MODEL = "benchmark-model"
_USAGE = {"prompt_tokens": 40, "completion_tokens": TOKENS, "total_tokens": 40 + TOKENS}
_END = framed(DONE) + LAST_CHUNK
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_ANSWER = {
    "id": _ID,
    "object": "chat.completion",
    "created": _CREATED,
    "model": _MODEL,
    "system_fingerprint": "fp_benchmark",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": TOKEN * TOKENS},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": _USAGE,
}
JSON_RESPONSE = response(json.dumps(_ANSWER, separators=(",", ":")).encode())
NAMED = "named"  # on this path it is the model's name that says how to answer, so one provider can do several things


def _event(choices: list[Any], **more: Any) -> bytes:
    chunk = {
        "id": _ID,
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": _MODEL,
        "system_fingerprint": "fp_benchmark",
        "choices": choices,
        **more,
    }
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def _delta(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    return _event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}])


_ROLE = framed(_delta({"role": "assistant", "content": ""}))
_TEXT = framed(_delta({"content": TOKEN}))
_STOP = framed(_delta({}, "stop"))
_USAGE_CHUNK = framed(_event([], usage=_USAGE))

# What is written at one time when tokens are paced: one token each, the role with the first, the end with the last.
PIECES = (_ROLE + _TEXT, *[_TEXT] * (TOKENS - 2), _TEXT + _STOP + _END)
PIECES_WITH_USAGE = (*PIECES[:-1], _TEXT + _STOP + _USAGE_CHUNK + _END)
STREAM = HEAD + b"".join(PIECES)
STREAM_WITH_USAGE = HEAD + b"".join(PIECES_WITH_USAGE)

MESSAGES = "messages"  # the behaviour that speaks Anthropic's Messages
_MESSAGE: dict[str, Any] = {"id": "msg_9f2c", "type": "message", "role": "assistant", "model": _MODEL, "content": []}
_MESSAGE |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 40, "output_tokens": 1}}
_STOP_REASON = {"stop_reason": "end_turn", "stop_sequence": None}


def _message_event(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more}, separators=(',', ':'))}\n\n".encode()


_MESSAGE_EVENTS = (
    _message_event("message_start", message=_MESSAGE),
    _message_event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    *[_message_event("content_block_delta", index=0, delta={"type": "text_delta", "text": TOKEN})] * TOKENS,
    _message_event("content_block_stop", index=0),
    _message_event("message_delta", delta=_STOP_REASON, usage={"output_tokens": TOKENS}),
    _message_event("message_stop"),
)
MESSAGES_STREAM = HEAD + b"".join(map(framed, _MESSAGE_EVENTS)) + LAST_CHUNK


def is_whole_stream(body: bytes) -> bool:
    """Tell whether a stream's body has every token, the finish reason and its end."""
    if body.count(TOKEN_MARK) != TOKENS:
        return False
    return (_STOPPED.search(body) is not None and body.endswith(DONE)) or _ENDED.search(body) is not None


def is_whole_json(body: bytes) -> bool:
    """Tell whether a JSON body has the whole text and the usage."""
    answer = json.loads(body)
    return bool(
        answer["choices"][0]["message"]["content"] == TOKEN * TOKENS
        and answer["usage"]["completion_tokens"] == TOKENS
        and answer["object"] == "chat.completion"
    )


class Behaviour(msgspec.Struct, frozen=True):
    """``first_s``: from the whole request to the first byte, None: it never comes.

    ``gap_s``: between tokens, None: the whole answer is one write. ``rest_s``: the whole rest follows the first token.
    ``turns`` of the event loop are between tokens: where all run on one loop, each is read before the next is sent.
    """

    first_s: float | None = 0.0
    gap_s: float | None = None
    rest_s: float | None = None
    turns: int | None = None

    def whole_s(self, tokens: int) -> float:
        """Return how long an answer takes from the whole request to the last token; without end: never."""
        return inf if self.first_s is None else self.first_s + (tokens - 1) * (self.gap_s or 0.0) + (self.rest_s or 0.0)


BEHAVIOURS: Mapping[str, Behaviour] = {
    "burst": Behaviour(),
    MESSAGES: Behaviour(),
    "first": Behaviour(rest_s=0.003),  # what follows the first token is not in its way
    "soon": Behaviour(0.005),  # soon and late: the two sides of a race
    "near": Behaviour(0.06),  # wins against whoever is 40 ms away, once the other has the request
    "late": Behaviour(0.1),
    "never": Behaviour(None),
    "paced": Behaviour(0.0, 0.005),
    "turned": Behaviour(turns=20),
    "crowd": Behaviour(0.3, 0.05),
    "crowd-late": Behaviour(0.6, 0.05),
    "steady": Behaviour(0.3, 0.01),  # as most providers answer
    "at-once": Behaviour(0.3),  # a short answer: nearly all of its cost is in its first token
    "held": Behaviour(0.0, 3600.0),  # one token, and then silence
}
