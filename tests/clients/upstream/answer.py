"""What is answered to a request: a function of the request alone, so that it is the same wherever it is asked.

Lines of the user's text say what is wanted: ``say: words`` (or a JSON string, for several lines),
``call: tool {"its": "arguments"}`` (several for parallel calls), ``data: {"the": "structured answer"}``,
``think: thoughts``, ``echo: fields`` (or ``body``, or ``system``).
"""

import base64
import hashlib
import json
import re
import struct
from typing import Any, Literal

import msgspec

from tests.clients.upstream.asked import Asked
from tests.clients.upstream.schemas import sample

Finish = Literal["stop", "length", "tool_calls", "stop_sequence"]

_PIECE = re.compile(r"\s*\S+\s*")
_PNG_SIZE = struct.Struct(">II")


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool; ``arguments`` is JSON."""

    id: str
    name: str
    arguments: str

    @property
    def pieces(self) -> list[str]:
        """The arguments as they are streamed: cut where it hurts, in the middle of words."""
        return [self.arguments[at : at + 7] for at in range(0, len(self.arguments), 7)]


class Answer(msgspec.Struct, frozen=True):
    """One answer: thoughts, words and calls, in this order; any may be missing."""

    id: str  # the same for the same question
    text: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    stopped_by: str | None = None
    prompt_tokens: int = 0

    @property
    def pieces(self) -> list[str]:
        """The text as it is streamed, word by word: its tokens."""
        return _PIECE.findall(self.text)

    @property
    def reasoning_tokens(self) -> int:
        """How many words were thought."""
        return len(_PIECE.findall(self.reasoning))

    @property
    def completion_tokens(self) -> int:
        """How many words were thought, said and passed to tools."""
        return self.reasoning_tokens + len(self.pieces) + sum(len(call.pieces) for call in self.calls)


def answer(asked: Asked) -> Answer:
    """Return the answer to ``asked``."""
    seed = hashlib.sha256("\n".join((asked.text, *asked.results)).encode()).hexdigest()[:24]
    prompt_tokens = len(_PIECE.findall(asked.text)) + 7 * len(asked.media)
    reasoning = (asked.said("think") or "Let me think about it.") if asked.reasoning else ""
    calls = _calls(asked, seed)
    if calls:
        return Answer(
            seed, "", reasoning=reasoning, calls=tuple(calls), finish="tool_calls", prompt_tokens=prompt_tokens
        )
    text, finish, stopped_by = _ended(_text(asked), asked)
    return Answer(seed, text, reasoning=reasoning, finish=finish, stopped_by=stopped_by, prompt_tokens=prompt_tokens)


def spoilt(asked: Asked, given: Answer) -> Answer:
    """Return an answer whose tool calls, or whose JSON, end in the middle."""
    calls = tuple(msgspec.structs.replace(call, arguments=_half(call.arguments)) for call in given.calls)
    return msgspec.structs.replace(given, calls=calls, text=given.text if asked.schema is None else _half(given.text))


def _half(text: str) -> str:
    return text[: len(text) // 2]


def described(media: str) -> str:
    """Say what a picture, sound or file is; a PNG by its size."""
    if not media.startswith("data:"):
        return f"something at {media}"
    kind, _, encoded = media.removeprefix("data:").partition(";base64,")
    content = base64.b64decode(encoded)
    if content.startswith(b"\x89PNG"):
        width, height = _PNG_SIZE.unpack_from(content, 16)
        return f"a PNG of {width}x{height}"
    return f"{kind} of {len(content)} bytes"


def _calls(asked: Asked, seed: str) -> list[ToolCall]:
    if not asked.tools or asked.choice == "none":
        return []
    wanted: list[tuple[str, str]] = []
    if not asked.results:
        names = {tool.name for tool in asked.tools}
        for said in asked.all_said("call"):
            name, _, arguments = said.partition(" ")
            if name in names:
                wanted.append((name, arguments or "{}"))
    if not wanted and asked.choice != "auto":
        tool = next((tool for tool in asked.tools if tool.name == asked.choice), asked.tools[-1])
        wanted.append((tool.name, asked.said("data") or json.dumps(sample(tool.schema))))
    if not asked.parallel:
        del wanted[1:]
    return [ToolCall(f"call_{number}{seed[:20]}", name, arguments) for number, (name, arguments) in enumerate(wanted)]


def _text(asked: Asked) -> str:
    if asked.schema is not None:
        return asked.said("data") or json.dumps(sample(asked.schema))
    if asked.results:
        return f"The tool said: {', '.join(asked.results)}"
    if (echo := asked.said("echo")) is not None:
        return json.dumps(_echoed(asked, echo), sort_keys=True)
    if (words := asked.said("say") or asked.said("data")) is not None:
        return str(json.loads(words)) if words.startswith('"') else words
    if asked.media:
        return f"I was shown {' and '.join(described(item) for item in asked.media)}."
    return "Hello from the upstream."


def _echoed(asked: Asked, what: str) -> Any:
    match what:
        case "fields":
            return sorted(asked.body)
        case "system":
            return asked.system
        case _:
            return asked.body


def _ended(text: str, asked: Asked) -> tuple[str, Finish, str | None]:
    for stop in asked.stop:
        if stop in text:
            return text.partition(stop)[0], "stop_sequence", stop
    pieces = _PIECE.findall(text)
    if asked.max_tokens is not None and len(pieces) > asked.max_tokens:
        return "".join(pieces[: asked.max_tokens]), "length", None
    return text, "stop", None
