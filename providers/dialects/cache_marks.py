"""Marks of what to cache, set where a client sets none: behind the tools, the system prompt, and the last two turns.

Claude's vendors cache what is marked, in four places at most (400 "A maximum of 4 blocks with cache_control may be
provided. Found 5."). To write into the cache costs a quarter more than the tokens themselves, to read from it a tenth.
A mark reads the longest beginning that was marked before, up to twenty blocks back. The newest turn may have more
blocks than that, as an agent's results do. So the turn before it is marked as well.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from providers.dialects.wording import MARK, Fields, raw_json
from providers.refusals import UNREADABLE

# Names of fields with objects that may have a mark, or contain one.
HOLD_MARKS = frozenset({"content", "function", "functions", "messages", "source", "system", "tools"})
_MARK = msgspec.Raw(b'{"type":"ephemeral"}')
_MARKS = (b'"cache_control"', b'"cachePoint"')
_TOKEN_BYTES = 4  # of JSON, estimated


class LastingPart(msgspec.Struct, frozen=True):
    """What of a prompt should be asked again within the life of a cache."""

    below: float  # a beginning lasts if it has fewer bytes than this
    goes_on: bool  # the conversation will have another turn

    def has(self, end: int) -> bool:
        """Whether the beginning of the prompt up to byte ``end`` lasts."""
        return end < self.below


def with_marks(fields: Fields, least: int, lasting: LastingPart) -> Fields:
    """Return a request of Messages, or of chat for a vendor that takes the same marks, with marks of what lasts.

    The request stays as it is where its client has marked something, or no beginning is long enough.
    """
    parts = [bytes(fields[name]) for name in ("tools", "system", "messages") if name in fields]
    if "messages" not in fields or MARK in fields or any(word in part for part in parts for word in _MARKS):
        return fields
    try:
        return _marked(fields, least * _TOKEN_BYTES, lasting)
    except UNREADABLE:  # the provider reports the error
        return fields


def _marked(fields: Fields, least: int, lasting: LastingPart) -> Fields:
    turns = _listed(fields["messages"])
    led = next((place for place, turn in enumerate(turns) if _role_of(turn) not in _INSTRUCTIONS), len(turns))
    said = dict(fields)
    end = len(fields.get("tools", b""))
    if end >= least and lasting.has(end) and (tools := _with_last(_listed(fields["tools"]), _mark_tool)):
        said["tools"] = tools
    end += len(fields.get("system", b"")) + sum(map(len, turns[:led]))
    if not lasting.has(end):
        return said
    if end >= least:
        if "system" in fields and (system := _on_content(fields["system"])) is not None:
            said["system"] = system
        elif led:
            turns[led - 1] = _mark_turn(turns[led - 1])
    for place in _last_two(turns, led) if lasting.goes_on else ():
        if end + sum(map(len, turns[led : place + 1])) >= least:
            turns[place] = _mark_turn(turns[place])
    said["messages"] = raw_json(turns)
    return said


def with_breakpoints(fields: Fields, least: int, lasting: LastingPart) -> Fields:
    """Return a request of chat or Responses for OpenAI with a mark behind the instructions, if these last.

    What OpenAI caches by itself ends at the newest turn. From GPT-5.6 on OpenAI reads no shorter part of that
    beginning. So instructions with which many conversations begin are read by the others only if a mark stands behind
    them. The turns need no marks. A mark costs nothing more: what stands before the newest turn is written with or
    without a mark (developers.openai.com/api/docs/guides/prompt-caching, read on 2026-11-30).
    """
    prompt = "messages" if "messages" in fields else "input"
    if prompt not in fields or _OPTIONS in fields or _BREAKPOINTS in bytes(fields[prompt]):
        return fields
    try:
        return _broken(fields, prompt, least * _TOKEN_BYTES, lasting)
    except UNREADABLE:  # the provider reports the error; or the input is a text
        return fields


_OPTIONS, _BREAKPOINT = "prompt_cache_options", "prompt_cache_breakpoint"
_BREAKPOINTS = b'"prompt_cache_breakpoint"'
_EXPLICIT = msgspec.Raw(b'{"mode":"explicit"}')


def _broken(fields: Fields, prompt: str, least: int, lasting: LastingPart) -> Fields:
    turns = _listed(fields[prompt])
    led = next((place for place, turn in enumerate(turns) if _role_of(turn) not in _INSTRUCTIONS), len(turns))
    end = sum(len(fields.get(name, b"")) for name in ("tools", "instructions")) + sum(map(len, turns[:led]))
    if not led or end < least or not lasting.has(end):
        return fields
    said = _object.decode(turns[led - 1])
    content = said.get("content", msgspec.Raw(b"[]"))
    if bytes(content).lstrip().startswith(b"["):
        parts = _listed(content)
        if not parts:
            return fields
        parts[-1] = raw_json({**_object.decode(parts[-1]), _BREAKPOINT: _EXPLICIT})
    else:
        kind = "text" if prompt == "messages" else "input_text"
        parts = [raw_json({"type": kind, "text": content, _BREAKPOINT: _EXPLICIT})]
    turns[led - 1] = raw_json({**said, "content": raw_json(parts)})
    return {**fields, prompt: raw_json(turns)}


class _Turn(msgspec.Struct):
    role: str | None = None


_INSTRUCTIONS = frozenset({"system", "developer"})
_turn = msgspec.json.Decoder(_Turn)
_list = msgspec.json.Decoder(list[msgspec.Raw])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _listed(raw: msgspec.Raw) -> list[msgspec.Raw]:
    return _list.decode(raw)


def _role_of(turn: msgspec.Raw) -> str | None:
    return _turn.decode(turn).role


def _last_two(turns: Sequence[msgspec.Raw], led: int) -> list[int]:
    """Return the places of two turns that are not the model's: the last, and the last before the model's answer."""
    found: list[int] = []
    wanted = True
    for place in range(len(turns) - 1, led - 1, -1):
        is_models = _role_of(turns[place]) == "assistant"
        if is_models:
            wanted = True
        elif wanted:
            found.append(place)
            wanted = False
            if len(found) == 2:  # noqa: PLR2004 - of the four marks two are for turns
                break
    return found


def _with_last(
    items: list[msgspec.Raw], mark: Callable[[Mapping[str, msgspec.Raw]], msgspec.Raw | None]
) -> msgspec.Raw | None:
    """Return a list whose last item has a mark; None if the last item cannot have one."""
    marked = mark(_object.decode(items[-1])) if items else None
    return None if marked is None else raw_json([*items[:-1], marked])


def _mark_tool(tool: Mapping[str, msgspec.Raw]) -> msgspec.Raw | None:
    if "defer_loading" in tool:  # such a tool is no part of the beginning
        return None
    return raw_json({**tool, MARK: _MARK})


def _mark_turn(turn: msgspec.Raw) -> msgspec.Raw:
    """Return a turn with a mark on its last block; unchanged if that block can have no mark."""
    said = _object.decode(turn)
    if bytes(said.get("role", b"")) == b'"tool"':  # a turn of chat
        return raw_json({**said, MARK: _MARK})
    content = _on_content(said["content"]) if "content" in said else None
    return turn if content is None else raw_json({**said, "content": content})


def _on_content(content: msgspec.Raw) -> msgspec.Raw | None:
    """Return a content with a mark on its last block; None if no block can have a mark."""
    if bytes(content).lstrip().startswith(b"["):
        return _with_last(_listed(content), _mark_block)
    text = msgspec.json.decode(content, type=str)
    return raw_json([{"type": "text", "text": content, MARK: _MARK}]) if text.strip() else None


def _mark_block(block: Mapping[str, msgspec.Raw]) -> msgspec.Raw | None:
    is_text = bytes(block.get("type", b"")) == b'"text"'
    if is_text and not msgspec.json.decode(block.get("text", b'""'), type=str).strip():
        return None
    return raw_json({**block, MARK: _MARK})
