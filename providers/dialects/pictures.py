"""Conversations for models that see no pictures: notes in place of pictures of earlier turns and tools."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from providers.dialects.wording import Fields, Loss, Wording, raw_json
from providers.refusals import UNREADABLE

_NOTE = "(A picture was here. This model sees no pictures.)"
_REASON = "this model sees no pictures: a note stands in its place"
_LISTS = ("content", "parts", "output", "result")  # of a turn: where the parts may be
_KINDS = frozenset({b'"image"', b'"image_url"', b'"input_image"'})
_DATA = ("inlineData", "inline_data", "fileData", "file_data")  # Google's
_MIME_TYPES = ("mimeType", "mime_type")
_RESPONSES = ("functionResponse", "function_response")
_INSTRUCTING = frozenset({b'"system"', b'"developer"'})
_ASKING = _INSTRUCTING | {b'"user"'}
_ANSWERING = frozenset({b'"assistant"', b'"model"'})
_NOTHING = msgspec.Raw()

_Object = dict[str, msgspec.Raw]
_objects = msgspec.json.Decoder(list[_Object])
_object = msgspec.json.Decoder(_Object)


def without_pictures(prompt: str, fields: Fields) -> Wording | None:
    """Return the request with a note for each picture of an earlier turn, and of a tool's result.

    None: the request has no such picture, or asks about one: the user's newest turn shows a picture. A picture directly
    behind a result belongs to the result. The field ``prompt`` has the conversation.
    """
    losses: list[Loss] = []
    try:
        turns = _objects.decode(fields[prompt])
        begin, end = _newest(turns)
        for number, turn in enumerate(turns):
            is_asked = begin <= number < end
            if is_asked and _is_picture(turn):
                return None
            for name in _LISTS:
                if bytes(turn.get(name, _NOTHING))[:1] != b"[":
                    continue
                parts = _objects.decode(turn[name])
                if is_asked and any(map(_is_picture, _users_own(parts))):
                    return None
                if _note(parts, f"{prompt}[{number}].{name}", losses):
                    turn[name] = raw_json(parts)
    except (KeyError, *UNREADABLE):
        return None
    return Wording({**fields, prompt: raw_json(turns)}, tuple(losses)) if losses else None


def _newest(turns: Sequence[_Object]) -> tuple[int, int]:
    """Return where the user's newest turn begins and ends. An answer that the request begins is behind it.

    Of several in a row, behind an answer, only the last is asked: a request that was refused stays in an agent's
    history without an answer, for example for its picture, and the user's next words come behind it.
    """
    end = len(turns)
    while end and _role(turns[end - 1]) in _ANSWERING:
        end -= 1
    begin = end
    while begin and _asks(turns[begin - 1]):
        begin -= 1
    if begin:
        begin = next((at for at in range(end - 1, begin, -1) if _role(turns[at]) not in _INSTRUCTING), begin)
    # Many results have no place for pictures (all of chat): such pictures follow in a turn of the user.
    return begin + (0 < begin < end and _is_result(turns[begin - 1])), end


def _is_result(turn: _Object) -> bool:
    """Whether a turn ends with what a tool has returned: ``role: tool``, ``…_call_output``, ``tool_result``."""
    kind = bytes(turn.get("type", _NOTHING))
    if _role(turn) == b'"tool"' or kind.endswith(b'_output"') or kind == b'"function_result"':
        return True
    parts = _parts(turn)
    return bool(parts) and _has_returned(parts[-1])


def _parts(turn: _Object) -> list[_Object]:
    found = bytes(turn.get("parts", turn.get("content", _NOTHING)))
    return _objects.decode(found) if found[:1] == b"[" else []


def _has_returned(part: Mapping[str, msgspec.Raw]) -> bool:
    return bytes(part.get("type", _NOTHING)) == b'"tool_result"' or any(name in part for name in _RESPONSES)


def _users_own(parts: Sequence[_Object]) -> Iterator[_Object]:
    """Yield the parts of a turn, but for pictures directly behind a tool's result.

    So Claude Code sends the pages of a PDF that it has read: ``[tool_result, image, image]``.
    """
    is_shown = False
    for part in parts:
        is_shown = _has_returned(part) or (is_shown and _is_picture(part))
        if not is_shown:
            yield part


def _role(turn: _Object) -> bytes:
    return bytes(turn.get("role", _NOTHING))


def _asks(turn: _Object) -> bool:
    if "parts" in turn:
        return not any(map(_has_returned, _parts(turn))) and _role(turn) not in _ANSWERING
    return _role(turn) in _ASKING or bytes(turn.get("type", _NOTHING)) == b'"user_input"' or _is_picture(turn)


def _is_picture(part: Mapping[str, msgspec.Raw]) -> bool:
    if bytes(part.get("type", _NOTHING)) in _KINDS:
        return True
    data = next((_object.decode(part[name]) for name in _DATA if name in part), {})
    return any(bytes(data.get(name, _NOTHING)).startswith(b'"image/') for name in _MIME_TYPES)


def _note(parts: list[_Object], path: str, losses: list[Loss]) -> bool:
    """Put notes in place of pictures among ``parts``, and in results of tools; return whether there was a picture."""
    before = len(losses)
    for number, part in enumerate(parts):
        place = f"{path}[{number}]"
        if _is_picture(part):
            parts[number] = _noted(part)
            losses.append(Loss(place, _REASON))
        elif bytes(part.get("content", _NOTHING))[:1] == b"[":  # the result of a tool, in Messages
            inner = _objects.decode(part["content"])
            if _note(inner, f"{place}.content", losses):
                part["content"] = raw_json(inner)
        else:
            for name in _RESPONSES:
                if name in part:
                    _note_in_response(part, name, f"{place}.{name}", losses)
    return len(losses) > before


def _noted(picture: _Object) -> _Object:
    note = {"text": raw_json(_NOTE)}
    if "type" not in picture:
        return note
    kind = "input_text" if bytes(picture["type"]) == b'"input_image"' else "text"
    return {"type": raw_json(kind), **note, **{name: picture[name] for name in ("cache_control",) if name in picture}}


def _note_in_response(part: _Object, name: str, path: str, losses: list[Loss]) -> None:
    """Put a note among what a function has returned: Google takes no texts beside a function's response."""
    response = _object.decode(part[name])
    shown = _objects.decode(response.get("parts", b"[]"))
    left = [each for each in shown if not _is_picture(each)]
    if len(left) == len(shown):
        return
    losses += [Loss(f"{path}.parts[{at}]", _REASON) for at, each in enumerate(shown) if _is_picture(each)]
    returned = _object.decode(response.get("response", b"{}"))
    response["response"] = raw_json({**returned, "pictures": _NOTE})
    response.pop("parts")
    if left:
        response["parts"] = raw_json(left)
    part[name] = raw_json(response)
