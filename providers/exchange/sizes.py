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


def amount(what: str, fields: Mapping[str, msgspec.Raw], formats: RequestFormat, turn: int | None = None) -> int:
    """Return the amount of ``what`` in a request with these ``fields``; 0 if that is not known.

    ``turn``: the only turn of the prompt that counts, if it is the user's; None: all.
    """
    if what in {BYTES, ANSWER}:
        return sum(map(len, fields.values())) if what == BYTES else formats.parameters.limit_in(fields) or 0
    if what == TOOLS:
        try:
            return sum(len(list(read(fields[name]))) for name, read in formats.tools.offered.items() if name in fields)
        except SURPRISES:
            return 0
    prompt = _turn(bytes(fields.get(formats.prompt, _NOTHING)), turn)
    if what == PICTURES:
        return len(_PICTURE.findall(prompt))
    if what == PICTURE_BYTES and _PICTURE.search(prompt) is not None:
        return max(map(len, prompt.split(b'"')))
    return 0


def _turn(prompt: bytes, turn: int | None) -> bytes:
    """Return a turn of a prompt, if it is the user's: else nothing, a tool's has to be a text. None: the prompt."""
    if turn is None:
        return prompt
    try:
        said = bytes(_turns.decode(prompt)[turn])
        return said if msgspec.json.decode(said, type=_Turn).role == "user" else b""
    except (*SURPRISES, IndexError):
        return b""
