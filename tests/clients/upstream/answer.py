"""What is answered to a request: a function of the request alone, so that it is the same wherever it is asked.

Lines of the users' texts say what is wanted, the last of its kind first: ``say: words`` (or a JSON string, for several
lines), ``call: tool {"its": "arguments"}`` (several for parallel calls), ``data: {"the": "structured answer"}``,
``think: thoughts``, ``echo: fields`` (or ``body``, or ``system``). Other than the script of strict vendors it counts
tokens by words, describes what it was shown, and spoils or silences what one upstream of two says, by its name.
"""

import base64
import json
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import structs

from strict_vendors import Asked, Call, Given, sample

_WORD = re.compile(r"\s*\S+\s*")
_PNG_SIZE = struct.Struct(">II")


def answer(asked: Asked, server: str) -> Given:
    """Return what ``server`` answers to ``asked``."""
    text = _text_of(asked)
    media = list(_media_in(asked.body))
    thoughts = (_said(text, "think") or "Let me think about it.") if asked.thinks else ""
    given = Given(
        thoughts=thoughts,
        tokens_in=len(_WORD.findall(text)) + 7 * len(media),
        cut=_said(text, "cut") is not None,
    )
    if calls := _calls(asked, text):
        given = structs.replace(given, calls=calls, finish="tool_calls")
    else:
        given = _ended(structs.replace(given, text=_text(asked, text, media)), asked)
    return _spoilt(given, asked) if _said(text, "spoil") == server else given


def mumbles(asked: Asked, server: str) -> bool:
    """Say whether ``server`` is to fall silent for a moment in the middle of its answer."""
    return _said(_text_of(asked), "mumble") == server


def _text_of(asked: Asked) -> str:
    """Return all that users said."""
    return "\n".join(turn.text for turn in asked.turns if turn.who == "user" and turn.text)


def _said(text: str, word: str) -> str | None:
    return next(iter(_all_said(text, word)[::-1]), None)


def _all_said(text: str, word: str) -> list[str]:
    return re.findall(rf"^[ \t]*{word}:[ \t]*(.*?)[ \t]*$", text, re.MULTILINE)


def _spoilt(given: Given, asked: Asked) -> Given:
    """Return an answer whose tool calls, or whose JSON, end in the middle."""
    calls = [structs.replace(call, arguments=_half(call.arguments)) for call in given.calls]
    return structs.replace(given, calls=calls, text=given.text if asked.schema is None else _half(given.text))


def _half(text: str) -> str:
    return text[: len(text) // 2]


def _media_in(body: Any) -> Iterator[str]:
    """Yield what a request shows, of any API: data URLs, URLs, or ids, as they came."""
    if isinstance(body, list):
        for entry in body:
            yield from _media_in(entry)
    elif isinstance(body, dict):
        shown = _shown(body)
        yield from _media_in([*body.values()]) if shown is None else [shown]


def _shown(part: Mapping[str, Any]) -> str | None:
    match part:
        case {"type": "input_audio", "input_audio": {"format": kind, "data": data}}:
            return f"data:audio/{kind};base64,{data}"
        case {"source": {"type": "base64", "media_type": kind, "data": data}}:
            return f"data:{kind};base64,{data}"
        case {"inlineData": {"mimeType": kind, "data": data}}:
            return f"data:{kind};base64,{data.replace('-', '+').replace('_', '/')}"
        case (
            {"type": "image_url", "image_url": {"url": str(shown)}}
            | {"type": "input_image", "image_url": str(shown)}
            | {"type": "input_image", "file_id": str(shown)}
            | {"type": "file", "file": {"file_data": str(shown)} | {"file_id": str(shown)}}
            | {"type": "input_file", "file_data": str(shown)}
            | {"type": "input_file", "file_url": str(shown)}
            | {"type": "input_file", "file_id": str(shown)}
            | {"source": {"url": str(shown)} | {"file_id": str(shown)} | {"data": str(shown)}}
        ):
            return shown
        case _:
            return None


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


def _results(asked: Asked) -> list[str]:
    """Return what tools have answered since the model last spoke."""
    last = max((place for place, turn in enumerate(asked.turns) if turn.who == "assistant"), default=-1)
    return [turn.text for turn in asked.turns[last + 1 :] if turn.who == "tool"]


def _calls(asked: Asked, text: str) -> list[Call]:
    if not asked.tools or asked.choice == "none":
        return []
    wanted: list[Call] = []
    if not _results(asked):
        names = {tool.name for tool in asked.tools}
        for said in _all_said(text, "call"):
            name, _, arguments = said.partition(" ")
            if name in names:
                wanted.append(Call(name, arguments or "{}"))
    if not wanted and asked.choice != "auto":
        tool = next((tool for tool in asked.tools if tool.name == asked.choice), asked.tools[-1])
        wanted.append(Call(tool.name, _said(text, "data") or json.dumps(sample(tool.schema))))
    return wanted if asked.parallel else wanted[:1]


def _text(asked: Asked, text: str, media: list[str]) -> str:
    if asked.schema is not None:
        return _said(text, "data") or json.dumps(sample(asked.schema))
    if results := _results(asked):
        return f"The tool said: {', '.join(results)}"
    if (echo := _said(text, "echo")) is not None:
        echoed = {"fields": sorted(asked.body), "system": asked.system}.get(echo, asked.body)
        return json.dumps(echoed, sort_keys=True)
    if (words := _said(text, "say") or _said(text, "data")) is not None:
        return str(json.loads(words)) if words.startswith('"') else words
    if media:
        return f"I was shown {' and '.join(described(item) for item in media)}."
    return "Hello from the upstream."


def _ended(given: Given, asked: Asked) -> Given:
    for stop in asked.stop:
        if stop in given.text:
            return structs.replace(given, text=given.text.partition(stop)[0], finish="stop_sequence", stopped_by=stop)
    if asked.most is not None and len(given.pieces) > asked.most:
        return structs.replace(given, text="".join(given.pieces[: asked.most]), finish="length")
    return given
