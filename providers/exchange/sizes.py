"""Amounts in a request that vendors limit: tools, pictures, bytes, tokens of an answer."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from providers.dialects import RequestFormat
from providers.refusals import ANSWER, BYTES, PICTURE_BYTES, PICTURES, SURPRISES, TOOLS

_PICTURE: Final = re.compile(rb'"type"\s*:\s*"(?:image|image_url|input_image)"|"(?:inlineData|inline_data)"')
_NOTHING: Final = msgspec.Raw()


_turns = msgspec.json.Decoder(list[msgspec.Raw])


class _Turn(msgspec.Struct):
    role: str = ""


def amount(
    what: str,
    fields: Mapping[str, msgspec.Raw],
    formats: RequestFormat,
    turn: int | None = None,
    *,
    is_moved: bool = False,
) -> int:
    """Return the amount of ``what`` in a request with these ``fields``; 0 if that is not known.

    ``turn``: the only turn of the prompt that counts, if it is the user's; None: all. ``is_moved``: turns may have been
    put in or joined before the request was sent, so all turns of the user count, unless a tool's has a picture, too.
    """
    if what in {BYTES, ANSWER}:
        return sum(map(len, fields.values())) if what == BYTES else formats.parameters.limit_in(fields) or 0
    if what == TOOLS:
        try:
            return sum(len(list(read(fields[name]))) for name, read in formats.tools.offered.items() if name in fields)
        except SURPRISES:
            return 0
    prompt = bytes(fields.get(formats.prompt, _NOTHING))
    if turn is not None:
        prompt = _of_users(prompt) if is_moved else _turn(prompt, turn)
    if what == PICTURES:
        return len(_PICTURE.findall(prompt))
    if what == PICTURE_BYTES and _PICTURE.search(prompt) is not None:
        return max(map(len, prompt.split(b'"')))
    return 0


def _of_users(prompt: bytes) -> bytes:
    """Return the user's turns of a prompt; nothing if another turn has a picture, as this one may have to be a text."""
    try:
        turns = [(msgspec.json.decode(said, type=_Turn).role, bytes(said)) for said in _turns.decode(prompt)]
    except SURPRISES:
        return b""
    if any(role != "user" and _PICTURE.search(said) is not None for role, said in turns):
        return b""
    return b"".join(said for role, said in turns if role == "user")


def _turn(prompt: bytes, turn: int) -> bytes:
    """Return a turn of a prompt, if it is the user's: else nothing, a tool's has to be a text."""
    try:
        said = bytes(_turns.decode(prompt)[turn])
        return said if msgspec.json.decode(said, type=_Turn).role == "user" else b""
    except (*SURPRISES, IndexError):
        return b""
