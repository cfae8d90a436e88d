"""A request with the beginning of its answer, for a model that continues no answer: the user then asks for the rest."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from providers.bodies import raw_json
from providers.dialects import PIVOT, Fields, RequestFormat
from providers.refusals import UNREADABLE

_GO_ON: Mapping[str, Any] = {
    "role": "user",
    "content": "Go on with your last message exactly where it ends. Repeat nothing of it, and write only what follows.",
}


NO_PREFILL = "this model continues no answer that the request begins (sent: that the user asks for it)"
_ROLE = b'"role"'
_OF_MODEL = re.compile(rb'"role"\s*:\s*"(?:assistant|model)"')


class _Turn(msgspec.Struct):
    role: str
    content: Any = None
    tool_calls: Any = None


_turns = msgspec.json.Decoder(list[msgspec.Raw])
_turn = msgspec.json.Decoder(_Turn)


def may_begin(fields: Fields, formats: RequestFormat) -> bool:
    """Whether the last turn of a request may be the model's: one look at the end."""
    prompt = bytes(fields.get(formats.prompt, b""))
    return _OF_MODEL.match(prompt, max(prompt.rfind(_ROLE), 0)) is not None


def last_turn(fields: Fields, formats: RequestFormat) -> str:
    """Return where the last turn of a request is."""
    try:
        return f"{formats.prompt}[{len(_turns.decode(fields.get(formats.prompt, b''))) - 1}]"
    except UNREADABLE:
        return formats.prompt


def told_to_go_on(fields: dict[str, msgspec.Raw], formats: RequestFormat) -> tuple[dict[str, msgspec.Raw], list[str]]:
    """Return the request with a last turn in which the user asks for the rest, and the place of the beginning."""
    if (turns := begun(fields, formats)) is None:
        return fields, []
    return {**fields, formats.prompt: raw_json([*turns, _GO_ON])}, [f"{formats.prompt}[{len(turns) - 1}]"]


def begun(fields: Fields, formats: RequestFormat) -> list[msgspec.Raw] | None:
    """Return the turns of a request that ends with the beginning of its answer; None for any other request."""
    if formats.prompt != PIVOT.requests.prompt:
        return None
    try:
        turns = _turns.decode(fields.get(formats.prompt, b"[]"))
        last = _turn.decode(turns[-1])
    except (*UNREADABLE, IndexError):
        return None
    content = last.content
    ends = content[-1] if isinstance(content, list) and content else {"type": "text"} if content else {}
    is_text = isinstance(ends, dict) and ends.get("type") == "text"
    return turns if last.role == "assistant" and is_text and not last.tool_calls else None
