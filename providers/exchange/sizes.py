"""Amounts in a request that vendors limit: tools, pictures, bytes, tokens of an answer."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from providers.dialects import RequestFormat
from providers.refusals import ANSWER, BYTES, PICTURE_BYTES, PICTURES, SURPRISES, TOOLS

_PICTURE: Final = re.compile(rb'"type"\s*:\s*"(?:image|image_url|input_image)"|"(?:inlineData|inline_data)"')
_NOTHING: Final = msgspec.Raw()


def amount(what: str, fields: Mapping[str, msgspec.Raw], formats: RequestFormat) -> int:
    """Return the amount of ``what`` in a request with these ``fields``; 0 if that is not known."""
    if what in {BYTES, ANSWER}:
        return sum(map(len, fields.values())) if what == BYTES else formats.parameters.limit_in(fields) or 0
    if what == TOOLS:
        try:
            return sum(len(list(read(fields[name]))) for name, read in formats.tools.offered.items() if name in fields)
        except SURPRISES:
            return 0
    prompt = bytes(fields.get(formats.prompt, _NOTHING))
    if what == PICTURES:
        return len(_PICTURE.findall(prompt))
    if what == PICTURE_BYTES and _PICTURE.search(prompt) is not None:
        return max(map(len, prompt.split(b'"')))
    return 0
